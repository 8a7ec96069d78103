"""Noisy mixtures of independent sources: `MeanFieldICA()` beside FastICA, Picard and infomax.

Every contender is told the number of sources and nothing else. The Amari distance is that of the
unmixing matrix from the true mixing; the correlation is the mean over sources, after matching, on
rows that were not fitted. Infomax is Picard's solver of the extended infomax objective. No peer
takes more sources than sensors, so that there are no such mixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.defaults.frame import Contender, Kept, Task

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
Score = Literal["amari", "correlation"]

HELD_OUT = 1000
_WORST_CONDITION = 20.0  # of a mixing matrix: beyond it all contenders fail in noise
_MOST_DRAWS = 1000


# ---------------------------------------------------------------------- sources


def _spikes(rng: np.random.Generator, count: int) -> Floats:
    return rng.standard_normal(count) * (rng.random(count) < 0.2)


def _two_humps(rng: np.random.Generator, count: int) -> Floats:
    return rng.choice([-1.0, 1.0], count) + 0.4 * rng.standard_normal(count)


def _bits(rate: float) -> Draw:
    return lambda rng, count: (rng.random(count) < rate).astype(np.float64)


SOURCES: dict[str, Draw] = {
    "laplace": lambda rng, n: rng.laplace(size=n),
    "t3": lambda rng, n: rng.standard_t(3, n),
    "t5": lambda rng, n: rng.standard_t(5, n),
    "spikes": _spikes,
    "logistic": lambda rng, n: rng.logistic(size=n),
    "cubes": lambda rng, n: rng.standard_normal(n) ** 3,
    "uniform": lambda rng, n: rng.uniform(-1.0, 1.0, n),
    "humps": _two_humps,
    "sine": lambda rng, n: np.sin(2.0 * np.pi * rng.random(n)),
    "triangle": lambda rng, n: rng.triangular(-1.0, 0.0, 1.0, n),
    "gumbel": lambda rng, n: rng.gumbel(size=n),
    "chi2": lambda rng, n: rng.chisquare(3, n),
    "beta": lambda rng, n: rng.beta(1.0, 3.0, n),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 0.6, n),
    "sign": lambda rng, n: rng.choice([-1.0, 1.0], n),
    "bits": _bits(0.5),
    "rare bits": _bits(0.2),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "half normal": lambda rng, n: np.abs(rng.standard_normal(n)),
    "rayleigh": lambda rng, n: rng.rayleigh(size=n),
    "weibull": lambda rng, n: rng.weibull(1.5, n),
}

FAMILIES: dict[str, dict[str, tuple[str, ...]]] = {
    "choosing": {
        "super-Gaussian": ("laplace", "t5", "cubes"),
        "sub-Gaussian": ("uniform", "triangle"),
        "mixed": ("t5", "uniform", "laplace", "triangle"),
        "skewed": ("chi2", "lognormal"),
        "binary": ("sign", "bits"),
        "positive": ("exponential", "weibull"),
    },
    "reporting": {
        "super-Gaussian": ("laplace", "t3", "spikes", "logistic"),
        "sub-Gaussian": ("uniform", "humps", "sine"),
        "mixed": ("laplace", "uniform", "t3", "humps"),
        "skewed": ("gumbel", "beta"),
        "binary": ("sign", "rare bits"),
        "positive": ("exponential", "rayleigh", "half normal"),
    },
}


# ---------------------------------------------------------------------- mixtures


@dataclass(frozen=True)
class Shape:
    """Numbers of sources, sensors and rows, and the deviation of the noise in units of the sensors'
    own, the same for all or drawn for each.
    """

    sources: int
    sensors: int
    rows: int
    noise: float
    own: bool = False

    @property
    def name(self) -> str:
        unequal = " unequal" if self.own else ""
        return f"{self.sources} in {self.sensors}, {self.rows} rows, noise {self.noise:g}{unequal}"


SHAPES: dict[str, tuple[Shape, ...]] = {
    "choosing": (
        Shape(2, 2, 3000, 0.0),
        Shape(3, 3, 3000, 0.2),
        Shape(5, 5, 3000, 0.0),
        Shape(5, 5, 5000, 0.1, own=True),
        Shape(3, 6, 2000, 0.5),
        Shape(5, 10, 2000, 0.3, own=True),
        Shape(3, 5, 3000, 1.0),
        Shape(9, 12, 4000, 0.2),
        Shape(14, 14, 4000, 0.02),
    ),
    "reporting": (
        Shape(2, 2, 2000, 0.0),
        Shape(4, 4, 4000, 0.0),
        Shape(4, 4, 4000, 0.1),
        Shape(4, 4, 4000, 0.3, own=True),
        Shape(4, 8, 2000, 0.3),
        Shape(4, 8, 4000, 1.0, own=True),
        Shape(2, 6, 2000, 1.0),
        Shape(3, 12, 2000, 0.5, own=True),
        Shape(8, 8, 4000, 0.1),
        Shape(8, 16, 4000, 0.3, own=True),
        Shape(16, 16, 5000, 0.03),
    ),
}
SCANS: dict[str, tuple[Shape, ...]] = {
    "choosing": (Shape(3, 120, 150, 0.3), Shape(2, 300, 100, 0.5)),
    "reporting": (Shape(3, 100, 200, 0.3), Shape(2, 400, 80, 0.3)),
}
OF_SCANS = ("super-Gaussian", "mixed", "positive")
_SEEDS = {"choosing": 1000, "reporting": 2000}


@dataclass(frozen=True)
class Mixture:
    """Rows to fit, and rows with their sources to score."""

    mixing: Floats  # (sensors, sources)
    rows: Floats
    held_out: Floats
    sources: Floats  # of the rows held out


def mixture(kinds: Sequence[str], shape: Shape, seed: int) -> Mixture:
    """A mixture in which the kinds of sources take turns."""
    rng = np.random.default_rng(seed)
    count = shape.rows + HELD_OUT
    names = [kinds[k % len(kinds)] for k in range(shape.sources)]
    return mixture_of([SOURCES[name](rng, count) for name in names], shape, rng)


def mixture_of(drawn: Sequence[Floats], shape: Shape, rng: np.random.Generator) -> Mixture:
    """These sources, standardised and mixed; the last rows are held out."""
    sources = np.array([_standard(values) for values in drawn])
    mixing = _mixing(rng, shape)
    clean = mixing @ sources
    level = shape.noise * float(clean.std())
    each = rng.uniform(0.3, 1.7, shape.sensors) if shape.own else np.ones(shape.sensors)
    noisy = clean + level * each[:, None] * rng.standard_normal(clean.shape)
    rows, rest = noisy.T[: shape.rows], noisy.T[shape.rows :]
    return Mixture(mixing, rows, rest, sources.T[shape.rows :])


def _standard(values: Floats) -> Floats:
    return np.asarray((values - values.mean()) / values.std())


def _mixing(rng: np.random.Generator, shape: Shape) -> Floats:
    for _ in range(_MOST_DRAWS):
        matrix = rng.standard_normal((shape.sensors, shape.sources))
        if np.linalg.cond(matrix) < _WORST_CONDITION:
            return matrix
    raise RuntimeError(f"{shape}: no draw of the mixing matrix is well conditioned")


def _tables(purpose: str) -> Iterator[tuple[str, Callable[[], Mixture]]]:
    seed = _SEEDS[purpose]
    for family, kinds in FAMILIES[purpose].items():
        scans = SCANS[purpose] if family in OF_SCANS else ()
        for shape in (*SHAPES[purpose], *scans):
            seed += 1
            yield f"{family}: {shape.name}", partial(mixture, kinds, shape, seed)


# ---------------------------------------------------------------------- contenders


_FITTED: Kept[Any] = Kept()


def _scored(
    score: Score, name: str, make: Callable[[int, int], Any]
) -> Callable[[Mixture, int], float]:
    from kikuchi.ica.measures import amari_distance, matched_correlation

    def scored(data: Mixture, seed: int) -> float:
        key = (data.rows.tobytes(), name, seed)
        fitted = _FITTED(key, lambda: make(data.mixing.shape[1], seed).fit(data.rows))
        if score == "amari":
            return amari_distance(fitted.components_, data.mixing)
        found = fitted.transform(data.held_out)
        return float(matched_correlation(found, data.sources).mean())

    return scored


def _ours(sources: int, seed: int) -> Any:
    from kikuchi.ica import MeanFieldICA

    return MeanFieldICA(sources, random_state=seed)


def _fast_ica(sources: int, seed: int) -> Any:
    from sklearn.decomposition import FastICA

    return FastICA(sources, random_state=seed)


def _picard(sources: int, seed: int) -> Any:
    from picard import Picard

    return Picard(sources, random_state=seed)


def _infomax(sources: int, seed: int) -> Any:
    from picard import Picard

    return Picard(sources, ortho=False, extended=True, random_state=seed)


def _pca(sources: int, seed: int) -> Any:
    from sklearn.decomposition import PCA

    return PCA(sources, random_state=seed)


def _contenders(score: Score) -> tuple[Contender, ...]:
    makers = (
        ("MeanFieldICA()", "ours", _ours),
        ("FastICA()", "peer", _fast_ica),
        ("Picard()", "peer", _picard),
        ("Picard(ortho=False, extended=True)", "peer", _infomax),
        ("PCA()", "baseline", _pca),
    )
    return tuple(Contender(name, kind, _scored(score, name, make)) for name, kind, make in makers)


def tasks() -> Sequence[Task]:
    tables = {purpose: dict(_tables(purpose)) for purpose in SHAPES}
    return (
        Task(
            "ICA: mixing",
            "Amari distances of unmixing and true mixing",
            higher_is_better=False,
            tolerance=0.1,
            relative=True,
            contenders=_contenders("amari"),
            **tables,
        ),
        Task(
            "ICA: sources",
            "mean correlations with the true sources of 1,000 rows held out",
            timed=False,
            higher_is_better=True,
            tolerance=0.003,
            contenders=_contenders("correlation"),
            **tables,
        ),
    )
