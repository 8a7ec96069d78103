"""The harness of `reproduce`: cases, seeds, files of finished cases, interruption, outcomes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from kikuchi import Budget, __version__
from kikuchi.core.errors import FormatError, KikuchiError
from kikuchi.core.files import reading_limit
from kikuchi_experiments import EXPERIMENTS, Experiment, Row, find_experiment, reproduce
from kikuchi_experiments.aggregate import within
from kikuchi_experiments.catalogue import all_experiments
from kikuchi_experiments.experiment import Case, Finished, Result, Setting
from kikuchi_experiments.ledger import Ledger, case_key

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Squares(Experiment):
    """Squares of seeds; every computed case leaves a mark in a folder."""

    id: ClassVar[str] = "TOY-1"
    document: ClassVar[str] = "none"
    title: ClassVar[str] = "Squares"
    claim: ClassVar[str] = "Squares are not negative."
    caption: ClassVar[str] = "Squares."
    quick: ClassVar[Setting] = Setting(3, {"power": 2}, "1 s")
    full: ClassVar[Setting] = Setting(6, {"power": 2}, "1 s")

    def __init__(self, marks: Path, interrupt_at: int | None = None) -> None:
        self.marks = marks
        self.interrupt_at = interrupt_at

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        return [{"seed": seed, **parameters} for seed in seeds]

    def run_case(self, case: Case) -> Result:
        if case["seed"] == self.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
        with (self.marks / str(case["seed"])).open("a") as file:
            file.write("x")
        return {"value": float(case["seed"]) ** case["power"], "pair": (1, 2)}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        total = sum(one.result["value"] for one in finished)
        return [Row("sum", total, 5.0, None, "", within(total, 5.0, 0.5))]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        raise NotImplementedError

    def computed(self) -> dict[int, int]:
        """How often each case was computed."""
        return {int(path.name): len(path.read_text()) for path in sorted(self.marks.iterdir())}


@pytest.fixture
def squares(tmp_path: Path) -> Squares:
    (tmp_path / "marks").mkdir()
    return Squares(tmp_path / "marks")


# ---------------------------------------------------------------------- the list


def test_every_experiment_is_described() -> None:
    known = all_experiments()
    assert [e.id for e in known] == list(EXPERIMENTS)
    for experiment in known:
        assert experiment.title and experiment.claim and experiment.caption
        for setting in (experiment.quick, experiment.full):
            cases = experiment.cases(setting.parameters, range(setting.seeds))
            assert len({case_key(case) for case in cases}) == len(cases) > 0
        quick = experiment.cases(experiment.quick.parameters, range(experiment.quick.seeds))
        full = experiment.cases(experiment.full.parameters, range(experiment.full.seeds))
        assert len(quick) <= len(full)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_quick_settings_take_at_most_a_minute(name: str) -> None:
    number, unit = find_experiment(name).quick.time.split()
    assert float(number) * {"s": 1, "min": 60}[unit] <= 60


def test_an_unknown_id_is_refused_with_the_nearest() -> None:
    with pytest.raises(KikuchiError, match="no experiment 'TEH-E99'; did you mean 'TEH-E9'"):
        find_experiment("TEH-E99")
    assert find_experiment(" teh-e10 ").id == "TEH-E10"


# ---------------------------------------------------------------------- running


def test_seeds(squares: Squares) -> None:
    assert reproduce(squares, quick=True, processes=1).seeds == (0, 1, 2)
    assert reproduce(squares, processes=1).total == 6
    outcome = reproduce(squares, seeds=2, first_seed=5, processes=1)
    assert outcome.seeds == (5, 6) and outcome.rows()[0].ours == 61
    for wrong in ({"seeds": 0}, {"first_seed": -1}):
        with pytest.raises(KikuchiError, match="seed"):
            reproduce(squares, processes=1, **wrong)  # type: ignore[arg-type]
    with pytest.raises(KikuchiError, match="TEH-E8 uses no random numbers"):
        reproduce("TEH-E8", seeds=3)


def test_results_are_plain_data_whether_fresh_or_read(squares: Squares, tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    fresh = reproduce(squares, quick=True, processes=1, resume=file)
    again = reproduce(squares, quick=True, processes=1, resume=file)
    assert fresh.finished == again.finished
    assert fresh.finished[0].result["pair"] == [1, 2]
    assert (fresh.resumed, again.resumed) == (0, 3)
    assert squares.computed() == {0: 1, 1: 1, 2: 1}


def test_resume_computes_only_what_is_missing_and_gives_the_same(
    squares: Squares, tmp_path: Path
) -> None:
    plain = reproduce(squares, processes=1)
    first = reproduce(squares, seeds=4, processes=1, resume=tmp_path / "kept")
    rest = reproduce(squares, processes=1, resume=tmp_path / "kept")
    assert (first.resumed, rest.resumed, rest.total) == (0, 4, 6)
    assert [f.result for f in rest.finished] == [f.result for f in plain.finished]
    assert rest.rows() == plain.rows()
    assert squares.computed() == {0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 2}


def test_other_parameters_are_other_cases(squares: Squares, tmp_path: Path) -> None:
    reproduce(squares, quick=True, processes=1, resume=tmp_path / "kept")
    squares.quick = Setting(3, {"power": 3}, "1 s")  # type: ignore[misc]
    assert reproduce(squares, quick=True, processes=1, resume=tmp_path / "kept").resumed == 0


def test_ctrl_c_keeps_finished_cases(squares: Squares, tmp_path: Path) -> None:
    squares.interrupt_at = 3
    stopped = reproduce(squares, processes=1, resume=tmp_path / "kept")
    assert stopped.stopped == "interrupted" and not stopped.complete
    assert len(stopped.finished) == 3 and stopped.rows()[0].ours == 5
    squares.interrupt_at = None
    rest = reproduce(squares, processes=1, resume=tmp_path / "kept")
    assert rest.complete and rest.resumed == 3 and rest.rows()[0].ours == 55


def test_ctrl_c_before_anything_is_an_interrupt(squares: Squares) -> None:
    squares.interrupt_at = 0
    with pytest.raises(KeyboardInterrupt):
        reproduce(squares, processes=1)


def test_time(squares: Squares) -> None:
    with pytest.raises(KikuchiError, match="no case was finished in the given time"):
        reproduce(squares, processes=1, budget=Budget(seconds=1e-9))


def test_workers_give_the_same_as_this_process(tmp_path: Path) -> None:
    one = reproduce("HOJ-E11", quick=True, processes=1)
    two = reproduce("HOJ-E11", quick=True, processes=2, resume=tmp_path)
    assert [f.result for f in one.finished] == [f.result for f in two.finished]
    assert (one.processes, two.processes) == (1, 2)
    assert (tmp_path / "HOJ-E11.jsonl").read_text().count("\n") == 5


def test_the_outcome_as_data(squares: Squares) -> None:
    data = reproduce(squares, quick=True, processes=1).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["experiment"] == "TOY-1" and data["version"] == __version__
    assert data["setting"] == "quick" and data["settings"] == {"power": 2}
    assert data["seeds"] == [0, 1, 2] and data["cases"] == data["finished"] == 3
    assert data["complete"] is True and data["stopped"] == "finished" and data["resumed"] == 0
    assert set(data["versions"]) == {"python", "numpy", "scipy", "numba"}
    assert data["seconds"] >= 0 and data["case_seconds"] >= 0
    assert data["rows"] == [
        {
            "quantity": "sum",
            "ours": 5.0,
            "published": 5.0,
            "corrected": None,
            "note": "",
            "agrees": True,
            "verdict": "agrees",
            "criterion": "within 0.5 of 5",
        }
    ]
    assert data["verdict"] == "agrees"
    assert [one["case"]["seed"] for one in data["results"]] == [0, 1, 2]


# ---------------------------------------------------------------------- the file of finished cases


def _finished(seed: int) -> Finished:
    return Finished({"seed": seed}, {"value": 0.1 * seed}, 0.5)


def test_a_line_cut_short_is_left_out_and_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    ledger = Ledger(path, "X")
    for seed in range(3):
        ledger.add(_finished(seed))
    whole = path.read_bytes()
    for cut in (1, 7, 40):
        path.write_bytes(whole[:-cut])
        again = Ledger(path, "X")
        assert len(again) == 2 and again.find({"seed": 2}) is None
        again.add(_finished(2))
        assert path.read_bytes() == whole
    assert Ledger(path, "X").find({"seed": 1}) == _finished(1)


def test_one_file_serves_several_experiments(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    Ledger(path, "X").add(_finished(0))
    other = Ledger(path, "Y")
    assert len(other) == 0
    other.add(_finished(1))
    assert len(Ledger(path, "X")) == len(Ledger(path, "Y")) == 1


def test_cases_of_another_version_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    Ledger(path, "X").add(_finished(0))
    path.write_text(path.read_text().replace(f'"{__version__}"', '"0.0.0"'))
    ledger = Ledger(path, "X")
    assert len(ledger) == 0 and ledger.outdated == 1


@pytest.mark.parametrize(
    "content", [b"MARKOV 2", b"{}\n", b"[1]\n", b"\xff\xfe\n", b'{"experiment": 1}\n', b"\n"]
)
def test_another_kind_of_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.uai"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="line 1: found another kind of line"):
        Ledger(path, "X")
    assert path.read_bytes() == content


_LINE = '{"experiment": "X", "version": "0", "case": {"seed": %s}, "result": {}, "seconds": %s}\n'


@pytest.mark.parametrize(
    "line",
    [
        _LINE % ("NaN", "0.1"),
        _LINE % ("1", "NaN"),
        _LINE % ("1", "1" + "0" * 400),
        _LINE % ("1", "1" + "0" * 5000),
        _LINE % ("1", "1e999"),
        _LINE % ("1e999", "1"),
        _LINE % ("1", "-1"),
        _LINE % ("[" * 3000 + "]" * 3000, "1"),
        _LINE % ("[" * 300_000 + "]" * 300_000, "1"),
        '{"experiment": ' + "[" * 3000 + "\n",
    ],
    ids=range(10),
)
def test_lines_that_no_run_writes_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "kept"
    Ledger(path, "X").add(_finished(0))
    path.write_text(path.read_text() + line)
    with pytest.raises(FormatError, match="line 2: found another kind of line"):
        Ledger(path, "X")


def test_a_ledger_is_read_within_the_limit_of_reading(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text((_LINE % (1, 1)) * 1000)
    with reading_limit(50_000), pytest.raises(KikuchiError, match="memory"):
        Ledger(path, "X")


def test_two_runs_share_a_file_whose_last_line_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    Ledger(path, "X").add(_finished(0))
    with path.open("ab") as file:
        file.write(b'{"experiment": "X", "ver')
    first, second = Ledger(path, "X"), Ledger(path, "X")
    for seed in (1, 2, 3):
        first.add(_finished(seed))
    second.add(_finished(9))
    again = Ledger(path, "X")
    assert [again.find({"seed": k}) == _finished(k) for k in (0, 1, 2, 3, 9)] == [True] * 5
    assert len(again) == 5


def test_lines_of_many_processes_stay_whole(tmp_path: Path) -> None:
    """Each adds long lines, leaves half a line behind, as a crash would, and reads them all."""
    path, count = tmp_path / "kept", 12
    program = """
import sys
from pathlib import Path
from kikuchi_experiments.experiment import Finished
from kikuchi_experiments.ledger import Ledger
from kikuchi.core.files import locked
ledger = Ledger(Path(sys.argv[1]), "X")
for k in range(int(sys.argv[3])):
    ledger.add(Finished({"seed": k, "by": sys.argv[2]}, {"long": "x" * 50_000}, 0.5))
    with ledger.path.open("ab") as file, locked(file):
        file.write(b'{"experiment": "X", "half')
        file.flush()
    assert len(Ledger(ledger.path, "X")) > k
"""
    words = [sys.executable, "-c", program, str(path)]
    running = [subprocess.Popen([*words, str(k), str(count)]) for k in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert len(Ledger(path, "X")) == 3 * count


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KikuchiError, match="there is no folder"):
        Ledger(tmp_path / "no" / "kept", "X")
