"""Articles as many teams write them: three layouts in fifteen forms, written by Confluent's own serializers.

`pipeline/test_formats.py` lets real workers enrich them, and checks every record. Nothing here imports `enricher`, which is
only run: what must come out follows from `texts` and `layouts` alone.
"""
