"""`python -m enricher` is `enricher`."""

from enricher.cli import main

main()
