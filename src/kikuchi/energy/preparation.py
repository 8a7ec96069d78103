"""Patches of pictures and windows of sounds as rows to learn from, with every step remembered.

Pieces are drawn at random places; flat ones are rejected and counted. `Preparation` holds what was
done and how to undo the whitening; files of patches and of models trained on them carry it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core import text
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.files import PathName, atomic_write, parse_json
from kikuchi.core.seeds import Seed, generator
from kikuchi.core.tables import as_numbers, read_arrays
from kikuchi.energy.whitening import Whitening

DARKEST = 1.0 / 255.0
"""Grey values below this are raised to it before their logarithm is taken."""

_TOO_FLAT = 0.9  # share of rejected patches that is said
_AT_ONCE = 20_000  # places drawn at once


@dataclass(frozen=True)
class Preparation:
    """How pieces of pictures or sounds became rows: the steps, the whitening, and the counts."""

    shape: tuple[int, ...]
    log: bool
    remove_mean: bool
    normalise: bool
    reject_flat: float
    whitening: Whitening
    sources: tuple[str, ...] = ()
    rate: float | None = None
    drawn: int = 0
    flat: int = 0
    components: int | None = None
    rows: int = 0

    @property
    def rank(self) -> int:
        """Directions in which white rows vary."""
        free = math.prod(self.shape) - self.remove_mean
        return free if self.components is None else min(free, self.components)

    def prepared(self, pieces: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Pieces (n, ...) after all steps but the whitening, those that are flat left out; and
        which were kept.
        """
        rows = np.asarray(pieces, dtype=np.float32).reshape(len(np.asarray(pieces)), -1)
        if self.log:
            rows = np.log(np.maximum(rows, np.float32(DARKEST)))
        spread = rows.std(axis=1)
        kept = spread >= self.reject_flat if self.reject_flat else np.ones(len(rows), dtype=bool)
        if self.normalise:
            kept &= spread > 0
        rows = rows[kept]
        if self.remove_mean:
            rows = rows - rows.mean(axis=1, keepdims=True)
        return rows / spread[kept, None] if self.normalise else rows, kept

    def white(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Whitened rows."""
        return self.whitening(rows).astype(np.float32)

    def undo(self, white: ArrayLike) -> Array:
        """White rows as they were before the whitening; means and contrasts of single pieces, and
        the logarithm, stay as they are.
        """
        return self.whitening.undo(np.asarray(white))

    def filters(self, white: ArrayLike) -> Array:
        """Filters of white rows as filters of the pieces: both have the same outputs."""
        return np.asarray(np.asarray(white, dtype=np.float64) @ self.whitening.forward)

    def directions(self, white: ArrayLike) -> Array:
        """Directions in the space of white rows as they look in the space of the pieces."""
        return np.asarray(np.asarray(white, dtype=np.float64) @ self.whitening.backward.T)

    def warnings(self) -> list[str]:
        """What the reader must know of the rows."""
        found = []
        if self.drawn and self.flat > _TOO_FLAT * self.drawn:
            found.append(
                f"{self.flat / self.drawn:.0%} of the pieces that were drawn are flat: what is "
                "left comes from few places; use other sources, or a lower reject_flat"
            )
        return found

    def facts(self) -> list[tuple[str, str]]:
        """Labels with their values, for the screen and pages."""
        what = "patches" if len(self.shape) == 2 else "windows"
        size = " x ".join(map(str, self.shape)) + (
            " pixels" if len(self.shape) == 2 else " samples"
        )
        steps = [("logarithm", self.log), ("mean removed", self.remove_mean)]
        done = [name for name, used in [*steps, ("contrast normalised", self.normalise)] if used]
        rate = [] if self.rate is None else [("samples per second", f"{self.rate:g}")]
        share = f" ({self.flat / self.drawn:.0%})" if self.drawn else ""
        limit = f", spread below {self.reject_flat:g}" if self.reject_flat else ""
        kind, kept = self.whitening.kind, f"{self.rank} of {math.prod(self.shape)} directions"
        flat = f"{text.whole(self.flat)} of {text.whole(self.drawn)}"
        return [
            ("sources", ", ".join(self.sources) or "arrays"),
            (what, f"{text.whole(self.rows)} of {size}"),
            *rate,
            ("flat, rejected", f"{flat}{share}{limit}"),
            ("steps", ", ".join(done) or "none"),
            ("whitening", kind if kind == "none" else f"{kind}, {kept}"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the arrays of the whitening."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "whitening"}
        told |= {"shape": list(self.shape), "sources": list(self.sources)}
        return {**told, "whitening": self.whitening.facts()}

    def arrays(self) -> dict[str, Array]:
        """Arrays that a file holds beside `to_dict`."""
        return self.whitening.arrays()

    @classmethod
    def restored(cls, arrays: Mapping[str, Array], told: Mapping[str, Any]) -> Preparation:
        """That of a file."""
        plain = {**told, "shape": tuple(told["shape"]), "sources": tuple(told["sources"])}
        return cls(**{**plain, "whitening": Whitening.restored(arrays, told["whitening"])})


@dataclass(frozen=True, eq=False)
class Patches:
    """Rows to learn from, and how they were prepared. NumPy sees the rows.

    `rows` are the patches, `preparation` what was done to them, `places` where each came from
    (picture, row, column).

    >>> rng = np.random.default_rng(0)
    >>> found = patches([rng.normal(size=(40, 50))], size=4, count=300, seed=0)
    >>> np.asarray(found).shape, found.preparation.rank
    ((300, 16), 15)
    """

    rows: NDArray[np.float32] = field(repr=False)
    preparation: Preparation
    places: Ints | None = field(default=None, repr=False)  # number of the source, first line in it

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.rows, dtype=dtype)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns, as arrays have it."""
        return self.rows.shape

    def undone(self) -> Array:
        """The rows before the whitening."""
        return self.preparation.undo(self.rows)

    def split(self, fraction: float, seed: Seed = 0) -> tuple[Patches, Patches]:
        """Pieces to learn from, and pieces held out that share no pixel or sample with them. About
        `fraction`, in (0, 1), of the places is held out, chosen with `seed`.

        Of each source a band of lines (or samples) that holds about this fraction of the places is
        held out; pieces across its borders are in neither part. Sources that are single pieces, as
        digits, go to one part as a whole. Where `places` are not known the pieces are divided at
        random, and may overlap.

        >>> rng = np.random.default_rng(0)
        >>> found = patches([rng.normal(size=(90, 50))], size=4, count=500, seed=0)
        >>> learnt, held = found.split(0.2)
        >>> 50 < len(held) < 150, 300 < len(learnt) < 500 - len(held)
        (True, True)
        """
        if not 0.0 < fraction < 1.0:
            raise MethodError(f"a fraction between 0 and 1 is held out, got {fraction:g}")
        rng = generator(seed)
        if self.places is None:
            held = np.zeros(len(self), dtype=bool)
            held[rng.permutation(len(self))[: round(fraction * len(self))]] = True
            return self._part(~held), self._part(held)
        learnt, held = _bands(self.places, self.preparation.shape[0], fraction, rng)
        if not learnt.any() or not held.any():
            raise DataError(
                f"{fraction:g} of the pieces cannot be held out: there are too few places; give "
                "more or larger sources"
            )
        return self._part(learnt), self._part(held)

    def _part(self, chosen: NDArray[np.bool_]) -> Patches:
        places = None if self.places is None else self.places[chosen]
        return Patches(self.rows[chosen], self.preparation, places)

    def save(self, path: PathName) -> None:
        """Write rows and steps to the .npz file `path`."""
        arrays: dict[str, Any] = {
            f"whitening_{name}": array for name, array in self.preparation.arrays().items()
        }
        if self.places is not None:
            arrays["places"] = self.places
        told = np.array(json.dumps(self.preparation.to_dict()))
        with atomic_write(path, "wb") as file:
            np.savez(file, data=self.rows, preparation=told, **arrays)

    @classmethod
    def load(cls, path: PathName) -> Patches:
        """The patches of a file `path` that `save` wrote."""
        from pathlib import Path

        place = Path(path)
        if not place.is_file():
            raise DataError(f"{place}: no such file")
        found = cls.of_arrays(read_arrays(place), str(place))
        if found is None:
            raise DataError(f"{place}: holds no patches; make them with patches(...).save")
        return found

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], source: str) -> Patches | None:
        """The patches among the `arrays` of the file called `source`; None if it holds something
        else.
        """
        if "preparation" not in arrays or "data" not in arrays:
            return None
        rows = as_numbers(arrays["data"], source)
        told = parse_json(source, str(arrays["preparation"]), "make the patches again")
        try:
            names = {
                n: np.asarray(arrays[f"whitening_{n}"]) for n in ("mean", "forward", "backward")
            }
            preparation = Preparation.restored(names, told)
            wide, tall = names["backward"].shape[::-1]
            if rows.shape[1:] != (wide,) or tall != math.prod(preparation.shape):
                raise ValueError("its arrays do not fit each other")
            places = None if "places" not in arrays else np.asarray(arrays["places"], np.int64)
            if places is not None and places.shape != (len(rows), 2):
                raise ValueError("its places do not fit its rows")
        except (KeyError, TypeError, ValueError) as fault:
            raise DataError(
                f"{source}: cannot be read as patches: {fault}; make it again"
            ) from None
        return cls(rows.astype(np.float32), preparation, places)


