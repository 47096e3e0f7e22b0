"""What a worker imports, sooner or later, but for what starts threads: forked processes would miss them."""

import gc
import importlib

for name in (
    "transformers.models.auto.tokenization_auto",
    "enricher.worker.build.workers",
    "enricher.worker.commands.run.command",
    "tools.chaos.stub",
):
    importlib.import_module(name)

gc.freeze()  # else each fork looks through all of it, and copies the pages
