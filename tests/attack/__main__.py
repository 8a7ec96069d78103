"""Run attacks in full: `python -m attack [name ...]` in the folder `tests`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from attack.tally import ATTACKS, Attack

ROW = "{:<12} {:>8} {:>8} {:>7} {:>8}"


def main(attacks: Sequence[Attack]) -> int:
    """Print a row of counts for each attack, then its faults; 1 where there was a fault."""
    print(ROW.format("attack", "tried", "planned", "faults", "seconds"), flush=True)
    failed = False
    for attack in attacks:
        tally, seconds = attack.run()
        counts = (tally.tried, attack.count, len(tally.faults), f"{seconds:.1f}")
        print(ROW.format(tally.name, *counts), flush=True)
        for fault in tally.faults:
            print(f"  {fault}", flush=True)
        failed = failed or bool(tally.faults) or not tally.tried
    return int(failed)


if __name__ == "__main__":
    wanted = sys.argv[1:]
    unknown = set(wanted) - {attack.module for attack in ATTACKS}
    if unknown:
        sys.exit(f"no attack is called {', '.join(sorted(unknown))}")
    sys.exit(main([attack for attack in ATTACKS if not wanted or attack.module in wanted]))
