"""Kills and interrupts at random moments of everything that can be resumed, and while it loads.

A server process loads the library and computes every answer once, then forks a victim for each
trial and sends it SIGKILL, or SIGINT as a terminal does. The victim is resumed until it has an
answer. A fault is an answer other than that of the unbroken run, a process of the victim that lives
on, a hidden file that stays, an odd exit status, or a traceback.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from attack.tally import Tally

NAME = "interrupts"
SAVE_EVERY = 0.02  # seconds between two checkpoints of a victim
ORPHAN_SECONDS = 2.0
HANG_SECONDS = 120.0
LINE = "kikuchi: interrupted\n"
_FEWEST_TRIALS = 5  # of a victim, with each signal
_TAKING = threading.Lock()

# ---------------------------------------------------------------------- victims


@dataclass(frozen=True)
class Victim:
    """What can be resumed: `run` in a folder, and its answer there once it is complete.

    `trials` is how often it is killed, and as often interrupted, in the whole attack.
    """

    run: Callable[[Path], None]
    answer: Callable[[Path], Any]
    trials: int


def command(words: str, answer: Callable[[Path], Any], trials: int = 50) -> Victim:
    """A command line; {inputs} stands for the folder of data and models."""

    def run(folder: Path) -> None:
        from kikuchi.cli.startup import main

        os.chdir(folder)
        sys.argv = ["kikuchi", *words.format(inputs=folder.parent / "inputs").split()]
        main()

    return Victim(run, answer, trials)


def prepared(first: Callable[[Path, Path], None], then: Victim) -> Victim:
    """A victim that begins with `first(folder, inputs)`, also each time that it is resumed."""

    def run(folder: Path) -> None:
        first(folder, folder.parent / "inputs")
        then.run(folder)

    return Victim(run, then.answer, then.trials)


def fit(make: Callable[[Path], Any]) -> Victim:
    """A fit in Python; `make(folder)` answers arrays once it is complete, and None before."""

    def run(folder: Path) -> None:
        from kikuchi.core.files import atomic_write

        arrays = make(folder)
        if arrays is not None:
            # Not np.save: NumPy's write into a file turns a Ctrl-C within it into a TypeError.
            with atomic_write(folder / "answer", "wb") as file:
                file.write(np.concatenate([np.ravel(array) for array in arrays]).tobytes())

    def answer(folder: Path) -> Any:
        place = folder / "answer"
        return place.read_bytes() if place.exists() else None

    return Victim(run, answer, 20)


def learned(text: str) -> Victim:
    """A learner of a small lattice."""

    def make(folder: Path) -> Any:
        import kikuchi as kk

        rows = np.random.default_rng(0).integers(0, 2, (200, 9))
        done = kk.learn(kk.grid(3, 3, seed=1), rows, text, checkpoint=folder / "state")
        if done.stopped == "interrupted":
            return None
        return done.graph.log_tables, [done.objective, done.iterations]

    return fit(make)


def estimated(name: str, **options: Any) -> Victim:
    """A model of independent components."""

    def make(folder: Path) -> Any:
        import kikuchi.ica

        rng = np.random.default_rng(1)
        rows = rng.laplace(size=(200, 3)) @ rng.normal(size=(3, 3))
        estimator = getattr(kikuchi.ica, name)(
            2, random_state=0, checkpoint=folder / "state", **options
        ).fit(rows)
        if any("interrupted" in warning for warning in estimator.warnings_):
            return None
        return estimator.mixing_, [estimator.n_iter_]

    return fit(make)


def _said(folder: Path) -> dict[str, Any] | None:
    place = folder / "answer.json"
    if not place.exists():
        return None
    answer: dict[str, Any] = json.loads(place.read_text())
    return None if answer["stopped"] == "interrupted" else answer


def _tables(folder: Path) -> Any:
    return None if _said(folder) is None else (folder / "out.uai").read_bytes()


def _machine(folder: Path) -> Any:
    from kikuchi.boltzmann import RBM

    if _said(folder) is None:
        return None
    machine = RBM.load(folder / "out.safetensors").model_
    return {name: array.tobytes() for name, array in machine.parameters.items()}


def _cases(folder: Path) -> Any:
    said = _said(folder)
    if said is None:
        return None
    return said["rows"], [{**case, "seconds": 0} for case in said["results"]]


def _file(name: str) -> Callable[[Path], Any]:
    def answer(folder: Path) -> Any:
        place = folder / name
        return place.read_bytes() if place.exists() else None

    return answer


def _state_space(folder: Path) -> Any:
    from kikuchi.temporal import LinearGaussianSSM

    if _said(folder) is None:
        return None
    arrays = LinearGaussianSSM.load(folder / "out.safetensors")._fitted_state()[0].items()
    return {n: np.asarray(a).tobytes() for n, a in arrays if not n.endswith("trace/seconds")}


def _sources(folder: Path) -> Any:
    from kikuchi.ica import MeanFieldICA

    place = folder / "answer.json"
    if not place.exists():
        return None
    if any("interrupted" in line for line in json.loads(place.read_text())["warnings"]):
        return None
    arrays = MeanFieldICA.load(folder / "out.safetensors")._fitted_state()[0].items()
    return {n: np.asarray(a).tobytes() for n, a in arrays if not n.endswith("trace/seconds")}


def _put_older_model(folder: Path, inputs: Path) -> None:
    """Put another model with names where the new one is to be."""
    if not (folder / "out.uai").exists():
        shutil.copy(inputs / "older.uai.names.json", folder / "out.uai.names.json")
        shutil.copy(inputs / "older.uai", folder / "copy.uai")
        (folder / "copy.uai").replace(folder / "out.uai")


def _named_model(folder: Path) -> Any:
    """The names and tables of the model, None where it is the older one or is refused."""
    import kikuchi as kk

    try:
        model, older = kk.read(folder / "out.uai"), kk.read(folder.parent / "inputs" / "older.uai")
    except kk.KikuchiError:
        return None
    found, before = ((m.names, m.states, m.log_tables.tobytes()) for m in (model, older))
    return None if found == before else found


LEARN = "learn {inputs}/rows.csv -g {inputs}/model.uai -o out.uai --checkpoint state --resume"
TRAIN = "fit rbm {inputs}/rows.csv --n-components 3 --batch-size 20 --out out.safetensors --resume"
REPRODUCE = "reproduce HOJ-E11 --resume kept.jsonl"
REST = "--json answer.json -q"
VICTIMS = {
    "learn pcd": command(f"{LEARN} -l pcd:max_iter=20,batch=20 {REST}", _tables),
    "learn gradient": command(f"{LEARN} -l gradient:tol=1e-9 {REST}", _tables),
    "train": command(f"{TRAIN} --max-iter 40 {REST}", _machine),
    "reproduce": command(f"{REPRODUCE} --processes 1 --seeds 20 {REST}", _cases),
    "reproduce, workers": command(f"{REPRODUCE} --processes 2 --seeds 20 {REST}", _cases, 10),
    **{
        f"kk.learn {text}": learned(text)
        for text in (
            "cd:max_iter=15,batch=20",
            "brief-gibbs:max_iter=10,batch=20",
            "em",
            "pseudo:tol=0,max_iter=50",
            "mf-trw",
            "gis:max_iter=100",
            "iis",
            "loopy-is",
            "ups-jt",
        )
    },
    "predict": command("predict example:asia {inputs}/cases.csv -o out.csv -q", _file("out.csv")),
    "predict, packed": command(
        "predict example:asia {inputs}/cases.csv -o out.csv.gz -q", _file("out.csv.gz"), 20
    ),
    "convert": prepared(
        _put_older_model, command("convert {inputs}/newer.json out.uai -q", _named_model)
    ),
    "fit ssm": command(
        f"fit ssm {{inputs}}/walk.csv --max-iter 40 --out out.safetensors {REST}",
        _state_space,
        20,
    ),
    "fit ica": command(
        "fit ica {inputs}/walk.csv --n-components 2 --max-iter 20 --out out.safetensors "
        "--json answer.json -q",
        _sources,
        20,
    ),
    "MeanFieldICA": estimated("MeanFieldICA", max_iter=20),
    "BayesianICA": estimated("BayesianICA", max_iter=10),
    "InfomaxICA": estimated("InfomaxICA", max_iter=20),
}

# ---------------------------------------------------------------------- trials


def attack(count: int, seed: int, seconds: float) -> Tally:
    """Kills and interrupts of all victims in random order, and some interrupts while loading.

    Each victim must run unbroken first: a short attack is one on a few of them.
    """
    end = time.monotonic() + seconds
    rng = np.random.default_rng(seed)
    loadings = max(2, count // 50)
    moments = rng.random(loadings).tolist()
    most = max(_FEWEST_TRIALS, count // 2)
    names = rng.permutation(list(VICTIMS))[: max(1, most // _FEWEST_TRIALS)]
    trials = [
        {"victim": str(name), "signal": int(number), "moment": float(rng.random())}
        for name in names
        for number in (signal.SIGKILL, signal.SIGINT)
        for _ in range(min(most, VICTIMS[name].trials))
    ]
    waiting = [{**trials[k], "number": int(k)} for k in rng.permutation(len(trials))]
    del waiting[max(0, count - loadings) :]
    cores = len(os.sched_getaffinity(0))
    found = [Tally(NAME) for _ in range(cores + 1)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        work = [
            threading.Thread(target=_interrupt_loading, args=(found[-1], moments, place, end)),
            *(
                threading.Thread(
                    target=_attend, args=(found[k], waiting, place / f"server{k}", end, k, cores)
                )
                for k in range(cores)
            ),
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    faults = [fault for tally in found for fault in tally.faults]
    return Tally(NAME, sum(tally.tried for tally in found), faults)


def _attend(
    tally: Tally, waiting: list[dict[str, Any]], folder: Path, end: float, own: int, servers: int
) -> None:
    """Give trials to a server of victims until there are none, or no time, left.

    Each server has victims of its own, which it must run unbroken once, and helps with the others
    when those are done.
    """
    mine = set(list(VICTIMS)[own::servers])
    with _server(folder) as server:
        assert server.stdin is not None and server.stdout is not None
        while time.monotonic() < end:
            with _TAKING:
                if not waiting:
                    return
                place = next((k for k, t in enumerate(waiting) if t["victim"] in mine), 0)
                trial = waiting.pop(place)
            server.stdin.write(json.dumps(trial) + "\n")
            server.stdin.flush()
            answer = server.stdout.readline()
            tally.tried += 1
            faults = json.loads(answer) if answer else ["the server of victims ended"]
            tally.faults += [f"{trial}: {fault}" for fault in faults]
            if not answer:
                return


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    here = Path(__file__).resolve()
    server = subprocess.Popen(
        [sys.executable, "-c", "from attack.interrupts import serve; serve()", str(folder)],
        cwd=here.parents[1],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield server
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()


def _interrupt_loading(tally: Tally, moments: list[float], folder: Path, end: float) -> None:
    """Ctrl-C while a command is loaded, and while its loops are compiled anew."""
    program = "from kikuchi.cli.startup import main\nprint('ready', flush=True)\nmain()\n"
    words = ["infer", "example:asia", "--method", "bp"]
    for number, moment in enumerate(moments):
        if time.monotonic() > end:
            return
        environment = dict(os.environ)
        compiled = folder / f"compiled{number}"
        if number % 2:
            environment["NUMBA_CACHE_DIR"] = str(compiled)
        after = moment * (6.0 if number % 2 else 1.5)
        process = subprocess.Popen(
            [sys.executable, "-c", program, *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=HANG_SECONDS)
        tally.tried += 1
        good = process.returncode == 0 or (process.returncode == 130 and errors == LINE)
        if not good or _odd(errors):
            tally.faults.append(
                f"Ctrl-C after {after:.4f} s of `kikuchi {' '.join(words)}`, new cache "
                f"{number % 2}: status {process.returncode}, {errors[-300:]!r}"
            )
        shutil.rmtree(compiled, ignore_errors=True)


def _odd(errors: str) -> bool:
    return "Traceback" in errors or "Exception ignored" in errors


# ---------------------------------------------------------------------- the server of victims


def serve() -> None:
    """Answer each trial on standard input with a list of faults."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    answers = sys.stdout
    base = Path(sys.argv[1])
    base.mkdir()
    _make_inputs(base / "inputs")
    from kikuchi.training.checkpoint import Checkpoint

    assert Checkpoint.__init__.__kwdefaults__ is not None
    Checkpoint.__init__.__kwdefaults__["every"] = SAVE_EVERY
    whole: dict[str, tuple[Any, float]] = {}
    for line in sys.stdin:
        trial = json.loads(line)
        name = trial["victim"]
        if name not in whole:
            whole[name] = _unbroken(VICTIMS[name], base)
        folder = base / str(trial["number"])
        try:
            faults = _trial(VICTIMS[name], trial, folder, *whole[name])
        except Exception:
            faults = [f"the trial itself failed: {traceback.format_exc()}"]
        shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps(faults), file=answers, flush=True)


