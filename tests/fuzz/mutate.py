"""Damage: what disks, copies, crashes and people do to a file."""

from __future__ import annotations

import random
import struct

ODD = (0, 1, 2, 0x7F, 0x80, 0xFF)
ODD_INTS = (0, 1, -1, 2, 255, 2**15, 2**31 - 1, -(2**31), 2**32 - 1, 2**40, 2**62, -(2**63))
WORDS = (
    b"NaN",
    b"null",
    b"1e999",
    b"-0",
    b'"x"',
    b"[]",
    b"{}",
    b"true",
    b"1" * 400,
    b"[" * 2000,
    b"\xff",
    b",",
    b"\n",
)


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return a damaged copy."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _once(out, rng)
    return bytes(out)


def _once(out: bytearray, rng: random.Random) -> None:
    """Damage in place."""
    if not out:
        return
    kind = rng.randrange(11)
    # Headers and footers are where a byte means most.
    at = rng.randrange(len(out))
    if rng.random() < 0.4:
        at = rng.choice((at % min(len(out), 400), len(out) - 1 - at % min(len(out), 1500)))
    if kind <= 2:
        out[at] ^= 1 << rng.randrange(8)
    elif kind == 3:
        out[at] = rng.choice(ODD)
    elif kind == 4:
        size = rng.choice((2, 4, 8))
        value = rng.choice((*ODD_INTS, len(out), len(out) * 2)) & ((1 << 8 * size) - 1)
        out[at : at + size] = value.to_bytes(size, "little")
    elif kind == 5:
        del out[at:]
    elif kind == 6:
        del out[at : at + rng.randrange(1, 64)]
    elif kind == 7:
        out[at:at] = rng.randbytes(rng.randrange(1, 64))
    elif kind == 8:
        start = rng.randrange(len(out))
        out[at : at + 32] = out[start : start + 32]
    elif kind == 9:
        out[at : at + 1] = rng.choice(WORDS)
    else:
        out[at : at + 4] = struct.pack("<f", rng.choice((float("nan"), float("inf"), 1e38, -1.0, 1e-42)))
