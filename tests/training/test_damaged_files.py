"""Files that were cut, changed or made by something else: one line, and never half a state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from kikuchi.beliefnets import ThresholdNetworkClassifier
from kikuchi.boltzmann import RBM, BoltzmannMachine, Machine, RateCodedRBM
from kikuchi.core.errors import DataError
from kikuchi.ica import InfomaxICA, MeanFieldICA
from kikuchi.training.checkpoint import _digests, load, save
from kikuchi.training.model import PytreeModel, load_model, save_model

RNG = np.random.default_rng(0)
ROWS = (RNG.random((30, 4)) < 0.5).astype(np.float64)
SENSORS = RNG.laplace(size=(60, 3)) @ RNG.normal(size=(3, 3))
Reader = Callable[[Path], Any]


def rbm(folder: Path) -> tuple[Path, Reader]:
    fitted = RBM(3, max_iter=2, random_state=0, limits=(0, 1)).fit(ROWS)
    fitted.log_z("exact")
    fitted.save(folder / "rbm")
    return folder / "rbm", RBM.load


def machine(folder: Path) -> tuple[Path, Reader]:
    masks = {"weights": RNG.random((4, 2)) < 0.7, "visible_weights": np.ones((4, 4), np.bool_)}
    save_model(folder / "machine", Machine.random(4, 2, masks=masks), {"note": "small"})
    return folder / "machine", lambda file: load_model(file, Machine)


def pytree(folder: Path) -> tuple[Path, Reader]:
    save_model(folder / "tree", PytreeModel({"a": {"b": np.ones(2)}, "c": np.ones((2, 2))}))
    return folder / "tree", lambda file: load_model(file, PytreeModel)


def infomax(folder: Path) -> tuple[Path, Reader]:
    InfomaxICA(random_state=0, max_iter=3).fit(SENSORS).save(folder / "infomax")
    return folder / "infomax", InfomaxICA.load


def checkpoint(folder: Path) -> tuple[Path, Reader]:
    options: dict[str, Any] = {"random_state": 0, "batch_size": 10, "schedule": "constant"}
    RBM(3, max_iter=2, checkpoint=folder / "state", **options).fit(ROWS)
    return folder / "state", lambda file: RBM(3, max_iter=4, checkpoint=file, **options).fit(ROWS)


KINDS = [rbm, machine, pytree, infomax, checkpoint]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def opened(request, tmp_path_factory) -> tuple[Path, Reader, dict[str, Any], dict[str, str]]:
    file, reader = request.param(tmp_path_factory.mktemp("files"))
    with safetensors.safe_open(str(file), framework="np") as content:
        header = content.metadata()
    return file, reader, safetensors.numpy.load(file.read_bytes()), header


def signed(arrays: dict[str, Any], header: dict[str, str], text: str | None = None) -> bytes:
    """A file with these contents, as if they had been written so."""
    text = header["json"] if text is None else text
    known = {**header, "json": text} | _digests(arrays, text)
    return safetensors.numpy.save(arrays, metadata=known)


def refused(reader: Reader, file: Path, content: bytes) -> str:
    """The message; any other exception, and none, fails the test."""
    bad = file.with_name("bad")
    bad.write_bytes(content)
    with pytest.raises(DataError) as caught:
        reader(bad)
    assert "\n" not in str(caught.value) and str(bad) in str(caught.value)
    return str(caught.value)


def test_files_that_were_cut(opened) -> None:
    file, reader, _, _ = opened
    whole = file.read_bytes()
    for length in (0, 5, 200, len(whole) // 2, len(whole) - 1):
        assert "cannot be read as a model or checkpoint" in refused(reader, file, whole[:length])


def test_descriptions_that_are_no_objects(opened) -> None:
    file, reader, arrays, header = opened
    for text in ("[]", "3", '"x"', "null", "{", "[" * 9999 + "]" * 9999):
        content = signed(arrays, header, text)
        assert "its description is not" in refused(reader, file, content)


def test_arrays_that_are_missing_or_of_another_form(opened) -> None:
    file, reader, arrays, header = opened

    def save(changed: dict[str, Any]) -> bytes:
        return signed(changed, header)

    for name, array in arrays.items():
        refused(reader, file, save({n: a for n, a in arrays.items() if n != name}))
        other = np.int8 if array.dtype.kind in "iu" else np.float16
        refused(reader, file, save({**arrays, name: array.astype(other)}))
        refused(reader, file, save({**arrays, name: np.zeros((*array.shape, 2), array.dtype)}))
        refused(reader, file, save({**arrays, name: np.zeros((0,), array.dtype)}))
    own = "fitted/transform" if "fitted/mean_" in arrays else "parameters/other"
    refused(reader, file, save({**arrays, own: np.zeros(2)}))


def test_facts_of_any_other_type_end_in_one_line_or_in_an_answer(opened) -> None:
    file, reader, arrays, header = opened

    def places(value: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        inner = [places(value[k], (*path, k)) for k in keys] if not isinstance(value, str) else []
        return [path, *(p for more in inner for p in more)]

    facts = json.loads(header["json"])
    simple = {k: v for k, v in facts.items() if k != "progress"}
    refusals = 0
    for path in places(_containers(simple), ()):
        for junk in (None, [], {"a": 1}, "x", -1, 2.5):
            changed = json.loads(header["json"])
            if not path:
                changed = junk
            else:
                node = changed
                for key in path[:-1]:
                    node = node[key]
                node[path[-1]] = junk
            text = json.dumps(changed)
            bad = file.with_name("bad")
            bad.write_bytes(signed(arrays, header, text))
            try:
                reader(bad)
            except DataError as error:
                refusals += 1
                assert "\n" not in str(error)
    assert refusals > 10


def _containers(value: Any) -> Any:
    """The same tree with texts for its leaves."""
    if isinstance(value, dict):
        return {k: _containers(v) for k, v in value.items()}
    return [_containers(v) for v in value[:2]] if isinstance(value, list) else ""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_numbers_that_were_changed_are_seen_wherever_they_are(kind: Any, tmp_path: Path) -> None:
    file, reader = kind(tmp_path)
    whole = file.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for position in range(start, len(whole), 97):
        changed = bytearray(whole)
        changed[position] ^= 4
        assert "damaged" in refused(reader, file, bytes(changed))


def test_facts_of_checkpoints_that_were_changed_are_refused(tmp_path: Path) -> None:
    file, reader = checkpoint(tmp_path)
    whole = file.read_bytes()
    with safetensors.safe_open(str(file), framework="np") as content:
        header = content.metadata()
    facts = json.loads(header["json"])
    arrays = safetensors.numpy.load(whole)
    for name, value in (("epoch", -1), ("update", 99), ("order_seed", -1), ("good", "x")):
        text = json.dumps({**facts, "progress": {**facts["progress"], name: value}})
        content = safetensors.numpy.save(arrays, metadata={**header, "json": text})
        assert "damaged" in refused(reader, file, content)


def test_options_in_a_file_are_checked(tmp_path: Path) -> None:
    fitted = BoltzmannMachine(2, max_iter=1, random_state=0).fit(ROWS)
    fitted.set_params(batch_size=-3).save(tmp_path / "odd")
    with pytest.raises(DataError, match="batch_size must be in"):
        BoltzmannMachine.load(tmp_path / "odd")


def test_a_model_without_a_digest_is_refused(tmp_path: Path) -> None:
    file, reader = rbm(tmp_path)
    with safetensors.safe_open(str(file), framework="np") as content:
        header = content.metadata()
    del header["digest"]
    arrays = safetensors.numpy.load(file.read_bytes())
    assert "damaged" in refused(reader, file, safetensors.numpy.save(arrays, metadata=header))


def test_files_never_say_where_a_later_fit_writes(tmp_path: Path) -> None:
    """Neither of our own making, nor of somebody else's."""
    options = {"max_iter": 1, "random_state": 0, "checkpoint": tmp_path / "state"}
    fitted = BoltzmannMachine(2, **options).fit(ROWS)
    fitted.save(tmp_path / "model")
    assert BoltzmannMachine.load(tmp_path / "model").checkpoint is None
    with safetensors.safe_open(str(tmp_path / "model"), framework="np") as content:
        header = content.metadata()
    facts = json.loads(header["json"])
    facts["about"]["options"]["checkpoint"] = str(tmp_path / "victim")
    arrays = safetensors.numpy.load((tmp_path / "model").read_bytes())
    odd = signed(arrays, header, json.dumps(facts))
    assert "options have checkpoint" in refused(BoltzmannMachine.load, tmp_path / "model", odd)


