"""Findings: what can be wrong with rollouts, as stable codes with advice and what would be a false alarm."""

from __future__ import annotations

from dataclasses import dataclass

from ppocli.core.report import Finding, Place, Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes
    ----------
    code : str
        Stable: PPO1xx numerics, 2xx precision, 3xx objective, 4xx data, 5xx mismatch.
    severity : {"error", "warning", "info"}
        Impossibilities are errors, heuristics warnings.
    title : str
    advice : str
        What to do, in one sentence.
    false_alarm : str
        When the rule is hit although nothing is wrong.
    """

    code: str
    severity: Severity
    title: str
    advice: str
    false_alarm: str

    def found(
        self, count: int, message: str, where: Place | None = None, severity: Severity | None = None
    ) -> Finding:
        """Return a finding of this rule."""
        return Finding(self.code, severity or self.severity, count, message, self.advice, where)


RULES: dict[str, Rule] = {
    rule.code: rule
    for rule in (
        Rule(
            "PPO101",
            "error",
            "a value at a valid token is missing or not finite",
            "look at the first place; mask the token if it should not count; *_finite leaves it out",
            "none: whatever needs such a value has no result",
        ),
        Rule(
            "PPO102",
            "warning",
            "the ratio overflows a number format",
            "look at the worst tokens (--worst 5): a trainer in that format gets inf there",
            "the trainer computes ratios in a wider format, or clamps the log-ratio first",
        ),
        Rule(
            "PPO103",
            "info",
            "log-ratios sit exactly on a clamp bound",
            "the trainer or the logger clamped these log-ratios; their true values, and the KL, are larger",
            "log-probs written as round numbers",
        ),
        Rule(
            "PPO104",
            "warning",
            "log-ratios beyond 20 nats",
            "check that both columns belong to the same tokens, and that none is a placeholder",
            "a policy that really moved by a factor of 5e8 on a token",
        ),
        Rule(
            "PPO401",
            "info",
            "files or sequences without a valid token",
            "nothing to do if that is meant: they count nowhere",
            "padding rows",
        ),
        Rule(
            "PPO402",
            "warning",
            "the same unlikely value stands at valid tokens: a placeholder",
            "mask these tokens, or write null where there is no log-prob",
            "log-probs that really have this value",
        ),
        Rule(
            "PPO403",
            "info",
            "log-probs above 0",
            "nothing to do for continuous actions; for discrete ones check the sign of the columns",
            "densities of continuous actions are above 1 where the policy is sure",
        ),
        Rule(
            "PPO404",
            "warning",
            "valid tokens that look like padding: both log-probs and the advantage are exactly 0",
            "check the mask: such tokens pull every mean towards 0",
            "tokens that the policy was certain of, with advantage 0",
        ),
        Rule(
            "PPO405",
            "info",
            "the same sequence id in more than one file",
            "check that no file was given or written twice; ids of different files are different sequences",
            "a writer that counts from 0 in every file",
        ),
        Rule(
            "PPO501",
            "warning",
            "one side is above the other by the same amount at every token",
            "look for top-p, top-k or min-p on the sampler's side: its log-probs are then renormalised over "
            "the kept set, the trainer's are not",
            "a bias that both sides were meant to have",
        ),
        Rule(
            "PPO502",
            "warning",
            "the difference grows with the log-prob",
            "divide the logits by the same temperature on both sides before the softmax",
            "a policy that really became sharper or flatter between the two",
        ),
        Rule(
            "PPO503",
            "warning",
            "the sides agree when one is shifted by one token",
            "align the columns: logits at a position belong to the next token",
            "text that repeats each token",
        ),
        Rule(
            "PPO504",
            "warning",
            "log-probs that are exactly 0 opposite small ones: missing values filled with 0",
            "mask these tokens, or write null where the sampler gave no log-prob",
            "a sampler that was certain of a token that the trainer finds unlikely",
        ),
        Rule(
            "PPO505",
            "warning",
            "a placeholder stands for missing log-probs on one side",
            "mask these tokens, or write null where there is no log-prob",
            "log-probs that really have this value",
        ),
        Rule(
            "PPO506",
            "warning",
            "one side holds 16-bit values, and rounding is the whole difference",
            "compute and store log-probs in float32 on both sides",
            "a file that stores one column in 16 bits to save space",
        ),
        Rule(
            "PPO507",
            "warning",
            "one side's log-probs are clamped from below",
            "look for a lower bound on log-probs in the sampler; the weights of clamped tokens are wrong",
            "many tokens that share one log-prob",
        ),
        Rule(
            "PPO508",
            "warning",
            "one side is sure of tokens that the other finds unlikely",
            "check that both sides had the same weights: a sampler that was not updated, or another adapter",
            "numerics of a large mixture of experts, where the routing differs",
        ),
        Rule(
            "PPO509",
            "warning",
            "a few sequences hold most of the difference",
            "look at these sequences first: other weights, another prompt, a text that was cut or split anew",
            "a few sequences that are much harder than the rest",
        ),
        Rule(
            "PPO510",
            "info",
            "how the difference compares with the noise floor",
            "nothing to do within the floor; above it, look at the other findings",
            "a floor measured on other data or with other kernels",
        ),
    )
}
"""Every rule by code."""
