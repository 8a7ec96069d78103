"""Every argument of what is public is described, and catalogue codes stay out of prose."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from project_tools import ROOT

import kikuchi
from kikuchi_experiments.applications import detection

FAMILIES = ("boltzmann", "energy", "ica", "beliefnets", "bayesnn", "temporal", "flows", "neural")
PUBLIC = ("brackets", "generate", "graphs", "learning", "methods", "queries", "regions")
CODE = re.compile(r"\b(?:TEH|LIU|HOJ|WH|LAW)-[A-Z]\d+")


def public() -> Iterator[tuple[str, Any]]:
    """Names and what they stand for: those of the package, its families and symbol detection."""
    for name in ("mimo", "channel_uses", "detect"):
        yield name, getattr(detection, name)
    for name in kikuchi.__all__:
        if name != "__version__":
            yield name, getattr(kikuchi, name)
    for room in (*PUBLIC, *FAMILIES):
        try:
            module = importlib.import_module(f"kikuchi.{room}")
        except ModuleNotFoundError:
            continue
        for name in getattr(module, "__all__", ()):
            yield f"{room}.{name}", getattr(module, name)


def described(text: str, name: str) -> bool:
    """Whether a docstring names an argument: in backquotes, or as an entry of its list, with its
    type after a colon or without a type above a description that is indented further.
    """
    names = rf"^( *)(?:\*{{0,2}}\w+, )*\*{{0,2}}{re.escape(name)}(?:, \*{{0,2}}\w+)* ?"
    quoted = rf"`{re.escape(name)}[`=\[]"
    entries = (rf"{names}:(?:\s|$)", rf"{names}\n\1 +\S")
    return any(re.search(found, text, re.MULTILINE) for found in (quoted, *entries))


def missing(thing: Any) -> list[str]:
    """Arguments that the docstring says nothing about."""
    text = inspect.getdoc(thing) or ""
    if dataclasses.is_dataclass(thing):
        fields = [f for f in dataclasses.fields(thing) if f.init and not f.name.startswith("_")]
        return [
            f.name for f in fields if not f.metadata.get("help") and not described(text, f.name)
        ]
    if inspect.isclass(thing):
        if issubclass(thing, BaseException) or thing.__init__ is object.__init__:
            return []
        text += thing.__init__.__doc__ or ""
        names = list(inspect.signature(thing.__init__).parameters)[1:]
    elif callable(thing):
        names = list(inspect.signature(thing).parameters)
    else:
        return []
    return [name for name in names if not name.startswith("_") and not described(text, name)]


PUBLIC = list(public())


@pytest.mark.parametrize(("name", "thing"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_every_argument_is_described(name: str, thing: Any) -> None:
    assert missing(thing) == [], name


def methods(cls: type) -> Iterator[tuple[str, Any, list[str]]]:
    """Public methods that a class has from this package, with the names of their arguments."""
    for name in dir(cls):
        owner = next((base for base in cls.__mro__ if name in vars(base)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith("kikuchi."):
            continue
        kept = vars(owner)[name]
        bound = not isinstance(kept, staticmethod)
        function = kept.__func__ if isinstance(kept, classmethod | staticmethod) else kept
        if inspect.isfunction(function) and function.__module__.startswith("kikuchi."):
            yield name, function, list(inspect.signature(function).parameters)[bound:]


def missing_of_methods(cls: type) -> list[str]:
    """Arguments of methods that nothing describes: not the method's docstring, nor that of the
    method of a base class which it replaces. Where the method says so, those of the class count.
    """
    found = []
    for name, function, arguments in methods(cls):
        own = inspect.getdoc(function) or ""
        bases = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
        text = "\n".join([own, *(inspect.getdoc(base) or "" for base in bases)])
        if "those of the class" in own:
            text += inspect.getdoc(cls) or ""
        found += [
            f"{name}({argument})"
            for argument in arguments
            if not argument.startswith("_") and not described(text, argument)
        ]
    return found


CLASSES = [(name, thing) for name, thing in PUBLIC if inspect.isclass(thing)]


@pytest.mark.parametrize(("name", "cls"), CLASSES, ids=[name for name, _ in CLASSES])
def test_every_argument_of_every_method_is_described(name: str, cls: type) -> None:
    assert missing_of_methods(cls) == [], name


def test_an_argument_without_a_word_is_seen() -> None:
    def named(first: int, second: int = 0) -> None:
        """Takes `first`."""

    assert missing(named) == ["second"]


def test_entries_of_lists_with_and_without_types_are_seen() -> None:
    def named(first: int, second: int, third: int, fourth: int) -> None:
        """Takes numbers.

        Parameters
        ----------
        first : int
            A number.
        second, third
            Two numbers.
        fourth
        """

    assert missing(named) == ["fourth"]


def test_a_method_may_leave_its_words_to_the_base_class() -> None:
    class Base:
        def told(self, first: int, second: int = 0) -> None:
            """Takes `first` and `second`."""

        @classmethod
        def silent(cls, third: int) -> None:
            """Takes something."""

    class Child(Base):
        def told(self, first: int, second: int = 0) -> None:
            """Does the same."""

    Base.__module__ = Child.__module__ = "kikuchi.somewhere"
    for function in (Base.told, Child.told, Base.silent.__func__):
        function.__module__ = "kikuchi.somewhere"
    assert missing_of_methods(Base) == ["silent(third)"]
    assert missing_of_methods(Child) == ["silent(third)"]


def test_options_state_their_defaults_as_they_are() -> None:
    from kikuchi.boltzmann import RBM
    from kikuchi.methods.registry import METHODS

    document = inspect.getdoc(RBM) or ""
    for field in dataclasses.fields(RBM):
        if field.init and field.default is not dataclasses.MISSING:
            entry = re.search(rf"^{field.name} :(.*(?:\n +.*)*)", document, re.MULTILINE)
            assert entry is not None, field.name
            assert str(field.default).rstrip("0").rstrip(".") in entry[1], (field.name, entry[1])
    assert len(METHODS) > 20


def texts() -> Iterator[tuple[str, str, str]]:
    """Where, the kind, and the text of every docstring and other text in the source; that of the
    experiments themselves, which are called by their codes, is left out.
    """
    beside = ROOT / "experiments/src/kikuchi_experiments"
    folders = [ROOT / "src/kikuchi", beside / "applications", beside / "data"]
    for path in [path for folder in folders for path in sorted(folder.rglob("*.py"))]:
        where = str(path.relative_to(ROOT))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documents = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                first = node.body[0] if node.body else None
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    documents.add(id(first.value))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                kind = "docstring" if id(node) in documents else "text"
                yield f"{where}:{node.lineno}", kind, node.value


def without_references(text: str) -> str:
    """A docstring without its line of references, and without its examples."""
    return re.sub(r"References?: [^\n]*(?:\n[^\n]+)*", "", text.partition(">>>")[0])


def test_codes_of_the_catalogues_are_in_reference_lines_only() -> None:
    wrong = [
        f"{where}: {CODE.search(without_references(text))[0]}"
        for where, kind, text in texts()
        if CODE.search(without_references(text))
    ]
    assert not wrong, "\n".join(wrong)


def test_guides_name_no_codes() -> None:
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs").glob("how-to/*.md"),
        *(ROOT / "docs").glob("reference/*.md"),
        *(ROOT / "docs").glob("notebooks/*.ipynb"),
    ]
    assert len(pages) > 45
    own = ("coverage.md", "reproduce.md", "benchmarks.md", "glossary.md")  # explain or list them
    wrong = [
        f"{Path(page).name}: {found[0]}"
        for page in pages
        if page.name not in own
        for found in CODE.finditer(re.sub(r"kikuchi reproduce [^`\n]*", "", page.read_text()))
    ]
    assert not wrong, "\n".join(wrong)
