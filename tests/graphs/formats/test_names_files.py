"""Names beside model files: they belong to the tables that are read, whatever happens between."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import FormatError
from kikuchi.graphs.formats.names import names_file

RAIN = {"rain": 0.9, "sick": 0.5}
STATES = [["no", "yes"], ["no", "yes"]]


def model(names: list[str] | None) -> kk.FactorGraph:
    """Two variables: rain with probability 0.9 and sick with 0.5, in the order of the names."""
    odds = [RAIN[name] for name in names or ["sick", "rain"]]
    factors = [((v,), [1 - p, p]) for v, p in enumerate(odds)]
    return kk.FactorGraph([2, 2], factors, names=names, states=names and STATES)


OLD, NEW, PLAIN = model(["rain", "sick"]), model(["sick", "rain"]), model(None)
MODELS = {"old": OLD, "new": NEW, "plain": PLAIN}


def killed_at(graph: kk.FactorGraph, path: Path, moment: int) -> bool:
    """Write in a child that dies at a moment: before (even) or after (odd) a file is replaced or
    removed; False if it ended before.
    """
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    left = [moment]

    def dying(action):
        def act(*arguments, **options):
            for k in range(2):
                if left[0] == 0:
                    os._exit(9)
                left[0] -= 1
                if k == 0:
                    found = action(*arguments, **options)
            return found

        return act

    Path.replace, Path.unlink = dying(Path.replace), dying(Path.unlink)
    try:
        kk.write(graph, path)
    finally:
        os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("ending", ["uai", "fg", "uai.gz", "json"])
@pytest.mark.parametrize("first", MODELS)
@pytest.mark.parametrize("second", MODELS)
def test_a_kill_leaves_the_old_pair_or_the_new_one(
    ending: str, first: str, second: str, tmp_path: Path
) -> None:
    path = tmp_path / f"m.{ending}"
    seen = set()
    for moment in range(20):
        kk.write(MODELS[first], path)
        finished = not killed_at(MODELS[second], path, moment)
        found = kk.read(path)
        assert found in (MODELS[first], MODELS[second]), moment
        seen.add(found == MODELS[second])
        kk.write(MODELS[second], path)  # after a kill, too, the next write puts all in order
        assert kk.read(path) == MODELS[second]
        content = names_file(path).read_text() if names_file(path).is_file() else "{}"
        assert "before" not in json.loads(content)
        if finished:
            break
    assert finished and moment >= 2 and (seen == {True, False} or first == second)


@pytest.mark.parametrize("ending", ["uai", "fg", "uai.gz"])
def test_names_of_another_model_are_refused(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"m.{ending}"
    kk.write(OLD, path)
    beside = names_file(path).read_bytes()
    kk.write(NEW, path)
    assert kk.read(path) == NEW
    names_file(path).write_bytes(beside)
    with pytest.raises(FormatError, match="delete this file"):
        kk.read(path)
    names_file(path).unlink()
    assert kk.read(path).names is None


def test_a_model_that_another_program_replaced_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.uai"
    kk.write(OLD, path)
    path.write_bytes(path.read_bytes().replace(b"0.9", b"0.8"))
    with pytest.raises(FormatError, match=r"m\.uai\.names\.json: found the names of another"):
        kk.read(path)
    kk.write(NEW, path)
    assert kk.read(path) == NEW


def test_the_digest_is_that_of_the_text_and_not_of_its_packing(tmp_path: Path) -> None:
    kk.write(OLD, tmp_path / "m.uai")
    packed = tmp_path / "copy.uai.gz"
    packed.write_bytes(gzip.compress((tmp_path / "m.uai").read_bytes(), 1))
    names_file(packed).write_bytes(names_file(tmp_path / "m.uai").read_bytes())
    assert kk.read(packed) == OLD


def test_names_written_by_hand_need_no_digest(tmp_path: Path) -> None:
    path = tmp_path / "m.uai"
    kk.write(PLAIN, path)
    names_file(path).write_text('{"names": ["a", "b"]}')
    assert kk.read(path).names == ("a", "b")
    np.testing.assert_array_equal(kk.read(path).log_tables, PLAIN.log_tables)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"names": [1], "states": null}',
        '{"names": null, "states": [1]}',
        '{"names": ["a", "b"], "digest": 3}',
        '{"names": ["a", "b"], "before": 3}',
        '{"names": ["a"]}',
        "[" * 5000,
        f'{{"names": {"9" * 400}}}',
    ],
)
def test_other_files_are_refused_in_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "m.uai"
    kk.write(PLAIN, path)
    names_file(path).write_text(content)
    with pytest.raises(FormatError, match=r"m\.uai\.names\.json") as caught:
        kk.read(path)
    assert "\n" not in str(caught.value)
    kk.write(OLD, path)  # what cannot be read is replaced
    assert kk.read(path) == OLD
