"""Normalised advantages: verl's, AReaL's and OpenRLHF's through our formula on arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from goldens.batch import Answer

from ppocli.core.reference import normalise_advantages

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row


def verl(row: Row, arrays: Arrays) -> Answer:
    """(A - m) / sqrt(s^2 + 1e-8), ddof 1; the mean is added again unless it is to be shifted."""
    given = arrays["advantages"][arrays["mask"] != 0]
    ours = normalise_advantages(given, ddof=1, eps=1e-8, form="var")
    mean, variance = float(np.mean(given)), float(np.var(given))
    if not row["settings"]["shift_mean"]:
        ours = ours + mean
    answer = Answer(values={"whitened": ours}, scale={"whitened": float(np.abs(ours).mean())})
    eps = 1e-8  # verl has it in the denominator of masked means
    share = given.size / (given.size + eps)
    biased = (variance + (mean - mean * share) ** 2) * share
    answer.outputs = {
        "masked_mean": mean * share,
        "masked_var_biased": biased,
        "masked_var_unbiased": biased * given.size / (given.size - 1),
        "whitened_masked_sum": math.fsum(ours),
    }
    answer.scale |= {
        "whitened_masked_sum": math.fsum(np.abs(ours)),
        "masked_mean": float(np.abs(given).mean()),
    }
    return answer


def areal(row: Row, arrays: Arrays) -> Answer:
    """(A - m) / (s + eps) in float64; the result is float32."""
    settings = row["settings"]
    given = arrays["advantages"][arrays["mask"] != 0]
    ours = normalise_advantages(given, ddof=int(settings["unbiased"]), eps=settings["eps"])
    return Answer(values={"normalized": ours}, scale={"normalized": float(np.abs(ours).mean())})


def openrlhf(row: Row, arrays: Arrays) -> Answer:
    """(A - m) / sqrt(max(s^2, eps)) of each row; a row of one token is centred, too."""
    ours = []
    for values, mask in zip(arrays["advantages"], arrays["mask"] != 0, strict=True):
        one = normalise_advantages(values[mask], eps=math.sqrt(row["settings"]["eps"]), form="max")
        ours.append(one if one.size > 1 else np.zeros(one.size))
    together = np.concatenate(ours)
    return Answer(values={"normalized": together}, scale={"normalized": float(np.abs(together).mean())})


FUNCTIONS = {
    "verl.utils.torch_functional.masked_whiten": verl,
    "areal.utils.functional.masked_normalization": areal,
    "openrlhf.models.utils.masked_normalize": openrlhf,
}
"""By the peer's function."""
