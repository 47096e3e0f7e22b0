"""A model's folder may come from anybody: no link in it leads to a file elsewhere, and what is kept of it is as private.

A link would be followed, and what it points to copied into a cache or a prepared folder, where others may read it. Hard
links, and a folder that is changed meanwhile, are not seen: that takes rights on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from enricher.errors import ModelError

_READABLE_BY_OTHERS = 0o044


def refuse_outside_links(folder: Path) -> None:
    """Raise ModelError where a link in `folder` points out of it; those of the hub's cache to its own blobs may.

    Where the folder itself is a link, what it points to counts.
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
                    f"{found} is a link to a file outside of the model's folder, and is not followed. "
                    f"Copy the folder with what it points to (`cp -rL`) if you trust where it came from."
                )


def shared_mode(files: Iterable[Path]) -> int:
    """The mode of a file made from all of `files`: others may read it where they may read each of them."""
    mode = 0o644
    for path in files:
        mode &= 0o600 | (path.stat().st_mode & _READABLE_BY_OTHERS)
    return mode


def _target(link: Path) -> Path:
    try:
        return link.resolve()
    except (OSError, RuntimeError) as error:  # a loop
        raise ModelError(f"{link} is a link that leads nowhere: {error}") from error