def patches(
    sources: Sequence[ArrayLike],
    size: int = 16,
    count: int | None = None,
    *,
    log: bool = False,
    remove_mean: bool = True,
    normalise: bool = False,
    reject_flat: float = 0.0,
    whiten: str = "zca",
    components: int | None = None,
    like: Preparation | None = None,
    names: Sequence[str] = (),
    rate: float | None = None,
    seed: Seed = 0,
) -> Patches:
    """Pieces of pictures (arrays of two axes) or of sounds (one axis) at random places.

    Parameters
    ----------
    sources : grey pictures, or sounds; each larger than a piece.
    size : side of a square patch in pixels, or samples of a window.
    count : number of pieces kept, each from another place; None for every place.
    log : logarithm of the grey values, which must not be negative (`DARKEST` is the least).
    remove_mean : subtract from each piece its own mean.
    normalise : divide each piece by its spread, the root of its variance.
    reject_flat : pieces with a smaller spread (after the logarithm) are drawn again.
    whiten : zca, pca or none.
    components : principal components that the whitening keeps; None for all that vary.
    like : steps and whitening of other patches, which take the place of all options above.
    names : what the sources are called.
    rate : samples of the sounds per second.
    seed : of the places.

    >>> rng = np.random.default_rng(0)
    >>> halves = np.hstack([np.zeros((30, 30)), rng.normal(size=(30, 30))])
    >>> found = patches([halves], size=4, count=100, reject_flat=0.1, whiten="pca", seed=0)
    >>> found.shape, found.preparation.flat > 0
    ((100, 15), True)
    """
    arrays = _checked(sources, names, log if like is None else like.log)
    window = like.shape if like is not None else (size,) * arrays[0].ndim
    if reject_flat < 0 or size < 1 or (count is not None and count < 1):
        raise MethodError("patches need a size and a count of at least 1, and reject_flat >= 0")
    if components is not None and whiten == "none":
        raise MethodError("components are those of a whitening: give whiten='zca' or 'pca'")
    nothing = Whitening.fit(np.zeros((2, 0)), "none")  # until the rows are known
    first = like or Preparation(window, log, remove_mean, normalise, reject_flat, nothing)
    rows, drawn, places = _drawn(arrays, window, count, first, generator(seed))
    told = replace(
        first, sources=tuple(names), rate=rate, drawn=drawn, flat=drawn - len(rows), rows=len(rows)
    )
    if like is None:
        told = replace(told, components=components)
        kept = None if whiten == "none" else told.rank
        told = replace(told, whitening=Whitening.fit(rows, whiten, kept))
    return Patches(told.white(rows), told, _located(arrays, window, places))


