"""What runs before any command: an entry that can be interrupted, and a quick start."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

BAD_INPUT, NOT_CONVERGED, INTERRUPTED = 2, 3, 130
"""Exit codes besides 0; not converged counts only with `--strict`."""


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line, also while it is still loading."""
    try:
        from kikuchi.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("kikuchi: interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


def defer_blas() -> None:
    """Load Numba's array functions without SciPy's linear algebra, a quarter of the start-up.

    On loading its first compiled loop Numba imports `scipy.linalg` only to see whether it is
    there. The check is left out here; a loop that does use BLAS still imports it when compiled.
    """
    with suppress(ImportError, AttributeError):  # another version of Numba: only the time is lost
        from numba.np import linalg

        module: Any = linalg
        check = module.ensure_blas
        module.ensure_blas = lambda: None
        try:
            import numba.np.arraymath  # noqa: F401  (runs the check)
        finally:
            module.ensure_blas = check
