"""What makes a short command start quickly."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


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
