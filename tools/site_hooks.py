"""What MkDocs does beside its plugins: equations in MathML, large pictures, notebooks.

* Equations are written `$...$` or `$$...$$`. `pymdownx.arithmatex` finds them; here they become
  MathML, which browsers draw themselves, so that no script or font is loaded.
* A picture is a link to its file, so that a narrow screen can show it large.
* Ids such as TEH-E1 and dates in tables are not broken at their hyphens.
* `docs/notebooks/NAME.ipynb` is shown as the page `notebooks/NAME.md`, with the outputs that are
  stored in it. `tools/notebooks.py` runs the notebooks and stores them.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_EQUATION = re.compile(
    r"<(span|div) class=\"arithmatex\">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>", re.DOTALL
)

_LARGE = re.compile(r"<mo>(&#x0(?:2211|220F|222B);)</mo>")  # sums, products, integrals
_AFTER = re.compile(r"(</mfrac>|</mi>|</msub>|&#x00029;</mo>)(<mi>(?:log|exp)</mi>)")
_NAMED = re.compile(r"(<mi>(?:log|exp|min|max|ln|tanh)</mi>)(?!<mo stretchy=\"false\">&#x00028;)")
_PICTURE = re.compile(r"(?<!-- thumbnail -->)<img [^>]*src=\"([^\"]+)\"[^>]*>")
_UNBROKEN = re.compile(r"<td([^>]*)>([A-Z]{2,3}-[A-Z]\d+|\d{4}-\d\d-\d\d)</td>")


def on_page_content(content: str, **kwargs: Any) -> str:
    """Called by MkDocs for each page as HTML: equations as MathML, pictures as links."""
    content = _PICTURE.sub(r'<a class="picture" href="\1">\g<0></a>', content)
    content = _UNBROKEN.sub(r'<td\1><span class="id">\2</span></td>', content)
    return _EQUATION.sub(lambda m: mathml(html.unescape(m[3]), block=m[2] == "["), content)


@cache
def mathml(latex: str, block: bool = False) -> str:
    """An equation as MathML; it goes into a box that scrolls where the screen is narrow."""
    shown = convert(latex.strip(), display="block" if block else "inline")
    shown = _LARGE.sub(r'<mo largeop="false" class="large">\1</mo>', shown) if block else shown
    shown = shown.replace(
        "<mi>&#x029F5;</mi>", "<mo>&#x0005C;</mo>"
    )  # not every font has the sign of set minus
    shown = _AFTER.sub(r'\1<mspace width="0.17em"></mspace>\2', shown)
    shown = _NAMED.sub(r'\1<mspace width="0.17em"></mspace>', shown)
    wrong = re.search(r"<m(?:i|text)>(\\[^<]*)</m", shown)
    if wrong:
        raise ValueError(f"the equation {latex.strip()!r} has an unknown command {wrong[1]!r}")
    return f'<div class="equation">{shown}</div>' if block else shown


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs with all files: a page and its pictures for each notebook."""
    for path in sorted((Path(config.docs_dir) / "notebooks").glob("*.ipynb")):
        name = f"notebooks/{path.stem}"
        text, pictures = page(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"{name}.md", content=text))
        for picture, data in pictures.items():
            files.append(File.generated(config, f"notebooks/{picture}", content=data))
    return files


def page(notebook: dict[str, Any], stem: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and the pictures that it shows by name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).rstrip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for kind, value in _outputs(cell):
            if kind == "png":
                name = f"{stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(value)
                parts.append(f"![the figure drawn by the code above]({name})")
            elif kind == "html":
                parts.append(f'<div class="output">{_one_block(value)}</div>')
            else:
                parts.append(f"```text\n{value.rstrip()}\n```")
    link = f"[{stem}.ipynb]({stem}.ipynb)"
    parts.insert(1, f"*This page is the notebook {link}, run by the tests.*")
    return "\n\n".join(parts) + "\n", pictures


def _outputs(cell: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            yield "png", "".join(data["image/png"])
        elif "text/html" in data:
            yield "html", "".join(data["text/html"])
        elif "text/plain" in data or output["output_type"] == "stream":
            yield "text", "".join(data.get("text/plain") or output["text"])
        else:
            raise ValueError(f"a notebook holds an output that no page can show: {output}")


def _one_block(view: str) -> str:
    """An HTML view in the looks of the site, without empty lines, which would end it."""
    view = re.sub(r"<style.*?</style>", "", view, flags=re.DOTALL)
    view = view.replace(' border="1" class="dataframe"', "")
    return "\n".join(line.strip() for line in view.splitlines() if line.strip())
