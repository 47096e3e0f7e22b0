"""`enricher` in a folder, with a stub for the model of `run` and `enrich`:  stub_enricher.py FOLDER ARGUMENT ..."""

from __future__ import annotations

import os
import sys

from support import stub_worker

from enricher import cli

if __name__ == "__main__":
    os.chdir(sys.argv.pop(1))
    stub_worker.install()
    cli.main()
