"""Files of machines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.parameters import ARCHITECTURES
from kikuchi.boltzmann.units import BinomialUnits, GaussianUnits
from kikuchi.core.errors import DataError, KikuchiError
from kikuchi.training.checkpoint import _digest
from kikuchi.training.model import load_model, save_model


@settings(max_examples=25, deadline=None)
@given(
    architecture=st.sampled_from(list(ARCHITECTURES)),
    d=st.integers(1, 6),
    k=st.integers(0, 5),
    single=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_machine_comes_back_as_it_was(tmp_path_factory, architecture, d, k, single, seed) -> None:
    file = tmp_path_factory.mktemp("m") / "machine.safetensors"
    rng = np.random.default_rng(seed)
    masks = {"weights": rng.random((d, k)) < 0.5}
    for name, size, wanted in zip(
        ("visible_weights", "hidden_weights"), (d, k), ARCHITECTURES[architecture], strict=True
    ):
        if wanted:
            kept = rng.random((size, size)) < 0.5
            masks[name] = kept | kept.T
    dtype = np.float32 if single else np.float64
    machine = Machine.random(d, k, masks=masks, dtype=dtype, random_state=seed)
    save_model(file, machine, {"note": "ä", "epochs": 3})
    back, about = load_model(file, Machine)
    assert about == {"note": "ä", "epochs": 3}
    assert back.dtype == dtype and back.architecture == machine.architecture
    for name, array in machine.parameters.items():
        assert np.array_equal(array, back.parameters[name])
    assert {n: m.tolist() for n, m in back.masks.items()} == {
        n: m.tolist() for n, m in machine.masks.items()
    }


def test_kinds_of_units_come_back(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    save_model(
        file, Machine.random(3, 2, visible=GaussianUnits(), hidden=BinomialUnits(replicas=4))
    )
    back, _ = load_model(file, Machine)
    assert back.visible == GaussianUnits() and back.hidden == BinomialUnits(replicas=4)


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    good = tmp_path / "good.safetensors"
    save_model(good, Machine.random(3, 2))
    arrays = safetensors.numpy.load(good.read_bytes())
    with safetensors.safe_open(str(good), framework="np") as opened:
        header = opened.metadata()
    facts = json.loads(header["json"])
    broken = {n: a for n, a in arrays.items() if n != "parameters/weights"}
    odd = {**arrays, "parameters/weights": np.zeros((2, 2))}
    cases = [
        (arrays, None, "another kind of file"),
        (arrays, {"format": "other"}, "found other"),
        (arrays, {**header, "version": "99"}, "version 99"),
        (arrays, {**header, "json": "{"}, "not JSON"),
        (arrays, {**header, "json": "{}"}, "not the file of a machine"),
        (broken, header, "not the file of a machine"),
        (odd, header, "not the file of a machine"),
        (arrays, {**header, "json": json.dumps({**facts, "machine": {"visible": "odd"}})}, "odd"),
    ]
    for tensors, metadata, message in cases:
        if metadata and "json" in metadata:  # what is changed is seen beside a right digest
            metadata = {**metadata, "digest": _digest(tensors, metadata["json"])}
        file.write_bytes(safetensors.numpy.save(tensors, metadata=metadata))
        with pytest.raises(KikuchiError, match=message) as caught:
            load_model(file, Machine)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="cannot be read"):
        load_model(tmp_path / "missing.safetensors", Machine)
    with pytest.raises(KikuchiError, match="cannot write"):
        save_model(tmp_path / "no" / "folder.safetensors", Machine.random(2, 1))
