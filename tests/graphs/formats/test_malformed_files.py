"""Every malformed file gives one line: file, line number, what was found, what was expected."""

from __future__ import annotations

import gzip
import os
import time
import tracemalloc
from pathlib import Path

import pytest

from kikuchi import FactorGraph, KikuchiError, read, write
from kikuchi.core.errors import FormatError
from kikuchi.graphs.formats.bif import read_bif
from kikuchi.graphs.formats.fg import read_fg
from kikuchi.graphs.formats.uai import read_uai

HEAD = b"MARKOV\n2\n2 2\n"
ONE = HEAD + b"1\n2 0 1\n"

UAI = [
    (b"", "line 1: found the end of the file; expected MARKOV or BAYES, the kind of the network"),
    (b"\n \n", "line 1: found the end of the file; expected MARKOV or BAYES"),
    (b"MARCOV\n1", "line 1: found 'MARCOV'; expected MARKOV or BAYES"),
    (b"\x89PNG\r\n\x1a\n\x00\x00", r"line 1: found '\x89PNG'; expected MARKOV or BAYES"),
    (b"\x00\x00\x00", r"line 1: found '\x00\x00\x00'; expected MARKOV"),
    (b"MARKOV", "line 1: found the end of the file; expected the number of variables"),
    (b"MARKOV\n-1", "line 2: found '-1'; expected the number of variables, a whole number >= 0"),
    (b"MARKOV\n2.0 2 2", "line 2: found '2.0'; expected the number of variables, a whole number"),
    (b"MARKOV 3\n2 2\n", "line 2: found the end of the file; expected the number of states of var"),
    (b"MARKOV 3\n2 0 2\n", "line 2: found '0'; expected the number of states of variable 1 of 3"),
    (b"MARKOV 1\n99999999999 0", "found '99999999999'; expected the number of states of variable"),
    (b"MARKOV 1\n1000000000 0", "found '1000000000'; expected fewer states: the file holds only 4"),
    (b"MARKOV 1000000000\n2", "found the end of the file; expected the number of states of vari"),
    (b"MARKOV " + b"9" * 5000, "line 1: found '999999999999999999999999999999...'; expected the"),
    (HEAD, "line 3: found the end of the file; expected the number of factors"),
    (HEAD + b"x", "line 4: found 'x'; expected the number of factors, a whole number >= 0"),
    (
        HEAD + b"1000000000\n1 0\n2 1 1",
        "found '1'; expected every variable once in the scope of factor 1",
    ),
    (HEAD + b"1000000000\n1 0", "found the end of the file; expected the number of variables of f"),
    (HEAD + b"1\n3 0 1 0", "line 5: found '3'; expected the number of variables of factor 0 of 1"),
    (HEAD + b"1\n2 0 2", "line 5: found '2'; expected variable 2 of factor 0, a whole number in 0"),
    (HEAD + b"1\n2 0 -1", "line 5: found '-1'; expected variable 2 of factor 0"),
    (HEAD + b"1\n2\n1\n1", "line 7: found '1'; expected every variable once in the scope of fact"),
    (HEAD + b"1\n2 1", "line 5: found the end of the file; expected variable 2 of factor 0"),
    (ONE, "line 5: found the end of the file; expected the number of entries of factor 0 of 1"),
    (ONE + b"5\n1 1 1 1 1", "line 6: found '5'; expected 4, the number of entries of factor 0"),
    (ONE + b"3\n1 1 1", "line 6: found '3'; expected the number of entries of factor 0 of 1, a w"),
    (ONE + b"1000000000\n1", "line 6: found '1000000000'; expected the number of entries of fact"),
    (ONE + b"4\n1 1 1", "line 7: found the end of the file; expected entry 3 of factor 0"),
    (
        ONE + b"4\n1 1\n-0.5 1",
        "line 8: found '-0.5'; expected entry 2 of factor 0, a finite number",
    ),
    (ONE + b"4\n1 nan 1 1", "line 7: found 'nan'; expected entry 1 of factor 0, a finite number t"),
    (ONE + b"4\n1 1 inf 1", "line 7: found 'inf'; expected entry 2 of factor 0, a finite number"),
    (ONE + b"4\n1 1 1 1e999", "line 7: found '1e999'; expected entry 3 of factor 0, a finite num"),
    (ONE + b"4\n1 1 1 1e-999", "found '1e-999', which is below the smallest number, 5e-324; exp"),
    (ONE + b"4\n1 1 1 \xff", r"line 7: found '\xff'; expected entry 3 of factor 0"),
    (ONE + b"4\n1 \x00 1 1", r"line 7: found '\x00'; expected entry 1 of factor 0"),
    (ONE + b"4\n1 1_0 1 1", "line 7: found '1_0'; expected entry 1 of factor 0"),
    (ONE + b"4\n0 0.0 0 0", "line 6: factor 0 is zero everywhere; expected a positive entry"),
    (ONE + b"4\n1 1 1 1\n7", "line 8: found '7'; expected the end of the file after the tables of"),
    (HEAD + b"1\n0\n1 0", "factor 0 is zero everywhere; expected a positive entry"),
    (b"BAYES 2 2 2\n1\n1 0\n2 1 1", "variable 1 is not the last variable of any factor; expecte"),
    (b"BAYES 2 2 2\n2\n1 0\n2 1 0\n2 1 1 4 1 1 1 1", "line 4: found '0'; expected a last variable"),
    (b"BAYES 1 2\n1\n0\n1 1", "line 3: found '0'; expected the number of variables of factor 0"),
    (
        b"BAYES 2 2 2\n2\n2 1 0\n2 0 1\n4 1 1 1 1 4 1 1 1 1",
        "found a cycle of parents: 0 -> 1 -> 0; expected a BAYES network without cycles",
    ),
    (
        b"MARKOV 60 " + b"9 " * 60 + b"\n1\n60 " + b" ".join(b"%d" % k for k in range(60)) + b"\n7",
        "line 4: found '7'; expected the number of entries of factor 0 of 1, a whole number equal",
    ),
]

