"""`BoundsBar`: the current bounds on log Z on one line."""

from __future__ import annotations

import math
import time

from kikuchi.core.budget import Clock
from kikuchi.core.progress import ProgressBar, current_phase

_REFRESH = 0.1  # seconds between two refreshed lines


class BoundsBar(ProgressBar):
    """A bar that shows the best bounds, the gap, the elapsed seconds of the limit, and the running
    method.

    A `Run` reports the bounds of each step to `bounded`.

    >>> bar = BoundsBar(20.0, quiet=True)
    >>> bar.bounded(1.0, math.inf); bar.bounded(0.5, 3.25); bar.bounded(math.nan, 4.0)
    >>> bar.texts()[0]
    'lower 1  upper 3.25  gap 2.25'
    """

    def __init__(self, limit: float, *, quiet: bool = False, lines: bool = False) -> None:
        super().__init__("bounds", quiet=quiet, lines=lines)
        self.limit = limit
        self.lower, self.upper = -math.inf, math.inf
        self.clock: Clock | None = None
        self._refreshed = 0.0

    def bounded(self, lower: float, upper: float) -> None:
        """Update the bar with certified bounds, which need not improve on earlier ones; NaN is
        unknown.
        """
        if lower > self.lower:
            self.lower = lower
        if upper < self.upper:
            self.upper = upper
        if time.monotonic() >= self._refreshed + _REFRESH:
            self._refreshed = time.monotonic()
            self.refresh()

    def __call__(
        self, done: int, total: int, *, residual: float | None, objective: float | None
    ) -> None:
        """Show the bounds; iterations of the running method do not predict the remaining time."""
        self.refresh()

    def texts(self) -> list[str]:
        """The bounds, the seconds, and the method or phase."""
        known = {"lower": self.lower, "upper": self.upper, "gap": max(self.upper - self.lower, 0.0)}
        parts = [f"{n} {f'{x:.6g}' if math.isfinite(x) else '–'}" for n, x in known.items()]
        seconds = 0.0 if self.clock is None else self.clock.seconds
        return ["  ".join(parts), f"{min(seconds, self.limit):.0f}/{self.limit:g} s",
                current_phase()]  # fmt: skip
