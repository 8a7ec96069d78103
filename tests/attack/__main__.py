"""Run attacks in full: `python -m attack [name ...]` in the folder `tests`."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from attack.tally import ATTACKS, Attack, Tally

ROW = "{:<12} {:>8} {:>8} {:>7} {:>8}"


def main(attacks: Sequence[Attack]) -> int:
    """Print a row of counts for each attack, then its faults; 1 where there was a fault."""
    print(ROW.format("attack", "tried", "planned", "faults", "seconds"), flush=True)
    aside = [attack for attack in attacks if attack.aside]
    failed = False
    with ProcessPoolExecutor(max(1, len(aside)), multiprocessing.get_context("spawn")) as pool:
        running = [(attack, pool.submit(attack.run)) for attack in aside]
        for attack in attacks:
            if not attack.aside:
                failed |= _failed(attack, *attack.run())
        for attack, result in running:
            failed |= _failed(attack, *result.result())
    return int(failed)


def _failed(attack: Attack, tally: Tally, seconds: float) -> bool:
    """Whether an attack found anything or tried nothing, after its row is printed."""
    counts = (tally.tried, attack.count, len(tally.faults), f"{seconds:.1f}")
    print(ROW.format(tally.name, *counts), flush=True)
    for fault in tally.faults:
        print(f"  {fault}", flush=True)
    return bool(tally.faults) or not tally.tried


if __name__ == "__main__":
    wanted = sys.argv[1:]
    unknown = set(wanted) - {attack.module for attack in ATTACKS}
    if unknown:
        sys.exit(f"no attack is called {', '.join(sorted(unknown))}")
    sys.exit(main([attack for attack in ATTACKS if not wanted or attack.module in wanted]))