def _make_inputs(folder: Path) -> None:
    import kikuchi as kk

    folder.mkdir()
    kk.write(kk.grid(3, 3, seed=1), folder / "model.uai")
    rows = np.random.default_rng(0).integers(0, 2, (200, 9))
    names = ",".join(f"x{k}" for k in range(9))
    np.savetxt(folder / "rows.csv", rows, fmt="%d", delimiter=",", header=names, comments="")
    rng = np.random.default_rng(1)
    walk = np.cumsum(rng.laplace(size=(100, 2)), axis=0)
    np.savetxt(folder / "walk.csv", walk, delimiter=",", header="a,b", comments="")
    cells = rng.choice(["yes", "no", ""], (6000, 3))
    lines = ["smoke,xray,dysp", *(",".join(row) for row in cells)]
    (folder / "cases.csv").write_text("\n".join(lines) + "\n")
    for name, shift in (("older.uai", 0), ("newer.json", 1)):  # the same sizes, other names
        model = kk.grid(30, 30, seed=shift)
        names = [f"v{(k + shift) % model.n_variables}" for k in range(model.n_variables)]
        kk.write(named(model, names), folder / name)


def named(model: Any, names: list[str]) -> Any:
    """The model with these names of its variables."""
    import kikuchi as kk

    factors = [(model.scope(f), model.log_table(f)) for f in range(model.n_factors)]
    return kk.FactorGraph(model.cardinalities, factors, names=names, log=True)


