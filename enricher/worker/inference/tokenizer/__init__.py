"""Article texts -> token ids and character spans, with the checkpoint's own fast tokenizer.

article_tokenizer.py  tokenizes articles, field by field
loading.py            a checkpoint's files -> its tokenizer, checked against the model
probe.py              refuses a tokenizer that loses characters of a text, or corrects it
special_tokens.py     makes special tokens in an article ordinary text
beginnings.py         tokenizes only the beginning of a very long text
"""
