"""How long programs that a new user runs first are silent, with empty caches.

A program runs on a terminal of its own. Its longest silence is the longest time between two
outputs, in seconds of the clock or of the processor, whichever are fewer, so that other programs on
the machine do not count. A silence right after a line that says how long it may last is explained.
What a program imports from other libraries is imported before the clock starts.
"""

from __future__ import annotations

import ast
import atexit
import functools
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import HERE, Row

DOCS = HERE.parent / "docs"
LONGEST_SILENCE = 2.0  # seconds
_STOPPED_AFTER = 90.0  # processor seconds; longer programs have shown by then how they report
_TICKS = os.sysconf("SC_CLK_TCK")
_LARGE = "jax, matplotlib.pyplot, numba.core.registry, pandas, scipy.optimize, sklearn.mixture"
_BEGIN = "imported what others provide"
_FUTURE = "from __future__ import annotations\n"
_EXPLAINED = re.compile(r"(?:mostly )?for (\d+) to (\d+) seconds\.")  # the notices of compiling
_FENCE = re.compile(
    r"^```(?P<language>\w+)(?:\s+title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


class Ran(NamedTuple):
    """What a process wrote, and the longest time that it wrote nothing."""

    output: str
    code: int
    silence: float
    last_words: str  # before the longest silence
    stopped: bool


class _Silence:
    """The longest unexplained time between two outputs of a process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.longest, self.last_words = 0.0, ""
        self.since = time.monotonic(), 0.0
        self.processor = 0.0

    def look(self) -> None:
        """Take the processor time of the process and of all that it started."""
        self.processor = max(self.processor, _processor_seconds(self.pid))

    def ends(self, written: bytes, piece: bytes) -> None:
        """There is a piece of output, or none any more."""
        self.look()
        now = time.monotonic(), self.processor
        taken = min(b - a for a, b in zip(self.since, now, strict=True))
        words = written.decode(errors="replace")
        begins = not written and piece.decode(errors="replace").startswith(_BEGIN)
        if not begins and taken > max(self.longest, _promised(words)):
            self.longest, self.last_words = taken, words[-100:]
        self.since = now


def _promised(words: str) -> float:
    """How long the last line says that the wait may be."""
    lines = words.split("\n")
    said = _EXPLAINED.search(next((line for line in reversed(lines) if line.strip()), ""))
    return float(said[2]) if said else 0.0


def _processor_seconds(pid: int) -> float:
    """Of a process, of those that it started, and of those that it waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended
        return 0.0
    own = sum(map(int, fields[11:15])) / _TICKS
    return own + sum(_processor_seconds(int(child)) for child in children)


def run_watched(words: list[str], cwd: Path, environment: dict[str, str]) -> Ran:
    """Run a command on a terminal of its own, and note when it writes."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        words, cwd=cwd, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    silence, written, stopped = _Silence(process.pid), b"", False
    while True:
        ready, _, _ = select.select([ours], [], [], 0.1)
        silence.look()
        if not stopped and silence.processor > _STOPPED_AFTER:
            stopped = True
            os.killpg(process.pid, signal.SIGKILL)
        if not ready:
            continue
        piece = b""
        with suppress(OSError):  # the other end of the terminal is closed
            piece = os.read(ours, 65536)
        silence.ends(written, piece)
        if not piece:
            break
        written += piece
    os.close(ours)
    code = 0 if stopped else process.wait()
    process.wait()
    text = written.decode(errors="replace")
    return Ran(text, code, silence.longest, silence.last_words, stopped)


@functools.cache
def _byte_code() -> str:
    """A folder with the byte code of large packages: one that installs them makes it."""
    folder = tempfile.mkdtemp(prefix="kikuchi-bytecode-")
    atexit.register(shutil.rmtree, folder)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = folder
    subprocess.run([sys.executable, "-c", f"import {_LARGE}"], env=environment, check=True)
    return folder


def fresh(folder: Path, clone: bool) -> dict[str, str]:
    """An environment whose cache folders are in `folder`; there is byte code, as usual."""
    without = ("NUMBA_CACHE_DIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if k not in without}
    kept["PYTHONPYCACHEPREFIX"] = _byte_code()
    if clone:
        kept["PYTHONPATH"] = str(HERE.parent / "src")
    return {**kept, "XDG_CACHE_HOME": str(folder), "MPLCONFIGDIR": str(folder)}


def _row(name: str, words: list[str], folder: Path, clone: bool) -> Row:
    with tempfile.TemporaryDirectory(prefix="kikuchi-cache-") as caches:
        ran = run_watched(words, folder, {**fresh(Path(caches), clone), "MPLBACKEND": "agg"})
    met = ran.code == 0 and ran.silence <= LONGEST_SILENCE
    note = f"stopped after {_STOPPED_AFTER:g} processor seconds" if ran.stopped else ""
    if not met:
        note = f"exit {ran.code}; silent after {ran.last_words!r} {note}"
        note += ran.output[-300:] if ran.code else ""
    return Row(name, ran.silence, "s of silence", target="<= 2", met=met, note=note)


# ---------------------------------------------------------------------- what is run


def readme_waits(python: str, *, clone: bool, only: str = "") -> Iterator[Row]:
    """Every command and program of the README."""
    from tests.docs.readme_files import COMMANDS, README, write_files

    with tempfile.TemporaryDirectory(prefix="kikuchi-contact-") as name:
        folder = Path(name)
        write_files(folder)
        for line in dict.fromkeys(COMMANDS):
            if only in line:
                words = [python, "-m", "kikuchi", *shlex.split(line)[1:]]
                yield _row(line, words, folder, clone)
        programs = [f["text"] for f in _FENCE.finditer(README) if f["language"] == "python"]
        imported = ""  # by the programs above
        for number, program in enumerate(programs, start=1):
            if only in (title := f"README.md, program {number}"):
                yield _row(title, _script(python, folder, imported + program), folder, clone)
            imported += "".join(f"{ast.unparse(line)}\n" for line in _imports(program))


def notebook_waits(python: str, *, clone: bool, only: str = "") -> Iterator[Row]:
    """The first cell of every notebook."""
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        if only not in path.name:
            continue
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        first = "".join(next(c["source"] for c in cells if c["cell_type"] == "code"))
        program = re.sub(r"^%.*$", "", first, flags=re.MULTILINE)
        with tempfile.TemporaryDirectory(prefix="kikuchi-contact-") as name:
            words = _script(python, Path(name), program)
            yield _row(f"notebooks/{path.name}, first cell", words, Path(name), clone)


def guide_waits(python: str, *, clone: bool, only: str = "") -> Iterator[Row]:
    """The first program or commands of every page, with the files that stand before it."""
    pages = [DOCS / "index.md", DOCS / "tutorial.md", *sorted(DOCS.glob("from-*.md"))]
    for path in [*pages, *sorted((DOCS / "how-to").glob("*.md"))]:
        if only not in path.name:
            continue
        with tempfile.TemporaryDirectory(prefix="kikuchi-contact-") as name:
            for title, words in _first(path, Path(name), python):
                yield _row(f"{path.name}: {title}", words, Path(name), clone)


def _first(path: Path, folder: Path, python: str) -> Iterator[tuple[str, list[str]]]:
    for fence in _FENCE.finditer(path.read_text(encoding="utf-8")):
        if fence["language"] == "python":
            yield "first program", _script(python, folder, fence["text"])
            return
        if fence["language"] == "console":
            for line in fence["text"].splitlines():
                if line.startswith("$ kikuchi "):
                    yield line, [python, "-m", "kikuchi", *shlex.split(line)[2:]]
            return
        if fence["title"]:
            (folder / fence["title"]).write_text(fence["text"], encoding="utf-8")


def _script(python: str, folder: Path, program: str) -> list[str]:
    others = "".join(f"{line}\n" for line in _imports_of_others(program))
    begin = f"{others}print({_BEGIN!r}, flush=True)\n"
    future = _FUTURE if _FUTURE in program else ""  # which must come first
    text = future + begin + program.replace(_FUTURE, "")
    (folder / "program.py").write_text(text, encoding="utf-8")
    return [python, "program.py"]


def _imports(program: str) -> list[ast.Import | ast.ImportFrom]:
    return [n for n in ast.parse(program).body if isinstance(n, ast.Import | ast.ImportFrom)]


def _imports_of_others(program: str) -> list[str]:
    lines = [ast.unparse(node) for node in _imports(program)]
    return [
        line for line in lines if line.split()[1].split(".")[0] not in ("kikuchi", "__future__")
    ]
