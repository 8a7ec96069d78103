"""Draws the pictures of `docs/gallery.md` by running its code: python tools/gallery.py [NAME ...].

Each fence of the page ends with `figure.savefig("NAME.png")`, and the page shows that picture from
`docs/images/gallery`. Fences share one namespace, so that those above a named one run as well. The
overview at the top of the page is written anew from the pictures and their headings.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from pathlib import Path

import matplotlib as mpl

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"
FOLDER = ROOT / "docs" / "images" / "gallery"
DPI = 90
_OVERVIEW = re.compile(r"(<!-- thumbnails: [^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)
_TRAINED = re.compile(
    r"from kikuchi\.(?:flows|beliefnets|bayesnn|energy) import"
)  # some ten seconds


def blocks(text: str | None = None) -> list[tuple[str, str]]:
    """The code of each picture, with the name that the page shows above it."""
    text = PAGE.read_text(encoding="utf-8") if text is None else text
    found = re.findall(
        r"!\[[^\]]+\]\(images/gallery/([\w-]+)\.png\)\n\n```python\n(.*?)```", text, re.DOTALL
    )
    if len(found) != text.count("```python"):
        raise ValueError("every fence of the gallery stands below the picture that it draws")
    return found


def trained() -> list[str]:
    """Names of the pictures for which a model is trained for some seconds."""
    return [name for name, lines in blocks() if _TRAINED.search(lines)]


def draw(folder: Path, leave_out: Collection[str] = ()) -> list[str]:
    """Run the page and write its pictures into `folder`; their names."""
    space: dict[str, object] = {}
    names = []
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"savefig.dpi": DPI}):
        for name, lines in blocks():
            if name in leave_out:
                continue
            written = f'savefig("{name}.png")'
            if written not in lines:
                raise ValueError(f"the code of {name} does not write {name}.png")
            code = lines.replace(written, f"savefig({str(folder / name)!r} + '.png')")
            exec(compile(code, f"gallery.md ({name})", "exec"), space)
            names.append(name)
    return names


def overview(text: str) -> str:
    """The page with a small picture and a link for each figure at its top."""
    pictures = re.findall(r"^## (.+)\n\n!\[[^\]]+\]\((images/gallery/[\w-]+\.png)\)", text, re.M)
    links = [
        f'<a href="#{_anchor(title)}"><!-- thumbnail --><img src="{picture}" alt="">{title}</a>'
        for title, picture in pictures
    ]
    block = "\n".join(['<div class="thumbnails">', *links, "</div>", ""])
    return _OVERVIEW.sub(lambda match: match[1] + block + match[2], text)


def _anchor(title: str) -> str:
    """The anchor that the site gives a heading."""
    return re.sub(r"\W+", "-", title.lower()).strip("-")


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(overview(page), encoding="utf-8")
    others = [name for name, _ in blocks() if sys.argv[1:] and name not in sys.argv[1:]]
    sys.exit(print(*draw(FOLDER, leave_out=others), sep="\n"))
