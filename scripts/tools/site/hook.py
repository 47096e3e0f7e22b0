"""MkDocs' view of this repository: its Markdown pages where they are, and what they link and show.

MkDocs expects all pages below one folder. Ours lie beside what they are about, so this hook hands them over by their paths
in the repository. A link to a folder, or to a file that is no page, shows as text, unless the file is a
picture.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[3]
SHOWN = (".md", ".png", ".svg", "scripts/tools/site/site.css")
HIDDEN = (".github/",)
LINK = re.compile(r"(?<!!)\[((?:`[^`]*`|[^\]`])*)\]\(([^)#\s]+)(?:#[^)]*)?\)")


def on_files(found: Files, config: Any) -> Files:  # noqa: ANN401  it has no types
    """The tracked pages and pictures, our style, and the theme's own files."""
    command = ("git", "ls-files", "-z")
    listed = subprocess.check_output(command, cwd=ROOT).decode()
    names = [name for name in listed.split("\0") if name.endswith(SHOWN) and not name.startswith(HIDDEN)]
    ours = [File.generated(config, name, abs_src_path=str(ROOT / name)) for name in names]
    return Files([*ours, *(each for each in found if each.src_dir != config.docs_dir)])


def on_page_markdown(markdown: str, page: Any, files: Files, **_rest: object) -> str:  # noqa: ANN401
    """The page without links to what is not on the site; MkDocs refuses links to nothing."""
    folder = (ROOT / page.file.src_uri).parent

    def without_link(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        there = ":" in link[2] or not target.exists() or files.get_file_from_path(target.relative_to(ROOT).as_posix())
        return link[0] if there else link[1]

    return LINK.sub(without_link, markdown)


def on_serve(server: Any, **_rest: object) -> None:  # noqa: ANN401
    for folder in ("enricher", "deploy", "schemas", "scripts", "tests"):
        server.watch(str(ROOT / folder))