def _checked(sources: Sequence[ArrayLike], names: Sequence[str], log: bool) -> list[Array]:
    arrays: list[Array] = []
    for k, given in enumerate(sources):
        name = names[k] if k < len(names) else f"source {k}"
        array = as_numbers(given, name)
        if array.ndim not in (1, 2) or array.ndim != (arrays[0] if arrays else array).ndim:
            raise DataError(
                f"{name}: shape {array.shape}; give pictures of two axes, or sounds of one"
            )
        if not np.isfinite(array).all():
            raise DataError(f"{name}: some values are missing or not finite; complete them first")
        if log and array.min(initial=0.0) < 0:
            raise DataError(f"{name}: values below 0 have no logarithm; leave log out")
        arrays.append(array)
    if not arrays:
        raise DataError("no pictures or sounds were given")
    return arrays


def _drawn(
    arrays: list[Array],
    window: tuple[int, ...],
    count: int | None,
    preparation: Preparation,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float32], int, Ints]:
    """Prepared pieces from different places, how many were looked at, and the places."""
    counts = np.array([_places(array, window) for array in arrays])
    total = int(counts.sum())
    size = " x ".join(map(str, window))
    if not total:
        raise DataError(f"no source is as large as a piece of {size}; ask for smaller ones")
    kept: list[NDArray[np.float32]] = []
    used: list[Ints] = []
    found = drawn = 0
    for places in _in_random_order(total, count, rng):
        rows, good = preparation.prepared(_pieces(arrays, window, counts, places))
        if count is not None and found + len(rows) >= count:
            missing = count - found
            drawn += int(np.flatnonzero(good)[missing - 1]) + 1
            kept.append(rows[:missing])
            used.append(places[good][:missing])
            return np.concatenate(kept), drawn, np.concatenate(used)
        kept.append(rows)
        used.append(places[good])
        found, drawn = found + len(rows), drawn + len(places)
    if count is not None or not found:
        raise DataError(
            f"the sources have {total} places for pieces of {size}, {found} of them not flat, and "
            f"{count or 'some'} are needed; request fewer, or give more sources"
        )
    return np.concatenate(kept), drawn, np.concatenate(used)


