"""`synth`: rollouts made up so that they show one pathology, or none."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core import shell
from ppocli.core.spec import choose
from ppocli.engine import synth_batches as batches
from ppocli.engine import synth_pairs as pairs
from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEALTHY = "healthy"
SEQUENCES, TOKENS, SEED = 64, 64, 0
"""What is made unless something else is asked for."""

LEAST_SEQUENCES, LEAST_TOKENS, MOST = 32, 32, 1 << 20
"""Some findings need 20 sequences or some hundred tokens; all columns stand in memory."""


@dataclass(frozen=True, slots=True)
class Pathology:
    """Something that can be wrong with rollouts.

    Attributes
    ----------
    code : str, optional
        The finding that it raises; None: none.
    shows : str
        What was done.
    make : callable
        From a generator of random numbers, sequences and tokens to columns by role.
    command : tuple of str
        The command line that shows it; "FILE" stands for the file.
    """

    code: str | None
    shows: str
    make: Callable[[np.random.Generator, int, int], dict[str, NDArray[Any]]]
    command: tuple[str, ...] = ("eval", "FILE")

    def command_line(self, path: str) -> str:
        """Return what to type for a file of this name."""
        return shell.join(["ppocli", *(path if word == "FILE" else word for word in self.command)])


def _drift(code: str, shows: str) -> Pathology:
    """Return a fault between trainer and sampler."""
    return Pathology(code, shows, partial(batches.batch, pair=pairs.FAULTS[code]), ("drift", "FILE"))


_CLAMPED = ("eval", "FILE", "--log-ratio-clamp", "0.2")
_ON_POLICY = ("check", "FILE", "--expect-on-policy")
_AUDIT = ("audit", "FILE")
_TWICE = ("eval", "FILE", "--adv-norm", "group", "--adv-norm-unit", "sequence")

PATHOLOGIES: dict[str, Pathology] = {
    HEALTHY: Pathology(None, "nothing is wrong", batches.batch, ("check", "FILE")),
    "nan": Pathology("PPO101", "three log-probs are NaN", batches.nan),
    "overflow": Pathology("PPO102", "ratios of exp(12), more than float16 holds", batches.overflow),
    "clamp-bound": Pathology("PPO103", "log-ratios clamped to exactly +-10", batches.clamp_bound),
    "far-apart": Pathology("PPO104", "tokens 24 nats less likely than they were", batches.far),
    "clamped": Pathology("PPO105", "log-ratios for --log-ratio-clamp 0.2 to hold", batches.batch, _CLAMPED),
    "bfloat16": Pathology("PPO201", "log-probs stored in bfloat16", batches.bfloat16),
    "clip-flips": Pathology("PPO202", "ratios next to the clip bounds", batches.near_the_bounds, _AUDIT),
    "small-steps": Pathology("PPO203", "a policy that moved by 0.001 nats", batches.small_steps, _AUDIT),
    "tiny-kl": Pathology("PPO210", "a policy that moved by 1e-5 nats", batches.tiny_kl),
    "idle-clip": Pathology("PPO301", "old log-probs recomputed with the trained weights", batches.idle_clip),
    "off-policy": Pathology(
        "PPO302", "ratios that are not 1, as dropout makes them", batches.batch, _ON_POLICY
    ),
    "one-token": Pathology("PPO303", "one token that carries the KL", batches.one_token),
    "zero-advantages": Pathology("PPO304", "groups whose answers score alike", batches.zero_advantages),
    "one-sided": Pathology("PPO305", "every token 0.3 nats less likely", batches.one_sided),
    "constant-returns": Pathology("PPO306", "a column of returns never filled", batches.constant_returns),
    "masked-sequences": Pathology("PPO401", "sequences without a valid token", batches.masked_sequences),
    "placeholder": Pathology("PPO402", "-100 for log-probs that are missing", batches.placeholder),
    "above-zero": Pathology("PPO403", "log-probs of tokens of up to 0.009", batches.above_zero),
    "padding": Pathology("PPO404", "padding that is not masked", batches.padding),
    "zeroed": Pathology("PPO406", "0 for old log-probs that are missing", batches.zeroed),
    "negated": Pathology("PPO407", "columns that hold minus the log-prob", batches.negated),
    "flat-groups": Pathology("PPO408", "three of four groups score alike", batches.flat_groups),
    "twice": Pathology("PPO409", "advantages for --adv-norm group to normalise again", batches.batch, _TWICE),
    "other-returns": Pathology("PPO410", "returns that are off at a few tokens", batches.other_returns),
    "offset": _drift("PPO501", "a sampler that renormalises after top-p"),
    "temperature": _drift("PPO502", "a sampler with another temperature"),
    "shift": _drift("PPO503", "one column late by a token"),
    "zero-fill": _drift("PPO504", "0 where the sampler gave no log-prob"),
    "rollout-placeholder": _drift("PPO505", "a placeholder where the sampler gave no log-prob"),
    "rollout-bfloat16": _drift("PPO506", "one of trainer and sampler stored in bfloat16"),
    "rollout-clamp": _drift("PPO507", "a sampler that bounds its log-probs from below"),
    "stale-sampler": _drift("PPO508", "a sampler that was not updated"),
    "few-sequences": _drift("PPO509", "a few sequences scored with other weights"),
}
"""Every pathology by name. PPO106 is about edited reports; PPO405 and PPO510 take a second file."""


@dataclass(frozen=True, slots=True)
class Synthesised:
    """What was written: the pathology's name, sequences, and valid tokens."""

    name: str
    sequences: int
    tokens: int


