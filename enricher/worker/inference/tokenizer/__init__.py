"""Article texts -> token ids and character spans, with the checkpoint's own fast tokenizer.

articles.py        tokenizes articles, field by field
files.py           a checkpoint's files -> its tokenizer, checked against the model
special_tokens.py  makes special tokens in an article ordinary text
beginnings.py      tokenizes only the beginning of a very long text
"""