def _unbroken(victim: Victim, base: Path) -> tuple[Any, float]:
    """The answer of an unbroken run, and the seconds that it takes when everything is loaded."""
    folder = base / "whole"
    for warm in (False, True):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        start = time.monotonic()
        if warm:
            status, errors, _ = _run(victim, folder, None, 0)
            if status or errors:
                raise RuntimeError(f"an unbroken run ends with status {status}: {errors}")
        else:  # in this process, which then has everything that victims need
            place, words = Path.cwd(), sys.argv
            with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr):
                victim.run(folder)
            os.chdir(place)
            sys.argv = words
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = sys.__unraisablehook__
    seconds = time.monotonic() - start
    answer = victim.answer(folder)
    if answer is None:
        raise RuntimeError("an unbroken run has no answer")
    return answer, seconds


def _trial(
    victim: Victim, trial: dict[str, Any], folder: Path, whole: Any, seconds: float
) -> list[str]:
    folder.mkdir()
    number = trial["signal"]
    faults = []
    status, errors, orphans = _run(victim, folder, trial["moment"] * seconds, number)
    allowed = (0, -signal.SIGKILL) if number == signal.SIGKILL else (0, 130)
    if status not in allowed or (status == 130) != (errors == LINE) or _odd(errors):
        faults.append(f"status {status}, {errors[-300:]!r}")
    if orphans:
        faults.append(f"{orphans} processes live on")
    if victim.answer(folder) is None:
        status, errors, _ = _run(victim, folder, None, 0)
        if status or errors:
            faults.append(f"resumed: status {status}, {errors[-300:]!r}")
    if victim.answer(folder) != whole:
        faults.append("the answer is not that of the unbroken run")
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    if hidden:
        faults.append(f"hidden files stay: {hidden}")
    return faults


