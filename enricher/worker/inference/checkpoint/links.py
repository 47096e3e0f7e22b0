"""Links in a model's folder must not point outside, and copies of its files are as private as the originals.

The folder may come from anyone. A link would be followed, and its target copied into a cache or a prepared folder, where
others may read it. Hard links and concurrent changes are not detected: both need access to this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from enricher.errors import ModelError

_READABLE_BY_OTHERS = 0o044


def refuse_outside_links(folder: Path) -> None:
    """Raise ModelError if a link in `folder` points outside. In the hub's cache, links to its blobs are allowed.

    The folder itself may be a link.
    """
    root = folder.resolve()
    # ~/.cache/huggingface/hub/models--owner--name/snapshots/COMMIT/config.json -> ../../blobs/DIGEST
    in_hub_cache = root.parent.name == "snapshots" and root.parents[1].name.startswith("models--")
    allowed = [root, *([root.parents[1] / "blobs"] if in_hub_cache else [])]
    for place, folders, files in os.walk(root):
        for path in (Path(place, name) for name in (*folders, *files)):
            if path.is_symlink() and not any(_target(path).is_relative_to(each) for each in allowed):
                found = folder / path.relative_to(root)
                raise ModelError(
                    f"{found} is a link to a file outside the model's folder and is not followed. "
                    f"If you trust its origin, copy the folder with the targets of its links (`cp -rL`)."
                )


def shared_mode(files: Iterable[Path]) -> int:
    """The mode of a file made from `files`: others may read it if they may read all of them."""
    mode = 0o644
    for path in files:
        mode &= 0o600 | (path.stat().st_mode & _READABLE_BY_OTHERS)
    return mode


def _target(link: Path) -> Path:
    try:
        return link.resolve()
    except (OSError, RuntimeError) as error:  # a loop
        raise ModelError(f"{link} is a link that leads nowhere: {error}") from error