def pathology_named(name: str) -> str:
    """Return the name of a pathology from its name or its finding's code.

    Raises
    ------
    UsageProblem
        Neither.
    """
    by_code = {one.code: key for key, one in PATHOLOGIES.items() if one.code}
    return by_code.get(name.upper()) or choose("pathology", name, PATHOLOGIES)


def columns_of(
    name: str, *, sequences: int = SEQUENCES, tokens: int = TOKENS, seed: int = SEED
) -> dict[str, NDArray[Any]]:
    """Return made-up rollouts as arrays by role.

    Parameters
    ----------
    name : str
        Of a pathology, or the code of its finding.
    sequences : int
        At least 32.
    tokens : int
        The longest length, padding included, at least 32; lengths vary from a third of it. There may be
        1,048,576 tokens in all.
    seed : int
        At least 0. The same seed gives the same arrays with the same version of NumPy.

    Returns
    -------
    dict of str to ndarray
        Float32 (sequences, tokens), or (sequences,) for values of whole sequences; `mask` is boolean and
        `group_id` int64.

    Raises
    ------
    UsageProblem
        No such pathology, or a number outside its range.
    """
    for flag, value, least in (
        ("--sequences", sequences, LEAST_SEQUENCES),
        ("--tokens", tokens, LEAST_TOKENS),
        ("--seed", seed, 0),
    ):
        if value < least:
            raise UsageProblem(f"{flag} is a whole number of at least {least}, not {value}")
    if sequences * tokens > MOST:
        raise UsageProblem(f"{sequences:,} sequences of {tokens:,} tokens are more than {MOST:,} tokens")
    made = PATHOLOGIES[pathology_named(name)].make(np.random.default_rng(seed), sequences, tokens)
    return {role: x.astype(np.float32) if x.dtype == np.float64 else x for role, x in made.items()}


def synth(
    path: str | os.PathLike[str],
    pathology: str = HEALTHY,
    *,
    sequences: int = SEQUENCES,
    tokens: int = TOKENS,
    seed: int = SEED,
    overwrite: bool = False,
) -> Synthesised:
    """Write made-up rollouts that show one pathology as canonical Parquet.

    Parameters
    ----------
    path : str or path
        Appears under its name when it is whole.
    pathology : str
        A name of `PATHOLOGIES`, or the code of its finding.
    sequences, tokens, seed : int
        As in `columns_of`.
    overwrite : bool
        Replace a file that exists.

    Returns
    -------
    Synthesised

    Raises
    ------
    UsageProblem
        As `columns_of`.
    InputError
        The file exists, or cannot be written.
    """
    from ppocli.io.writer import RolloutWriter

    name = pathology_named(pathology)
    columns = columns_of(name, sequences=sequences, tokens=tokens, seed=seed)
    with RolloutWriter(path, overwrite=overwrite, pathology=name, seed=seed) as writer:
        writer.append(**columns)
    return Synthesised(name, sequences, int(columns["mask"].sum()))
