"""Reads the text of HTML as a reader sees it, with the position of each character in the source.

The tokenizer of the HTML standard says what is a tag, a comment, text or a character reference, and where it begins. No tree
is built, so that malformed markup costs no more than other text: time and memory grow with the length of the source, however
deep its elements are nested. What has no position in the source, such as attributes and styles, is not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from turbohtml import Token, TokenType, tokenize

from enricher.errors import InvalidArticle
from enricher.worker.records import SourceMap

_PARAGRAPH, _LINE, _SPACE = "\n\n", "\n", " "

_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "col", "colgroup", "dd", "details",
    "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4",
    "h5", "h6", "header", "hgroup", "hr", "html", "legend", "li", "main", "menu", "nav", "ol", "optgroup", "option",
    "p", "pre", "search", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
})  # fmt: skip
"""Elements that begin and end a paragraph: the ones that browsers display as blocks, list items or parts of a table."""
_EMBEDDED = frozenset({
    "audio", "button", "canvas", "embed", "iframe", "img", "input", "object", "select", "svg", "textarea", "video",
})  # fmt: skip
"""Elements that stand between words, as an image does."""
_RAW = frozenset({"iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "title"})
"""Elements whose content is not read, and is no markup: it ends at their closing tag, or with the source."""
_SKIPPED = frozenset({"audio", "canvas", "datalist", "object", "select", "svg", "template", "video"})
"""Other elements whose content is not read. One that is never closed is read."""
_CLOSED_AT_ONCE = re.compile(rf"""<(?:{"|".join(sorted(_RAW))})(?: (?:[^<>]*["' ])?)?/>""", re.IGNORECASE | re.ASCII)
"""Raw elements without content, as XML has them: `<title/>` in the SVG of an icon, `<iframe src="a"/>` in XHTML."""

_TEXT, _REFERENCE = TokenType.TEXT, TokenType.CHARACTER_REFERENCE
_OPENING, _CLOSING = TokenType.START_TAG, TokenType.END_TAG

_WORDS = re.compile(r"[^ ]++(?: [^ ]++)*+")
"""Words with one space between them."""
_WHITE_SPACE = " \t\n\f\r"  # the standard's; a no-break space is a character like any other


def read_html(blocks: Sequence[str], separator: str = "") -> tuple[str, SourceMap]:
    """The text of HTML, and its map to the blocks as they are joined with `separator`. Each block is a document by itself.

    White space is collapsed as browsers do, except in `pre` and for empty lines, which separate paragraphs as blocks do.
    `<br>` is a line break. Raises InvalidArticle if the tokenizer returns a text that differs from the source; no such
    source is known.
    """
    reader, position = _Reader(), 0
    for block in blocks:
        reader.read(block, position)
        position += len(block) + len(separator)
    return "".join(reader.text.parts), reader.text.source_map


class _Text:
    """The text as far as it was read. White space between words is written when the next word comes."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.source_map = SourceMap()
        self._border = ""

    def put_border(self, border: str) -> None:
        """Note the white space before what follows; the strongest counts, and two line breaks are an empty line."""
        if border == _LINE == self._border:
            border = _PARAGRAPH
        if len(border) > len(self._border) or self._border == _SPACE:
            self._border = border

    def add(self, text: str, source_start: int, source_chars: int) -> None:
        """Add text that is at `source_start`."""
        if self._border:
            if self.parts:
                # Where white space is in the source matters to nobody, so it is part of the run before it.
                end, chars = self.source_map.source_end, len(self._border)
                self.source_map.add(chars, end, min(chars, source_start - end))
                self.parts.append(self._border)
            self._border = ""
        self.source_map.add(len(text), source_start, source_chars)
        self.parts.append(text)


class _Skipping:
    """Knows which tokens of a block are within an element whose content is not read."""

    def __init__(self, flat: str) -> None:
        self._flat = flat
        self.name = ""
        """The element; empty if nothing is skipped."""
        self._depth = self._before = 0
        self._last_closings: dict[str, int] = {}

    def begin(self, name: str, at: int) -> None:
        """Skip what follows the opening tag at `at`. An element that is markup is not skipped unless it is closed later."""
        if name in _RAW:
            self._before = len(self._flat)
        elif name in self._last_closings:
            self._before = self._last_closings[name]
        else:
            closings = re.finditer(rf"</{name}[ />]", self._flat, re.IGNORECASE | re.ASCII)
            self._before = self._last_closings[name] = max((each.start() for each in closings), default=0)
        if at < self._before:
            self.name, self._depth = name, 1

    def hides(self, token: Token) -> bool:
        """Whether a token is within the element, or closes it. Tags of the same name within it are counted."""
        if token.col > self._before:
            self.name = ""
            return False
        if token.tag == self.name:
            self._depth += -1 if token.type is _CLOSING else not token.self_closing
            if not self._depth:
                self.name = ""
        return True


class _Reader:
    """Reads blocks one after the other."""

    def __init__(self) -> None:
        self.text = _Text()
        self._source = self._flat = ""
        self._position = 0
        self._pre = 0
        self._skipping = _Skipping("")

    def read(self, source: str, position: int) -> None:
        """Read a block that begins at `position` of the whole source."""
        # Without line breaks the tokenizer's columns are positions, and to it all white space is the same.
        flat = source.replace("\n", " ").replace("\r", " ").replace("\t", " ").replace("\f", " ")
        self._source, self._flat, self._position = source, flat, position
        self._pre = 0
        self._skipping = skipping = _Skipping(flat)
        has_markup = "<" in flat or "&" in flat
        if not has_markup:
            self._read_text(0, len(flat))
        # To HTML, `<title/>` opens an element, whose content would be the rest of the body. An image has none.
        markup = _CLOSED_AT_ONCE.sub(_image_of_same_length, flat)
        # The tokenizer joins the texts around an empty closing tag into one, but not around an empty comment.
        markup = markup.replace("</>", "<!>")
        tokens = tokenize(markup, resolve_references=False, capture_attributes=False)
        for token in tokens if has_markup else ():
            if skipping.name and skipping.hides(token):
                continue
            kind = token.type
            if kind is _TEXT:
                start, data = token.col, token.data or ""
                end = start + len(data)
                if data != markup[start:end] and data != markup[start:end].replace("\0", "\ufffd"):
                    raise InvalidArticle("body is HTML in which the parser takes a text for another one")
                self._read_text(start, end)
            elif kind is _OPENING or kind is _CLOSING:
                self._read_tag(token, opens=kind is _OPENING)
            elif kind is _REFERENCE:
                if (data := token.data or "") in _WHITE_SPACE and not self._pre:
                    self.text.put_border(_SPACE)
                else:
                    self.text.add(data, self._position + token.col, len(token.source or ""))
        self.text.put_border(_PARAGRAPH)

    def _read_text(self, start: int, end: int) -> None:
        add = self.text.add
        if self._pre:
            add(self._source[start:end], self._position + start, end - start)
            return
        position = start
        for words in _WORDS.finditer(self._flat, start, end):
            begin, stop = words.span()
            if begin > position:
                self._read_space(position, begin)
            add(words[0], self._position + begin, stop - begin)
            position = stop
        if position < end:
            self._read_space(position, end)

    def _read_space(self, start: int, end: int) -> None:
        """Note white space. An empty line is the only sign of a paragraph where markup is for emphasis and links alone."""
        is_empty_line = end - start > 1 and self._source.count("\n", start, end) > 1
        self.text.put_border(_PARAGRAPH if is_empty_line else _SPACE)

    def _read_tag(self, token: Token, *, opens: bool) -> None:
        name = token.tag or ""
        if name == "br":
            self.text.put_border(_LINE)
        elif name in _BLOCKS:
            self.text.put_border(_PARAGRAPH)
            if name == "pre":
                self._pre = self._pre + 1 if opens else max(0, self._pre - 1)
        elif name in _EMBEDDED:
            self.text.put_border(_SPACE)
        if opens and (name in _RAW or (name in _SKIPPED and not token.self_closing)):
            self._skipping.begin(name, token.col)


def _image_of_same_length(tag: re.Match[str]) -> str:
    return f"<img{' ' * (len(tag[0]) - 5)}>"
