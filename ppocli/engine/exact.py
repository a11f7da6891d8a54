"""Which values a narrower format holds exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_exact(values: NDArray[Any], name: str) -> bool:
    """Return whether a narrower format holds all these finite values; -0.0 and 0.0 are one value."""
    if name == "float32":
        with np.errstate(over="ignore"):
            return bool((values.astype(np.float32) == values).all())
    if name == "float16":
        with np.errstate(over="ignore"):
            return bool((values.astype(np.float16) == values).all())
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32, copy=False)
    # The lower half of a float32 is what bfloat16 does not have.
    return bool(not (narrow.view(np.uint32) & np.uint32(0xFFFF)).any() and (narrow == values).all())
