"""Numbers for people: significant digits, grouped counts, no locale."""

from __future__ import annotations

import math

SMALLEST_PLAIN, LARGEST_PLAIN = 1e-4, 1e6


def count_text(value: int) -> str:
    """Return a count with its thousands grouped: 1,048,576."""
    return f"{value:,}"


def number_text(value: float, digits: int = 6) -> str:
    """Return a real number with `digits` significant digits, trailing zeros dropped.

    Scientific below 1e-4 and from 1e6 on; digits before the point are never rounded away. An ASCII minus;
    -0.0 is 0. Non-finite values are the words nan, inf, -inf.
    """
    if not math.isfinite(value):
        return str(float(value))
    if value == 0.0:
        return "0"
    rounded = f"{value:.{digits - 1}e}"
    mantissa, exponent = rounded.split("e")
    if not SMALLEST_PLAIN <= abs(float(rounded)) < LARGEST_PLAIN:
        return f"{_without_zeros(mantissa)}e{exponent}"
    return _without_zeros(f"{value:.{max(digits - 1 - int(exponent), 0)}f}")


def cell_text(value: float | int | None, digits: int = 6) -> str:
    """Return the text of one table cell; an absent value is the word null."""
    if value is None:
        return "null"
    if isinstance(value, int):
        return count_text(value)
    return number_text(value, digits)


def plural(count: int, word: str) -> str:
    """Return `1 file`, `2 files`."""
    return f"{count_text(count)} {word if count == 1 else several(word)}"


def several(word: str) -> str:
    """Return the plural of a word: files, batches."""
    return f"{word}es" if word.endswith("ch") else f"{word}s"


def _without_zeros(text: str) -> str:
    """Drop zeros after the decimal point that say nothing."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def size_text(n_bytes: int) -> str:
    """Return a size with three significant digits and a decimal unit: 48.2 MB."""
    size, unit = float(n_bytes), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    return f"{number_text(size, 3)} {unit}"
