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
            "PPO201",
            "info",
            "a log-prob column holds only numbers of a narrow format",
            "an audit bounds storage from here on, and says nothing of the computation that made the column",
            "log-probs typed by hand, or a column with few different values",
        ),
        Rule(
            "PPO202",
            "info",
            "storage in a narrow format flips clip decisions",
            "store log-probs in a wider format; the audit recommends the cheapest that flips none",
            "log-probs are not going to be stored in that format",
        ),
        Rule(
            "PPO203",
            "info",
            "storage in a narrow format rounds much of the drift to 0",
            "store log-probs in a wider format: KL and ratios of such columns show the format's steps",
            "log-probs are not going to be stored in that format",
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
    )
}
"""Every rule by code."""
