from __future__ import annotations

import math

import numpy as np
import pytest

from ppocli.core.formats import FORMATS

# ln of the largest finite value and ln(smallest subnormal / 2), to four places.
LIMITS = {
    "float16": (11.0899, -17.3287),
    "bfloat16": (88.7189, -92.8817),
    "float32": (88.7228, -103.9721),
    "float64": (709.7827, -745.1332),
    "float8_e4m3fn": (6.1048, -6.9315),
    "float8_e5m2": (10.9568, -11.7835),
}


def test_all_formats_are_there() -> None:
    assert list(FORMATS) == list(LIMITS)


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    high, low = LIMITS[name]
    assert FORMATS[name].overflow_log == pytest.approx(high, abs=5e-5)
    assert FORMATS[name].underflow_log == pytest.approx(low, abs=5e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_largest_and_smallest_values_are_numpys(dtype: type[np.floating]) -> None:
    one = FORMATS[dtype.__name__]
    assert one.max_finite == float(np.finfo(dtype).max)
    assert one.min_subnormal == float(np.finfo(dtype).smallest_subnormal)


def test_float64_ends_where_exp_does() -> None:
    one = FORMATS["float64"]
    assert math.isfinite(math.exp(one.overflow_log))
    with pytest.raises(OverflowError):
        math.exp(math.nextafter(one.overflow_log, math.inf))
    assert math.exp(math.nextafter(one.underflow_log, -math.inf)) == 0.0
