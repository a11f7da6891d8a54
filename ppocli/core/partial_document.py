"""The document of `--partials`: what was found in each file, exactly, to be merged later and elsewhere.

Only JSON: whole numbers as they are, float64 as the shortest decimal that is read back as the same number,
NaN and infinities by name, arrays as the base64 text of their compressed little-endian bytes. Each file's
entry has the SHA-256 of its canonical text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import zlib
from typing import TYPE_CHECKING, Any

from ppocli.core.report import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

KIND = "partials"

PARTIALS_VERSION = 1
"""Of the state of a file. Partials of another version are refused: nothing is converted."""

DTYPES = ("<f8", "<i8", "|b1")
"""Types of arrays."""

MOST_BYTES = 1 << 31
"""Of one array, unpacked."""

NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def packed(values: NDArray[Any]) -> dict[str, Any]:
    """Return an array of float64, int64 or bool as JSON.

    Parameters
    ----------
    values : ndarray

    Returns
    -------
    dict
        `dtype` (one of `DTYPES`), `shape`, and `zlib`: base64 of the compressed bytes in C order.
    """
    import numpy as np

    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    content = base64.b64encode(zlib.compress(little.tobytes(), 6)).decode("ascii")
    return {"dtype": little.dtype.str, "shape": list(values.shape), "zlib": content}


def unpacked(raw: Any) -> NDArray[Any]:
    """Return the array of a JSON value that `packed` made, in native byte order and writable.

    Raises
    ------
    ValueError
        It is no such value, or its content does not fit its type and shape.
    """
    import numpy as np

    if not isinstance(raw, dict) or set(raw) != {"dtype", "shape", "zlib"} or raw["dtype"] not in DTYPES:
        raise ValueError("not an array")
    shape, kind = raw["shape"], np.dtype(raw["dtype"])
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("not the shape of an array")
    size = math.prod(shape) * kind.itemsize
    if size > MOST_BYTES:
        raise ValueError("an array is too large")
    try:
        inflate = zlib.decompressobj()
        content = inflate.decompress(base64.b64decode(raw["zlib"], validate=True), size + 1)
    except (binascii.Error, zlib.error, TypeError) as problem:
        raise ValueError(f"the content of an array is damaged: {problem}") from None
    if len(content) != size or not (inflate.eof or size == 0):
        raise ValueError("the content of an array does not fit its shape")
    values: NDArray[np.generic] = np.frombuffer(content, dtype=kind).reshape(shape)
    return values.astype(kind.newbyteorder("="))


def number(value: float) -> float | str:
    """Return a float as JSON: itself, or the name of what is not finite."""
    value = float(value)
    return value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def as_float(raw: Any) -> float:
    """Return the float that `number` made JSON of.

    Raises
    ------
    ValueError
    """
    if isinstance(raw, str) and raw in NAMES:
        return NAMES[raw]
    if type(raw) is not float:
        raise ValueError("not a number")
    return raw


def digest(entry: Mapping[str, Any]) -> str:
    """Return the SHA-256 of an entry's canonical text, its own `sha256` left out."""
    body = {name: value for name, value in entry.items() if name != "sha256"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def document(
    settings: Mapping[str, Any],
    how: Mapping[str, Any],
    files: Sequence[Mapping[str, Any]],
    skipped: Iterable[Mapping[str, Any]],
    run: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the document.

    Parameters
    ----------
    settings : mapping
        Every option that changes a number.
    how : mapping
        `like`, `worst`, `n_paths` and `kernels`: see `ppocli.core.schema`.
    files, skipped : entries in the order of the inputs
    run : mapping
        All that is not deterministic.
    """
    from ppocli import __version__

    return {
        "schema_version": SCHEMA_VERSION,
        "tool": "ppocli",
        "version": __version__,
        "kind": KIND,
        "status": "ok",
        "exit_code": 0,
        "partials_version": PARTIALS_VERSION,
        "settings": dict(settings),
        **how,
        "files": list(files),
        "skipped": list(skipped),
        "run": dict(run),
    }
