"""Exit codes of the commands besides 0; not converged counts only with `--strict`."""

from __future__ import annotations

BAD_INPUT, NOT_CONVERGED, INTERRUPTED, OUTPUT_CLOSED = 2, 3, 130, 141
