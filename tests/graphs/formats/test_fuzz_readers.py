"""Whatever bytes a file holds, a reader answers with a graph or a `KikuchiError`, soon."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kikuchi import FactorGraph, KikuchiError
from kikuchi.graphs.formats.bif import bif_text, read_bif
from kikuchi.graphs.formats.evidence import parse_evidence
from kikuchi.graphs.formats.fg import fg_text, read_fg
from kikuchi.graphs.formats.uai import read_uai, uai_text
from oracle import random_model

Parse = Callable[[str, bytes], object]

MODEL = random_model(np.random.default_rng(0), n=4, n_factors=4, zeros=0.2)
NETWORK = FactorGraph(
    [2, 3],
    [((0,), [0.25, 0.75]), ((0, 1), [[0.2, 0.3, 0.5], [1, 0, 0]])],
    names=["a", "b c"],
    states=[["x", "y"], ["1", "2", "<3"]],
    children=[0, 1],
)
PARSERS: dict[str, Parse] = {
    "uai": read_uai,
    "uai compiled": partial(read_uai, compiled=True),
    "fg": read_fg,
    "fg compiled": partial(read_fg, compiled=True),
    "bif": read_bif,
    "evidence": lambda path, data: parse_evidence(path, data, NETWORK),
}
GOOD: dict[str, bytes] = {
    "uai": "".join(uai_text(MODEL)).encode(),
    "uai compiled": "".join(uai_text(NETWORK)).encode(),
    "fg": b"# comment\n" + "".join(fg_text(MODEL)).encode(),
    "fg compiled": "".join(fg_text(NETWORK)).encode(),
    "bif": b"// comment\n" + "".join(bif_text(NETWORK)).encode(),
    "evidence": b'{"a": 1, "b c": "<3"}',
}
WORDS = [b"MARKOV", b"BAYES", b"0", b"1", b"2", b"3", b"-1", b"1.5", b"1e999", b"nan", b"1e-999"]
WORDS += [b"1000000000", b"99999999999999999999", b"\x00", b"\xff", b"#", b"//", b"/*", b"*/", b'"']
WORDS += [b"variable", b"probability", b"network", b"type discrete [ 2 ] {", b"}", b"{", b"(", b")"]
WORDS += [b"table", b"default", b"property", b";", b",", b"|", b"[", b"]", b"\n", b"a", b"b c"]


def check(parse: Parse, data: bytes) -> None:
    begin = time.perf_counter()
    try:
        result = parse("fuzz", data)
    except KikuchiError as error:
        assert "\n" not in str(error)
        assert str(error).startswith("fuzz")
    else:
        assert isinstance(result, FactorGraph | dict)
        if isinstance(result, FactorGraph):
            assert not np.isnan(result.log_tables).any()
            assert np.isfinite(result.log_constant)
    assert time.perf_counter() - begin < 5.0


each_parser = pytest.mark.parametrize("name", PARSERS)


@each_parser
@given(data=st.binary(max_size=200))
def test_random_bytes(name: str, data: bytes) -> None:
    check(PARSERS[name], data)


@each_parser
@given(words=st.lists(st.sampled_from(WORDS), max_size=40))
@settings(max_examples=200)
def test_random_words(name: str, words: list[bytes]) -> None:
    check(PARSERS[name], b" ".join(words))


@st.composite
def mutations(draw: st.DrawFn) -> list[tuple[str, float, bytes]]:
    kinds = st.sampled_from(["cut", "delete", "insert", "replace", "swap word", "double"])
    pieces = st.one_of(st.binary(min_size=1, max_size=3), st.sampled_from(WORDS))
    return draw(st.lists(st.tuples(kinds, st.floats(0, 1), pieces), min_size=1, max_size=4))


def mutated(data: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for kind, where, piece in changes:
        at = int(where * len(data))
        if kind == "cut":
            data = data[:at]
        elif kind == "delete":
            data = data[:at] + data[at + len(piece) :]
        elif kind == "insert":
            data = data[:at] + piece + data[at:]
        elif kind == "replace":
            data = data[:at] + piece + data[at + len(piece) :]
        elif kind == "double":
            data = data + data[at:]
        else:
            words = data.split(b" ")
            words[min(int(where * len(words)), len(words) - 1)] = piece
            data = b" ".join(words)
    return data


@each_parser
@given(changes=mutations())
@settings(max_examples=300)
def test_good_files_with_changes(name: str, changes: list[tuple[str, float, bytes]]) -> None:
    check(PARSERS[name], mutated(GOOD[name], changes))


@pytest.mark.parametrize("name", ["uai", "fg"])
@given(changes=mutations())
@settings(max_examples=200)
def test_both_scanners_say_the_same(name: str, changes: list[tuple[str, float, bytes]]) -> None:
    data = mutated(GOOD[name], changes)
    answers = []
    for parse in (PARSERS[name], PARSERS[f"{name} compiled"]):
        try:
            answers.append(parse("fuzz", data))
        except KikuchiError as error:
            answers.append(str(error))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("name", PARSERS)
def test_every_truncation_of_a_good_file(name: str) -> None:
    for size in range(len(GOOD[name])):
        check(PARSERS[name], GOOD[name][:size])


@given(where=st.floats(0, 1), byte=st.integers(0, 255))
def test_gzip_data_with_a_changed_byte(where: float, byte: int, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    from kikuchi import read

    packed = bytearray(gzip.compress(GOOD["uai"]))
    packed[min(int(where * len(packed)), len(packed) - 1)] = byte
    path = tmp_path_factory.mktemp("gz") / "m.uai.gz"
    path.write_bytes(bytes(packed))
    try:
        read(path)
    except KikuchiError as error:
        assert str(error).startswith(str(path))
