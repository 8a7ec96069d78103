"""Types of arrays in signatures: one name per type of entry, the same in every module."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
U4 = NDArray[np.uint32]
U8 = NDArray[np.uint64]
