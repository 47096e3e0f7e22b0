"""Article texts -> token ids and character spans, with the checkpoint's own fast tokenizer.

articles.py        tokenizes articles, field by field
files.py           a checkpoint's files -> its tokenizer, proved to belong to the model
special_tokens.py  a tokenizer -> one to which every text is only text
beginnings.py      no more of a very long text than its first tokens need
"""
