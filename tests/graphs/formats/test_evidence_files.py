"""Evidence files in both of their forms."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from kikuchi import FactorGraph, KikuchiError, infer, read_evidence
from kikuchi.graphs.formats.evidence import parse_evidence

GRAPH = FactorGraph([2, 3, 2, 4], [((0,), [1, 1])])
NAMED = FactorGraph(
    [2, 2],
    [((0,), [1, 1])],
    names=["rain", "1"],
    states=[["no", "yes"], ["off", "on"]],
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b" \n ", {}),
        (b"0", {}),
        (b"0\n", {}),
        (b"1\n0", {}),
        (b"1 2 0", {2: 0}),
        (b"1\n1 2 0", {2: 0}),
        (b"2 0 1 3 0", {0: 1, 3: 0}),
        (b"1\n2 0 1 3 0\n", {0: 1, 3: 0}),
        (b"2 3 2 3 2", {3: 2}),
        (b"2 1 2 1 2", {1: 2}),  # also two cases, (1: 2, ...), but the plain reading goes first
        (b"3 0 1 1 1 2 1", {0: 1, 1: 1, 2: 1}),
    ],
)
def test_the_uai_format_with_and_without_the_number_of_cases(
    data: bytes, expected: dict[int, int]
) -> None:
    found = parse_evidence("x.evid", data, GRAPH)
    assert found == expected
    assert all(type(v) is int and type(k) is int for v, k in found.items())


def test_json_by_name_and_by_number() -> None:
    assert parse_evidence("x.json", b'{"rain": 1, "1": "on"}', NAMED) == {0: 1, 1: 1}
    assert parse_evidence("x.json", b'\n{"0": 1, "3": 2}', GRAPH) == {0: 1, 3: 2}
    assert parse_evidence("x.json", b'{"0": "yes", "rain": 1}', NAMED) == {0: 1}
    assert parse_evidence("x.json", b"{}", GRAPH) == {}


def test_lists_of_numbers_pass_through_unchanged() -> None:
    found = parse_evidence("x.json", b'{"rain": [0.25, 0.75], "1": 0}', NAMED)
    assert found == {0: [0.25, 0.75], 1: 0}


def test_files_are_found_and_unpacked(tmp_path: Path) -> None:
    plain, packed = tmp_path / "m.uai.evid", tmp_path / "m.uai.evid.gz"
    plain.write_text("1 3 2")
    packed.write_bytes(gzip.compress(b"1 3 2"))
    assert read_evidence(plain, GRAPH) == read_evidence(packed, GRAPH) == {3: 2}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1 4 0", "line 1: found '4'; expected a variable in 0..3"),
        (b"1\n1 1 3", "line 2: found '3'; expected a state of variable 1 in 0..2"),
        (b"1 -1 0", "line 1: found '-1'; expected a variable in 0..3"),
        (b"2 1 0\n1 2", "line 2: found '2'; expected state 0 of variable 1, as before"),
        (b"1 0 yes", "line 1: found 'yes'; expected a state of variable 0 in 0..1"),
        (b"x", "line 1: found 'x'; expected the number of observations, a whole number >= 0"),
        (b"2 0 1 3", "line 1: found 2 as the number of observations, and 3 numbers after it; "),
        (b"1 0 1 1", "line 1: found 0 as the number of observations, and 2 numbers after it; "),
        (b"4 0 1 x 1", "line 1: found 'x'; expected variables and states, whole numbers >= 0"),
        (b"0 0 1", "line 1: found 0 as the number of observations, and 2 numbers after it; "),
        (b"2\n1 0 1\n1 3 0", "line 1: found 2 cases of evidence; expected one"),
        (b"3\n1 0 1\n0\n1 3 0", "line 1: found 3 cases of evidence; expected one"),
        (b"999999999999 0", "line 1: found '999999999999'; expected the number of observations"),
        (b"1000000000 0 1", "found 1000000000 as the number of observations, and 2 numbers after"),
        (b"\xff\xfe", r"line 1: found '\xff\xfe'; expected the number of observations"),
        (b'{"0": 1', "line 1: found invalid JSON ("),
        (b'{"0": 1,\n}', ": found invalid JSON ("),
        (b'{"\xff": 1}', "found invalid JSON ("),
        (b'{"0": ' + b"[" * 100_000, "found invalid JSON ("),
        (b'{"0": 5}', "variable 0 has states 0..1, got 5; expected for example"),
        (b'{"rain": 0}', "there is no variable 'rain'"),
        (b'{"0": 0, "0": 1}', "variable '0' is observed twice, differently"),
        (b'{"0": true}', "True is not a state"),
        (b'{"0": 0.5}', "0.5 is not a state"),
        (b'{"0": null}', "None is not a state"),
        (b'{"0": []}', "[] is not a state"),
        (b'{"0": ["a"]}', "['a'] is not a state"),
        (b'{"0": {"a": 1}}', "is not a state"),
        (b'{"99999999999999999999": 0}', "there is no variable"),
    ],
)
def test_bad_evidence_is_one_clear_line(data: bytes, message: str) -> None:
    with pytest.raises(KikuchiError) as caught:
        parse_evidence("e.evid", data, GRAPH)
    line = str(caught.value)
    assert line.startswith("e.evid")
    assert message in line
    assert "\n" not in line


@pytest.mark.parametrize("digits", [309, 4300])
@pytest.mark.parametrize("value", ["{}", "[{}, 1]", "-{}", "[1e999, 0]", "[NaN, 1]"])
def test_numbers_that_no_double_holds(value: str, digits: int, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(f'{{"rain": {value.format("9" * digits)}}}')
    with pytest.raises(KikuchiError) as caught:
        infer(NAMED, "bp", evidence=read_evidence(path, NAMED))
    assert "\n" not in str(caught.value)