FG = [
    (b"", "line 1: found the end of the file; expected the number of factors"),
    (b"# nothing\n", "line 1: found the end of the file; expected the number of factors"),
    (b"x", "line 1: found 'x'; expected the number of factors, a whole number >= 0"),
    (b"1", "line 1: found the end of the file; expected the number of variables of factor 0 of 1"),
    (b"1000000000\n1 0 2 1 0 1", "found the end of the file; expected the number of variables of"),
    (b"1\n1000000000 0", "found the end of the file; expected label 1 of factor 0 of 1"),
    (b"1\n2\n0 0\n2 2\n1\n0 1", "line 3: found '0'; expected every label once in factor 0"),
    (b"1\n1\n-1\n2\n1\n0 1", "line 3: found '-1'; expected a label of factor 0, a whole number"),
    (b"1\n1\n99999999999999999999\n2\n1\n0 1", "line 3: found '99999999999999999999'; expected"),
    (b"1\n1\n0\n0\n1\n0 1", "line 4: found '0'; expected a number of states of factor 0, a whole"),
    (b"1\n1\n0\n2\n3\n0 1\n1 1\n", "line 7: found the end of the file; expected 3 listed entries"),
    (b"1\n1\n0\n2\n3\n0 1\n1 -1\n", "line 7: found '-1'; expected entry 1 of factor 0 of 1, a f"),
    (b"1\n1\n0\n2\n9\n0 1\n0.5 1\n", "line 7: found '0.5'; expected index 1 of factor 0 of 1, a w"),
    (b"1\n1\n0\n2\n1000000000\n0 1", "found the end of the file; expected 1000000000 listed entr"),
    (b"1\n1\n0\n2\n1\n2 1", "line 6: found '2'; expected an index of factor 0 in 0..1"),
    (b"1\n1\n0\n2\n1\n0.0 1", "line 6: found '0.0'; expected an index of factor 0, a whole number"),
    (b"1\n1\n0\n2\n2\n0 1\n0 2", "line 7: found '0'; expected every index once in factor 0"),
    (b"1\n1\n0\n2\n1\n0 -1", "line 6: found '-1'; expected an entry of factor 0, a finite number"),
    (b"1\n1\n0\n2\n1\n0 nan", "line 6: found 'nan'; expected an entry of factor 0, a finite numb"),
    (b"1\n1\n0\n2\n0\n", "line 2: factor 0 is zero everywhere; expected a positive entry"),
    (b"1\n1\n0\n2\n1\n0 0.0", "line 2: factor 0 is zero everywhere; expected a positive entry"),
    (b"1\n1\n0\n2\n1\n0 1\n5", "line 7: found '5'; expected the end of the file after 1 factors"),
    (
        b"2\n1\n0\n2\n1\n0 1\n2\n0 1\n3 2\n1\n0 1",
        "line 9: found '3'; expected 2 states of variable 0, as in the factors before",
    ),
    (b"1\n1\n0\n1000000000\n1\n0 1", "line 2: factor 0 has 1e+09 entries; expected fewer entries"),
    (b"1\n\x00\n", r"line 2: found '\x00'; expected the number of variables of factor 0"),
]

