"""Reading and writing the bytes of models: plain or gzip, atomic, with one-line errors."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from kikuchi.core.errors import FormatError
from kikuchi.core.files import PathName, atomic_write, is_compressed, read_bytes, read_stream

_GZIP_START = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def load(path: PathName) -> bytes:
    """Return the bytes of a file, decompressed if its name ends in .gz, without a byte order
    mark.
    """
    data = read_bytes(path, FormatError)
    if not is_compressed(path) and data.startswith(_GZIP_START):
        raise FormatError(path, None, "found gzip data", "expected text; end the name in .gz")
    return data.removeprefix(_BYTE_ORDER_MARK)


def load_stream(file: IO[bytes], name: str) -> bytes:
    """Return the bytes of an open file, decompressed if they are gzip data, without a byte order
    mark.
    """
    data = read_stream(file, name, packed=False, error=FormatError)
    if data.startswith(_GZIP_START):
        data = read_stream(io.BytesIO(data), name, packed=True, error=FormatError)
    return data.removeprefix(_BYTE_ORDER_MARK)


def save(
    path: PathName, pieces: Iterable[str], finished: Callable[[str], None] | None = None
) -> None:
    """Write text atomically as UTF-8, compressed if the name ends in .gz.

    `finished` is called with the digest of the text when it is completely written, before it
    replaces an older file.
    """
    import gzip

    digest = hashlib.sha256()

    def encoded() -> Iterator[bytes]:
        for piece in pieces:
            data = piece.encode()
            digest.update(data)
            yield data

    with atomic_write(path, "wb") as file:
        if is_compressed(path):
            # No name and no time inside: the same model gives the same bytes.
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                packed.writelines(encoded())
        else:
            file.writelines(encoded())
        if finished is not None:
            finished(f"sha256:{digest.hexdigest()}")
