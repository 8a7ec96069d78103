"""Files are written whole or not at all, and read within a limit; every failure is one line."""

from __future__ import annotations

import gzip
import os
import signal
import struct
import subprocess
import sys
import tokenize
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from kikuchi.core.errors import BudgetError, DataError, FormatError, KikuchiError
from kikuchi.core.files import (
    atomic_write,
    guarded_reading,
    limited_lines,
    open_text,
    parse_json,
    read_bytes,
    read_text,
    reading_limit,
)


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with atomic_write(target) as file:
        file.write("größe\n")
        assert not target.exists()
    assert target.read_bytes() == "größe\n".encode()
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    with atomic_write(str(tmp_path / "out.bin"), "wb") as file:
        file.write(b"\x00\xff")
    assert (tmp_path / "out.bin").read_bytes() == b"\x00\xff"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    with pytest.raises(error), atomic_write(target) as file:
        file.write("new")
        raise error
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.skipif(os.name != "posix", reason="needs kill -9")
def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, pathlib\n"
        "from kikuchi.core.files import atomic_write, temporary_path\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "left = temporary_path(folder / 'out')\n"
        "left.mkdir(); (left / 'a').write_text('')\n"
        "with atomic_write(folder / 'state') as file:\n"
        "    file.write('half'); file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    with atomic_write(tmp_path / "one") as file, atomic_write(tmp_path / "two") as other:
        file.write("1")  # what living processes write is left alone
        other.write("2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_permissions_are_those_of_a_plain_file(tmp_path: Path) -> None:
    plain, ours, old = tmp_path / "plain", tmp_path / "ours", tmp_path / "old"
    plain.write_text("")
    old.write_text("")
    old.chmod(0o640)
    for target in (ours, old):
        with atomic_write(target) as file:
            file.write("x")
    assert ours.stat().st_mode == plain.stat().st_mode
    assert old.stat().st_mode & 0o777 == 0o640


def test_what_others_may_not_read_they_may_not_read_while_it_is_written(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("old")
    private.chmod(0o600)
    with atomic_write(private) as file:
        file.write("new")
        modes = {place.stat().st_mode & 0o777 for place in tmp_path.iterdir()}
    assert modes == {0o600} and private.read_text() == "new"


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "gone" / "out.txt"
    message = r"cannot write .*gone/out\.txt: No such file"
    with pytest.raises(KikuchiError, match=message), atomic_write(missing):
        pass
    with pytest.raises(KikuchiError, match="it is a folder"), atomic_write(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_umask_is_left_as_it_was(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with atomic_write(tmp_path / "a"):
            pass
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


FOREIGN = [
    *(zipfile.BadZipFile("no zip"), zlib.error("no stream"), tokenize.TokenError("no token")),
    *(EOFError(), MemoryError(), OverflowError("too large"), NotImplementedError(), struct.error()),
    *(RecursionError("deep"), SyntaxError("odd"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no")),
    *(KeyError("x"), AttributeError("y"), OSError(22, "Invalid argument"), AssertionError()),
]


@pytest.mark.parametrize("fault", FOREIGN, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("error", [DataError, FormatError])
def test_whatever_a_library_raises_on_a_file_is_one_line_that_names_it(fault, error) -> None:
    with pytest.raises(error) as caught, guarded_reading("a.npz", "arrays", error):
        raise fault
    text = str(caught.value)
    assert text.startswith("a.npz: cannot be read") and text.endswith("; use another file")
    assert "\n" not in text


def test_our_own_errors_and_interrupts_pass_the_guard() -> None:
    for fault in (BudgetError("too large"), KeyboardInterrupt()):
        with pytest.raises(type(fault)) as caught, guarded_reading("a", "arrays"):
            raise fault
        assert caught.value is fault


def test_a_small_packed_file_that_grows_is_refused_with_the_figure(tmp_path: Path) -> None:
    place = tmp_path / "zeros.csv.gz"
    place.write_bytes(gzip.compress(bytes(60_000_000)))
    assert place.stat().st_size < 100_000
    tracemalloc.start()
    with reading_limit(5_000_000), pytest.raises(BudgetError, match=r"5 MB is the limit"):
        read_bytes(place)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
    with reading_limit(None):
        assert len(read_bytes(place)) == 60_000_000


def test_text_is_utf_8_with_or_without_a_mark(tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    place.write_bytes("größe".encode("utf-8-sig"))
    assert read_text(place) == "größe"
    place.write_bytes("größe".encode("latin-1"))
    with pytest.raises(DataError, match="cannot be read as text"):
        read_text(place)


BAD_JSON = [
    *("[" * 100_000, "[1, ", "\ud800", "9" * 5000, "9" * 309, "-" + "9" * 4300, "[NaN]"),
    '{"a": -Infinity}',
]


@pytest.mark.parametrize("text", [*BAD_JSON, b"\xff{}"])
def test_json_that_is_none(text: str | bytes) -> None:
    with pytest.raises(FormatError, match="found invalid JSON"):
        parse_json("a.json", text, "expected a list")


def test_halves_of_letters_are_written_by_their_codes(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a.json") as file:
        file.write("\udcc3")
    assert (tmp_path / "a.json").read_bytes() == rb"\udcc3"


def test_ctrl_c_while_the_file_is_opened_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def interrupted(self: Path, *given: Any, **options: Any) -> Any:
        opened(self, *given, **options).close()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "open", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_write(tmp_path / "out"):
        pass
    assert not list(tmp_path.iterdir())


def test_integers_of_json_fit_into_doubles() -> None:
    largest = int("9" * 308)
    assert parse_json("a.json", str(largest), "a number") == largest
    assert float(parse_json("a.json", f"[-{largest}]", "a list")[0]) == -float(largest)


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_a_symbolic_link_is_written_through(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "real.txt").write_text("old")
    link = tmp_path / "link.txt"
    link.symlink_to("elsewhere/real.txt")
    new = tmp_path / "new.txt"
    new.symlink_to("elsewhere/not-yet.txt")
    for place in (link, new):
        with atomic_write(place) as file:
            file.write("text")
        assert place.is_symlink()
    assert sorted(p.name for p in folder.iterdir()) == ["not-yet.txt", "real.txt"]
    assert {p.read_text() for p in folder.iterdir()} == {"text"}


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_a_symbolic_link_to_itself_is_one_line(tmp_path: Path) -> None:
    link = tmp_path / "a.uai"
    link.symlink_to("a.uai")
    with pytest.raises(FormatError, match="symbolic link"):
        read_bytes(link, FormatError)
    with pytest.raises(KikuchiError, match="points to itself"), atomic_write(link):
        pass
    assert link.is_symlink()


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    if not Path(os.devnull).is_char_device():
        pytest.skip("no such device")
    link = tmp_path / "out.txt"
    link.symlink_to(os.devnull)
    with pytest.raises(KikuchiError, match="not an ordinary file"), atomic_write(link):
        pass
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_lines_of_any_length_within_the_limit(tmp_path: Path, ending: str) -> None:
    place = tmp_path / f"a{ending}"
    text = "\ufeffa,b\r\n" + "x" * 3_000_000 + "\n\nlast"
    content = text.encode()
    place.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    with open_text(place) as file:
        assert "".join(limited_lines(file, place)) == text[1:]
    with open_text(place) as file:
        assert [len(line) for line in limited_lines(file, place)] == [5, 3_000_001, 1, 4]
    tracemalloc.start()
    with reading_limit(10_000_000), open_text(place) as file:
        lines = limited_lines(file, place)
        assert next(lines) == "a,b\r\n"
        with pytest.raises(BudgetError, match="a line takes"):
            next(lines)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_a_missing_file_is_a_file_not_found_error_too(tmp_path):
    import pickle

    import kikuchi as kk

    for call, path in ((kk.read, tmp_path / "no.bif"), (kk.read_data, tmp_path / "no.csv")):
        with pytest.raises(FileNotFoundError, match=str(path)) as caught:
            call(path)
        assert isinstance(caught.value, KikuchiError) and "another file" not in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
