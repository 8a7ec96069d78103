"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any

from kikuchi.core.errors import KikuchiError


@contextmanager
def atomic_write(path: str | PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; rename it over `path` only if the block succeeds.

    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "out.txt"
    >>> with atomic_write(target) as file:
    ...     _ = file.write("whole")
    >>> target.read_text()
    'whole'
    """
    target = Path(path)
    if target.is_dir():
        raise KikuchiError(f"cannot write {target}: it is a folder")
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise KikuchiError(f"cannot write {target}: {error.strerror or error}") from error
    try:
        encoding = None if "b" in mode else "utf-8"
        with os.fdopen(handle, mode, encoding=encoding) as file:
            yield file
        Path(temporary).chmod(_mode_for(target))
        Path(temporary).replace(target)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise KikuchiError(f"cannot write {target}: {error.strerror or error}") from error
        raise


def _mode_for(target: Path) -> int:
    """The permissions that a plain `open` would leave on `target`."""
    if target.exists():
        return target.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
