"""Words and constructions that are refused in docstrings, comments, messages and pages.

The texts of the project use the terms of the field and the word order of the documentation of
scikit-learn or NumPy. Each rule names a phrase and a better one:

    python tools/check_english.py            check the packages and pages that are clean
    python tools/check_english.py --all      count what is left elsewhere, by package
    python tools/check_english.py PATH ...   check files or folders, clean or not
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "src/kikuchi"

CLEAN = (
    "CONTRIBUTING.md",
    "README.md",
    "docs/from-hmmlearn.md",
    "docs/from-pgmpy.md",
    "docs/from-pyagrum.md",
    "docs/from-scikit-learn.md",
    "docs/gallery.md",
    "docs/glossary.md",
    "docs/how-to",
    "docs/index.md",
    "docs/reference/bayesnn.md",
    "docs/reference/beliefnets.md",
    "docs/reference/boltzmann.md",
    "docs/reference/energy.md",
    "docs/reference/flows.md",
    "docs/reference/ica.md",
    "docs/reference/learning.md",
    "docs/reference/models.md",
    "docs/reference/neural.md",
    "docs/reference/temporal.md",
    "docs/reproduce.md",
    "docs/theory.md",
    "docs/tutorial.md",
    "src/kikuchi/bayesnn",
    "src/kikuchi/brackets",
    "src/kikuchi/core",
    "src/kikuchi/data",
    "src/kikuchi/flows",
    "src/kikuchi/graphs",
    "src/kikuchi/methods",
    "src/kikuchi/neural",
    "src/kikuchi/plots",
    "src/kikuchi/queries",
    "src/kikuchi/reports",
    "src/kikuchi/training",
)
"""Files and folders without any of the phrases. The list only grows, until it is all of them."""

NO_NOUNS = "longer|more|better|worse|less|fewer|other|larger|smaller|greater|faster|slower|matter"


@dataclass(frozen=True)
class Rule:
    """A phrase that is refused, as a regular expression, and what to write instead."""

    phrase: re.Pattern[str]
    better: str


def _rule(phrase: str, better: str) -> Rule:
    return Rule(re.compile(phrase), better)


RULES = (
    # programs do not speak
    _rule(
        r"\b[Aa]nswers ((with|the|a|an|how|whether|what|which|its|one|None|True|False|0)\b|[`(])",
        "returns ...",
    ),
    _rule(r"\b(is|are|was|were|be|been) answered\b", "is returned"),
    _rule(r"\bas an answer\b", "as a result"),
    _rule(r"\b[Tt](ells|old)\b(?!( \w+)? apart)", "returns, reports, warns; is passed, is given"),
    _rule(r"\b(is|are|was|were) asked\b", "is requested, is called"),
    _rule(r"\basks? (for|of|after)\b", "requests, requires, takes"),
    _rule(r"\b(says|said)\b", "states, reports, describes, is"),
    _rule(r"\b[Ss]ay (that|how|what|why|where|which|whether|once|nothing)\b", "report, describe"),
    _rule(r"\bminds\b|\b[Mm]ind (this|that)\b", "note that"),
    # clipped and inverted clauses
    _rule(rf"(?<![Tt]here )\b(is|are|was|were) no (?!({NO_NOUNS})\b)[a-z]+", "is not a ..."),
    _rule(r"\bwhat is no\b", "anything but ..."),
    _rule(r"\blikes? better\b", "whichever scores better"),
    _rule(r"\blearnt from\b", "training ..., fitted to"),
    _rule(
        r"(^|[\"(:,;] ?)most (sweeps|steps|iterations|rounds|epochs|walks|changes|sets|scalings|"
        r"passes|cycles|starts|draws|seconds|memory)\b",
        "maximum number of ...",
    ),
    _rule(r"\bto stop at\b", "stop when no ... changes by more than this"),
    _rule(r"\b0 runs on\b", "0: never"),
    _rule(r"\bmore than there (is|are)\b", "more than is available"),
    _rule(r"\bas ever\b|\bAs ever\b", "as in the base class, as usual"),
    _rule(r"\bno better than\b.*\bthan\b", "one comparison per sentence"),
    # nouns and verbs of daily life for technical things
    _rule(r"\b(method|learner|option|specification)'?s? texts?\b", "specification string"),
    _rule(r"\b(as|from|or|by) a text\b|\ba text (such as|like)\b", "a string"),
    _rule(r"\b(looks? at the clock|two looks|a look between)\b", "check of the clock"),
    _rule(r"\bdear(er|est)\b", "more expensive"),
    _rule(r"\bworth while\b", "worthwhile"),
    _rule(r"\bhangs? together\b", "is connected"),
    _rule(r"\bto and fro\b", "back and forth"),
    _rule(r"\bastronomic\b", "too large"),
    _rule(r"\btaken up again\b", "resumed"),
    _rule(r"\bgo(es)? on (from|with)\b", "continue from"),
    _rule(r"\b([Ww]hose turn|[Bb]y turns|take turns)\b", "alternately, alternates"),
    _rule(
        r"\bstands? (beside|side by side|aside|for itself|alone|at the (left|right))\b",
        "is next to, is separate",
    ),
    _rule(r"\b[Ff]or people\b|\bto people\b", "human-readable, as text"),
    _rule(r"\b[Ww]hom\b", "to which, for which"),
    _rule(r"\b(nobody|anybody)\b", "no one; or name the caller"),
    _rule(r"\brooms? (above|below)\b|\b(upper|lower) rooms?\b", "package"),
    _rule(r"\bof such a (file|text|name)\b", "of this file"),
    _rule(r"\bpromise void\b|\bway there\b|\bride\b", "say what happens"),
)
FIRST = _rule(
    r"^(What|Where|Those|That|Whom|Who|How|When|Of|As)\b(?! of\b.*:)",
    "begin with an imperative or a noun phrase",
)
NAMES = {
    "Desk": "SplitWorkspace",
    "_Standing": "_SearchState",
    "_Turns": "_TimeShares",
    "_told": "_progress_callback",
    "hang_together": "is_connected",
    "_hang_together": "_is_connected",
    "worth_while": "should_continue",
    "what_matters": "a name of the content",
}
"""Riddles among the names of classes and functions."""


@dataclass(frozen=True)
class Text:
    """A docstring, comment or string of a file, or a line of a page, and where it begins."""

    line: int
    words: str
    is_docstring: bool = False


def python_texts(source: str) -> Iterator[Text]:
    """Yield the docstrings, comments and strings of several words of a module."""
    tree = ast.parse(source)
    docstrings = {id(node): node for node in map(_docstring, ast.walk(tree)) if node is not None}
    for node in ast.walk(tree):
        if id(node) in docstrings:
            yield Text(node.lineno, node.value, is_docstring=True)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Text(node.lineno, node.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], token.string.lstrip("# "))


def _docstring(node: ast.AST) -> ast.Constant | None:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    first = node.body[0] if node.body else None
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return None
    return first.value if isinstance(first.value.value, str) else None


def page_texts(page: str) -> Iterator[Text]:
    """Yield the paragraphs of a page in Markdown, without code."""
    fenced = False
    for number, line in enumerate(page.splitlines(), start=1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            yield Text(number, re.sub(r"`[^`]*`", "`x`", line))


def faults_of(text: Text) -> Iterator[tuple[int, str]]:
    """Yield the line of each refused phrase in a text, and the message about it."""
    words = re.sub(r"`[^`\n]*`", "`x`", _without_examples(text.words))
    for rule in RULES:
        for match in rule.phrase.finditer(re.sub(r"\s", " ", words)):
            line = text.line + words.count("\n", 0, match.start())
            yield line, f"'{match[0].strip()}': {rule.better}"
    if text.is_docstring and (match := FIRST.phrase.match(words)):
        yield text.line, f"'{match[0]}': {FIRST.better}"


def _without_examples(words: str) -> str:
    lines, inside = [], False
    for line in words.split("\n"):
        inside = line.lstrip().startswith((">>>", "...")) or (inside and bool(line.strip()))
        lines.append("" if inside else line)
    return "\n".join(lines)


def names_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each class or function whose name is a riddle."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in NAMES:
            yield node.lineno, f"'{node.name}': {NAMES[node.name]}"


def check_file(path: Path) -> list[str]:
    """Return the faults of a module or page, each with its place."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = [fault for text in python_texts(source) for fault in faults_of(text)]
        found += names_of(source)
    else:
        found = [fault for text in page_texts(source) for fault in faults_of(text)]
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    return [f"{name}:{line}: {message}" for line, message in sorted(found)]


