"""Kinds of tokens, as returned by both scanners."""

from __future__ import annotations

INTEGER = 0
"""Digits only."""
REAL = 1
"""Any other decimal number; its value is infinite when it is beyond the largest double."""
BAD = 2
"""Not a number in the sense of these formats (`nan` and `inf` are not); its value is NaN."""
TINY = 3
"""Not zero, but nearer to zero than any double; its value is NaN."""
HARD = 4
"""Left by the compiled scanner for Python's `float`; not used elsewhere."""
