"""Where compiled loops are kept: shipped with the package, or in a folder of the user's.

A compiled loop is found by the content of its module and of the modules that it imports, not by
times of files, so that environments and clones with the same source share what was compiled. What
is shipped was compiled for a baseline processor; it is used where Python, Numba and llvmlite have
the same versions and the processor has the features of the baseline.
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
INNER = "-inner"  # ends the names of files of loops that only other loops call
_IMPORTS = re.compile(r"^\s*(?:from|import)\s+(kikuchi\w*(?:\.\w+)+)", re.MULTILINE)
_NOT_PART_OF_LOOPS = {"kikuchi.core.compiled", "kikuchi.core.compiling", "kikuchi.core.log"}


class LoopCache(FunctionCache):  # type: ignore[misc]
    """The compiled forms of one loop on disk."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        folder = user_folder()
        if folder is None:
            raise RuntimeError("there is no folder of the user's")
        self._folder = folder

    @property
    def _cache_file(self) -> Any:
        """The loops that this user has compiled."""
        return self._index(self._folder)

    @_cache_file.setter
    def _cache_file(self, value: Any) -> None:
        """Numba's own choice of a folder is not used."""

    @property
    def cache_path(self) -> str:
        """The folder that the loop is kept in."""
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
        """Whether some compiled form is on disk, shipped or the user's."""
        folders = [self._folder] if shipped_target() is None else [SHIPPED, self._folder]
        name = f"{self._impl.filename_base}.nbi"
        return any((folder / self._place / name).exists() for folder in folders)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """A compiled form; None if there is none that this version can read."""
        COMPILING.begin()
        try:
            return self._shipped(sig, target_context) or super().load_overload(sig, target_context)
        except Exception:  # whatever unpickling raises; the loop is compiled anew and kept
            try:
                self.flush()
            except OSError:
                self.disable()
            return None
        finally:
            COMPILING.end(loaded=True)

    def _shipped(self, sig: Any, target_context: Any) -> Any:
        """The compiled form that came with the package; None if there is none for this machine."""
        target = shipped_target()
        if target is None:
            return None
        target_context.refresh()
        own = self._index_key(sig, target_context.codegen())
        try:
            data = self._index(SHIPPED).load((own[0], target, *own[2:]))
            return None if data is None else self._impl.rebuild(target_context, data)
        except Exception:  # a damaged file: the user's own folder comes next
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled form; on a full disk the loop runs all the same."""
        if self._enabled and self._impl.check_cachable(data):
            self._save(
                self._cache_file, self._index_key(sig, data.codegen), self._impl.reduce(data)
            )

    def load_inner(self, sig: Any, target_context: Any) -> Any:
        """The form that callers among loops take in; None if there is none that can be read."""
        COMPILING.begin()
        index = self._index(self._folder, INNER)
        try:
            target_context.refresh()
            return index.load(self._index_key(sig, target_context.codegen()))
        except Exception:  # whatever unpickling raises; the loop is compiled anew and kept
            try:
                index.flush()
            except OSError:
                self.disable()
            return None
        finally:
            COMPILING.end(loaded=True)

    def save_inner(self, sig: Any, data: Any, codegen: Any) -> None:
        """Keep a form that callers among loops take in."""
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
    """The folder of loops that this user compiles, made if need be; None if there can be none."""
    asked = os.environ.get("NUMBA_CACHE_DIR")
    base = Path(asked) if asked else cache_home() / "loops"
    versions = f"numba-{numba.__version__}-llvmlite-{llvmlite.__version__}"
    return owned_folder(base / f"{versions}-{sys.implementation.cache_tag}")


# ---------------------------------------------------------------------- stamps


@functools.cache
def source_stamp(path: str) -> str:
    """A digest of a module and of all modules of the package that it imports, directly or not.

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
    """What the shipped loops were compiled for, as Numba's key has it; None if not usable here."""
    try:
        manifest = json.loads((SHIPPED / MANIFEST).read_text(encoding="utf-8"))
        if manifest["versions"] != versions() or not has_features(manifest["features"]):
            return None
        return tuple(str(part) for part in manifest["target"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def versions() -> dict[str, str]:
    """The versions that compiled code depends on."""
    return {
        "python": sys.implementation.cache_tag,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "machine": f"{sys.platform}-{platform.machine()}",
    }


def has_features(needed: list[str]) -> bool:
    """Whether the processor has all of these features.

    >>> has_features([])
    True
    """
    from llvmlite.binding import get_host_cpu_features

    host = get_host_cpu_features()
    return all(host.get(name, False) for name in needed)


def write_manifest(folder: Path) -> None:
    """Say in a folder of loops what they were compiled for; called by what builds the wheel."""
    from numba.core.registry import cpu_target

    target = cpu_target.target_context.codegen().magic_tuple()
    found = {"versions": versions(), "features": list(FEATURES), "target": list(target)}
    (folder / MANIFEST).write_text(json.dumps(found, indent=1), encoding="utf-8")
