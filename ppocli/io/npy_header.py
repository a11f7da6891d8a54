"""The header of a .npy array: NumPy's parser, whose failures are of many kinds."""

from __future__ import annotations

import warnings
from typing import IO, TYPE_CHECKING, Any

from numpy.lib import format as npy

if TYPE_CHECKING:
    import numpy as np


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether it is column-major, and the element type; nothing is unpickled.

    Raises
    ------
    ValueError
        Not a header of version 1.0 or 2.0, in a few words.
    OSError and what else `file` raises.
    """
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy version {version[0]}.{version[1]}, not 1.0 or 2.0")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers of Python 2 are read, too; damaged ones look like them
            shape, fortran, dtype = read(file)
    except (SyntaxError, TypeError, RecursionError, MemoryError, OverflowError) as failure:
        raise ValueError(f"not a dictionary of descr, fortran_order and shape ({failure})") from None
    except ValueError:
        raise
    except Exception as failure:
        # Damaged text also ends in errors of NumPy's tokeniser, which belong to no common class.
        if type(failure).__module__ != "tokenize":
            raise
        raise ValueError(f"not a dictionary of descr, fortran_order and shape ({failure})") from None
    return shape, fortran, dtype
