"""`Experiment`: what one table or figure of a source document needs to be run again.

An experiment splits into cases. A case is plain JSON data that holds everything its result depends
on (parameters and seed), so that it can be computed anywhere, kept in a file, and found again.
"""

from __future__ import annotations

import hashlib
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from kikuchi.core.errors import DataError, KikuchiError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Case = dict[str, Any]
Result = dict[str, Any]
Value = float | int | str | None
CaseAxes = Mapping[str, str | Iterable[Any]]

Verdict = Literal["agrees", "agrees in part", "disagrees", "not comparable", "not run"]

DOCUMENTS = {
    "TEH": "Teh 2003",
    "HOJ": "Højen-Sørensen 2001",
    "LAW": "Lawrence 2000",
    "LIU": "Liu 2020",
    "WH": "Welling & Hinton 2001",
}


class Judgement(NamedTuple):
    """Whether a number of ours meets what is asked of it, and what that is, in words."""

    agrees: bool
    criterion: str


@dataclass(frozen=True)
class Row:
    """One line of the table of an experiment.

    `published` is what the document says, `corrected` an independent computation (the catalogue's
    own, or a known exact value), None where there is none. `note` says in one line why they differ
    or what to mind. `judgement` compares ours with what the document says or, where it says
    nothing, with the corrected reference. It is None where there is nothing to compare: the
    document shows a figure only, or its data are others. A row that was not run has neither ours
    nor a judgement.
    """

    quantity: str
    ours: Value
    published: Value = None
    corrected: Value = None
    note: str = ""
    judgement: Judgement | None = None

    def __post_init__(self) -> None:
        if self.ours is None and self.judgement is not None:
            raise ValueError(f"{self.quantity}: a row that was not run cannot be judged")

    @property
    def agrees(self) -> bool | None:
        """Whether the criterion is met, None without one."""
        return None if self.judgement is None else self.judgement.agrees

    @property
    def criterion(self) -> str:
        """What must hold for ours to agree."""
        return "" if self.judgement is None else self.judgement.criterion

    @property
    def verdict(self) -> Verdict:
        """What the criterion gives; "not run" for a row that only quotes the document."""
        if self.ours is None:
            return "not run"
        if self.judgement is None:
            return "not comparable"
        return "agrees" if self.judgement.agrees else "disagrees"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "judgement"}
        judged = {"agrees": self.agrees, "verdict": self.verdict, "criterion": self.criterion}
        return {**data, **judged}


def verdict_of(rows: Iterable[Row]) -> Verdict:
    """The verdict on a table, from those on its rows.

    Lines about which the document says something count. It agrees if all that can be compared do,
    no line of the document is only quoted, and no other line is off its reference. It disagrees
    where at least half of those that can be compared do. In between it agrees in part.

    >>> good, bad = (Row("x", 1.0, 1.0, judgement=Judgement(b, "= 1")) for b in (True, False))
    >>> verdict_of([good]), verdict_of([good, good, bad]), verdict_of([good, bad])
    ('agrees', 'agrees in part', 'disagrees')
    >>> verdict_of([good, Row("quoted", None, 2.0)]), verdict_of([Row("figure only", 1.0)])
    ('agrees in part', 'not comparable')
    """
    table = list(rows)
    compared = [row for row in table if row.published is not None and row.judgement is not None]
    wrong = sum(not row.agrees for row in compared)
    if not compared:
        return "not comparable"
    if 2 * wrong >= len(compared):
        return "disagrees"
    quoted = any(row.verdict == "not run" and row.published is not None for row in table)
    return "agrees in part" if quoted or any(row.agrees is False for row in table) else "agrees"


@dataclass(frozen=True)
class Finished:
    """A case that was computed: its result and the seconds it took."""

    case: Case
    result: Result
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Setting:
    """A size of an experiment: default number of seeds, parameters, and the time it takes.

    `time` is for one core, as a text. `seeds` is 0 in an experiment without random numbers.
    """

    seeds: int
    parameters: Mapping[str, Any]
    time: str


class Experiment(ABC):
    """Base of all experiments: one folder per document, one class per experiment.

    A class gives its `id`; title, claim, caption and both settings stand under that id in
    the file `experiments.toml` of its folder, unless the class has its own. The parameters of a
    setting are those of `shared` and its own.

    `run_case` is pure: the same case gives the same result in any process. It answers with plain
    JSON data (None for what is not known, never NaN). `takes_data` says what a file of one's own
    must hold, for the experiments that take one in place of their stand-in, and `needs_data` that
    there is no stand-in.

    `case_axes` says what distinguishes cases besides their seeds: each entry with its values, or
    with the name of the parameter that lists them. All cases share the other parameters.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    claim: ClassVar[str]
    caption: ClassVar[str]
    quick: ClassVar[Setting]
    full: ClassVar[Setting]
    takes_data: ClassVar[str] = ""
    needs_data: ClassVar[bool] = False
    case_axes: ClassVar[CaseAxes] = {}

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        entry = folder_entries(cls.__module__.rpartition(".")[0]).get(
            cls.__dict__.get("id", ""), {}
        )
        shared = entry.get("shared", {})
        for name, value in entry.items():
            if name in ("quick", "full"):
                own = {k: v for k, v in value.items() if k not in ("seeds", "time")}
                setattr(cls, name, Setting(value["seeds"], {**shared, **own}, value["time"]))
            elif name not in ("shared", "claims"):
                setattr(cls, name, value)

    def __init__(self, data: str | None = None) -> None:
        if data is not None and not self.takes_data:
            raise KikuchiError(f"{self.id} makes its own data; leave --data out")
        self.data = data

    def source(self) -> Case:
        """What a case must say about a file of data: its name, and its contents in short.

        A changed file is another case, so that nothing old is taken for it.
        """
        if self.data is None:
            return {"data": None}
        return {"data": self.data, "digest": digest_of(Path(self.data))}

    def setting(self, quick: bool) -> Setting:
        """The quick setting or the full one."""
        return self.quick if quick else self.full

    @property
    def document(self) -> str:
        """The document, which the first letters of the id stand for."""
        return DOCUMENTS[self.id.partition("-")[0]]

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        """All cases of a run, in order: every combination of `case_axes` and seeds; the seed varies
        fastest unless it is one of the axes (`"seed": "seeds"`).
        """
        source = self.source() if self.takes_data else {}
        axes = {**self.case_axes, "seed": "seeds"} if seeds else dict(self.case_axes)
        lists: dict[str, Any] = {**parameters, "seeds": seeds}
        values = [lists[axis] if isinstance(axis, str) else axis for axis in axes.values()]
        named = [axis for axis in axes.values() if isinstance(axis, str)]
        shared = {name: value for name, value in parameters.items() if name not in named}
        return [
            {**dict(zip(axes, combination, strict=True)), **shared, **source}
            for combination in product(*values)
        ]

    @abstractmethod
    def run_case(self, case: Case) -> Result:
        """The result of one case."""

    @abstractmethod
    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """The table of the cases that are finished; there is at least one."""

    @abstractmethod
    def figure(self, finished: Sequence[Finished]) -> Figure:
        """The figure of the cases that are finished; there is at least one."""


@lru_cache(maxsize=16)
def folder_entries(package: str) -> dict[str, dict[str, Any]]:
    """What `experiments.toml` of a package says about its experiments; nothing if it has none."""
    if not package.startswith("kikuchi_experiments."):
        return {}
    file = files(package) / "experiments.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def digest_of(path: Path) -> str:
    """A short text that differs when the contents of a file do."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the name") from None
