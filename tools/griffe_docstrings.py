"""Our docstrings as the site wants them: an extension of griffe, which reads the source.

* Bare `>>>` examples are fenced; Markdown would read them as nested quotations. After a section
  such as Parameters, which would swallow them, they become a section of their own.
* `name : what it is` in a Parameters section becomes a name with the text below it; griffe would
  read the text as a type, and it knows the types from the signature. Names that share a text have
  it each: griffe would show them with the type of the first. Entries of numpydoc, `name : type`
  with the text below it, stay as they are.
* Attributes that a docstring lists in a sentence are shown as that sentence.
* Estimators list their options in docstrings that are made with the class and read from there.
* A line `Reference: ...` below a section such as Parameters, which would take it for an entry, goes
  above the first section.
* An option is shown with its default, not with the call that also states its help and range.
* The limits of a run that a function takes as `**within` are shown one by one.
* A line of prose that begins with `>` is kept from becoming a quotation.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ForwardRef

import griffe

from kikuchi.core.budget import RunLimits

_UNDERLINE = re.compile(r"\s*-{3,}\s*$")
_CITED = re.compile(r"References?: ")
_ENTRY = re.compile(r"(\w+(?:, \w+)*) ?: (.*)")
_TYPED = re.compile(r"\w+(?:, \w+)* : [^\n]*[^\n.,;:]\n    +[A-Z`]")
_ATTRIBUTES = re.compile(r"^Attributes\n-{3,}\n((?:.*\S.*\n?)+)\n*", re.MULTILINE)
_NAMES = re.compile(r"\w+(?:, \w+)*(?: ?: .*)?$", re.MULTILINE)


def for_site(text: str) -> str:
    """A docstring ready to be parsed as numpy style and shown as Markdown."""
    text = _attributes_as_prose(_no_quotations(text))
    return fence_doctests(_entries_below_names(_references_first(text)))


def fence_doctests(text: str) -> str:
    """The text with each run of `>>>` lines and their output inside a fence."""
    lines = text.splitlines()
    out: list[str] = []
    inside = fenced = in_section = False
    for number, line in enumerate(lines):
        mark = line.lstrip()
        fenced ^= mark.startswith("```")
        if _UNDERLINE.match(line) and number:
            in_section = True
            if lines[number - 1].strip() == "Examples":  # griffe reads what is below as examples
                return "\n".join([*out, *lines[number:]])
        if not fenced and not inside and mark.startswith(">>> "):
            if out and out[-1].strip():
                out.append("")
            if in_section:
                return "\n".join([*out, "Examples", "--------", *lines[number:]])
            out.append("```pycon")
            inside = True
        elif inside and not mark:
            out.append("```")
            inside = False
        out.append(line)
    return "\n".join([*out, "```"] if inside else out)


def _references_first(text: str) -> str:
    lines = text.splitlines()
    heads = [k - 1 for k, line in enumerate(lines) if k and _UNDERLINE.match(line)]
    below = [k for k, line in enumerate(lines) if heads and k > heads[0] and _CITED.match(line)]
    if not below:
        return text
    first = end = below[0]
    while end < len(lines) and lines[end].strip() and not lines[end].lstrip().startswith(">>>"):
        end += 1
    cited = lines[first:end]
    return "\n".join([*lines[: heads[0]], *cited, "", *lines[heads[0] : first], *lines[end:]])


def _attributes_as_prose(text: str) -> str:
    """Attributes that are listed in a sentence, as a paragraph above the first section."""
    found = _ATTRIBUTES.search(text)
    if found is None or _NAMES.match(found[1]):
        return text
    rest = text[: found.start()] + text[found.end() :]
    head = re.search(r"^\w+\n-{3,}$|^>>> ", rest, re.MULTILINE)
    place = len(rest) if head is None else head.start()
    return f"{rest[:place].rstrip()}\n\nAttributes: {found[1].strip()}\n\n{rest[place:]}".rstrip()


def _entries_below_names(text: str) -> str:
    out: list[str] = []
    names: list[str] = []  # of the entry that is being read
    described: list[str] = []
    in_parameters = False

    def end_entry() -> None:
        for name in names:
            out.extend([name, *described])
        names.clear()
        described.clear()

    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if _UNDERLINE.match(line) and out:
            in_parameters = out[-1].strip() in ("Parameters", "Attributes")
        entry = _ENTRY.match(line) if in_parameters else None
        if entry and _TYPED.match(f"{line}\n{following}"):  # numpydoc already
            end_entry()
            entry = None
        if entry or not line.startswith("    "):
            end_entry()
        if entry:
            names += entry[1].split(", ")
            described.append(f"    {entry[2]}")
        else:
            (described if names else out).append(line)
    end_entry()
    return "\n".join(out)


def _no_quotations(text: str) -> str:
    return re.sub(r"^(\s*)>(?!>> )", r"\1&gt;", text, flags=re.MULTILINE)


class HouseDocstrings(griffe.Extension):
    """Applies `for_site` to every docstring."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Called by griffe when it has read an attribute, before dataclasses get signatures."""
        attr.value = plain_default(attr.value)

    def on_function_instance(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Called by griffe when it has read a function."""
        func.parameters = griffe.Parameters(*named_limits(func.parameters))

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called by griffe for each object after it is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = for_site(_listed_options(obj) or obj.docstring.value)


def plain_default(value: Any) -> Any:
    """The default of an option: `1` of `option(1, "Number of sources.", low=1)`."""
    if isinstance(value, griffe.ExprCall) and str(value.function) == "option" and value.arguments:
        return value.arguments[0]
    return value


def named_limits(parameters: griffe.Parameters) -> Iterator[griffe.Parameter]:
    """The parameters with `**within` as the budget, the seconds and the memory that it takes."""
    for parameter in parameters:
        if str(parameter.annotation) != "Unpack[RunLimits]":
            yield parameter
            continue
        for name, kind in RunLimits.__annotations__.items():
            shown = kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
            yield griffe.Parameter(
                name, annotation=shown, kind=griffe.ParameterKind.keyword_only, default="None"
            )


def _listed_options(obj: griffe.Object) -> str | None:
    """The docstring of an estimator as it is when the program runs; None for all else."""
    if not obj.is_class or "option(" not in (obj.source or ""):
        return None
    cls = getattr(import_module(obj.module.path), obj.name, None)
    document = getattr(cls, "__doc__", None) or ""
    return inspect.cleandoc(document) if "\nParameters\n" in document else None
