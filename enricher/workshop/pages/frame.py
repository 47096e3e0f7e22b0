"""The common parts of all pages: the frame, colours for light and dark, cards and tables. Plots are in plots.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_LIGHT_AND_DARK = {
    "page": ("#f6f7f9", "#0f141a"),
    "card": ("#ffffff", "#171e26"),
    "ink": ("#17202b", "#e6ebf1"),
    "soft": ("#5c6875", "#98a5b3"),
    "line": ("#dfe4ea", "#2a343f"),
    "grid": ("#e9edf2", "#232c36"),
    "base": ("#8a97a6", "#7d8b9a"),
    "main": ("#2563eb", "#6aa1ff"),
    "second": ("#c2571a", "#f0965a"),
    "third": ("#0f8a7a", "#4cc7b4"),
    "fourth": ("#8b3fc7", "#c08bf0"),
    "fifth": ("#a8860b", "#e0c04a"),
    "good": ("#12805c", "#4fd1a0"),
    "good-bg": ("#e3f5ec", "#12332a"),
    "bad": ("#c0263a", "#ff7f8c"),
    "bad-bg": ("#fdeaec", "#3d1a20"),
}
COLOURS = {name: light for name, (light, _) in _LIGHT_AND_DARK.items()}
"""The colours of the light page by name; no two are equal. In the style they are variables, which the dark page sets too."""


def _variables(which: int) -> str:
    return ";".join(f"--{name}:{pair[which]}" for name, pair in _LIGHT_AND_DARK.items())


_COLOUR_STYLE = f"""
:root{{color-scheme:light dark;{_variables(0)}}}
@media (prefers-color-scheme:dark){{:root{{{_variables(1)}}}}}"""
_STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1040px;margin:0 auto;padding:36px 20px 56px}
header{display:flex;gap:16px;align-items:center;flex-wrap:wrap;margin-bottom:4px}
h1{font-size:25px;line-height:1.2;margin:0;letter-spacing:-.01em}
h2{font-size:16px;margin:0 0 2px}
.sub{color:var(--soft);margin:0 0 20px}
.note{color:var(--soft);font-size:13.5px;margin:0 0 12px;max-width:82ch}
.badge{font-weight:650;font-size:14px;padding:4px 13px;border-radius:999px}
.good{color:var(--good);background:var(--good-bg)}.bad{color:var(--bad);background:var(--bad-bg)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(148px,1fr));gap:12px;margin:0 0 16px}
.cards>div,section{background:var(--card);border:1px solid var(--line);border-radius:12px}
.cards>div{padding:13px 16px}
.cards b{display:block;font-size:22px;font-weight:650;letter-spacing:-.01em;font-variant-numeric:tabular-nums}
.cards span{color:var(--soft);font-size:13px}
section{padding:18px 20px 16px;margin:0 0 16px;overflow-x:auto}
ul{margin:6px 0 0;padding-left:20px}
svg{display:block;width:100%;height:auto;min-width:620px;font-family:inherit}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft);margin:0 0 6px}
.key i{display:inline-block;width:11px;height:11px;border-radius:50%;margin-right:6px;vertical-align:-1px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:6px 10px;text-align:right;border-top:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:550;border-top:0}
th:first-child,td:first-child{text-align:left;padding-left:0}
tr.best td{font-weight:650}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:0;font-size:13.5px}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
code{font:13px/1.5 ui-monospace,SFMono-Regular,Consolas,monospace}
pre{margin:8px 0 0;padding:12px 14px;background:var(--page);border-radius:8px;overflow-x:auto}
"""


@dataclass(frozen=True, slots=True)
class Badge:
    """The word beside the title, green or red."""

    text: str
    good: bool


def page(title: str, subtitle: str, parts: Iterable[str], badge: Badge | None = None) -> str:
    """A whole HTML document; `parts` are HTML already."""
    tone = "good" if badge and badge.good else "bad"
    mark = f'<span class="badge {tone}">{escape(badge.text)}</span>' if badge else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_COLOUR_STYLE}{_STYLE}</style></head><body><main>\n"
        f'<header><h1>{escape(title)}</h1>{mark}</header><p class="sub">{escape(subtitle)}</p>\n'
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def section(heading: str, note: str, *content: str) -> str:
    """A part of a page: a heading, a note about what it shows, and HTML."""
    return f"<section><h2>{escape(heading)}</h2>{remark(note)}{''.join(content)}</section>"


def remark(text: str) -> str:
    """A line in the soft colour."""
    return f'<p class="note">{escape(text)}</p>'


def cards(figures: Sequence[tuple[str, str]]) -> str:
    """Big figures in a row: (figure, what it is)."""
    return (
        '<div class="cards">' + "".join(f"<div><b>{escape(a)}</b><span>{escape(b)}</span></div>" for a, b in figures)
    ) + "</div>"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], best: int | None = None) -> str:
    """A table whose first column is text. Row `best` is bold."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr{' class=best' if number == best else ''}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        for number, row in enumerate(rows)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def bullets(texts: Iterable[str]) -> str:
    """A list of sentences."""
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values."""
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{escape(value)}</dd>' for name, value in pairs)}</dl>"


def key(entries: Iterable[tuple[str, str]]) -> str:
    """The legend: (colour, name); colours are names from the style."""
    dots = (f'<span><i style="background:var(--{colour})"></i>{escape(name)}</span>' for colour, name in entries)
    return f'<div class="key">{"".join(dots)}</div>'