def _run(victim: Victim, folder: Path, after: float | None, number: int) -> tuple[int, str, int]:
    """Fork a victim, send it a signal after some time; its status, its errors, and how many of its
    processes live on.
    """
    log = folder.parent / "errors"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the victim can take it
    process = os.fork()
    if process == 0:
        _become(victim, folder, log)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with contextlib.suppress(OSError):  # the victim may have done so, and more
        os.setpgid(process, process)
    code = _wait(process, HANG_SECONDS if after is None else after)
    if code is None and after is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-process if number == signal.SIGINT else process, number)
        code = _wait(process, HANG_SECONDS)
    if code is None:
        os.killpg(process, signal.SIGKILL)
        return 0, f"it hung for {HANG_SECONDS:g} s", 0
    return code, log.read_text(), _orphans(process)


def _become(victim: Victim, folder: Path, log: Path) -> NoReturn:
    """Be the victim, in a process group of its own, and never return."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        faulthandler.enable()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        victim.run(folder)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except KeyboardInterrupt:
        os.write(2, LINE.encode())
        code = 130
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _wait(process: int, seconds: float) -> int | None:
    """The status of a process that ends within some time."""
    end = time.monotonic() + seconds
    while True:
        found, code = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(code)
        left = end - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(left, 0.002))


def _orphans(group: int) -> int:
    """How many processes of a group still run after the time that they have to notice."""
    end = time.monotonic() + ORPHAN_SECONDS
    while (running := _running(group)) and time.monotonic() < end:
        time.sleep(0.01)
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return len(running)


def _running(group: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group, *_ = place.read_text().rpartition(")")[2].split()
            if int(its_group) == group and state != "Z":
                found.append(int(place.parent.name))
    return found
