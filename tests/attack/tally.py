"""What an attack tried and what it found, and the list of all attacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

SEED = 20240


@dataclass
class Tally:
    """The count of cases that an attack tried, and a line for each one that found a fault."""

    name: str
    tried: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Attack:
    """A module of this folder, with its size in full and in the short part of `make test`.

    One that is `aside` runs in full beside the others, in a process of its own.
    """

    module: str
    count: int
    seconds: float
    short_count: int
    short_seconds: float
    aside: bool = False

    def run(self, short: bool = False) -> tuple[Tally, float]:
        """The tally of the module's attack, and the seconds that it took."""
        attack: Callable[[int, int, float], Tally] = import_module(f"attack.{self.module}").attack
        start = time.monotonic()
        if short:
            tally = attack(self.short_count, SEED, self.short_seconds)
        else:
            tally = attack(self.count, SEED, self.seconds)
        return tally, time.monotonic() - start


# In full 600 seconds altogether, and 1200 of those aside; in short 100.
ATTACKS: tuple[Attack, ...] = (
    Attack("budgets", 300, 300.0, 8, 10.0, aside=True),
    Attack("families", 200, 200.0, 4, 15.0, aside=True),
    Attack("questions", 100_000, 600.0, 80, 10.0, aside=True),
    Attack("resigned", 3000, 90.0, 60, 8.0, aside=True),
    Attack("ledgers", 300, 10.0, 60, 4.0, aside=True),
    Attack("models", 10_000, 240.0, 60, 15.0),
    Attack("readers", 100_000, 150.0, 2000, 20.0),
    Attack("interrupts", 1244, 210.0, 40, 18.0),
)
