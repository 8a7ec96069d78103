"""The coverage list: every row of the five source catalogues, what implements it and what tests it.

`docs/coverage.toml` is the source of truth, one line a row. This tool writes `docs/coverage.md`
from it, and with `--check` verifies that list, code, tests and page agree:

    python tools/rows.py             write docs/coverage.md
    python tools/rows.py --check     say what disagrees; exit code 1 if anything does
    python tools/rows.py --unclaimed list rows cited in the source that no entry claims
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
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
ROOMS = (
    "core",
    "graphs",
    "engines",
    "methods",
    "brackets",
    "learning",
    "boltzmann",
    "energy",
    "ica",
    "beliefnets",
    "temporal",
    "bayesnn",
    "neural",
    "data",
    "kikuchi_experiments",
)

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
    """One entry of the list."""

    id: str
    title: str
    status: str
    room: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    note: str
    section: str = ""  # of the document, which names it there; such a row is in no catalogue

    @property
    def prefix(self) -> str:
        """Catalogue that the row belongs to."""
        return self.id.partition("-")[0]

    @property
    def kind(self) -> str:
        """Letter of the row: M, I, L, D, E, T, C or X."""
        return self.id.partition("-")[2][0]


# ---------------------------------------------------------------------- reading


def load(path: Path) -> dict[str, Row]:
    """Read the list; unknown fields and malformed ids are errors."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    rows = {}
    for key, fields in data["rows"].items():
        unknown = set(fields) - set(Row.__dataclass_fields__)
        if unknown or not _KEY.fullmatch(key):
            raise SystemExit(f"{path.name}: row {key}: unknown fields {sorted(unknown)} or bad id")
        rows[key] = Row(
            id=key,
            title=fields.get("title", ""),
            status=fields.get("status", "planned"),
            room=fields.get("room", ""),
            modules=tuple(fields.get("modules", ())),
            tests=tuple(fields.get("tests", ())),
            note=fields.get("note", ""),
            section=fields.get("section", ""),
        )
    return rows


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
    faults = [fault for row in rows.values() for fault in check_row(row, root)]
    faults += check_citations(rows, root)
    page = root / "docs" / "coverage.md"
    if not page.is_file() or page.read_text(encoding="utf-8") != render(rows):
        faults.append("docs/coverage.md is not up to date; run python tools/rows.py")
    specs = (shared or root.parent / "shared") / "specs"
    if not specs.is_dir():
        return faults, ["the catalogues are not here, so completeness was not checked"]
    return faults + check_complete(rows, specs), []


def check_row(row: Row, root: Path) -> list[str]:
    """What is wrong with one entry by itself."""
    faults = []
    if not row.title:
        faults.append("has no title")
    if row.status not in STATUSES:
        faults.append(f"has status '{row.status}'; known: {', '.join(STATUSES)}")
    elif row.status == "planned":
        faults += _planned_faults(row)
    else:
        faults += _claim_faults(row, root)
    return [f"{row.id} {fault}" for fault in faults]


def _planned_faults(row: Row) -> list[str]:
    faults = []
    if row.modules or row.tests:
        faults.append("is planned but names modules or tests")
    if row.room not in ROOMS:
        faults.append(f"is planned for room '{row.room}'; known: {', '.join(ROOMS)}")
    return faults


def _claim_faults(row: Row, root: Path) -> list[str]:
    faults = []
    if row.status == "partial" and not row.note:
        faults.append("is partial but does not say what is missing")
    if not row.modules and row.kind not in TEST_KINDS:
        faults.append(f"is {row.status} but names no module")
    for name in row.modules:
        path = next((p for base in BASES if (p := root / base / name).is_file()), None)
        if path is None:
            faults.append(f"names module {name}, which does not exist")
        elif row.id not in cited_rows(path.read_text(encoding="utf-8")):
            faults.append(f"names module {name}, which does not cite it")
    if not row.tests:
        faults.append(f"is {row.status} but names no test")
    for name in row.tests:
        fault = _test_fault(row.id, name, root)
        if fault:
            faults.append(fault)
    return faults


def _test_fault(row_id: str, name: str, root: Path) -> str | None:
    """A test is `folder/test_x.py` that cites the row, or `folder/test_x.py::test_name`."""
    file, _, function = name.partition("::")
    path = root / "tests" / file
    if not path.is_file():
        return f"names test {file}, which does not exist"
    text = path.read_text(encoding="utf-8")
    if function and function not in _test_names(text):
        return f"names test {name}, but the file has no such test"
    if not function and row_id not in cited_rows(text):
        return f"names test {file}, which does not cite it; cite it there or name the test function"
    return None


def _test_names(text: str) -> set[str]:
    nodes = ast.walk(ast.parse(text))
    kinds = (ast.FunctionDef, ast.ClassDef)
    names = {node.name for node in nodes if isinstance(node, kinds)}
    return {name for name in names if name.lower().startswith("test")}


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


def unclaimed(rows: dict[str, Row], root: Path = ROOT) -> list[str]:
    """Modules that cite a row whose entry does not name them; a help when a module lands."""
    lines = []
    for path in [p for p in _texts(root) if p.suffix == ".py"]:
        base = next(root / b for b in BASES if path.is_relative_to(root / b))
        name = path.relative_to(base).as_posix()
        cited = cited_rows(path.read_text(encoding="utf-8")) & rows.keys()
        missing = [r for r in in_order(cited) if name not in rows[r].modules]
        if missing:
            lines.append(f"{name}: " + ", ".join(f"{r} ({rows[r].status})" for r in missing))
    return lines


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
        "<!-- Written by tools/rows.py from docs/coverage.toml; edit that file. -->",
        "",
        "# Coverage",
        "",
        "Every row of the five source catalogues, the module that implements it and the test",
        "that checks it; rows with a section are named in the document there and in no catalogue.",
        "*Done* rows have both, and the module cites the row in its docstrings.",
        "*Partial* rows say what is missing. *Planned* rows name the folder where they will live.",
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
        if row.status == "planned":
            module = f"`{row.room}/`" if row.kind not in TEST_KINDS else f"with `{row.room}/`"
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
    parser.add_argument("--unclaimed", action="store_true", help="cited rows that no entry claims")
    options = parser.parse_args(arguments)
    rows = load(ROOT / "docs" / "coverage.toml")
    if options.unclaimed:
        print("\n".join(unclaimed(rows)))
        return 0
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