def files_below(places: Iterable[Path]) -> list[Path]:
    """Return the modules and pages of files and folders, in order."""
    found: list[Path] = []
    for place in places:
        found += [place] if place.is_file() else [*place.rglob("*.py"), *place.rglob("*.md")]
    return sorted(set(found))


def check(clean: Iterable[str] = CLEAN) -> list[str]:
    """Return the faults of what is listed as clean."""
    places = [ROOT / name for name in clean]
    missing = [
        f"{place} is listed as clean and does not exist" for place in places if not place.exists()
    ]
    return missing + [
        fault for path in files_below(p for p in places if p.exists()) for fault in check_file(path)
    ]


def counts() -> dict[str, int]:
    """Return the number of faults of each package, and of the pages, clean or not."""
    total: Counter[str] = Counter()
    for path in files_below([ROOT / SOURCE, ROOT / "docs", ROOT / "README.md"]):
        parts = path.relative_to(ROOT).parts
        total["/".join(parts[: 3 if parts[0] == "src" else 1])] += len(check_file(path))
    return dict(total)


def main(arguments: list[str]) -> int:
    """Run the tool."""
    if arguments == ["--all"]:
        for name, number in counts().items():
            print(f"{number:5d} {name}")
        return 0
    places = [Path(word).resolve() for word in arguments]
    faults = [f for path in files_below(places) for f in check_file(path)] if places else check()
    print("\n".join(faults) if faults else "english: in order")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
