"""Reading files within a memory limit, writing them atomically, and one-line errors.

Every file is read through this module: `read_bytes` and `read_text` read whole files, and
`guarded_reading` wraps the calls of a library that reads a file itself.
"""

from __future__ import annotations

import csv
import glob
import io
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any

from kikuchi.core.budget import DEFAULT_BYTES, format_bytes
from kikuchi.core.errors import (
    BudgetError,
    DataError,
    FormatError,
    KikuchiError,
    MissingDataFileError,
    MissingModelFileError,
)
from kikuchi.core.text import one_line

PathName = str | PathLike[str]

_CHUNK = 1 << 20
_BYTES_PER_LETTER_OF_JSON = 30  # an empty list takes two characters and 56 bytes
_BYTES_PER_LETTER_OF_TEXT = 24  # a line, its parts and its cells, of two characters each
_MOST_DIGITS = 308  # digits of an integer that is certainly below the largest double
_LIMIT: ContextVar[int | None] = ContextVar("bytes for reading a file", default=DEFAULT_BYTES)


# ---------------------------------------------------------------------- reading


@contextmanager
def reading_limit(size: int | None) -> Iterator[None]:
    """Context manager in which a file that needs more than `size` bytes to read raises an error.

    Outside, the limit is that of a `Budget`; None means unlimited.

    >>> with reading_limit(1000):
    ...     require_room("a.npy", 8000, "an array")
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.BudgetError: a.npy: an array takes 8 kB to read, but 1 kB is the limit; \
use a smaller file, or raise the limit (--memory, or reading_limit in Python)
    """
    token = _LIMIT.set(size)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def require_room(path: PathName, needed: int | float, what: str) -> None:
    """Raise a `BudgetError` if reading needs more bytes than the limit, before they are
    allocated.
    """
    limit = _LIMIT.get()
    if limit is not None and needed > limit:
        raise BudgetError(
            f"{fspath(path)}: {what} takes {format_bytes(needed)} to read, but "
            f"{format_bytes(limit)} is the limit; use a smaller file, or raise the limit "
            "(--memory, or reading_limit in Python)"
        )


