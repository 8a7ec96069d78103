"""XMLBIF, Hugin, GeNIe and JSON: round trips, other programs, damaged files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import FormatError, KikuchiError, ModelError
from kikuchi.graphs.directed import bayesian_network
from kikuchi.graphs.formats import SUFFIXES, parse

NETWORKS = (".xmlbif", ".bifxml", ".xml", ".net", ".xdsl", ".dsl", ".json", ".bif")
ASIA = kk.example("asia")


def awkward() -> kk.FactorGraph:
    """Cardinalities that differ, parents against the order of numbers, zeros, and odd names."""
    rng = np.random.default_rng(3)
    tables = {
        "c": (["b", "a"], rng.dirichlet([1, 1], size=(3, 2))),
        "a": ([], [0.25, 0.75]),
        "b": (["a"], rng.dirichlet([1, 1, 1], size=2)),
        "d": (["c", "b", "a"], np.broadcast_to([1.0, 0.0], (2, 3, 2, 2))),
    }
    return bayesian_network(
        {"c": ["u", "v"], "a": ["x", "y"], "b": ["p", "q", "r"], "d": 2}, tables
    )


@pytest.mark.parametrize("ending", NETWORKS)
@pytest.mark.parametrize("graph", [ASIA, awkward()], ids=["asia", "awkward"])
def test_what_is_written_is_read_back(graph: kk.FactorGraph, ending: str, tmp_path) -> None:
    for gz in ("", ".gz"):
        path = tmp_path / f"model{ending}{gz}"
        kk.write(graph, path)
        again = kk.read(path)
        assert set(again.names) == set(graph.names) and again.is_directed
        answer, expected = kk.query(again), kk.query(graph)
        for name in graph.names:
            assert answer[name].states == expected[name].states
            np.testing.assert_allclose(
                answer[name].values_array, expected[name].values_array, atol=1e-14
            )


def test_json_keeps_everything_to_the_last_bit(tmp_path) -> None:
    loose = kk.FactorGraph([2, 3], [((1, 0), np.arange(6))], log_constant=-1000.1)
    for graph in (ASIA, awkward(), loose, kk.grid(3, 3, seed=1), loose.replaced(names=["a", "ü"])):
        kk.write(graph, tmp_path / "a.json")
        assert kk.read(tmp_path / "a.json") == graph


def test_names_that_are_no_identifiers(tmp_path) -> None:
    odd = bayesian_network(
        {'a "b" <c>': ["yes & no", "x;y"], "a b": ["1", "2"]},
        {'a "b" <c>': ([], [0.5, 0.5]), "a b": (['a "b" <c>'], [[0.1, 0.9], [0.4, 0.6]])},
    )
    kk.write(odd, tmp_path / "a.xmlbif")
    again = kk.read(tmp_path / "a.xmlbif")
    assert again.names == odd.names and again.states == odd.states
    for ending in (".net", ".xdsl", ".dsl"):
        kk.write(odd, tmp_path / f"a{ending}")
        again = kk.read(tmp_path / f"a{ending}")
        np.testing.assert_allclose(again.table(1), odd.table(1), atol=1e-15)
        assert len(set(again.names)) == 2
    assert kk.read(tmp_path / "a.net").states == odd.states


@pytest.mark.parametrize("ending", ["bif", "bifxml", "net", "xdsl", "dsl", "uai"])
def test_files_of_pyagrum(ending: str, tmp_path) -> None:
    gum = pytest.importorskip("pyagrum")
    net = gum.fastBN("a[2]->b[3]->c[2];a->c;c->d[4];a->d;b->d")
    path = tmp_path / f"net.{ending}"
    gum.saveBN(net, str(path))
    ours, theirs = kk.read(path), gum.loadBN(str(path))
    assert set(ours.names) == {"a", "b", "c", "d"}
    for name in ours.names:
        node = str("abcd".index(name)) if ending == "uai" else name
        expected = kk.as_model(net)
        np.testing.assert_allclose(
            kk.query(ours, name)[name].values_array,
            kk.query(expected, name)[name].values_array,
            atol=1e-5,
        )
        assert theirs.variable(node).domainSize() == len(kk.query(ours, name)[name])
    joint = kk.query(ours, joint=["a", "b", "c", "d"]).table
    np.testing.assert_allclose(
        joint, kk.query(kk.as_model(net), joint=["a", "b", "c", "d"]).table, atol=1e-5
    )


def test_pyagrum_reads_our_xdsl_where_it_can_read_it_rightly(tmp_path) -> None:
    """It takes two parents of a node in the opposite order to GeNIe: then it must not read."""
    gum = pytest.importorskip("pyagrum")
    chain = kk.bayesian_network(
        {"x y": 3, "z": 2},
        {"x y": ([], [0.2, 0.3, 0.5]), "z": (["x y"], [[0.1, 0.9], [0.2, 0.8], [0.7, 0.3]])},
    )
    with pytest.warns(UserWarning, match="'x y' as 'x_y'"):
        kk.write(chain, tmp_path / "chain.xdsl")
    theirs = gum.loadBN(str(tmp_path / "chain.xdsl"))
    np.testing.assert_allclose(theirs.cpt("z").toarray(), chain.table(1), atol=1e-6)
    assert "<name>x y</name>" in (tmp_path / "chain.xdsl").read_text()
    kk.write(kk.example("asia"), tmp_path / "asia.xdsl")
    with pytest.raises(gum.GumException, match="extensions"):
        gum.loadBN(str(tmp_path / "asia.xdsl"))


@pytest.mark.parametrize("order", ["abc", "cab"])
def test_markov_files_of_pyagrum(order: str, tmp_path) -> None:
    """Its scopes are in any order; the table's own is a comment behind its size."""
    gum = pytest.importorskip("pyagrum")
    net = gum.MarkovRandomField()
    for name, size in (("a", 2), ("b", 3), ("c", 4)):
        net.add(gum.LabelizedVariable(name, "", size))
    net.addFactor(list(order)).fillWith([float(k % 7 + 1) for k in range(24)])
    net.addFactor(["b", "a"]).fillWith([1.0, 2.0, 3.0, 4.0, 5.0, 9.0])
    gum.saveMRF(net, str(tmp_path / "net.uai"))
    np.testing.assert_allclose(
        kk.query(tmp_path / "net.uai", joint=[0, 1, 2]).table,
        kk.query(kk.as_model(net), joint=list("abc")).table,
        atol=1e-12,
    )


