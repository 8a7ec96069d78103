"""Pieces of a self-contained HTML page: no script, no font, no picture from elsewhere.

Everything that comes from a model (names, file names, messages) passes through `escape`.
Figures go in as SVG whose ink follows the colour scheme of the reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from kikuchi.core.files import atomic_write
from kikuchi.core.text import html_attribute, html_text
from kikuchi.plots import style
from kikuchi.reports.stylesheet import CSS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ADAPTIVE = {style.INK: "ink", style.GRID: "rule", style.SOFT: "soft", style.BLUE: "series"}

Pairs = Iterable[tuple[str, str]]


def escape(text: object) -> str:
    """Text that is safe between tags; `html_attribute` is for attributes.

    >>> escape('<b> & "x"')
    '&lt;b&gt; &amp; &quot;x&quot;'
    """
    return html_text(text)


def section(title: str, *parts: str, note: str = "") -> str:
    """A headed part of the page; empty when all its parts are."""
    body = "\n".join(part for part in parts if part)
    if not body:
        return ""
    remark = f'<p class="note">{escape(note)}</p>\n' if note else ""
    return f"<section>\n<h2>{escape(title)}</h2>\n{remark}{body}\n</section>"


def definition_table(pairs: Pairs) -> str:
    """Labels on the left, values on the right."""
    rows = "\n".join(
        f'<tr><th scope="row">{escape(label)}</th><td>{escape(value)}</td></tr>'
        for label, value in pairs
    )
    return f'<div class="scroll"><table class="facts">\n{rows}\n</table></div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    """A table of texts; `numeric` columns are aligned to the right. Cells are escaped here."""
    right = set(numeric)

    def cell(tag: str, k: int, text: str) -> str:
        kind = ' class="n"' if k in right else ""
        return f"<{tag}{kind}>{escape(text)}</{tag}>"

    top = "".join(cell("th", k, text) for k, text in enumerate(head))
    body = "\n".join(
        "<tr>" + "".join(cell("td", k, text) for k, text in enumerate(row)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table>\n<thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def tiles(entries: Iterable[tuple[str, str, str]]) -> str:
    """Large figures: label, value, and a kind that colours it (`good`, `bad` or nothing)."""
    parts = (
        f'<div class="tile {html_attribute(kind)}"><span class="label">{escape(label)}</span>'
        f'<span class="value">{escape(value)}</span></div>'
        for label, value, kind in entries
    )
    return '<div class="tiles">' + "".join(parts) + "</div>"


def warning_box(messages: Sequence[str]) -> str:
    """A box that cannot be overlooked; nothing when there is nothing to warn of."""
    if not messages:
        return ""
    items = "".join(f"<li>{escape(message)}</li>" for message in messages)
    return f'<div class="warn" role="alert"><strong>Warnings</strong><ul>{items}</ul></div>'


def collapsed(summary: str, body: str) -> str:
    """A part that opens on a click."""
    return f"<details><summary>{escape(summary)}</summary>\n{body}\n</details>"


def code(text: str) -> str:
    """A block to copy."""
    return f"<pre><code>{escape(text)}</code></pre>"


def picture(figure: Figure, caption: str, number: int) -> str:
    """A figure as inline SVG; `number` keeps the ids of several figures on a page apart."""
    drawing = _inline_svg(style.to_svg(figure), f"f{number}-", caption)
    return f"<figure>\n{drawing}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def _inline_svg(svg: str, prefix: str, label: str) -> str:
    svg = svg[svg.index("<svg") :].rstrip()
    svg = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\1{prefix}", svg)
    svg = svg.replace("xlink:href=", "href=")
    for colour, name in _ADAPTIVE.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg.replace("<svg", f'<svg role="img" aria-label="{html_attribute(label)}"', 1)


def document(title: str, subtitle: str, *sections: str) -> str:
    """The whole page."""
    body = "\n".join(part for part in sections if part)
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html_attribute(title)}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n"
        f'<header><h1>{escape(title)}</h1><p class="sub">{escape(subtitle)}</p></header>\n'
        f"{body}\n</main>\n</body>\n</html>\n"
    )


def write_page(path: str | PathLike[str], text: str) -> None:
    """Write the page whole or not at all."""
    with atomic_write(path) as file:
        file.write(text)
