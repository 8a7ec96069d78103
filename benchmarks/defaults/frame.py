"""Contenders, tables and the lines that come out: what every family of `defaults` shares."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

Fitted = TypeVar("Fitted")
Kind = Literal["ours", "peer", "baseline"]


@dataclass(frozen=True)
class Contender:
    """An estimator with its defaults.

    `score` fits it to a table with a seed and returns the held-out score. Warnings that the fit
    issues are recorded around it.
    """

    name: str  # as a user writes it: "MeanFieldICA()"
    kind: Kind
    score: Callable[[Any, int], float]


@dataclass(frozen=True)
class Task:
    """One question that estimators of a family answer, and the tables on which they are scored."""

    name: str
    measure: str  # of the score, with its unit
    higher_is_better: bool
    tolerance: float  # scores that differ by no more are equal
    choosing: Mapping[str, Callable[[], Any]]  # tables on which defaults may be chosen
    reporting: Mapping[str, Callable[[], Any]]  # tables whose figures are published, and no others
    contenders: Sequence[Contender]
    seeds: Sequence[int] = (0,)
    relative: bool = False  # whether `tolerance` is a share of the better score
    timed: bool = True  # not where the fits are those of the task before

    def __post_init__(self) -> None:
        shared = self.choosing.keys() & self.reporting.keys()
        if shared:
            raise ValueError(f"{self.name}: tables are both chosen on and reported: {shared}")

    def tables(self, *, choosing: bool) -> Mapping[str, Callable[[], Any]]:
        return self.choosing if choosing else self.reporting


@dataclass
class Kept(Generic[Fitted]):
    """Fits that several tasks score: each is made once, and its warnings are issued every time."""

    found: dict[Hashable, tuple[Fitted, list[str | Warning]]] = field(default_factory=dict)

    def __call__(self, key: Hashable, fit: Callable[[], Fitted]) -> Fitted:
        if key not in self.found:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fitted = fit()
            self.found[key] = fitted, [warning.message for warning in caught]
        fitted, said = self.found[key]
        for message in said:
            warnings.warn(message, stacklevel=2)
        return fitted


@dataclass(frozen=True)
class Entry:
    """What one contender reached on one table: medians over the seeds."""

    task: str
    table: str
    name: str
    kind: Kind
    score: float
    seconds: float  # CPU seconds, compilation included
    said: tuple[str, ...]  # first lines of the warnings of its fits, each once


def run(task: Task, *, choosing: bool = False, named: str = "") -> Iterator[Entry]:
    """Every contender on every table, or on those with `named` in their name."""
    for table, make in task.tables(choosing=choosing).items():
        if named not in table:
            continue
        data = make()
        for contender in task.contenders:
            yield _entry(task, table, contender, data)


def _entry(task: Task, table: str, contender: Contender, data: Any) -> Entry:
    scores, seconds = [], []
    said: dict[str, None] = {}
    for seed in task.seeds:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            begin = time.process_time()
            scores.append(_scored(contender, data, seed))
            seconds.append(time.process_time() - begin)
        said.update(dict.fromkeys(_first_line(warning) for warning in caught))
    return Entry(
        task.name,
        table,
        contender.name,
        contender.kind,
        _median(scores),
        _median(seconds),
        tuple(said),
    )


def _scored(contender: Contender, data: Any, seed: int) -> float:
    """The score; NaN, with a warning, of a peer that ends in an error. Ours must not."""
    if contender.kind != "peer":
        return contender.score(data, seed)
    try:
        return contender.score(data, seed)
    except (ArithmeticError, ValueError) as error:
        warnings.warn(f"{type(error).__name__}: {error}", stacklevel=2)
        return math.nan


def _median(values: list[float]) -> float:
    """The lower middle value where two are in the middle, so that it is one that occurred."""
    if any(map(math.isnan, values)):
        return math.nan
    return sorted(values)[(len(values) - 1) // 2]


def _first_line(warning: warnings.WarningMessage) -> str:
    text = str(warning.message).strip()
    return f"{warning.category.__name__}: {text.splitlines()[0] if text else ''}"


# ---------------------------------------------------------------------- verdicts


@dataclass(frozen=True)
class Verdict:
    """One of our estimators on one table, beside the best peer and the best baseline."""

    ours: Entry
    peer: Entry | None
    baseline: Entry | None
    against_peer: Literal["ahead", "equal", "behind", ""]
    against_baseline: Literal["ahead", "equal", "behind", ""]

    @property
    def silent_failure(self) -> bool:
        """Whether the fit is below the baseline and nothing was reported about it."""
        return self.against_baseline == "behind" and not self.ours.said


def verdicts(task: Task, entries: Sequence[Entry]) -> Iterator[Verdict]:
    for table in dict.fromkeys(entry.table for entry in entries):
        here = [entry for entry in entries if entry.table == table]
        peer, baseline = _best(task, here, "peer"), _best(task, here, "baseline")
        for ours in here:
            if ours.kind == "ours":
                yield Verdict(
                    ours,
                    peer,
                    baseline,
                    _compare(task, ours, peer),
                    _compare(task, ours, baseline),
                )


def _best(task: Task, entries: Sequence[Entry], kind: Kind) -> Entry | None:
    sign = 1.0 if task.higher_is_better else -1.0
    finite = [entry for entry in entries if entry.kind == kind and not math.isnan(entry.score)]
    return max(finite, key=lambda entry: sign * entry.score, default=None)


def _compare(
    task: Task, ours: Entry, other: Entry | None
) -> Literal["ahead", "equal", "behind", ""]:
    if other is None:
        return ""
    if math.isnan(ours.score):
        return "behind"
    gain = ours.score - other.score if task.higher_is_better else other.score - ours.score
    scale = max(abs(ours.score), abs(other.score)) if task.relative else 1.0
    if abs(gain) <= task.tolerance * scale:
        return "equal"
    return "ahead" if gain > 0 else "behind"


# ---------------------------------------------------------------------- text


def markdown(task: Task, entries: Sequence[Entry]) -> str:
    """The table of a task: a line for each of our estimators on each table, then the counts."""
    found = list(verdicts(task, entries))
    fits = "" if task.timed else ", by the fits of the task before, so that no CPU time is theirs"
    lines = [
        f"### {task.name}",
        "",
        f"Scores are {task.measure}{fits} "
        f"({'higher' if task.higher_is_better else 'lower'} is better; "
        f"differences of {task.tolerance:.3g}{' of the larger' if task.relative else ''} count as "
        f"equal; median of {len(task.seeds)} seed{'s' if len(task.seeds) > 1 else ''}).",
        "",
        "| table | ours | score | CPU s | best peer | score | CPU s | baseline | score | "
        "beside the peer | what the fit reported |",
        "|" + "---|" * 11,
    ]
    for v in found:
        cells = [v.ours.table, *_cells(v.ours), *_cells(v.peer)]
        cells += [*_cells(v.baseline)[:2], v.against_peer or "no peer", "; ".join(v.ours.said)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if task.timed:
        lines += ["", *time_ratios(entries)]
    return "\n".join([*lines, "", summary(found), ""])


def _cells(entry: Entry | None) -> list[str]:
    if entry is None:
        return ["", "", ""]
    return [f"`{entry.name}`", f"{entry.score:.4g}", f"{entry.seconds:.2g}"]


def time_ratios(entries: Sequence[Entry]) -> Iterator[str]:
    """For each of our estimators the median over tables of its CPU time over that of each peer."""
    seconds = {(entry.name, entry.table): entry.seconds for entry in entries}
    peers = dict.fromkeys(entry.name for entry in entries if entry.kind == "peer")
    for name in dict.fromkeys(entry.name for entry in entries if entry.kind == "ours"):
        ours = {table: value for (of, table), value in seconds.items() if of == name}
        ratios = {
            peer: [value / max(seconds[peer, t], 1e-9) for t, value in ours.items()]
            for peer in peers
        }
        listed = ", ".join(f"`{peer}` {_median(r):.2g}" for peer, r in ratios.items())
        if listed:
            yield f"Median CPU time of `{name}` over that of {listed}."


def summary(found: Sequence[Verdict]) -> str:
    beside = [v for v in found if v.against_peer]
    even = sum(v.against_peer != "behind" for v in beside)
    below = [v for v in found if v.against_baseline == "behind"]
    silent = sum(v.silent_failure for v in below)
    return (
        f"At least equal to the best peer on {even} of {len(beside)}; below the baseline on "
        f"{len(below)} of {len(found)}, {silent} of them without a warning."
    )
