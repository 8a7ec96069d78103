"""Tables of runs that are kept in the package, and what they say about each experiment.

One small file of JSON per experiment, in the folder `results` of its document: the rows with their
criteria, the setting, seeds, version, date and time; not the cases. `tools/verdicts.py` writes it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from kikuchi import __version__
from kikuchi.core.errors import KikuchiError
from kikuchi_experiments.experiment import (
    Experiment,
    Judgement,
    Row,
    Verdict,
    folder_entries,
    verdict_of,
)
from kikuchi_experiments.runner import Outcome, versions

_TEXTS = ("title", "claim", "caption", "takes_data", "quick", "full", "shared", "claims")


@dataclass(frozen=True)
class StoredRun:
    """A finished run of an experiment with the seeds of its setting.

    `fingerprint` stands for all that the cases were made of and for what the document is quoted
    with: a run that has another one than the experiment has now, or was made by another version of
    kikuchi, is stale.
    """

    setting: str
    date: str
    version: str
    fingerprint: str
    seeds: int
    case_seconds: float
    rows: tuple[Row, ...]

    @property
    def verdict(self) -> Verdict:
        """What the rows say together."""
        return verdict_of(self.rows)

    def is_stale(self, experiment: Experiment) -> bool:
        """Whether version, settings or published figures have changed since."""
        present = fingerprint(experiment, self.setting == "quick")
        return (self.version, self.fingerprint) != (__version__, present)

    def status(self, experiment: Experiment) -> str:
        """The verdict, and with what reserve it is to be read."""
        reserve = ["of the quick setting"] if self.setting == "quick" else []
        reserve += ["stale"] if self.is_stale(experiment) else []
        return self.verdict + (f" ({', '.join(reserve)})" if reserve else "")


def status_and_date(experiment: Experiment) -> tuple[str, str]:
    """The verdict of the stored run with its date; "not run" where none is stored.

    >>> from kikuchi_experiments import find_experiment
    >>> status_and_date(find_experiment("LAW-E1"))[0]
    'agrees'
    """
    run = stored_run(experiment)
    return ("not run", "") if run is None else (run.status(experiment), run.date)


def fingerprint(experiment: Experiment, quick: bool) -> str:
    """A short text that differs when cases, methods or published figures do; notes may change."""
    setting, bare = experiment.setting(quick), type(experiment)()
    cases = bare.cases(setting.parameters, range(setting.seeds))
    entry = _entry(experiment)
    others = {name: value for name, value in entry.items() if name not in _TEXTS}
    claims = {name: claim[:3] for name, claim in entry.get("claims", {}).items()}
    text = json.dumps([cases, others, claims], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stored_run(experiment: Experiment) -> StoredRun | None:
    """The run that is kept of an experiment, if there is one."""
    file = files(_package(experiment)) / "results" / f"{experiment.id}.json"
    if not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="utf-8"))
    rows = tuple(_row(entry) for entry in data["rows"])
    plain = {name: data[name] for name in StoredRun.__dataclass_fields__ if name != "rows"}
    return StoredRun(**plain, rows=rows)


def store(outcome: Outcome, folder: Path | None = None) -> Path:
    """Keep the table of a run that is complete, with the seeds of its setting, and without own data
    unless there are no others: of those a short text of the contents is kept.

    `folder` is `results` in the folder of the document unless it is given.
    """
    experiment, setting = outcome.experiment, outcome.experiment.setting(outcome.quick)
    usual = outcome.seeds == tuple(range(setting.seeds))
    if not (outcome.complete and usual and (experiment.data is None or experiment.needs_data)):
        raise KikuchiError(f"{experiment.id}: only a whole run of a setting as it is can be stored")
    data = {
        "experiment": experiment.id,
        "setting": "quick" if outcome.quick else "full",
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "versions": versions(),
        "fingerprint": fingerprint(experiment, outcome.quick),
        "settings": dict(setting.parameters),
        **({"data": experiment.source()["digest"]} if experiment.needs_data else {}),
        "seeds": setting.seeds,
        "cases": outcome.total,
        "case_seconds": round(outcome.case_seconds, 1),
        "rows": [row.to_dict() for row in outcome.rows()],
    }
    target = folder or Path(str(files(_package(experiment)))) / "results"
    target.mkdir(exist_ok=True)
    path = target / f"{experiment.id}.json"
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def _row(entry: dict[str, Any]) -> Row:
    judged = entry["agrees"] is not None
    judgement = Judgement(entry["agrees"], entry["criterion"]) if judged else None
    names = ("quantity", "ours", "published", "corrected", "note")
    return Row(**{name: entry[name] for name in names}, judgement=judgement)


def _package(experiment: Experiment) -> str:
    return type(experiment).__module__.rpartition(".")[0]


def _entry(experiment: Experiment) -> dict[str, Any]:
    return folder_entries(_package(experiment)).get(experiment.id, {})
