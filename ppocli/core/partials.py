"""Mergeable partial results: the sums, moments and extremes of a block, a file or a whole run.

The names below are the contract between the kernels, which fill one row per block, and the engine, which
adds rows in order and turns totals into metrics. Sums add in double-double (a pair of float64, error 2^-106),
so the grouping of blocks into files is the only order that shows, and that order is fixed.
"""

from __future__ import annotations

from ppocli.core.formats import FORMATS

COLUMNS = (
    "log_probs",
    "old_log_probs",
    "advantages",
    "values",
    "old_values",
    "returns",
    "entropy",
    "ref_log_probs",
    "rewards",
    "rollout_log_probs",
)
"""Roles that the kernels read, in the order of their columns."""

SELECTIONS: dict[str, tuple[str, ...]] = {
    "ratio": ("log_probs", "old_log_probs"),
    "policy": ("log_probs", "old_log_probs", "advantages"),
    "adv": ("advantages",),
    "log_prob": ("log_probs",),
    "value": ("values", "returns"),  # and old_values where the value loss is clipped
    "ev": ("values", "returns"),
    "ev_old": ("old_values", "returns"),
    "return": ("returns",),
    "reward": ("rewards",),
    "entropy": ("entropy",),
    "ref": ("log_probs", "ref_log_probs"),
    "rollout": ("rollout_log_probs",),  # only where the loss is corrected
}
"""Which columns a family of terms needs. A term is taken over the tokens where all of them are finite."""

LANE_SUMS: dict[str, str] = {
    "log_ratio": "ratio",
    "log_ratio_sq": "ratio",
    "kl_k3": "ratio",
    "log_ratio_abs": "ratio",
    "log_ratio_zero": "ratio",
    "ratio": "ratio",
    "raw_ratio": "ratio",
    "raw_ratio_sq": "ratio",
    "below": "ratio",
    "above": "ratio",
    "loss": "policy",
    "unclipped": "policy",
    "active_low": "policy",
    "active_high": "policy",
    "dual": "policy",
    "delta": "policy",
    "grad_abs": "policy",
    "grad_zero": "policy",
    "adv": "adv",
    "adv_zero": "adv",
    "log_prob": "log_prob",
    "value": "value",
    "value_outside": "value",
    "value_active": "value",
    "ev_return": "ev",
    "ev_error": "ev",
    "ev_old_return": "ev_old",
    "ev_old_error": "ev_old",
    "return": "return",
    "reward": "reward",
    "entropy": "entropy",
    "ref_k1": "ref",
    "ref_k2": "ref",
    "ref_k3": "ref",
    "rollout_log_prob": "rollout",
}
"""Sums that the vectorised loops keep, one lane per token of a run, with the selection each is taken over."""

RARE_SUMS = (
    # Importance weights: ratios above exp(300) apart, scaled by 2^-600, so that no square overflows.
    "ess_1",
    "ess_2",
    "ess_big_1",
    "ess_big_2",
    *(f"overflow_{name}" for name in FORMATS),
    *(f"underflow_{name}" for name in FORMATS),
    "beyond_20",
    "on_bound",
    "clamped",
)
"""Sums that are looked for only in blocks whose extremes call for it."""

COUNTS = tuple(f"n_{name}" for name in SELECTIONS)
"""How many tokens each selection held."""

SUMS = (*LANE_SUMS, *RARE_SUMS, *COUNTS)
SUM = {name: index for index, name in enumerate(SUMS)}

MOMENTS = (
    "ratio",
    "loss",
    "log_ratio",
    "adv",
    "return",
    "reward",
    "ev_return",
    "ev_error",
    "ev_old_return",
    "ev_old_error",
)
"""Quantities whose second moment is kept too, centred per block. Their first moment is the sum so named."""

EXTREMES = (
    "log_ratio",
    "loss",
    "adv",
    "return",
    "reward",
    "ev_return",
    "ev_old_return",
    "entropy",
    "ref_k1",
    "log_prob",
    "old_log_prob",
    "ref_log_prob",
)
"""Quantities whose smallest and largest value are kept."""

EXTREME_OF = {"old_log_prob": "ratio", "ref_log_prob": "ref"}
"""The selection of those that are no sums."""

PIECE = (
    "stored",
    "valid",
    "n_loss",
    "n_log_ratio",
    "n_value",
    "n_entropy",
    "n_ref_k3",
    "loss",
    "log_ratio",
    "value",
    "entropy",
    "ref_k3",
    "adv_min",
    "adv_max",
    "flags",
)
"""What is kept of each piece of a sequence: the part of it inside one run of one block."""

FLAG_RATIO_POSINF, FLAG_RATIO_NEGINF, FLAG_RATIO_NAN = 1, 2, 4
FLAG_LOSS_POSINF, FLAG_LOSS_NEGINF, FLAG_LOSS_NAN = 8, 16, 32

KEYED = ("loss", "log_ratio", "value", "entropy", "ref_k3")
"""Sums that are kept per sequence and per group, each as a pair of float64, with its number of tokens."""

SEQUENCE_SUMS = (
    "n_sequences",
    "n_empty",
    "n_whole_ratio",
    *(f"n_{name}" for name in KEYED),
    *(f"{name}_mean" for name in KEYED),
    *(f"{name}_sum" for name in KEYED),
    "ratio_geo",
    "ratio_product",
    "outside",
)
"""Sums over sequences: of each sequence's token mean and token sum, and of its ratios.

`n_empty` counts sequences whose stored tokens are all masked; the others are over those with a valid one.
`n_whole_ratio` counts those with a log-ratio, none of whose log-ratios is left out for not being finite.
"""
SEQUENCE_SUM = {name: index for index, name in enumerate(SEQUENCE_SUMS)}
