"""Bytes in and out: plain or gzip, whole or not at all, every failure one line."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path

from kikuchi.core.errors import FormatError, KikuchiError

PathName = str | PathLike[str]

_GZIP_START = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def is_compressed(path: PathName) -> bool:
    """True for names that end in .gz, in any case."""
    return fspath(path).lower().endswith(".gz")


def suffix(path: PathName) -> str:
    """The suffix that names the format: lower case, without .gz.

    >>> suffix("a/Model.UAI.gz"), suffix("noname")
    ('.uai', '')
    """
    name = Path(path).name.lower()
    return Path(name.removesuffix(".gz")).suffix


def load(path: PathName) -> bytes:
    """The bytes of a file, decompressed if its name says so, without a byte order mark."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise KikuchiError(f"cannot read {fspath(path)}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name
        raise KikuchiError(f"cannot read {fspath(path)!r}: {error}") from error
    if is_compressed(path):
        data = _decompressed(path, data)
    elif data.startswith(_GZIP_START):
        raise FormatError(path, None, "found gzip data", "expected text; end the name in .gz")
    return data.removeprefix(_BYTE_ORDER_MARK)


def _decompressed(path: PathName, data: bytes) -> bytes:
    import gzip
    import zlib

    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        what = "truncated gzip data" if isinstance(error, EOFError) else f"bad gzip data ({error})"
        raise FormatError(path, None, f"found {what}", "expected a whole gzip file") from error


def save(path: PathName, pieces: Iterable[str]) -> None:
    """Write text atomically as UTF-8, compressed if the name ends in .gz."""
    import gzip

    from kikuchi.core.files import atomic_write

    try:
        with atomic_write(path, "wb") as file:
            if is_compressed(path):
                # No name and no time inside: the same model gives the same bytes.
                with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                    packed.writelines(piece.encode() for piece in pieces)
            else:
                file.writelines(piece.encode() for piece in pieces)
    except OSError as error:
        raise KikuchiError(f"cannot write {fspath(path)}: {error.strerror or error}") from error
