"""The kinds of arrays that scoring works with, under their names."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]
Texts = NDArray[np.object_]
