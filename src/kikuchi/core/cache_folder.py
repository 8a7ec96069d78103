"""The user's cache folder, for compiled loops and programs."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path


def cache_home() -> Path:
    """Return the folder of the package inside the system's cache folder.

    >>> cache_home().name
    'kikuchi'
    """
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        named = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = named if named.is_absolute() else Path.home() / ".cache"
    return base / "kikuchi"


def owned_folder(path: Path) -> Path | None:
    """Create the folder if necessary and return it; None if it is not writable, or writable by
    others.

    Compiled code in this folder is executed, so the folder must belong to the user.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError:
        return None
    if hasattr(os, "getuid"):
        others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if found.st_uid != os.getuid() or others_write:
            return None
    return path if os.access(path, os.W_OK) else None