VARIABLE = b"variable a { type discrete [ 2 ] { x, y }; }\n"
TWO = (
    VARIABLE + b"variable b { type discrete [ 2 ] { u, v }; }\nprobability ( a ) { table 1, 0; }\n"
)

BIF = [
    (b"", "line 1: found the end of the file; expected at least one variable"),
    (b"network x { }", "found the end of the file; expected at least one variable"),
    (b"netwrk x { }", "line 1: found 'netwrk'; expected network, variable or probability and a"),
    (b"network x {\n foo;\n}", "line 2: found 'foo'; expected a property ended by ; or }"),
    (b"network x {\n", "line 1: found the end of the file; expected a property ended by ; or }"),
    (b"/* never\nended", "line 1: found an unterminated comment; expected */"),
    (b"\n\xff", "line 2: found the byte 0xff; expected text in UTF-8"),
    (b"\x00", r"line 1: found '\x00'; expected network, variable or probability"),
    (b"variable a { }", "line 1: found 0 types of variable 'a'; expected type discrete"),
    (b"variable a {\n type continuous; }", "line 2: found 'type'; expected type discrete [ n ] {"),
    (b"variable a { type discrete [ 3 ] { x, y }; }", "found 2 different states of variable 'a'"),
    (b"variable a { type discrete [ 2 ] { x, x }; }", "found 1 different states of variable 'a'"),
    (b"variable a { type discrete [ 0 ] { }; }", "found 0 different states of variable 'a'; expe"),
    (b"variable a { type discrete [ 1000000000 ] { x }; }", "line 1: found 'type'; expected type"),
    (b"variable a { type discrete [ 999999999 ] { x }; }", "found 1 different states of variabl"),
    (VARIABLE + VARIABLE, "line 2: found a second variable 'a'; expected a new name"),
    (VARIABLE, "found no probability of variable 'a'; expected one for each variable"),
    (VARIABLE + b"probability ( a ) {\n}", "line 2: found no row (); expected a row for all stat"),
    (
        VARIABLE + b"probability ( b ) { }",
        "line 2: found 'b'; expected a variable from above; know",
    ),
    (VARIABLE + b"probability ( ) { }", "line 2: found ')'; expected a variable and its parents"),
    (VARIABLE + b"probability ( a | a ) { }", "found 'a'; expected a variable and its parents, ea"),
    (VARIABLE + b"probability ( a ) { table 1; }", "line 2: found 1 numbers; expected 2 of them"),
    (VARIABLE + b"probability ( a ) { table 1, x; }", "line 2: found 'x'; expected a finite numbe"),
    (VARIABLE + b"probability ( a ) { table 2, -1; }", "found '-1'; expected a finite number that"),
    (VARIABLE + b"probability ( a ) { table nan, 1; }", "found 'nan'; expected a finite number"),
    (VARIABLE + b"probability ( a ) { table 1, inf; }", "found 'inf'; expected a finite number"),
    (VARIABLE + b"probability ( a ) { table 1e999, 1; }", "found '1e999'; expected a finite numb"),
    (VARIABLE + b"probability ( a ) { table 1, 1e-999; }", "found '1e-999', which is below the"),
    (VARIABLE + b"probability ( a ) { table 1_0, 1; }", "found '1_0'; expected a finite number"),
    (VARIABLE + b"probability ( a ) { table 0.5,\n 0.6; }", "found a row with sum 1.1; expected a"),
    (VARIABLE + b"probability ( a ) { table 0, 0; }", "found a row with sum 0; expected a sum of"),
    (VARIABLE + b"probability ( a ) { table 0.5, 0.5 }", "line 2: found 'table'; expected table,"),
    (VARIABLE + b"probability ( a ) { table 1, 0; ", "line 2: found the end of the file; expected"),
    (TWO + b"probability ( a ) { table 1, 0; }", "found a second probability of variable 'a'"),
    (TWO + b"probability ( b | a ) {\n(x) 1, 0;\n}", "line 4: found no row (y); expected a row f"),
    (TWO + b"probability ( b | a ) {\n(x) 1, 0;\n(x) 1, 0; }", "line 6: found a second row (x); e"),
    (
        TWO + b"probability ( b | a ) {\n(z) 1, 0; }",
        "line 5: found 'z'; expected a state of variab",
    ),
    (TWO + b"probability ( b | a ) {\n(x, y) 1, 0; }", "line 5: found 2 states; expected one for"),
    (
        TWO + b"probability ( b | a ) {\n(x) 1, 0;\n table 1 1 0 0; }",
        "line 6: found 'table'; expec",
    ),
    (TWO + b"probability ( b | a ) {\n(x) 1, 0.5; }", "line 5: found a row with sum 1.5; expected"),
    (
        TWO + b"probability ( b | a ) {\n default 1, 1; }",
        "line 5: found a row with sum 2; expected",
    ),
    (
        VARIABLE
        + b"variable b { type discrete [ 1 ] { u }; }\n"
        + b"probability ( a | b ) { default 1, 0; }\nprobability ( b | a ) { default 1; }",
        "found a cycle of parents: a -> b -> a; expected a network without cycles",
    ),
    (
        b"".join(b"variable v%d { type discrete [ 2 ] { x, y }; }\n" % k for k in range(60))
        + b"probability ( v0 | %s ) { default 1, 0; }"
        % b", ".join(b"v%d" % k for k in range(1, 60)),
        "line 61: found a table of 1.15e+18 entries; expected fewer, for the file is not that long",
    ),
]


