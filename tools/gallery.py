"""Draws the pictures of `docs/gallery.md` by running its lines: python tools/gallery.py.

Each fence of the page ends with `figure.savefig("NAME.png")`, and the page shows that picture from
`docs/images/gallery`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib as mpl

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"
FOLDER = ROOT / "docs" / "images" / "gallery"
DPI = 90


def blocks() -> list[tuple[str, str]]:
    """The lines of each picture, with the name that the page shows above them."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(
        r"!\[[^\]]+\]\(images/gallery/([\w-]+)\.png\)\n\n```python\n(.*?)```", text, re.DOTALL
    )
    if len(found) != text.count("```python"):
        raise ValueError("every fence of the gallery stands below the picture that it draws")
    return found


def draw(folder: Path) -> list[str]:
    """Run the page and write its pictures into `folder`; their names."""
    space: dict[str, object] = {}
    names = []
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"savefig.dpi": DPI}):
        for name, lines in blocks():
            written = f'savefig("{name}.png")'
            if written not in lines:
                raise ValueError(f"the lines of {name} do not write {name}.png")
            code = lines.replace(written, f"savefig({str(folder / name)!r} + '.png')")
            exec(compile(code, f"gallery.md ({name})", "exec"), space)
            names.append(name)
    return names


if __name__ == "__main__":
    sys.exit(print(*draw(FOLDER), sep="\n"))
