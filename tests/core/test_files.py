"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kikuchi.core.errors import KikuchiError
from kikuchi.core.files import atomic_write


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
