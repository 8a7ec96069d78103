"""Every example of the documents runs and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from project_tools import ROOT, load_tool

examples = load_tool("examples")
PAGES = examples.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs_as_shown(page: Path) -> None:
    faults = examples.run_page(page)
    assert not faults, "\n".join(str(fault) for fault in faults)


def test_the_pages_with_examples_are_found() -> None:
    names = {page.stem for page in PAGES}
    assert {"index", "tutorial", "choose", "formats", "new-method", "commands"} <= names


PAGE = """
```python
x = 2
print(x)
```

```text
{shown}
```

```python
x += 1
assert x == {total}
```

```txt title="a.txt"
hello
```

```console
$ cat a.txt
{output}
```
"""


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"shown": "2", "total": 3, "output": "hello"}, None),
        ({"shown": "2.0", "total": 3, "output": "..."}, None),
        ({"shown": "2", "total": 3, "output": "h...o"}, "but prints"),
        ({"shown": "3", "total": 3, "output": "hello"}, "but prints"),
        ({"shown": "2", "total": 4, "output": "hello"}, "AssertionError"),
        ({"shown": "2", "total": 3, "output": "bye"}, "but prints"),
    ],
)
def test_the_runner_notices_what_is_wrong(
    tmp_path: Path, values: dict[str, object], words: str | None
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(**values))
    faults = examples.run_page(page)
    if words is None:
        assert faults == []
    else:
        assert len(faults) == 1 and words in str(faults[0])


def test_a_page_states_the_tolerance_of_its_figures(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "```python\nprint(2.1)\n```\n\n{stated}```text\n2.0\n```\n"
    page.write_text(text.format(stated="<!-- tolerance: 0.06 -->\n"))
    assert examples.run_page(page) == []
    page.write_text(text.format(stated="<!-- tolerance: 0.01 -->\n").replace("2.0", "2.00"))
    assert "but prints" in str(examples.run_page(page)[0])
    page.write_text(text.format(stated="").replace("2.0", "2.00"))
    assert "but prints" in str(examples.run_page(page)[0])


def test_output_that_is_not_shown_is_a_fault(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n")
    assert "prints without showing it" in str(examples.run_page(page)[0])


def test_update_writes_what_was_printed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(shown="3", total=3, output="bye"))
    examples.update(page, examples.run_page(page))
    assert page.read_text() == PAGE.format(shown="2", total=3, output="hello")


PICTURE = """
```python
import matplotlib.pyplot as plt

figure = plt.figure(figsize=(1, 1))
figure.savefig("{drawn}.png")
```

![a picture](../images/guides/{shown}.png)
"""


def test_pictures_that_no_example_draws_are_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "PICTURES", tmp_path / "guides")
    page = tmp_path / "page.md"
    page.write_text(PICTURE.format(drawn="one", shown="two"))
    assert "do not draw" in str(examples.run_page(page)[0])
    page.write_text(PICTURE.format(drawn="one", shown="one"))
    assert "is old" in str(examples.run_page(page)[0])
    assert examples.run_page(page, store=True) == []
    assert examples.run_page(page) == []


def test_every_guide_has_a_picture() -> None:
    pages = [*(ROOT / "docs" / "how-to").glob("*.md"), ROOT / "docs" / "index.md"]
    assert [page.name for page in pages if "![" not in page.read_text(encoding="utf-8")] == []


def test_pictures_of_guides_are_shown_and_small() -> None:
    shown = {name for page in PAGES for name in examples.shown_pictures(page)}
    stored = {path.name for path in examples.PICTURES.glob("*.png")}
    assert stored == shown
    for path in examples.PICTURES.glob("*.png"):
        assert path.stat().st_size < 60_000, path.name
