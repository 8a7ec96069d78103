"""Runs the examples of the documents, so that what a reader copies works and prints what is shown.

    python tools/examples.py             run every page; exit code 1 if anything disagrees
    python tools/examples.py --update    also write what was really printed into the pages

How a page is read, from top to bottom, in an empty folder of its own:

* a fence with `title="name"` (not Python) is written to that file;
* a `python` fence is run; all fences of a page share one namespace. If a `text` fence comes next,
  it is what the code prints;
* a picture `images/guides/NAME.png` that the page shows is one that its examples write as NAME.png;
  the stored one must have its size, and `--update` stores it anew;
* a `console` fence holds commands after `$ ` (`kikuchi`, `cat`), each followed by its output;
* outputs are compared by `tools/outputs.py`: words exactly, figures within a relative tolerance of
  0.001, times not at all. A comment `<!-- tolerance: 0.1 -->` above an output states another one,
  for results that depend on rounding or on draws; a line `...` stands for lines that are left out;
* any other fence is not run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import struct
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from outputs import TOLERANCE, same

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("index.md", "tutorial.md", "reproduce.md", "from-*.md", "how-to/*.md", "reference/*.md")

_OPEN = re.compile(r"```(\w+)(?:\s+title=\"([^\"]+)\")?\s*$")
_TOLERANCE = re.compile(r"<!-- tolerance: (\d+(?:\.\d+)?) -->\s*$")
_RUN = re.compile(r"^```(?:python|console)", re.MULTILINE)
_WIDTH = "100"
_PICTURE = re.compile(r"\((?:\.\./)?images/guides/([\w-]+\.png)\)")
PICTURES = ROOT / "docs" / "images" / "guides"
_DPI = 90


@dataclass
class Fence:
    """One fenced block: its language, title, text, the lines between the fences, and how close
    the figures of a run must be to those shown."""

    language: str
    title: str
    text: str
    first: int
    last: int
    tolerance: float = TOLERANCE


@dataclass
class Fault:
    """A place where a page and the program disagree; `got` is what belongs there, if known."""

    page: str
    line: int
    what: str
    fence: Fence | None = None
    got: str | None = None

    def __str__(self) -> str:
        return f"{self.page}, line {self.line}: {self.what}"


def pages(docs: Path = ROOT / "docs") -> list[Path]:
    """The pages whose examples are run: those that have any."""
    found = [path for pattern in PAGES for path in sorted(docs.glob(pattern))]
    return [path for path in found if _RUN.search(path.read_text(encoding="utf-8"))]


def shown_pictures(path: Path) -> list[str]:
    """Names of the pictures of a page that its own examples draw."""
    return _PICTURE.findall(path.read_text(encoding="utf-8"))


def fences(text: str) -> list[Fence]:
    """The fenced blocks of a page, in order."""
    found: list[Fence] = []
    opened: tuple[str, str, int] | None = None
    body: list[str] = []
    tolerance = TOLERANCE
    for number, line in enumerate(text.splitlines()):
        match = _OPEN.match(line)
        if opened is None and match:
            opened, body = (match[1], match[2] or "", number + 1), []
        elif opened is not None and line.strip() == "```":
            language, title, first = opened
            shown = "".join(b + "\n" for b in body)
            found.append(Fence(language, title, shown, first, number, tolerance))
            opened, tolerance = None, TOLERANCE
        elif opened is not None:
            body.append(line)
        elif stated := _TOLERANCE.match(line):
            tolerance = float(stated[1])
    return found


def run_page(path: Path, *, store: bool = False) -> list[Fault]:
    """Run one page in a folder of its own; with `store` keep the pictures that it draws."""
    import matplotlib as mpl

    from kikuchi.methods.registry import METHODS
    from kikuchi.training import kinds

    text = path.read_text(encoding="utf-8")
    name = path.name
    known = set(METHODS)
    module = ModuleType(f"page_{path.stem.replace('-', '_')}")
    sys.modules[module.__name__] = module
    looks = mpl.rc_context({"savefig.dpi": _DPI, "savefig.facecolor": "white"})
    with tempfile.TemporaryDirectory() as folder, _inside(Path(folder)), looks:
        try:
            faults = list(_run_fences(name, text, module))
            return [*faults, *_check_pictures(name, text, store)]
        finally:
            del sys.modules[module.__name__]
            for method in set(METHODS) - known:  # what the page added
                METHODS.remove(method)
            kinds.forget_registered()


def _check_pictures(name: str, text: str, store: bool) -> Iterator[Fault]:
    for number, line in enumerate(text.splitlines(), start=1):
        for picture in _PICTURE.findall(line):
            drawn, stored = Path(picture), PICTURES / picture
            if not drawn.exists():
                yield Fault(name, number, f"shows {picture}, which its examples do not draw")
            elif store:
                PICTURES.mkdir(parents=True, exist_ok=True)
                shutil.copy(drawn, stored)
            elif not stored.exists() or _size(stored) != _size(drawn):
                yield Fault(name, number, f"{picture} is old; run tools/examples.py --update")


def _size(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG file, which stand in its header."""
    with picture.open("rb") as file:
        return struct.unpack(">II", file.read(24)[16:])


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    saved = {key: os.environ.get(key) for key in ("COLUMNS", "MPLBACKEND")}
    os.environ.update(COLUMNS=_WIDTH, MPLBACKEND="Agg")
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        for key, value in saved.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _run_fences(name: str, text: str, module: ModuleType) -> Iterator[Fault]:
    blocks = fences(text)
    lines = text.splitlines()
    for k, block in enumerate(blocks):
        if block.language == "python":
            following = blocks[k + 1] if k + 1 < len(blocks) else None
            adjacent = following is not None and not any(
                line.strip() and not _TOLERANCE.match(line)
                for line in lines[block.last + 1 : following.first - 1]
            )
            shown = following if adjacent and following.language == "text" else None
            fault = _run_python(name, block, shown, module)
            if fault is not None:
                yield fault
        elif block.language == "console":
            yield from _run_console(name, block)
        elif block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")


