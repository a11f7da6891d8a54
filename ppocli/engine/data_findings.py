"""Findings about the data: PPO4xx but for empty files, and PPO201, from the totals of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.report import Place
from ppocli.core.rules import RULES
from ppocli.engine.advantages import is_normal
from ppocli.engine.data_checks import ONE_BLOCK_IN
from ppocli.engine.suspects import LOG_PROBS, MASKED, PADDING, ZERO
from ppocli.kernels import layout, sequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ppocli.core.report import Finding, InputReport, Severity
    from ppocli.engine.data_checks import Identity
    from ppocli.engine.repeats import RepeatedIds
    from ppocli.engine.summary import Summary

EXTREMES = {**LOG_PROBS, "ref_log_probs": "ref_log_prob"}

STEPS = {"bfloat16": 2.0**-2, "float16": 2.0**-5, "float32": 2.0**-18, "float64": 2.0**-47}
"""Distance of neighbouring numbers between 32 and 64, where logits and the logarithm of their sum are."""

DISCRETE = {"rollout_log_probs", "ref_log_probs", "group_id", "token_id"}
"""Columns that only runs with language models have: their log-probs are of tokens, not densities."""

FEW = 8
"""Fewer tokens may all be above 0 by chance."""

MOST_GROUPS, NEARLY_ALL_GROUPS, FEWEST_GROUPS = 0.5, 0.75, 4
"""Shares of groups without a difference for an info and for a warning; the last is that of rl-doctor."""

MOST_SCOPES, FEWEST_ADVANTAGES = 0.9, 10

FEW_OFF, LEAST_PAIRS = 0.05, 10
LINEAR = 0.9
"""Correlation from which on returns - values is a multiple of the advantages: all, or batch by batch."""


def find_data(s: Summary, inputs: Sequence[InputReport], repeats: RepeatedIds) -> Iterator[Finding]:
    """Yield what these rules find."""
    yield from _placeholders(s)
    yield from _padding(s)
    unlike = list(_no_log_probs(s))
    yield from unlike
    if not unlike:
        yield from _positive(s, inputs)
    yield from _repeated_ids(repeats)
    yield from _flat_groups(s, inputs)
    yield from _normalised(s)
    if s.has(("advantages", "returns")):
        yield from _identity(s)
    yield from _narrow(s)


def plural(n: int, what: str) -> str:
    """Return `1 token` or `2,000 tokens`."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _placeholders(s: Summary) -> Iterator[Finding]:
    """PPO402 and PPO406."""
    for name, one in s.totals.suspects.items():
        if name in (MASKED, PADDING):
            continue
        role, value = name.split()
        tokens = plural(one.count, "valid token")
        if value == ZERO:
            message = f"{tokens} with {role} exactly 0 opposite a log-prob below -2: zero-filled?"
            yield RULES["PPO406"].found(one.count, message, one.where)
        else:
            message = f"{tokens} with {role} exactly {value}: a sentinel?"
            yield RULES["PPO402"].found(one.count, message, one.where)


def _padding(s: Summary) -> Iterator[Finding]:
    """PPO404, with the loss as it is without such tokens."""
    one = s.totals.suspects.get(PADDING)
    # In a group whose answers score alike all advantages are 0, and tokens that are certain have 0 and 0.
    if one is None or 2 * one.count < int(s.total("adv_zero")):
        return
    message = f"{plural(one.count, 'valid token')} with log_probs, old_log_probs and advantage all exactly 0"
    n, loss = s.count("policy"), s.mean("loss", "policy", "loss")
    plain = s.spec.agg == "token-mean" and s.spec.adv_norm == "none" and n == s.totals.n_tokens
    if plain and n > one.count and math.isfinite(loss):
        without = loss * (n / (n - one.count))
        message += f": padding? policy_loss is {loss:.6g} with them and {without:.6g} without"
    else:
        message += ": padding?"
    yield RULES["PPO404"].found(one.count, message, one.where)


def _no_log_probs(s: Summary) -> Iterator[Finding]:
    """PPO407: columns without a value below 0."""
    for role, name in EXTREMES.items():
        n = s.count(_selection_of(name)) if s.has((role,)) else 0
        low, high = s.extreme(name)
        if n < FEW or low < 0.0 or not high > 0.0:
            continue
        where = s.place(name, 1)
        if high <= 1.0:
            message = f"all {n:,} values of {role} are within 0 and 1: probabilities (--probs {role})?"
        else:
            message = f"all {n:,} values of {role} are positive, up to {high:.6g}: -log p (--neglogp {role})?"
        yield RULES["PPO407"].found(n, message, where)


def _selection_of(name: str) -> str:
    """Return the selection whose tokens an extreme is over."""
    return {"log_prob": "log_prob", "old_log_prob": "ratio", "ref_log_prob": "ref"}[name]


def _positive(s: Summary, inputs: Sequence[InputReport]) -> Iterator[Finding]:
    """PPO403, by what rounding in the format of the column explains."""
    n, tokens = s.totals.n_positive, s.totals.n_tokens
    if not n:
        return
    columns = [role for role in EXTREMES if s.has((role,))]
    highest = {role: s.extreme(EXTREMES[role])[1] for role in columns}
    formats = {role: _format_of(s, role) for role in columns}
    role = max(columns, key=lambda one: highest[one] / STEPS[formats[one]])
    largest, step = highest[role], STEPS[formats[role]]
    message = f"{plural(n, 'log-prob')} above 0"
    if n == tokens * len(columns):
        message += ": every one of them"
    severity: Severity = "info"
    if 0.0 < largest < math.inf:
        message += f"; the largest is {largest:.6g}, in {role}"
        placeholders = sum(one.count for name, one in s.totals.suspects.items() if name.endswith(" 1"))
        if largest <= step:
            message += f", which rounding of {formats[role]} explains"
        elif n > placeholders and any(DISCRETE & one.columns.keys() for one in inputs):
            message += f", more than rounding of {formats[role]} explains"
            severity = "warning"
    yield RULES["PPO403"].found(n, message, s.place(EXTREMES[role], 1), severity)


