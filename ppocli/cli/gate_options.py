"""The options of a gate, and the `Gate` they are turned into."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from ppocli.cli.declare import flag, real_option, whole_option, word_option
from ppocli.core.gate import Gate
from ppocli.core.limits import Limit, LimitKind, limits_from, profile_limits, tolerances_from
from ppocli.core.profiles import PROFILES
from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from ppocli.cli.settings import Configuration

GATE = "Gate"


@dataclass(frozen=True, slots=True)
class GateOptions:
    """What is asked of the data."""

    max: Annotated[
        list[str] | None,
        word_option(
            GATE,
            "--max",
            metavar="METRIC=VALUE",
            text="Fails where the metric is above VALUE, null, or without a column. Repeatable.",
        ),
    ] = None
    min: Annotated[
        list[str] | None,
        word_option(GATE, "--min", metavar="METRIC=VALUE", text="The same for below VALUE. Repeatable."),
    ] = None
    expect: Annotated[
        list[str] | None,
        word_option(
            GATE,
            "--expect",
            metavar="METRIC=VALUE~TOL",
            text="Fails where the metric is more than TOL (1e-5, or 1%) away from VALUE. Repeatable.",
        ),
    ] = None
    expect_on_policy: Annotated[
        bool, flag(GATE, "--expect-on-policy", text="Fails where a ratio is not 1.")
    ] = False
    on_policy_tol: Annotated[
        float,
        real_option(GATE, "--on-policy-tol", "The largest |log_ratio| that counts as ratio 1. Default 1e-6."),
    ] = 1e-6
    min_tokens: Annotated[
        int | None, whole_option(GATE, "--min-tokens", "Fails where fewer than N tokens are valid.")
    ] = None
    baseline: Annotated[
        str | None,
        word_option(
            GATE,
            "--baseline",
            metavar="FILE",
            text="A report written by --export FILE.json; needs --tolerance.",
        ),
    ] = None
    tolerance: Annotated[
        list[str] | None,
        word_option(
            GATE,
            "--tolerance",
            metavar="METRIC=TOL",
            text="Fails where the metric is more than TOL (1e-4, or 5%) away from the baseline. Repeatable.",
        ),
    ] = None
    fail_on: Annotated[
        str,
        word_option(
            GATE,
            "--fail-on",
            metavar="error|warning|never",
            text="Findings of this severity, or a graver one, fail. Default error.",
        ),
    ] = "error"
    select: Annotated[
        list[str] | None,
        word_option(
            GATE,
            "--select",
            metavar="CODE",
            text="Of the findings, judge only these: PPO303, or PPO3 for all of them. Repeatable.",
        ),
    ] = None
    ignore: Annotated[
        list[str] | None,
        word_option(GATE, "--ignore", metavar="CODE", text="Findings that are not judged. Repeatable."),
    ] = None
    profile: Annotated[
        list[str] | None,
        word_option(
            GATE,
            "--profile",
            metavar="NAME",
            text=f"Add the limits that a project states: {', '.join(PROFILES)}; 'ppocli explain NAME' lists "
            "them. Repeatable.",
        ),
    ] = None
    by: Annotated[
        str,
        word_option(
            GATE,
            "--by",
            metavar="total|file|step|COLUMN",
            text="Judge the limits for each file, training step, or value of a column of whole numbers or "
            "text, not for the whole input (total, default), and name the first that breaks one.",
        ),
    ] = "total"
    exit_zero: Annotated[
        bool, flag(GATE, "--exit-zero", text="Exit with 0, not 1, where a check fails: only report.")
    ] = False

    def gate(self, settings: Configuration, *, allow_empty: bool, extra: Collection[str] = ()) -> Gate:
        """Return the gate, with the limits that `settings` adds; `extra`: names of a framework's metrics.

        Raises
        ------
        UsageProblem
            An unknown metric or code, a limit that is not finite, a baseline without a tolerance or the other
            way round, a gate that could never fail.
        """
        tolerances = self._read(
            settings, "tolerance", lambda option, pairs: tolerances_from(option, pairs, extra)
        )
        if tolerances and self.baseline is None:
            raise UsageProblem("--tolerance needs a report to compare with", hint="--baseline FILE.json")
        if self.baseline is not None and not tolerances:
            raise UsageProblem(
                "--baseline needs to know what is compared", hint="for example: --tolerance clip_frac=5%"
            )
        return Gate(
            limits=(*self._limits(settings, extra), *profile_limits(self.profile or ())),
            tolerances=tuple(tolerances),
            profiles=tuple(dict.fromkeys(self.profile or ())),
            fail_on=self.fail_on,
            select=tuple(self.select or ()),
            ignore=tuple(self.ignore or ()),
            by=self.by,
            expect_on_policy=self.expect_on_policy,
            on_policy_tol=self.on_policy_tol,
            allow_empty=allow_empty,
            exit_zero=self.exit_zero,
        )

    def _limits(self, settings: Configuration, extra: Collection[str]) -> list[Limit]:
        """Return the limits of all kinds."""
        kinds: tuple[LimitKind, ...] = ("max", "min", "expect")
        limits = [
            limit
            for kind in kinds
            for limit in self._read(
                settings, kind, lambda option, pairs, k=kind: limits_from(option, k, pairs, extra)
            )
        ]
        if self.min_tokens is not None:
            if self.min_tokens < 1:
                raise UsageProblem(
                    f"--min-tokens is a whole number of at least 1, not {self.min_tokens}",
                    hint="without a valid token the exit code is 5 in any case",
                )
            source = settings.place_of("min-tokens") or "--min-tokens"
            limits.append(Limit("n_tokens", "min", self.min_tokens, source=source))
        return limits

    def _read(self, settings: Configuration, option: str, reader: Callable[..., list[Any]]) -> list[Any]:
        """Read the limits of one option with their sources; a wrong one is named with its place."""
        by_source: dict[str, list[str]] = {}
        for pair, source in settings.limits(option, getattr(self, option)):
            by_source.setdefault(source, []).append(pair)
        out = []
        for source, pairs in by_source.items():
            try:
                out += [replace(one, source=source) for one in reader(f"--{option}", pairs)]
            except UsageProblem as problem:
                where = None if source.startswith("--") else source
                raise UsageProblem(problem.message, where=where, hint=problem.hint) from problem
        return out
