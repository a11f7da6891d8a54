"""Published sets of limits, by the project that states them. None is on unless it is asked for.

The values disagree by factors of 10 to 100: each is what its project uses on its own data.
"""

from __future__ import annotations

from dataclasses import dataclass

_BOUNDS = {"max": "at most", "min": "at least"}


@dataclass(frozen=True, slots=True)
class Profile:
    """One set.

    Attributes
    ----------
    name : str
    text : str
        What it is for, in one line.
    limits : tuple of (metric, "max" or "min", value)
    source : str
        Where the values are stated.
    left_out : str
        What the source also states and is not among the limits, and why.
    """

    name: str
    text: str
    limits: tuple[tuple[str, str, float], ...]
    source: str
    left_out: str = ""

    def lines(self) -> list[str]:
        """Return what `ppocli explain` says of it."""
        return [
            f"{self.name}: profile, a published set of limits",
            f"{self.text}.",
            *(f"{metric}: {_BOUNDS[kind]} {value:g}" for metric, kind, value in self.limits),
            f"Source: {self.source}.",
            *([f"Left out: {self.left_out}."] if self.left_out else []),
            f"Used with: ppocli check FILES --profile {self.name}.",
            "A limit whose column is missing is skipped; if all are, the check fails.",
        ]


PROFILES: dict[str, Profile] = {
    one.name: one
    for one in (
        Profile(
            "nemo-rl",
            "agreement of the trainer's log-probs with those of the inference engine",
            (
                ("drift.mult_prob_error", "max", 1.05),
                ("drift.mult_prob_error", "min", 1.0),
                ("drift.frac_abs_gt_0_5", "max", 1e-4),
                ("drift.frac_abs_gt_1", "max", 0.0),
                ("drift.drift_kl_k3", "max", 1e-2),
                ("drift.drift_kl_k3", "min", 0.0),
            ),
            "NVIDIA NeMo-RL: documentation (token_mult_prob_error below 1.05), tests/check_metrics.py "
            "(mean gen_kl_error below 0.01), validate_glm51_r3_10step.py (counts of large differences)",
            "the stricter 1.02 and 1e-3 of the GLM run, and 1.1 of its tests",
        ),
        Profile(
            "slime",
            "sanity of a step: trainer and rollout agree, log-probs and entropy are plausible",
            (
                ("drift.diff_abs_mean", "max", 0.1),
                ("entropy_estimate", "min", 0.0),
                ("entropy_estimate", "max", 1.0),
                ("entropy_mean", "min", 0.0),
                ("entropy_mean", "max", 1.0),
            ),
            "slime, --ci-test: train_rollout_logprob_abs_diff at most 0.1, mean log-prob between -1 and 0, "
            "entropy between 0 and 1",
            "ppo_kl and |log_prob - ref_log_prob| below 1e-8, which hold before the first update only: "
            "--max approx_kl_k1=1e-8 or --expect-on-policy, and --max ref_kl_k1=1e-8",
        ),
        Profile(
            "verl",
            "importance weights against the rollout policy that verl does not warn about",
            (
                ("drift.weight_mean", "min", 0.5),
                ("drift.weight_mean", "max", 2.0),
                ("drift.ess_frac", "min", 0.3),
            ),
            "verl, rollout correction: warnings for a mean weight outside 0.5 to 2 and an effective sample "
            "size below 0.3",
            "the share of vetoed sequences, which needs verl's own thresholds",
        ),
        Profile(
            "mlperf",
            "weights against the rollout policy inside a narrow band",
            (
                ("drift.weight_min", "min", 0.999),
                ("drift.weight_max", "max", 1.002),
            ),
            "MLPerf band [0.999, 1.002], as AI-Hypercomputer maxtext's log-prob parity tool cites it",
            "the share of tokens that has to lie in the band, which is not stated: all have to here",
        ),
    )
}
"""Every profile by name."""