def _format_of(s: Summary, role: str) -> str:
    """Return the narrowest format that holds the values of a column looked at, whatever type stores them."""
    formats = s.totals.checks.formats.get(role, ["float32"])
    return formats[0] if formats else "float64"


def _repeated_ids(repeats: RepeatedIds) -> Iterator[Finding]:
    """PPO405."""
    if repeats.count:
        more = "" if repeats.checked else ", not checked beyond 1,000,000 ids"
        ids = plural(repeats.count, "sequence id")
        message = f"{ids} in more than one file{more}; the first repetition is in {repeats.path}"
        yield RULES["PPO405"].found(repeats.count, message, repeats.where)


def _flat_groups(s: Summary, inputs: Sequence[InputReport]) -> Iterator[Finding]:
    """PPO408."""
    table = s.totals.groups
    if table is None or s.totals.no_groups or s.totals.n_groups_over or not s.has(("advantages",)):
        return
    states = table.states[: table.n]
    low, high = states[:, sequence.ADV_MIN], states[:, sequence.ADV_MAX]
    known, zero = low <= high, (low == 0.0) & (high == 0.0)
    flat = known & (low == high)
    n, n_flat, n_zero = (int(which.sum()) for which in (known, flat, zero))
    if n < FEWEST_GROUPS or n_flat < MOST_GROUPS * n or s.total("adv_zero") == s.count("adv"):
        return
    parts = [f"{n_zero:,} only 0"] if n_zero else []
    parts += [f"{n_flat - n_zero:,} one other value"] if n_flat > n_zero else []
    message = f"{n_flat:,} of {n:,} groups have no difference between their advantages: {', '.join(parts)}"
    severity: Severity = "warning" if n_flat >= NEARLY_ALL_GROUPS * n else "info"
    first = int(states[flat, sequence.FIRST_ROW].min())
    yield RULES["PPO408"].found(n_flat, message, _row_of(first, inputs), severity)


def _row_of(row: int, inputs: Sequence[InputReport]) -> Place | None:
    """Return the place of a row that is counted over all inputs."""
    for one in inputs:
        if row < one.rows:
            return Place(one.path, row)
        row -= one.rows
    return None


def _normalised(s: Summary) -> Iterator[Finding]:
    """PPO409, only where normalisation is asked for."""
    n = s.count("adv") if s.has(("advantages",)) else 0
    if s.spec.adv_norm == "none" or n < FEWEST_ADVANTAGES or s.is_constant("adv"):
        return
    mean, square = s.mean("adv", "adv", "adv"), s.variance("adv", "adv", 0, "adv") * n
    varying, normal = s.totals.normal_scopes or (0, 0)
    message = ""
    if is_normal(np.array(mean), np.array(square), np.array(float(n))):
        deviation = math.sqrt(square / n)
        message = f"as stored, the {n:,} advantages have mean {mean:.3g} and deviation {deviation:.6g}"
    elif varying and normal >= MOST_SCOPES * varying:
        message = f"as stored, the advantages of {normal:,} of {varying:,} scopes have mean 0 and deviation 1"
    if message:
        severity: Severity = "info" if s.spec.adv_norm == "batch" else "warning"
        said = f"{message}: normalised before they were logged?"
        yield RULES["PPO409"].found(n, said, severity=severity)


def _identity(s: Summary) -> Iterator[Finding]:
    """PPO410."""
    one = s.totals.checks.identity
    if not one.n_off or one.n < LEAST_PAIRS:
        return
    values = "old_values" if s.has(("old_values",)) else "values"
    if one.n_off <= FEW_OFF * one.n:
        message = (
            f"returns = advantages + {values} at all but {one.n_off:,} of {one.n:,} tokens; "
            f"the largest |returns - advantages - {values}| is {one.largest:.6g}"
        )
        yield RULES["PPO410"].found(one.n_off, message, one.where, "warning")
        return
    correlation = _correlation(one)
    # Advantages that were normalised after the returns were made from them are a multiple, and as usual.
    if correlation < LINEAR and values == "old_values":
        message = (
            f"returns - old_values are other numbers than the advantages at {one.n_off:,} of {one.n:,} "
            f"tokens compared, by up to {one.largest:.6g}; their correlation is {correlation:.2f}"
        )
        yield RULES["PPO410"].found(one.n_off, message, one.where)


def _correlation(one: Identity) -> float:
    """Return that of the advantages with returns - values in the sample; 0 where one side does not vary."""
    a, d = one.pairs - one.pairs.mean(axis=1, keepdims=True) if one.pairs.size else one.pairs
    # Not a dot product: BLAS would start threads, whose number decides the order of the sum.
    aa, dd, ad = (float((x * y).sum()) for x, y in ((a, a), (d, d), (a, d)))
    size = math.sqrt(aa) * math.sqrt(dd)
    return ad / size if size > 0.0 else 0.0


def _narrow(s: Summary) -> Iterator[Finding]:
    """PPO201, from a sample."""
    for role, one in s.totals.checks.narrow.items():
        every = f"one block of {layout.BLOCK:,} tokens in {ONE_BLOCK_IN}"
        files = "" if one.files == s.totals.n_files else f" in {one.files:,} of {s.totals.n_files:,} files"
        message = f"{role}: all {one.looked:,} values looked at{files} are {one.format} numbers ({every})"
        yield RULES["PPO201"].found(one.looked, message, one.where)
