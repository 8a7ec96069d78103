"""The cache of compiled loops: shipped with the package, or in a folder of the user.

The key of a compiled loop is the content of its module and of the modules that it imports, not file
times, so that environments and clones with the same source share compiled loops. The shipped loops
are compiled for a baseline processor; they are used if Python, Numba and llvmlite have the same
versions and the processor has the features of the baseline.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

from kikuchi.core.cache_folder import cache_home, owned_folder
from kikuchi.core.compiling import COMPILING

BASELINE = "x86-64-v3"
FEATURES = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2")
SHIPPED = Path(__file__).resolve().parents[1] / "_loops"
MANIFEST = "manifest.json"
INNER = "-inner"  # suffix of the files of loops that only other loops call
_IMPORTS = re.compile(r"^\s*(?:from|import)\s+(kikuchi\w*(?:\.\w+)+)", re.MULTILINE)
_NOT_PART_OF_LOOPS = {"kikuchi.core.compiled", "kikuchi.core.compiling", "kikuchi.core.log"}


class LoopCache(FunctionCache):  # type: ignore[misc]
    """The on-disk compiled forms of one loop."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        folder = user_folder()
        if folder is None:
            raise RuntimeError("there is no writable cache folder")
        self._folder = folder

    @property
    def _cache_file(self) -> Any:
        """The cache of loops that this user has compiled."""
        return self._index(self._folder)

    @_cache_file.setter
    def _cache_file(self, value: Any) -> None:
        """Numba's own choice of a folder is not used."""

    @property
    def cache_path(self) -> str:
        """The cache folder of the loop."""
        return str(self._folder / self._place)

    @functools.cached_property
    def _place(self) -> str:
        function = self._py_func
        return f"{function.__module__}-{source_stamp(function.__code__.co_filename)}"

    def _index(self, folder: Path, suffix: str = "") -> Any:
        return IndexDataCacheFile(
            cache_path=str(folder / self._place),
            filename_base=self._impl.filename_base + suffix,
            source_stamp=self._place,
        )

    def is_kept(self) -> bool:
        """Whether a compiled form is on disk, shipped or compiled by the user."""
        folders = [self._folder] if shipped_target() is None else [SHIPPED, self._folder]
        name = f"{self._impl.filename_base}.nbi"
        return any((folder / self._place / name).exists() for folder in folders)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a compiled form; None if there is none that this version can read."""
        COMPILING.begin()
        try:
            return self._shipped(sig, target_context) or super().load_overload(sig, target_context)
        except Exception:  # whatever unpickling raises; the loop is compiled again and cached
            try:
                self.flush()
            except OSError:
                self.disable()
            return None
        finally:
            COMPILING.end(loaded=True)

    def _shipped(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled form shipped with the package; None if there is none for this
        machine.
        """
        target = shipped_target()
        if target is None:
            return None
        target_context.refresh()
        own = self._index_key(sig, target_context.codegen())
        try:
            data = self._index(SHIPPED).load((own[0], target, *own[2:]))
            return None if data is None else self._impl.rebuild(target_context, data)
        except Exception:  # a damaged file: the user's folder is tried next
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compiled form; if the disk is full, the loop runs without being saved."""
        if self._enabled and self._impl.check_cachable(data):
            self._save(
                self._cache_file, self._index_key(sig, data.codegen), self._impl.reduce(data)
            )

    def load_inner(self, sig: Any, target_context: Any) -> Any:
        """Return the form that calling loops inline; None if there is none that can be read."""
        COMPILING.begin()
        index = self._index(self._folder, INNER)
        try:
            target_context.refresh()
            return index.load(self._index_key(sig, target_context.codegen()))
        except Exception:  # whatever unpickling raises; the loop is compiled again and cached
            try:
                index.flush()
            except OSError:
                self.disable()
            return None
        finally:
            COMPILING.end(loaded=True)

    def save_inner(self, sig: Any, data: Any, codegen: Any) -> None:
        """Save a form that calling loops inline."""
        if self._enabled:
            self._save(self._index(self._folder, INNER), self._index_key(sig, codegen), data)

    def _save(self, index: Any, key: Any, data: Any) -> None:
        try:
            Path(self.cache_path).mkdir(mode=0o700, parents=True, exist_ok=True)
            index.save(key, data)
        except OSError:
            self.disable()


# ---------------------------------------------------------------------- folders


@functools.cache
def user_folder() -> Path | None:
    """Return the user's folder of compiled loops, created if necessary; None if it cannot be
    created.
    """
    asked = os.environ.get("NUMBA_CACHE_DIR")
    base = Path(asked) if asked else cache_home() / "loops"
    versions = f"numba-{numba.__version__}-llvmlite-{llvmlite.__version__}"
    return owned_folder(base / f"{versions}-{sys.implementation.cache_tag}")


# ---------------------------------------------------------------------- stamps


@functools.cache
def source_stamp(path: str) -> str:
    """Return a digest of a module and of all modules of the package that it imports, also
    indirectly.

    >>> len(source_stamp(__file__))
    16
    """
    digest = hashlib.sha256()
    for _, content in sorted(_sources(Path(path)).items()):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def _sources(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    waiting = [("", path)]
    while waiting:
        name, place = waiting.pop()
        if name in found or name in _NOT_PART_OF_LOOPS:
            continue
        found[name] = place.read_bytes()
        for imported in _IMPORTS.findall(found[name].decode("utf-8", "replace")):
            spec = None if imported in found else find_spec(imported)
            if spec is not None and spec.origin is not None:
                waiting.append((imported, Path(spec.origin)))
    return found


# ---------------------------------------------------------------------- shipped loops


@functools.cache
def shipped_target() -> tuple[str, ...] | None:
    """Return the target of the shipped loops in the form of Numba's key; None if they cannot be
    used here.
    """
    try:
        manifest = json.loads((SHIPPED / MANIFEST).read_text(encoding="utf-8"))
        if manifest["versions"] != versions() or not has_features(manifest["features"]):
            return None
        return tuple(str(part) for part in manifest["target"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def versions() -> dict[str, str]:
    """Return the versions that compiled code depends on."""
    return {
        "python": sys.implementation.cache_tag,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "machine": f"{sys.platform}-{platform.machine()}",
    }


def has_features(needed: list[str]) -> bool:
    """Return whether the processor has all of these features.

    >>> has_features([])
    True
    """
    from llvmlite.binding import get_host_cpu_features

    host = get_host_cpu_features()
    return all(host.get(name, False) for name in needed)


def write_manifest(folder: Path) -> None:
    """Write the target of the compiled loops into their folder; called when the wheel is built."""
    from numba.core.registry import cpu_target

    target = cpu_target.target_context.codegen().magic_tuple()
    found = {"versions": versions(), "features": list(FEATURES), "target": list(target)}
    (folder / MANIFEST).write_text(json.dumps(found, indent=1), encoding="utf-8")
