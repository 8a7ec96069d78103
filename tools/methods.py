"""The page of methods, written from the registry so that it cannot go stale.

python tools/methods.py             write docs/reference/methods.md
python tools/methods.py --check     exit code 1 if the page is not what the registry says
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import kikuchi.brackets
import kikuchi.methods
from kikuchi.core.options import option_facts
from kikuchi.methods.method import Method
from kikuchi.methods.registry import DEFAULT, METHODS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "methods.md"

HEAD = f"""\
<!-- Written by tools/methods.py from the registry; run it again instead of editing. -->

# Methods

A method is a short text, `name:option=value,option=value`, on the command line and in Python alike.
Options that are left out keep their defaults. `kikuchi methods` prints the same list.
The default method is `{DEFAULT}`.
"""


CAPABILITIES = """\
## What each needs and gives

With its default options. *Exact*: on every model that the method takes, where the budget allows,
or on forests (graphs without cycles). *Bounds*: those on log Z that it certifies. Every entry is a
class attribute of the method, which the tests hold against what it does.

| name | exact | bounds | takes | observed marginals | log Z | covariances |
|---|---|---|---|---|---|---|"""


def render() -> str:
    """The whole page."""
    classes = {name: METHODS.find(name) for name in METHODS}
    lines = [HEAD, "| name | class | what it does |", "|---|---|---|"]
    for name, cls in classes.items():
        lines.append(f"| [`{name}`](#{name}) | `{path_of(cls)}` | {cell(cls.summary)} |")
    lines += ["", CAPABILITIES]
    lines += [f"| `{name}` | {' | '.join(capabilities(cls))} |" for name, cls in classes.items()]
    for name, cls in classes.items():
        lines += ["", *section(name, cls)]
    return "\n".join(lines) + "\n"


def capabilities(cls: type[Method]) -> list[str]:
    """The cells of one method in the table of what each needs and gives."""
    needs = [
        ("binary pairwise models", cls.needs_binary_pairwise),
        ("positive tables", cls.needs_positive_tables),
        ("forests", cls.needs_forest),
        ("what a junction tree fits", cls.needs_junction_tree),
        (f"at most {cls.most_joint_states or 0:,} states", cls.most_joint_states is not None),
    ]
    exact = {"affordable": "where the budget allows", "forests": "on forests", "never": ""}
    takes = ", ".join(name for name, needed in needs if needed) or "any model"
    return [
        exact.get(cls.exactness, cls.exactness),
        " and ".join(cls.certifies),
        takes,
        "yes" if cls.takes_observed_marginals else "",
        "yes" if cls.gives_log_z else "",
        "yes" if cls.gives_covariance else "",
    ]


def path_of(cls: type[Method]) -> str:
    """How a reader reaches a class: as a public name, or through its module."""
    for room in (kikuchi.methods, kikuchi.brackets):
        if cls.__name__ in room.__all__:
            return f"{room.__name__.replace('kikuchi', 'kk')}.{cls.__name__}"
    return f"{cls.__module__}.{cls.__name__}"


def section(name: str, cls: type[Method]) -> list[str]:
    """One method with its options."""
    lines = [f"## {name}", "", f"{cls.summary[:1].upper()}{cls.summary[1:]}.", ""]
    fields = dataclasses.fields(cls)
    if not fields:
        return [*lines, "No options."]
    lines += ["| option | default | takes | meaning |", "|---|---|---|---|"]
    for field in fields:
        facts = option_facts(cls, field)
        takes = facts["takes"].replace(" | ", ", ")
        lines.append(f"| `{field.name}` | `{facts['default']}` | {takes} | {cell(facts['help'])} |")
    return lines


def cell(text: str) -> str:
    """A text that fits in one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: list[str] | None = None) -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare; write nothing")
    options = parser.parse_args(arguments)
    text = render()
    name = PAGE.relative_to(ROOT)
    if not options.check:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
        print(f"{name}: {len(METHODS)} methods")
        return 0
    fresh = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
    print(f"{name}: up to date" if fresh else f"{name}: not up to date; run tools/methods.py")
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main())