@pytest.mark.parametrize("option", ["hidden_replicas", "visible_replicas", "n_components"])
def test_options_with_numbers_of_any_length_are_refused(option: str, tmp_path: Path) -> None:
    """They would be found too large only where the model is used."""
    place = tmp_path / "model"
    RateCodedRBM(3, max_iter=1, random_state=0).fit(ROWS).save(place)
    kind = f"kikuchi {RateCodedRBM.file_kind}"
    arrays, facts = load(place, (kind,))
    facts["about"]["options"][option] = 10**400
    save(place, kind, arrays, facts)
    with pytest.raises(DataError, match=f"its option {option} has an integer of more than 64"):
        RateCodedRBM.load(place)
    facts["about"]["options"] |= {option: RateCodedRBM(3).get_params()[option]}
    facts["about"]["options"]["random_state"] = 2**100
    save(place, kind, arrays, facts)
    assert RateCodedRBM.load(place).random_state == 2**100


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: MeanFieldICA(2, max_iter=3, random_state=0).fit(SENSORS), "fitted/doubt_"),
        (lambda: MeanFieldICA(2, max_iter=3, random_state=0).fit(SENSORS), "fitted/noise_error_"),
        (
            lambda: MeanFieldICA(2, max_iter=3, random_state=0).fit(SENSORS),
            "restart0/precision/doubt",
        ),
        (
            lambda: ThresholdNetworkClassifier(max_iter=2, random_state=0).fit(ROWS, ROWS[:, 0]),
            "training_errors",
        ),
        (
            lambda: ThresholdNetworkClassifier(max_iter=2, random_state=0).fit(ROWS, ROWS[:, 0]),
            "validation_errors",
        ),
    ],
)
def test_arrays_that_questions_do_not_need_have_their_sizes(
    make: Any, name: str, tmp_path: Path
) -> None:
    fitted, place = make(), tmp_path / "model"
    fitted.save(place)
    kind = f"kikuchi {fitted.file_kind}"
    arrays, facts = load(place, (kind,))
    longer = arrays | {name: np.repeat(arrays[name], 5)}
    facts["about"]["arrays"] = {n: [str(a.dtype), *a.shape] for n, a in sorted(longer.items())}
    save(place, kind, longer, facts)
    with pytest.raises(DataError, match="not the file of a"):
        type(fitted).load(place)