def affordable(most: int, bytes_each: int) -> int:
    """Return how many items of a given size to read at once, within half the reading limit.

    >>> with reading_limit(1000):
    ...     affordable(100, 8), affordable(10, 8), affordable(10, 4000)
    (62, 10, 1)
    """
    limit = _LIMIT.get()
    return most if limit is None else max(1, min(most, limit // (2 * bytes_each)))


@contextmanager
def guarded_reading(
    path: PathName, what: str, error: type[DataError] | type[FormatError] = DataError
) -> Iterator[None]:
    """Context manager in which a library reads a file; any exception becomes a one-line error.

    Only calls of libraries belong in the block. They raise arbitrary exceptions on a corrupt file
    (of zip, zlib, tokens, memory, recursion), so no list of types is complete. Our own checks of
    the content belong after the block.

    >>> with guarded_reading("a.npz", "NumPy arrays"):
    ...     raise EOFError
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.DataError: a.npz: cannot be read as NumPy arrays: it ends too early; \
use another file
    """
    try:
        yield
    except KikuchiError:
        raise
    except Exception as fault:
        why = f"cannot be read as {what}: {_reason(fault)}"
        if isinstance(fault, OSError) and fault.errno is not None and fault.strerror:
            why = f"cannot be read: {fault.strerror}"
        if isinstance(fault, FileNotFoundError):
            if error is FormatError:
                raise MissingModelFileError(path, None, why, "check the name") from None
            raise MissingDataFileError(f"{fspath(path)}: {why}; check the name") from None
        if error is FormatError:
            raise FormatError(path, None, why, "use another file") from None
        raise DataError(f"{fspath(path)}: {why}; use another file") from None


def _reason(fault: Exception) -> str:
    if isinstance(fault, MemoryError):
        return "it needs more memory than is available"
    if isinstance(fault, RecursionError):
        return "it is nested too deeply"
    if isinstance(fault, NameError):  # a library failed before it assigned a variable that it uses
        return "part of it is missing"
    if isinstance(fault, EOFError) and not str(fault):
        return "it ends too early"
    text = one_line(str(fault)) or type(fault).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def is_compressed(path: PathName) -> bool:
    """Whether the name ends in .gz, ignoring case."""
    return fspath(path).lower().endswith(".gz")


def suffix_of(path: PathName) -> str:
    """Return the suffix that determines the format of a file: in lower case, without `.gz`.

    >>> suffix_of("a/Rows.CSV.gz"), suffix_of("noname")
    ('.csv', '')
    """
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


def read_bytes(path: PathName, error: type[DataError] | type[FormatError] = DataError) -> bytes:
    """Return the bytes of a file, decompressed if its name ends in .gz, within the reading
    limit.
    """
    with guarded_reading(path, "a file", error), Path(path).open("rb") as file:
        return read_stream(file, path, packed=is_compressed(path), error=error)


def read_stream(
    file: IO[bytes],
    name: PathName,
    *,
    packed: bool,
    error: type[DataError] | type[FormatError] = DataError,
) -> bytes:
    """Return all bytes of an open file, decompressed if it is `packed` by gzip; `name` is for
    messages.
    """
    import gzip

    content = io.BytesIO()
    source: Any = gzip.GzipFile(fileobj=file) if packed else file
    with guarded_reading(name, "gzip data" if packed else "a file", error):
        while piece := source.read(_CHUNK):
            content.write(piece)
            require_room(name, content.tell(), "its content" + " unpacked" * packed)
    return content.getvalue()


def read_text(path: PathName, error: type[DataError] | type[FormatError] = DataError) -> str:
    """Return the text of a UTF-8 file, decompressed if its name ends in .gz."""
    data = read_bytes(path, error)
    with guarded_reading(path, "text", error):
        return data.decode("utf-8-sig")


def parse_json(
    path: PathName, data: bytes | str, expected: str, *, pairs: Callable[..., Any] | None = None
) -> Any:
    """Return the JSON content of a file; every reader of JSON calls this.

    Invalid JSON raises a `FormatError`. So do nesting that is too deep, `NaN` and `Infinity`, which
    Python would accept, and integers too large for a double, which would fail wherever they are
    converted.

    Parameters
    ----------
    path : PathName
        Name of the file, for messages.
    data : bytes or str
        Its content.
    expected : str
        What the file should contain, for messages.
    pairs : Callable[..., Any], optional
        Called with the list of key and value pairs of each object, in place of `dict`.

    >>> parse_json("a.json", "[1, 2", "expected a list")
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.FormatError: a.json, line 1: found invalid JSON (Expecting ',' delimiter); \
expected a list
    """
    require_room(path, _BYTES_PER_LETTER_OF_JSON * len(data), "its JSON")
    try:
        return json.loads(
            data, object_pairs_hook=pairs, parse_int=_json_integer, parse_constant=_no_json_constant
        )
    except (ValueError, RecursionError) as fault:
        line, why = getattr(fault, "lineno", None), getattr(fault, "msg", None)
        raise FormatError(
            path, line, f"found invalid JSON ({why or _reason(fault)})", expected
        ) from None


def _json_integer(word: str) -> int:
    digits = len(word) - word.startswith("-")
    if digits > _MOST_DIGITS:
        raise ValueError(f"an integer of {digits} digits, more than {_MOST_DIGITS}")
    return int(word)


def _no_json_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


@contextmanager
def open_text(path: PathName) -> Iterator[IO[str]]:
    """Open a text file in UTF-8 for reading piece by piece, decompressed if it ends in .gz."""
    import gzip

    with ExitStack() as opened:
        with guarded_reading(path, "text"):
            raw: Any = opened.enter_context(Path(path).open("rb"))
            packed: Any = gzip.GzipFile(fileobj=raw) if is_compressed(path) else raw
        yield opened.enter_context(io.TextIOWrapper(packed, encoding="utf-8-sig", newline=""))


def limited_rows(lines: Iterator[str], path: PathName, delimiter: str) -> Iterator[list[str]]:
    """Yield the rows of cells of a text, each within the reading limit.

    Quoted cells may span several lines, so a row can be arbitrarily long although each of its lines
    is short.

    >>> list(limited_rows(iter(['a,"two\\n', 'lines"\\n']), "a.csv", ","))
    [['a', 'two\\nlines']]
    """
    letters = 0

    def counted() -> Iterator[str]:
        nonlocal letters
        for line in lines:
            letters += len(line)
            require_room(path, _BYTES_PER_LETTER_OF_TEXT * letters, "a row")
            yield line

    with guarded_reading(path, "text"):
        for row in csv.reader(counted(), delimiter=delimiter):
            letters = 0
            yield row


def limited_lines(file: IO[str], path: PathName) -> Iterator[str]:
    """Yield the lines of an open text, each within the reading limit.

    Iterating over a file reads a line of any length, and a small compressed file may contain one
    that does not fit into memory.
    """
    while True:
        pieces: list[str] = []
        length = 0
        with guarded_reading(path, "text"):
            while piece := file.readline(_CHUNK):
                pieces.append(piece)
                length += len(piece)
                require_room(path, _BYTES_PER_LETTER_OF_TEXT * length, "a line")
                if piece.endswith(("\n", "\r")):
                    break
        if not pieces:
            return
        yield pieces[0] if len(pieces) == 1 else "".join(pieces)


# ---------------------------------------------------------------------- writing

_TEMPORARY = ".part"


@contextmanager
def atomic_write(path: str | PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; rename it over `path` only if the block succeeds.

    A symbolic link is followed: the file that it points to is replaced, and the link stays.

    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "out.txt"
    >>> with atomic_write(target) as file:
    ...     _ = file.write("whole")
    >>> target.read_text()
    'whole'
    """
    target = resolved(path)
    if target.is_dir():
        raise KikuchiError(f"cannot write {fspath(path)}: it is a folder")
    if target.is_symlink():
        raise KikuchiError(f"cannot write {fspath(path)}: the symbolic link points to itself")
    if target.exists() and not target.is_file():
        raise KikuchiError(f"cannot write {fspath(path)}: it is not an ordinary file")
    temporary = temporary_path(target)
    encoding = None if "b" in mode else "utf-8"
    errors = encoding and "backslashreplace"  # file names may contain lone surrogates
    try:  # the name is known before the file exists: Ctrl-C leaves none behind
        with temporary.open(mode.replace("w", "x"), encoding=encoding, errors=errors) as file:
            if target.exists():  # at once, so that it is never readable by others
                temporary.chmod(target.stat().st_mode & 0o777)
            yield file
        temporary.replace(target)
    except BaseException as error:
        with suppress(OSError):  # it may never have existed
            temporary.unlink()
        if isinstance(error, OSError):
            raise KikuchiError(f"cannot write {fspath(path)}: {error.strerror or error}") from error
        raise


def resolved(path: PathName) -> Path:
    """Return the absolute path with symbolic links followed.

    A link that points to itself is returned as it is, where `Path.resolve` raises; opening it
    then fails with an ordinary message.
    """
    return Path(os.path.realpath(path))


@contextmanager
def locked(file: IO[Any], *, shared: bool = False) -> Iterator[None]:
    """Context manager that locks an open file against other processes, waiting if necessary.

    Blocks with `shared` do not exclude each other: a reader waits only for writers. On a system
    without POSIX locks, the block runs without a lock.
    """
    if os.name != "posix":
        yield
        return
    import fcntl

    fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def temporary_path(target: Path) -> Path:
    """Return a new hidden path next to `target`, for a file or a folder that is renamed to it.

    Its name contains the process that writes there, so that files left behind by killed processes
    of this machine are recognised and removed here.
    """
    prefix = f".kikuchi-{platform.node()}-"
    for left in target.parent.glob(f"{glob.escape(prefix)}*{_TEMPORARY}"):
        writer = left.name.removeprefix(prefix).partition("-")[0]
        if writer.isdecimal() and not _runs(int(writer)):
            with suppress(OSError):  # of another user, or removed in the meantime
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    return target.parent / f"{prefix}{os.getpid()}-{os.urandom(8).hex()}{_TEMPORARY}"


def _runs(process: int) -> bool:
    if os.name != "posix":
        return True  # the test is not safe on other systems
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