@pytest.mark.parametrize("ending", ["xmlbif", "net", "dsl"])
def test_pyagrum_and_pgmpy_read_ours(ending: str, tmp_path) -> None:
    gum = pytest.importorskip("pyagrum")
    graph = awkward()
    path = tmp_path / f"net.{'bifxml' if ending == 'xmlbif' else ending}"
    kk.write(graph, path)
    theirs = kk.as_model(gum.loadBN(str(path)))
    np.testing.assert_allclose(
        kk.query(theirs, joint=list("abcd")).table,
        kk.query(graph, joint=list("abcd")).table,
        atol=1e-6,
    )


def test_uai_with_comments() -> None:
    text = b"MARKOV # kind\n2\n2 2 // states\n1\n2 0 1\n# tables\n4\n1 2 3 4 # last\n"
    graph = parse("a", text, ".uai")
    np.testing.assert_allclose(graph.table(0), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("ending", "text", "says"),
    [
        (".xmlbif", "<BIF><NETWORK></NETWORK></BIF>", "no variables"),
        (".xmlbif", "<a/>", "expected <BIF>"),
        (".xmlbif", "<BIF><NETWORK>", "found no XML"),
        (".xdsl", "<smile><nodes><noisymax id='a'/></nodes></smile>", "of kind noisymax"),
        (".net", "node a { states = (x y); }", "variable 'a' has no table"),
        (".net", "node a { states = (x y); } potential (a | b) { data = (1 0); }", "variable 'b'"),
        (".net", "node a { states = (x y); } potential (a) { data = (1 1); }", "sums to 2"),
        (".net", "node a { states = (x y); } potential (a) { data = (1); }", "expected 2"),
        (".net", "node a { states = (x y); } potential (a) { data = (1 nan); }", "a probability"),
        (".net", "node a { states = (x x); }", "a state twice"),
        (".net", "node a { states = (x y", "too early"),
        (".dsl", "net n { node a { TYPE = NOISY_MAX; }; };", "of kind NOISY_MAX"),
        (".json", "{}", "found no model"),
        (".json", '{"format": "kikuchi-model", "version": 2}', "version 2"),
    ],
)
def test_malformed_files_get_one_line(ending: str, text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says) as caught:
        parse("file", text.encode(), ending)
    assert "\n" not in str(caught.value)