def _located(arrays: list[Array], window: tuple[int, ...], places: Ints) -> Ints:
    """Source and first line (or sample) of the pieces at these places."""
    counts = np.array([_places(array, window) for array in arrays])
    ends = np.cumsum(counts)
    source = np.searchsorted(ends, places, side="right")
    across = [math.prod(n - w + 1 for n, w in zip(a.shape[1:], window[1:], strict=True))
              for a in arrays]  # fmt: skip
    line = (places - (ends - counts)[source]) // np.maximum(np.array(across)[source], 1)
    return np.column_stack([source, line])


def _bands(
    places: Ints, size: int, fraction: float, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which pieces are clear of a band of lines of their source, and which lie within it."""
    learnt, held = (np.zeros(len(places), dtype=bool) for _ in range(2))
    order = np.argsort(places[:, 0], kind="stable")
    borders = np.flatnonzero(np.diff(places[order, 0])) + 1
    for here in np.split(order, borders):  # the pieces of one source
        lines = places[here, 1]
        first, last = int(lines.min()), int(lines.max())
        wide = round(fraction * (last - first + 1))
        if last - first < 2 * size or not wide:  # all overlap: one part or the other
            (held if rng.random() < fraction else learnt)[here] = True
            continue
        low = int(rng.integers(first, last - wide + 2))
        held[here] = (lines >= low) & (lines < low + wide)
        learnt[here] = (lines <= low - size) | (lines >= low + wide + size - 1)
    return learnt, held


def _places(array: Array, window: tuple[int, ...]) -> int:
    return math.prod(max(n - w + 1, 0) for n, w in zip(array.shape, window, strict=True))


def _in_random_order(total: int, count: int | None, rng: np.random.Generator) -> Iterator[Ints]:
    """Numbers below `total`, each once: in order if all are wanted, otherwise mixed."""
    if count is None:
        for first in range(0, total, _AT_ONCE):
            yield np.arange(first, min(first + _AT_ONCE, total))
        return
    if total <= 50 * count:
        order = rng.permutation(total)
        for first in range(0, total, _AT_ONCE):
            yield order[first : first + _AT_ONCE]
        return
    seen = np.empty(0, dtype=np.int64)
    while len(seen) < total // 2:  # in so many places hardly one is drawn twice
        new = np.unique(rng.integers(0, total, _AT_ONCE))
        new = rng.permutation(np.setdiff1d(new, seen, assume_unique=True))
        seen = np.concatenate([seen, new])
        yield new


def _pieces(arrays: list[Array], window: tuple[int, ...], counts: Ints, places: Ints) -> Array:
    """The pieces at these places, numbered through all sources."""
    ends = np.cumsum(counts)
    source = np.searchsorted(ends, places, side="right")
    out = np.empty((len(places), *window))
    for k in np.unique(source):
        here = source == k
        view = np.lib.stride_tricks.sliding_window_view(arrays[k], window)
        local = places[here] - (ends[k] - counts[k])
        out[here] = view[np.unravel_index(local, view.shape[: len(window)])]
    return out
