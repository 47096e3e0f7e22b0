"""The search page of `scripts/demo --index`: a box, facets, and hits with their entities marked by our offsets.

    browser -> server.py -> OpenSearch -> page.py -> browser

It is plain HTML without scripts. `deploy/search-index.md` explains its query.
"""
