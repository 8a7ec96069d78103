"""A short seeded part of every attack, and the frame that runs them."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from attack.__main__ import main
from attack.tally import ATTACKS, Attack, Tally


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.module)
def test_short_attack_finds_nothing(attack: Attack) -> None:
    tally, _ = attack.run(short=True)
    assert tally.tried > 0
    assert tally.faults == []


def test_all_attacks_fit_their_time() -> None:
    assert sum(attack.seconds for attack in ATTACKS if not attack.aside) <= 600
    assert sum(attack.seconds for attack in ATTACKS if attack.aside) <= 1200
    assert sum(attack.short_seconds for attack in ATTACKS) <= 100


@pytest.mark.parametrize(
    ("faults", "status"), [([], 0), (["seed 3: the answer differs"], 1)], ids=["sound", "broken"]
)
def test_faults_are_printed_and_counted_in_the_exit_status(
    faults: list[str],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = ModuleType("attack.example")
    module.attack = lambda count, seed, seconds: Tally("example", count, faults)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "attack.example", module)
    assert main([Attack("example", 7, 1.0, 1, 1.0)]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["example", "7", "7", str(len(faults))]
    assert [line.strip() for line in lines[2:]] == faults
