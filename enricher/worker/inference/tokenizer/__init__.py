"""Article texts -> token ids and character spans, with the checkpoint's own fast tokenizer.

article_tokenizer.py  tokenizes articles, field by field; special tokens in an article become ordinary text
word_cache.py         tokens of words that many texts have
loading.py            a checkpoint's files -> its tokenizer, checked against the model and for lost characters
"""