def check_line(error: FormatError, message: str, name: str) -> None:
    line = str(error)
    assert message in line
    assert line.startswith(name)
    assert "\n" not in line
    assert len(line) < 400


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("data", "message"), UAI)
def test_malformed_uai(data: bytes, message: str, compiled: bool) -> None:
    with pytest.raises(FormatError) as caught:
        read_uai("m.uai", data, compiled=compiled)
    check_line(caught.value, message, "m.uai")


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("data", "message"), FG)
def test_malformed_fg(data: bytes, message: str, compiled: bool) -> None:
    with pytest.raises(FormatError) as caught:
        read_fg("m.fg", data, compiled=compiled)
    check_line(caught.value, message, "m.fg")


@pytest.mark.parametrize(("data", "message"), BIF)
def test_malformed_bif(data: bytes, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_bif("m.bif", data)
    check_line(caught.value, message, "m.bif")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.uai", b"MARKOV 1000000000 2 2"),
        ("b.uai", b"MARKOV 1 1000000000 1 1 0 1000000000 1 2"),
        ("c.uai", b"MARKOV 2 2 2 1000000000 1 0"),
        ("d.uai", b"MARKOV 2 2000000000 2000000000 1 2 0 1 4000000000000000000 1"),
        ("e.fg", b"1000000000 1 0 2 1 0 1"),
        ("f.fg", b"1 1 0 2000000000 1 0 1"),
        ("g.fg", b"1 1000000000"),
        ("h.fg", b"1 1 0 2 1000000000 0 1"),
        ("i.bif", b"variable a { type discrete [ 999999999 ] { x }; }"),
    ],
)
def test_a_lying_header_costs_neither_memory_nor_time(
    tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    tracemalloc.start()
    begin = time.perf_counter()
    with pytest.raises(FormatError):
        read(tmp_path / name)
    seconds = time.perf_counter() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000
    assert seconds < 2.0


def test_tables_beyond_all_numbers_are_refused(tmp_path: Path) -> None:
    n = 1100
    scope, nines = " ".join(map(str, range(n))), "9 " * n
    (tmp_path / "a.uai").write_text(f"MARKOV {n} {nines} 1 {n} {scope} 7 1")
    (tmp_path / "b.fg").write_text(f"1 {n} {scope} {nines} 1 0 1")
    variables = "".join(f"variable v{k} {{ type discrete [ 2 ] {{ x, y }}; }}" for k in range(n))
    names = ", ".join(f"v{k}" for k in range(n))
    (tmp_path / "c.bif").write_text(f"{variables} probability ( {names} ) {{ default 1 0; }}")
    for name, message in (
        ("a.uai", "found '7'; expected the number of entries"),
        ("b.fg", "factor 0 has inf entries; expected fewer"),
        ("c.bif", "found a table of inf entries; expected fewer"),
    ):
        with pytest.raises(FormatError, match=message):
            read(tmp_path / name)


def test_a_long_bad_file_is_refused_soon(tmp_path: Path) -> None:
    """No step of a refusal is quadratic in what was read."""
    n = 30_000
    scope = " ".join(map(str, range(n))) + " 5"
    (tmp_path / "a.uai").write_text(f"MARKOV {n + 1} {'1 ' * (n + 1)} 1 {n + 1} {scope} 1 1")
    arcs = "".join(f"2 {(v + 1) % n} {v} " for v in range(n))
    (tmp_path / "b.uai").write_text(f"BAYES {n} {'1 ' * n} {n} {arcs} {'1 1 ' * n}")
    entries = "".join(f"{k} 1 " for k in range(n))
    (tmp_path / "c.fg").write_text(f"1 1 0 {n} {n + 1} {entries} 7 1")
    (tmp_path / "d.fg").write_text(f"1 1 0 {n} {n + 1} {entries}")
    states = ", ".join(f"s{k}" for k in range(n))
    rows = "".join(f"(s{k}) 1;" for k in range(n))
    (tmp_path / "e.bif").write_text(
        f"variable a {{ type discrete [ {n} ] {{ {states} }}; }}"
        f"variable b {{ type discrete [ 1 ] {{ x }}; }} probability (b | a) {{ {rows} (s9) 1; }}"
    )
    (tmp_path / "f.bif").write_text("network x { property " + '"' * 200_001 + ";")
    (tmp_path / "g.bif").write_text("variable a { type discrete [ 2 ] { " + "x, " * 100_000)
    (tmp_path / "h.bif").write_text("/*" + "*" * 200_000)
    for path in sorted(tmp_path.iterdir()):
        begin = time.process_time()
        with pytest.raises(FormatError) as caught:
            read(path)
        assert time.process_time() - begin < 6.0, path.name
        assert len(str(caught.value)) < 500 + len(str(path))


# ---------------------------------------------------------------------- files and names


def test_an_unknown_suffix_lists_the_known_ones(tmp_path: Path) -> None:
    listed = r"(is not supported|has no extension).* \.uai, \.fg, .* \(each also"
    for name in ("model.txt", "model", "model.gz", "model.uai.zip"):
        with pytest.raises(KikuchiError, match=listed):
            read(tmp_path / name)
        with pytest.raises(KikuchiError, match=listed):
            write(FactorGraph([2], []), tmp_path / name)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(KikuchiError, match=r"m\.uai: cannot be read: No such file or directory"):
        read(tmp_path / "m.uai")
    (tmp_path / "d.uai").mkdir()
    with pytest.raises(KikuchiError, match=r"d\.uai: cannot be read: Is a directory"):
        read(tmp_path / "d.uai")
    with pytest.raises(KikuchiError, match=r"cannot write .*d\.uai"):
        write(FactorGraph([2], []), tmp_path / "d.uai")
    with pytest.raises(KikuchiError, match=r"cannot write .*m\.uai: No such file or directory"):
        write(FactorGraph([2], []), tmp_path / "nowhere" / "m.uai")
    with pytest.raises(KikuchiError, match="cannot be read"):
        read("a\x00b.uai")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "m.uai"
    path.write_text("MARKOV 0 0")
    path.chmod(0)
    with pytest.raises(KikuchiError, match="Permission denied"):
        read(path)


def test_bad_gzip_data(tmp_path: Path) -> None:
    whole = gzip.compress(b"MARKOV 1 2 1 1 0 2 1 1" * 50)
    cases = {"cut": whole[:-9], "half": whole[: len(whole) // 2], "plain": b"MARKOV 0 0", "no": b""}
    cases["checksum"] = whole[:-8] + b"\x00" * 8
    cases["middle"] = whole[:20] + b"\xff\xff\xff" + whole[23:]
    for name, data in cases.items():
        path = tmp_path / f"{name}.uai.gz"
        path.write_bytes(data)
        with pytest.raises(FormatError) as caught:
            read(path)
        assert str(caught.value).startswith(str(path))
    (tmp_path / "packed.uai").write_bytes(whole)
    with pytest.raises(FormatError, match=r"found gzip data; expected text; end the name in \.gz"):
        read(tmp_path / "packed.uai")


def test_an_error_of_the_graph_itself_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kikuchi.core.errors import ModelError
    from kikuchi.graphs.formats import uai

    def refuse(*_: object) -> FactorGraph:
        raise ModelError("factor 3 is odd")

    monkeypatch.setattr(uai, "read_uai", refuse)
    (tmp_path / "m.uai").write_text("MARKOV 0 0")
    with pytest.raises(FormatError, match=r"m\.uai: factor 3 is odd"):
        read(tmp_path / "m.uai")


def test_a_long_word_takes_no_longer_than_its_length(tmp_path: Path) -> None:
    word = "1" * 300_000 + "x"
    for name, text in {
        "a.uai": f"MARKOV {word}",
        "a.fg": f"1 {word}",
        "a.bif": f"variable a {{ type discrete [1] {{b}}; }} probability (a) {{ table {word}; }}",
    }.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(FormatError, match="found '1111"):  # with backtracking, not in an hour
            read(tmp_path / name)
