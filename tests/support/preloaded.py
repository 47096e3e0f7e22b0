"""What workers, replays and indexers import, sooner or later, but for what starts threads: forked processes would miss them.

An indexer takes 0.3 s of processor time less to start, the others 0.1 s.
"""

import gc
import importlib

for name in (
    "transformers.tokenization_utils_tokenizers",
    "enricher.worker.wiring.workers",
    "enricher.worker.commands.enrich",
    "enricher.worker.commands.run",
    "enricher.operate.replay",
    "enricher.indexing.index_run",
    "enricher.indexing.search_clients",
    "opensearchpy",
    "rich.console",
    "enricher.cli",
    "tools.chaos.stub",
):
    importlib.import_module(name)

gc.freeze()  # else each fork looks through all of it, and copies the pages
