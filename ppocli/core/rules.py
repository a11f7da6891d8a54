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
    decided : str
        What exactly makes it a finding, with the numbers.
    worst : {"error", "warning", "info"}, optional
        The gravest severity that a finding of it can have, where that is not `severity`.
    """

    code: str
    severity: Severity
    title: str
    advice: str
    false_alarm: str
    decided: str = ""
    worst: Severity | None = None

    @property
    def gravest(self) -> Severity:
        """The gravest severity that a finding of this rule can have."""
        return self.worst or self.severity

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
            "ratios of float16 are beyond its largest number; an error where those of float64 are, too",
            worst="error",
        ),
        Rule(
            "PPO103",
            "info",
            "log-ratios sit exactly on a clamp bound",
            "the trainer or the logger clamped these log-ratios; their true values, and the KL, are larger",
            "log-probs written as round numbers",
            "the log-ratio is exactly 10, -10, 20 or -20",
        ),
        Rule(
            "PPO104",
            "warning",
            "log-ratios beyond 20 nats",
            "check that both columns belong to the same tokens, and that none is a placeholder",
            "a policy that really moved by a factor of 5e8 on a token",
            "|log_ratio| is above 20",
        ),
        Rule(
            "PPO105",
            "info",
            "log-ratios were clamped as --log-ratio-clamp asks",
            "nothing to do if the trainer clamps too; KLs and overflow counts use the values as stored",
            "none: the tokens are counted",
            "the log-ratio is outside the bounds given",
        ),
        Rule(
            "PPO106",
            "error",
            "a report holds a value that cannot be",
            "make the report again from the data: it was edited, or written by something else",
            "none: no data give such a value",
            "a fraction outside 0 to 1, a negative count, k2 or k3, an explained variance above 1, a mean "
            "outside its extremes",
        ),
        Rule(
            "PPO201",
            "info",
            "a log-prob column holds only numbers of a narrow format",
            "store log-probs in float32, for rounding hides small moves of the policy; an audit of such a "
            "column bounds storage from here on, not the computation that made it",
            "log-probs that are meant to be kept in that format",
            "every finite value looked at (one block of 2,048 in 64; all of them in an audit) is a bfloat16, "
            "or a float16, number; at least 32 different ones",
        ),
        Rule(
            "PPO202",
            "info",
            "storage in a narrow format flips clip decisions",
            "store log-probs in a wider format; the audit recommends the cheapest that flips none",
            "log-probs are not going to be stored in that format",
            "audit and eval --audit: a token whose clipped branch is chosen in float64 and not with both "
            "log-probs rounded to the format, or the other way round",
        ),
        Rule(
            "PPO203",
            "info",
            "storage in a narrow format rounds much of the drift to 0",
            "store log-probs in a wider format: KL and ratios of such columns show the format's steps",
            "log-probs are not going to be stored in that format",
            "audit and eval --audit: over 10 % of the log-ratios are 0 once both log-probs are rounded",
        ),
        Rule(
            "PPO210",
            "info",
            "the KL is too small for float32 arithmetic",
            "compare it with a trainer's number only if that was computed with expm1 or in float64",
            "data that are on policy but for rounding",
            "0 < approx_kl_k3 < 2^-24: in float32, ratio - 1 - log_ratio has an error of that size",
        ),
        Rule(
            "PPO301",
            "warning",
            "idle clip: every ratio is exactly 1, while the rollout policy differs",
            "take the ratio against the policy that sampled: old_log_probs were recomputed with the weights "
            "that are trained",
            "one update per batch that corrects for the rollout policy by importance weights",
            "log_probs = old_log_probs at every valid token, and KL(rollout || old) by k3 is above 0.05",
        ),
        Rule(
            "PPO302",
            "error",
            "data that should be on policy are not",
            "score with dropout off (eval mode), the same dtype, temperature and batch shape; "
            "--on-policy-tol sets what is let through",
            "more than one update was made before the log-probs were logged",
            "only with --expect-on-policy: the largest |log_ratio| is above --on-policy-tol",
        ),
        Rule(
            "PPO303",
            "warning",
            "one token carries the KL",
            "look at it (--worst 1): if it is a special token or truncated, mask it; quote the KL without it",
            "a rare token that the policy really learned or unlearned",
            "one token of 50 or more has over half of the sum of k3, and its |log_ratio| is above 1",
        ),
        Rule(
            "PPO304",
            "warning",
            "every advantage is 0: the policy gets no gradient",
            "check the rewards: all answers of a group alike, or a column that was never filled",
            "a shard whose groups all happened to score alike",
            "the advantage is exactly 0 at every valid token",
        ),
        Rule(
            "PPO305",
            "info",
            "ratios leave the interval on one side",
            "look for a shift of all log-probs: temperature, other weights, or advantages of one sign",
            "a policy that was pushed one way on purpose",
            "5 % of the tokens and at least 100 are outside, one side has 3 times the other (a warning from "
            "10 times), and the bounds are about equally far in log-ratio",
            worst="warning",
        ),
        Rule(
            "PPO306",
            "warning",
            "explained variance is undefined: the returns do not vary",
            "check the returns: a constant column teaches the critic nothing",
            "a small shard, or an environment with one outcome",
            "all returns at valid tokens are equal, and there are at least two",
        ),
        Rule(
            "PPO401",
            "info",
            "files or sequences without a valid token",
            "nothing to do if that is meant: they count nowhere",
            "padding rows; empty rows hold no token that could be masked, and are not counted",
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
            "rounding explains 0.25 in bfloat16, 0.03 in float16, 4e-6 in float32: the steps from 32 to 64, "
            "where logits are; a warning beyond, where a column shows that these are a language model's",
            worst="warning",
        ),
        Rule(
            "PPO404",
            "warning",
            "valid tokens that look like padding: both log-probs and the advantage are exactly 0",
            "check the mask: such tokens pull every mean towards 0",
            "tokens that the policy was certain of, with advantage 0",
            "half of the tokens whose advantage is 0, or more, have log-probs of 0, too",
        ),
        Rule(
            "PPO405",
            "info",
            "the same sequence id in more than one file",
            "check that no file was given or written twice; ids of different files are different sequences",
            "a writer that counts from 0 in every file",
        ),
        Rule(
            "PPO406",
            "warning",
            "log-probs that are exactly 0 opposite small ones: missing values filled with 0",
            "mask these tokens, or write null where there is no log-prob",
            "a token that one policy was certain of and the other finds unlikely",
            "one log-prob is exactly 0 and the other is below -2",
        ),
        Rule(
            "PPO407",
            "warning",
            "a log-prob column without a value below 0: probabilities, or negated log-probs",
            "read probabilities with --probs ROLE, and -log p with --neglogp ROLE",
            "densities of continuous actions, where the policy is sure at every step",
            "at least 8 values, none below 0: probabilities if all are within 0 and 1, else -log p",
        ),
        Rule(
            "PPO408",
            "info",
            "groups whose advantages are all equal",
            "such groups teach nothing about which answer is better: check rewards, difficulty and group_id",
            "groups of one answer; advantages that are not relative to the group",
            "half of at least 4 groups; a warning from three quarters",
            worst="warning",
        ),
        Rule(
            "PPO409",
            "info",
            "advantages that are normalised once more",
            "leave --adv-norm out if the trainer logs advantages as the loss uses them",
            "advantages that have mean 0 and deviation 1 by themselves",
            "only with --adv-norm: mean 0 and deviation 1, over all tokens or in 9 of 10 scopes, up to the "
            "rounding of float32 (1e-5; 16-bit advantages are not told) and an epsilon (deviation 0.999 or "
            "more); a warning unless the scope is the batch, where it changes nothing",
            worst="warning",
        ),
        Rule(
            "PPO410",
            "info",
            "returns are not advantages + old values",
            "check that these columns are of the same rollout, and the advantages not normalised yet",
            "returns that are not made from the advantages: discounted rewards, V-trace",
            "|returns - advantages - values| is above 1e-4 (|returns| + |values|): a warning if so at 5 % of "
            "the tokens or fewer; above that an info, if there are old_values and returns - old_values has "
            "a correlation below 0.9 with the advantages, so that these are not just normalised",
            worst="warning",
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
