"""Articles as many teams write them: three layouts in a dozen forms, written by Confluent's own serializers.

`python -m tools.registry.mixed` enriches them by real workers, and checks every record. `enricher` is only run, never
imported: what must come out follows from `texts` and `layouts` alone.
"""
