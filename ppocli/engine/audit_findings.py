"""What columns already hold, and what storage in another precision would do: PPO201, PPO202, PPO203."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppocli.core.audit_report import AuditResult
    from ppocli.core.report import Finding

MUCH_DRIFT = 0.1
"""Share of log-ratios rounded to 0 that is worth a finding."""


def find_audited(result: AuditResult) -> Iterator[Finding]:
    """Yield what these rules find in each column, of which every value was seen, and in each format."""
    for role, names in result.holds.items():
        message = f"every value of {role} is a {' and a '.join(names)} number"
        yield RULES["PPO201"].found(result.n_tokens, message)
    for name, one in result.formats.items():
        flip, metrics = one.storage.worst_flip, one.storage.metrics
        flips = metrics.get("clip_flips_finite", metrics["clip_flips"])
        share = metrics.get("rounded_to_zero_frac_finite", metrics["rounded_to_zero_frac"])
        if flips:
            message = f"log-probs stored as {name} flip the clip decision of {flips:,} tokens"
            yield RULES["PPO202"].found(int(flips), message, flip.where if flip is not None else None)
        if share is not None and share > MUCH_DRIFT:
            message = f"log-probs stored as {name} round {share:.1%} of the log-ratios to 0"
            yield RULES["PPO203"].found(round(share * result.n_tokens), message)