def _run_python(name: str, block: Fence, shown: Fence | None, module: ModuleType) -> Fault | None:
    printed = io.StringIO()
    code = compile("\n" * block.first + block.text, f"{name} (example)", "exec")
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, module.__dict__)
    except Exception:
        last = traceback.format_exc().strip().splitlines()[-1]
        return Fault(name, block.first, f"the example fails: {last}")
    got = printed.getvalue()
    if shown is None:
        return Fault(name, block.first, f"prints without showing it: {got}") if got else None
    if same(shown.text, got, shown.tolerance):
        return None
    return Fault(name, shown.first, f"shows\n{shown.text}but prints\n{got}", shown, got)


def _run_console(name: str, block: Fence) -> Iterator[Fault]:
    parts = re.split(r"^\$ (.*(?:\\\n.*)*)\n", block.text, flags=re.MULTILINE)
    real = [parts[0]]
    wrong = []
    for command, shown in zip(parts[1::2], parts[2::2], strict=True):
        got = _run_command(command.replace("\\\n", " "))
        alike = same(shown, got, block.tolerance)
        real.append(f"$ {command}\n" + (shown if alike else got))
        if not alike:
            wrong.append(f"$ {command}\nshows\n{shown}but prints\n{got}")
    if wrong:
        yield Fault(name, block.first, "\n".join(wrong), block, "".join(real))


def _run_command(command: str) -> str:
    program, *arguments = shlex.split(command)
    if program == "cat":
        return "".join(_contents(file) for file in arguments)
    if program != "kikuchi":
        return f"{program}: only kikuchi and cat are run; use a sh fence for other commands\n"
    from typer.testing import CliRunner

    from kikuchi.cli.main import app

    result = CliRunner(env={"COLUMNS": _WIDTH}).invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"{result.output}{type(result.exception).__name__}: {result.exception}\n"
    return result.output


def _contents(file: str) -> str:
    path = Path(file)
    return path.read_text(encoding="utf-8") if path.is_file() else f"cat: {file}: no such file\n"


def _trimmed(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.strip("\n").splitlines())


def update(path: Path, faults: list[Fault]) -> None:
    """Write what was printed into the page, from the bottom up so that line numbers hold."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for fault in sorted(faults, key=lambda f: -f.line):
        if fault.fence is not None and fault.got is not None:
            lines[fault.fence.first : fault.fence.last] = _trimmed(fault.got).splitlines()
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="write real outputs into the pages")
    parser.add_argument("pages", nargs="*", type=Path, help="pages to run; all when left out")
    options = parser.parse_args(arguments)
    wrong = 0
    for path in options.pages or pages():
        faults = run_page(path.resolve(), store=options.update)
        if options.update:
            update(path, faults)
        for fault in faults:
            print(fault)
        wrong += len(faults)
    print(f"examples: {wrong} faults" if wrong else "examples: all run as shown")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
