"""Every example of the documents runs and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cli_runner import run
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
        ({"shown": "...", "total": 3, "output": "h...o"}, None),
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


def test_output_that_is_not_shown_is_a_fault(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n")
    assert "prints without showing it" in str(examples.run_page(page)[0])


def test_update_writes_what_was_printed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(shown="3", total=3, output="bye"))
    examples.update(page, examples.run_page(page))
    assert page.read_text() == PAGE.format(shown="2", total=3, output="hello")


GROUPS = ("ica", "temporal")  # commands with commands below them


def shown_commands() -> list[str]:
    """Commands of plain fences, which name files of the reader and are not run."""
    found = []
    for page in sorted((ROOT / "docs" / "how-to").glob("*.md")):
        for block in re.findall(r"^```\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found += [line for line in lines if line.startswith("kikuchi ")]
    return found


def test_commands_that_are_only_shown_have_options_that_exist() -> None:
    commands = shown_commands()
    assert len(commands) > 15
    for line in commands:
        words = shlex.split(line)[1:]
        names = words[:2] if words[0] in GROUPS else words[:1]
        told = run(*names, "--help").stdout
        for word in words[len(names) :]:
            option = word.partition("=")[0]
            if option.startswith("-") and len(option) > 1:
                assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", told), (option, line)