def test_entities_are_refused() -> None:
    layers = "".join(f'<!ENTITY e{k + 1} "{f"&e{k};" * 10}">' for k in range(9))
    bomb = f'<?xml version="1.0"?><!DOCTYPE b [<!ENTITY e0 "x">{layers}]><BIF>&e9;</BIF>'
    outside = '<!DOCTYPE b [<!ENTITY e SYSTEM "file:///etc/hostname">]><BIF>&e;</BIF>'
    for text in (bomb, outside):
        for ending in (".xmlbif", ".xdsl"):
            with pytest.raises(FormatError, match="entity"):
                parse("file", text.encode(), ending)
    # a document type without entities of its own is fine, as in published files
    head = "<!DOCTYPE BIF [<!ELEMENT BIF (NETWORK)*>]>"
    assert parse("f", f"{head}{xmlbif()}".encode(), ".xml").n_variables == 1


def xmlbif() -> str:
    return (
        "<BIF><NETWORK><VARIABLE><NAME>c</NAME><OUTCOME>h</OUTCOME></VARIABLE>"
        "<DEFINITION><FOR>c</FOR><TABLE>1</TABLE></DEFINITION></NETWORK></BIF>"
    )


@pytest.mark.parametrize("ending", [".xmlbif", ".net", ".xdsl", ".dsl", ".json", ".uai"])
def test_damaged_files_never_break_a_reader(ending: str, tmp_path) -> None:
    path = tmp_path / f"a{ending}"
    kk.write(ASIA, path)
    whole = path.read_bytes()
    rng = random.Random(1)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            kind = rng.randrange(4)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                del data[at : at + rng.randint(1, 60)]
            elif kind == 2:
                data[at:at] = rng.choice([b"(", b"}", b'"', b"<", b"1e999", b"-", b"\x00", b"%"])
            else:
                data[at:at] = data[at : at + rng.randint(1, 200)]
            if not data:
                break
        try:
            graph = parse("file", bytes(data), ending)
        except KikuchiError as error:
            assert "\n" not in str(error)
        else:
            assert isinstance(graph, kk.FactorGraph)


def test_undirected_models_are_refused_by_networks(tmp_path) -> None:
    for ending in (".xmlbif", ".net", ".xdsl", ".dsl"):
        with pytest.raises(ModelError, match="only directed"):
            kk.write(kk.grid(2, 2, seed=0), tmp_path / f"a{ending}")
    assert ".json" in SUFFIXES


@pytest.mark.parametrize("name", [" a", "a ", "\ta", "a\x01", "a\rb", "\xa0", "a\uffff", ""])
def test_names_that_xml_would_change_are_refused(name: str, tmp_path) -> None:
    def model(variable: str, state: str) -> kk.FactorGraph:
        names, states = [variable], [[state, "t"]]
        tables = [((0,), [0.5, 0.5])]
        return kk.FactorGraph([2], tables, names=names, states=states, children=[0])

    path = tmp_path / "model.xmlbif"
    with pytest.raises(ModelError, match="cannot be written in an XMLBIF file"):
        kk.write(model(name, "s"), path)
    if name:
        with pytest.raises(ModelError, match="cannot be written in an XMLBIF file"):
            kk.write(model("v", name), path)
    else:
        kk.write(model("v", name), path)
        assert kk.read(path).states == (("", "t"),)


BIG = "9" * 309  # more than a double holds, fewer digits than Python refuses to read


