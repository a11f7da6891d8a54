"""The options of audits: those of `ppocli audit`, and the few by which `eval` makes one in passing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ppocli.cli.declare import flag, real_option, word_option
from ppocli.core.audit_spec import ACCUMULATIONS, DEFAULT_FORMATS, AuditOptions, formats_of
from ppocli.core.precision import PRECISIONS

AUDIT = "Audit"
"""The panel of these options in the help."""

_DEFAULT = ",".join(DEFAULT_FORMATS)


@dataclass(frozen=True, slots=True)
class AuditChoices:
    """What is audited, and what is too much."""

    formats: Annotated[
        str,
        word_option(
            AUDIT,
            "--formats",
            metavar="F,F",
            text=f"Formats: {', '.join(PRECISIONS)}. Default {_DEFAULT}.",
        ),
    ] = _DEFAULT
    accumulate: Annotated[
        str,
        word_option(
            AUDIT,
            "--accumulate",
            metavar="|".join(ACCUMULATIONS),
            text="How token losses add up under the arithmetic question; same: in the format, in stored "
            "order. Default float32.",
        ),
    ] = "float32"
    loss_tolerance: Annotated[
        float,
        real_option(
            AUDIT,
            "--loss-tolerance",
            "Error of policy_loss that is all right, over the mean |token loss|. Default 0.001.",
        ),
    ] = 1e-3
    with_advantages: Annotated[
        bool, flag(AUDIT, "--with-advantages", text="The advantages are stored in the format, too.")
    ] = False
    fail_on: Annotated[
        str,
        word_option(
            AUDIT,
            "--fail-on",
            metavar="warning|error|never",
            text="Exit with 1 where a format has this verdict or a worse one. Default never.",
        ),
    ] = "never"

    def audit_options(self) -> AuditOptions:
        """Return what is audited.

        Raises
        ------
        UsageProblem
        """
        return AuditOptions(
            formats=formats_of(self.formats),
            accumulate=self.accumulate,
            loss_tolerance=self.loss_tolerance,
            fail_on=self.fail_on,
            with_advantages=self.with_advantages,
        )


@dataclass(frozen=True, slots=True)
class AuditInPassing:
    """An audit beside an evaluation, from the same pass."""

    audit: Annotated[
        bool, flag(AUDIT, "--audit", text="Also show what lower precision would have done to the loss.")
    ] = False
    audit_formats: Annotated[
        str | None,
        word_option(
            AUDIT,
            "--audit-formats",
            metavar="F,F",
            text=f"The formats, as for ppocli audit; implies --audit. Default {_DEFAULT}.",
        ),
    ] = None

    def audit_options(self) -> AuditOptions | None:
        """Return what is audited, if anything.

        Raises
        ------
        UsageProblem
        """
        if self.audit_formats is not None:
            return AuditOptions(formats=formats_of(self.audit_formats))
        return AuditOptions() if self.audit else None
