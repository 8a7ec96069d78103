"""The coverage list: every row of the five source catalogues, what implements it and what tests it.

Modules and tests cite the rows that they implement or test, in docstrings and comments;
`docs/coverage.toml` contains a title for each row, and a sentence where one is needed. This tool
writes `docs/coverage.md` from both, and with `--check` verifies that nothing is missing:

    python tools/rows.py             write docs/coverage.md
    python tools/rows.py --check     report faults; exit code 1 if there are any
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASES = ("src/kikuchi", "experiments/src")  # of the names of modules
STATUSES = ("done", "partial", "planned")

CATALOGUES = {
    "TEH": ("teh2003.md", "Teh"),
    "LIU": ("liu2020.md", "Liu"),
    "HOJ": ("hojen2001.md", "Højen-Sørensen"),
    "WH": ("welling2001.md", "Welling & Hinton"),
    "LAW": ("lawrence2000.md", "Lawrence"),
}
KINDS = {
    "D": "Objectives",
    "M": "Models",
    "I": "Inference",
    "L": "Learning",
    "E": "Experiments",
    "T": "Property tests",
    "C": "Conformance tests",
    "X": "Beyond the source text",
}
TEST_KINDS = ("T", "C")
_PREFIX = "|".join(CATALOGUES)
_FULL = re.compile(rf"\b({_PREFIX})-([A-Z])(\d+)([a-z]?)(?![A-Za-z0-9])")
_LINK = r"[\s#]*(?:,|;|/|&|\band\b|\bor\b)[\s#]*(?:\band\b[\s#]*)?"
_SHORT = re.compile(rf"{_LINK}([A-Z])(\d+)([a-z]?)(?![A-Za-z0-9=-])")
_RANGE = re.compile(
    rf"[\s#]*(?:\bto\b|\.\.+|…|–|-)[\s#]*(?:(?:{_PREFIX})-)?([A-Z])(\d+)([a-z]?)(?![A-Za-z0-9])"
)
_KEY = re.compile(rf"({_PREFIX})-([A-Z])(\d+)([a-z]?)")


@dataclass(frozen=True)
class Row:
    """One row of the list; `modules` and `tests` are those that cite it."""

    id: str
    title: str
    status: str = "done"
    note: str = ""
    section: str = ""  # of the document, which names it there; such a row is in no catalogue
    modules: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """Catalogue that the row belongs to."""
        return self.id.partition("-")[0]

    @property
    def kind(self) -> str:
        """Letter of the row: M, I, L, D, E, T, C or X."""
        return self.id.partition("-")[2][0]


# ---------------------------------------------------------------------- reading


def load(path: Path, root: Path = ROOT) -> dict[str, Row]:
    """Return the rows of the list with the modules and tests below `root` that cite them.

    A row is a title, or a table with a title and a status, note or section. Unknown fields and
    malformed ids are errors.
    """
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    modules, tests = citing_modules(root), citing_tests(root)
    rows = {}
    for key, entry in data["rows"].items():
        fields = {"title": entry} if isinstance(entry, str) else entry
        unknown = set(fields) - {"title", "status", "note", "section"}
        if unknown or not _KEY.fullmatch(key):
            raise SystemExit(f"{path.name}: row {key}: unknown fields {sorted(unknown)} or bad id")
        cited = {"modules": tuple(modules[key]), "tests": tuple(tests[key])}
        rows[key] = Row(id=key, **({"title": ""} | fields), **cited)
    return rows


def citing_modules(root: Path) -> defaultdict[str, list[str]]:
    """Return the modules of the library and of the experiments that cite each row, by name."""
    found = defaultdict(list)
    for base in BASES:
        for path in sorted((root / base).rglob("*.py")):
            for row in cited_rows(path.read_text(encoding="utf-8")):
                found[row].append(path.relative_to(root / base).as_posix())
    return found


def citing_tests(root: Path) -> defaultdict[str, list[str]]:
    """Return the tests that cite each row: `file::test_name`, or the file."""
    found = defaultdict(list)
    for path in sorted((root / "tests").rglob("test_*.py")):
        if path.is_relative_to(root / "tests" / "docs"):  # tests of this tool
            continue
        source = path.read_text(encoding="utf-8")
        rows = cited_rows(source)
        if not rows:
            continue
        name = path.relative_to(root / "tests").as_posix()
        functions = {
            f"{name}::{function}": cited_rows(text) for function, text in test_functions(source)
        }
        for row in rows:
            found[row] += [test for test, cited in functions.items() if row in cited] or [name]
    return found


def test_functions(source: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each test of a file, with its decorators and comments."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield node.name, "\n".join(lines[first - 1 : node.end_lineno])


def cited_rows(text: str) -> set[str]:
    """Row ids that a text cites, with lists and ranges written out.

    "TEH-I5, I8" cites two rows, "LIU-M1 to M6" six, "HOJ-M8a..M8c" three.
    """
    found: set[str] = set()
    for match in _FULL.finditer(text):
        prefix, letter, number, sub = match.groups()
        found.add(f"{prefix}-{letter}{number}{sub}")
        end = match.end()
        while True:
            span = _RANGE.match(text, end)
            if span and span[1] == letter:
                found.update(_expand(prefix, letter, (number, sub), (span[2], span[3])))
                number, sub, end = span[2], span[3], span.end()
                continue
            more = _SHORT.match(text, end)
            if more is None or more[1] not in KINDS:
                break
            letter, number, sub = more.groups()
            found.add(f"{prefix}-{letter}{number}{sub}")
            end = more.end()
    return found


def _expand(
    prefix: str, letter: str, first: tuple[str, str], last: tuple[str, str]
) -> Iterator[str]:
    if first[0] == last[0] and first[1] and last[1]:
        for code in range(ord(first[1]), ord(last[1]) + 1):
            yield f"{prefix}-{letter}{first[0]}{chr(code)}"
    else:
        for n in range(int(first[0]), int(last[0]) + 1):
            yield f"{prefix}-{letter}{n}"


def catalogue_rows(text: str, prefix: str) -> set[str]:
    """All row ids of one catalogue: cited in full, in the test tables, or as bold sub-rows."""
    found = {row for row in cited_rows(text) if row.startswith(f"{prefix}-")}
    for line in text.splitlines():
        table = re.match(r"\|\s*([TC]\d+)\s*\|", line)
        bold = re.match(r"\*\*([MX]\d+[a-z]?) ", line)
        for short in filter(None, (table, bold)):
            found.add(f"{prefix}-{short[1]}")
    return found


# ---------------------------------------------------------------------- checking


def check(
    rows: dict[str, Row], root: Path = ROOT, shared: Path | None = None
) -> tuple[list[str], list[str]]:
    """Faults (empty when all agree) and remarks about what could not be checked."""
    faults = [fault for row in rows.values() for fault in check_row(row)]
    faults += check_citations(rows, root)
    page = root / "docs" / "coverage.md"
    if not page.is_file() or page.read_text(encoding="utf-8") != render(rows):
        faults.append("docs/coverage.md is not up to date; run python tools/rows.py")
    specs = (shared or root.parent / "shared") / "specs"
    if not specs.is_dir():
        return faults, ["the catalogues are not here, so completeness was not checked"]
    return faults + check_complete(rows, specs), []


def check_row(row: Row) -> list[str]:
    """Return the faults of one row by itself."""
    faults = []
    if not row.title:
        faults.append("has no title")
    if row.status not in STATUSES:
        faults.append(f"has status '{row.status}'; known: {', '.join(STATUSES)}")
    elif row.status == "planned":
        faults += ["is planned but is cited"] if row.modules or row.tests else []
    else:
        if row.status == "partial" and not row.note:
            faults.append("is partial without a note on what is missing")
        if not row.modules and row.kind not in TEST_KINDS:
            faults.append(f"is {row.status} but no module cites it")
        if not row.tests:
            faults.append(f"is {row.status} but no test cites it")
    return [f"{row.id} {fault}" for fault in faults]


def check_citations(rows: dict[str, Row], root: Path) -> list[str]:
    """Row ids cited in source and documents that are in no catalogue; tests may invent some."""
    faults = []
    for path in _texts(root):
        unknown = cited_rows(path.read_text(encoding="utf-8")) - rows.keys()
        for row in sorted(unknown):
            faults.append(f"{path.relative_to(root).as_posix()} cites {row}, which is not a row")
    return faults


def _texts(root: Path) -> Iterator[Path]:
    for base in BASES:
        yield from sorted((root / base).rglob("*.py"))
    pages = sorted((root / "docs").rglob("*.md"))
    yield from (path for path in pages if path.name != "coverage.md")


def check_complete(rows: dict[str, Row], specs: Path) -> list[str]:
    """The list against the catalogues: nothing missing, nothing invented."""
    faults = []
    for prefix, (file, _) in CATALOGUES.items():
        known = catalogue_rows((specs / file).read_text(encoding="utf-8"), prefix)
        listed = {row for row in rows if row.startswith(f"{prefix}-")}
        more = {row for row in listed if rows[row].section}
        faults += [f"{row} of {file} is not in the list" for row in in_order(known - listed)]
        invented = in_order((listed - known) - more)
        faults += [f"{row} is in the list but not in {file}" for row in invented]
        faults += [f"{row} has a section but is in {file}" for row in in_order(more & known)]
    return faults


# ---------------------------------------------------------------------- writing


def in_order(ids: Iterable[str]) -> list[str]:
    """Row ids sorted by catalogue, kind and number."""

    def key(row: str) -> tuple[int, int, int, str]:
        match = _KEY.fullmatch(row)
        assert match is not None
        prefix, letter, number, sub = match.groups()
        return list(CATALOGUES).index(prefix), list(KINDS).index(letter), int(number), sub

    return sorted(ids, key=key)


def render(rows: dict[str, Row]) -> str:
    """The page docs/coverage.md."""
    lines = [
        "---",
        "hide: [toc]",
        "---",
        "",
        "<!-- Written by tools/rows.py from citations and docs/coverage.toml. -->",
        "",
        "# Coverage",
        "",
        "Every row of the five source catalogues with the modules and the tests that cite it in",
        "their docstrings and comments; rows with a section are named in the document there and in",
        "no catalogue. *Done* rows have both. *Partial* rows describe what is missing.",
        "A check in the test suite keeps this page, the code and the tests in agreement.",
        "",
        *_summary(rows),
    ]
    for prefix, (_, title) in CATALOGUES.items():
        lines += ["", f"## {title} ({prefix}) {{ #{prefix.lower()} }}"]
        for letter, kind in KINDS.items():
            chosen = [r for r in in_order(rows) if r.startswith(f"{prefix}-{letter}")]
            if chosen:
                lines += ["", f"### {kind} of {title}", "", *_table(rows[r] for r in chosen)]
    return "\n".join(lines) + "\n"


def _summary(rows: dict[str, Row]) -> list[str]:
    lines = ["| catalogue | rows | done | partial | planned |", "|---|---:|---:|---:|---:|"]
    total: Counter[str] = Counter()
    for prefix, (_, title) in CATALOGUES.items():
        count = Counter(row.status for row in rows.values() if row.prefix == prefix)
        total += count
        lines.append(_summary_line(f"[{title}](#{prefix.lower()}) ({prefix})", count))
    return [*lines, _summary_line("all", total)]


def _summary_line(name: str, count: Counter[str]) -> str:
    cells = [name, str(count.total()), *(str(count[status]) for status in STATUSES)]
    return f"| {' | '.join(cells)} |"


def _table(rows: Iterable[Row]) -> list[str]:
    lines = ["| row | title | module | test | status |", "|---|---|---|---|---|"]
    for row in rows:
        module = "<br>".join(f"`{name}`" for name in row.modules)
        test = "<br>".join(f"`{name}`" for name in row.tests)
        status = f"{row.status}: {row.note}" if row.note else row.status
        title = f"{row.title} (section {row.section})" if row.section else row.title
        cells = (row.id, title, module or "–", test or "–", status)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="verify; write nothing")
    options = parser.parse_args(arguments)
    rows = load(ROOT / "docs" / "coverage.toml")
    if not options.check:
        (ROOT / "docs" / "coverage.md").write_text(render(rows), encoding="utf-8")
        print(f"docs/coverage.md: {len(rows)} rows")
        return 0
    faults, remarks = check(rows)
    for line in remarks + faults:
        print(line)
    if not faults:
        print(f"coverage: {len(rows)} rows, all in agreement")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