@pytest.mark.parametrize(
    "change",
    [
        ('"table": [1, 3]', f'"table": [1, {BIG}]'),
        ('"table": [1, 3]', f'"log_table": [1, -{BIG}]'),
        ('"log_constant": 0', f'"log_constant": {BIG}'),
        ('"log_constant": 0', '"log_constant": 1e999'),
        ('"log_constant": 0', '"log_constant": NaN'),
        ('"states": 2', f'"states": {BIG}'),
        ('"scope": [0]', f'"scope": [{BIG}]'),
        ('"version": 1', f'"version": {BIG}'),
    ],
)
@pytest.mark.parametrize("digits", [309, 4300])
def test_numbers_of_json_that_no_double_holds(change: tuple[str, str], digits: int) -> None:
    text = (
        '{"format": "kikuchi-model", "version": 1, "log_constant": 0, "variables": '
        '[{"name": "c", "states": 2}], "factors": [{"scope": [0], "table": [1, 3]}]}'
    )
    assert parse("a", text.encode(), ".json").n_factors == 1
    old, new = change
    assert old in text
    damaged = text.replace(old, new.replace(BIG, "9" * digits))
    with pytest.raises(FormatError) as caught:
        parse("a", damaged.encode(), ".json")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_too_many_states_are_said_to_be_too_many() -> None:
    for states in (10**12, 10**300):
        text = (
            f'{{"format": "kikuchi-model", "version": 1, "variables": [{{"states": {states}}}], '
            '"factors": []}'
        )
        with pytest.raises(FormatError, match="at most 2147483647"):
            parse("a", text.encode(), ".json")
    with pytest.raises(ModelError, match="at least 1"):
        kk.FactorGraph([2, 0], [])
    with pytest.raises(ModelError, match="not an array of numbers"):
        kk.FactorGraph([2], [((0,), [10**400, 1])])


# ---------------------------------------------------------------------- rows that do not sum to 1

ODD_ROWS = {
    ".uai": "BAYES 2  2 2  2  1 0  2 0 1  2  0.5 0.5  4  0.3 0.7  0.4 20.0",
    ".json": json.dumps(
        {
            "format": "kikuchi-model",
            "version": 1,
            "variables": [{"states": 2}, {"states": 2}],
            "factors": [
                {"scope": [0], "child": 0, "table": [0.5, 0.5]},
                {"scope": [1, 0], "child": 1, "table": [0.3, 0.4, 0.7, 20.0]},
            ],
        }
    ),
    ".net": "node a { states = (x y); } node b { states = (x y); } potential (a) { data = (0.5 "
    "0.5); } potential (b | a) { data = ((0.3 0.7) (0.4 0.2)); }",
}


@pytest.mark.parametrize("suffix", ODD_ROWS)
def test_rows_that_do_not_sum_to_one_are_refused_in_every_format(
    suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"m{suffix}"
    path.write_text(ODD_ROWS[suffix])
    with pytest.raises(FormatError, match=r"row 1 of the table of '[1b]' sums to .*expected 1"):
        kk.read(path)


@pytest.mark.parametrize("suffix", [".uai", ".json", ".bif", ".xdsl", ".net", ".dsl", ".xmlbif"])
def test_such_models_are_not_written_as_directed_ones(suffix: str, tmp_path: Path) -> None:
    tables = [((0,), [0.5, 0.5]), ((1, 0), [[0.3, 0.4], [0.7, 20.0]])]
    graph = kk.FactorGraph([2, 2], tables, children=[0, 1])
    with pytest.raises(ModelError, match=r"row 1 of the table of '1' sums to 20\.4.*children=None"):
        kk.write(graph, tmp_path / f"m{suffix}")
    assert not list(tmp_path.iterdir())
    if suffix in (".uai", ".json"):
        kk.write(graph.replaced(children=None), tmp_path / f"m{suffix}")
        assert not kk.read(tmp_path / f"m{suffix}").is_directed
    constant = kk.FactorGraph([2], [((0,), [0.5, 0.5])], children=[0], log_constant=1.0)
    if suffix == ".json":
        kk.write(constant, tmp_path / "c.json")
        assert kk.read(tmp_path / "c.json") == constant
    else:
        with pytest.raises(ModelError, match="constant"):
            kk.write(constant, tmp_path / f"c{suffix}")


@pytest.mark.parametrize(("suffix", "count"), [(".xdsl", 3), (".dsl", 3), (".net", 1)])
def test_names_that_become_identifiers_are_announced(
    suffix: str, count: int, tmp_path: Path
) -> None:
    states = [["[0;1.5[", "-1"]]
    graph = kk.FactorGraph([2], [((0,), [0.5, 0.5])], names=["a b"], states=states, children=[0])
    with pytest.warns(UserWarning, match=rf"{count} names .*'a b' as 'a_b'.*\.json"):
        kk.write(graph, tmp_path / f"m{suffix}")
