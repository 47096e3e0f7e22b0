"""Decides whether a body is HTML, for `articles.body_format=auto` and for `doctor`. Needs no parser.

The rule is on a page (schemas/articles.md), so that publishers can tell beforehand; it prefers to leave text as it is.
"""

from __future__ import annotations

import re

_TAG = re.compile(r"<(/?)([a-z][a-z0-9]*+)(?:[\s/][^<>]*+)?>", re.IGNORECASE | re.ASCII)
_DECLARATION = re.compile(r"<!(?:--|doctype\s+html\b)", re.IGNORECASE | re.ASCII)
_ALONE = frozenset({"br", "p"})
"""Elements that HTML allows without a closing tag."""
_ELEMENTS = frozenset({
    "a", "abbr", "address", "article", "aside", "b", "big", "blockquote", "body", "br", "center", "cite", "code",
    "dd", "del", "details", "div", "dl", "dt", "em", "figcaption", "figure", "font", "footer", "h1", "h2", "h3", "h4",
    "h5", "h6", "head", "header", "hr", "html", "i", "iframe", "img", "ins", "li", "main", "mark", "nav", "ol", "p",
    "picture", "pre", "q", "s", "script", "section", "small", "span", "strike", "strong", "style", "sub", "sup",
    "table", "tbody", "td", "th", "thead", "time", "tr", "u", "ul", "video",
})  # fmt: skip
"""The elements that articles consist of. Other words between angle brackets, as `<Reuters>`, are text."""


def looks_like_html(body: str) -> bool:
    """Whether a body begins with a tag, a comment or a doctype, has `<p>` or `<br>`, or an element that opens and closes.

    Takes time in proportion to the length of the body. Character references alone do not make HTML.
    """
    if "<" not in body:
        return False
    begins = len(body) - len(body.lstrip())
    if _DECLARATION.match(body, begins):
        return True
    opened: set[str] = set()
    for tag in _TAG.finditer(body):
        closes, name = bool(tag[1]), tag[2].lower()
        if name not in _ELEMENTS:
            continue
        if name in _ALONE or (name in opened if closes else tag.start() == begins):
            return True
        if not closes:
            opened.add(name)
    return False
