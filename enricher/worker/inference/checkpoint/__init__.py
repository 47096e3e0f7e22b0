"""A model's folder on disk. Builds nothing and runs nothing.

folder.py        a Hugging Face folder, or one whose model is ONNX already: head, digest, weights one at a time
configuration.py config.json and the family of the encoder; weights that answers may depend on and nothing reads are refused
families.py      the interface of a family; bert_weights.py has those with BERT's encoder, deberta_weights.py DeBERTa and
                 modernbert_weights.py ModernBERT
same_encoder.py  whether two checkpoints have the same encoder
gate_report.py   the result in a report of the quality gate, as a worker reads it
"""
