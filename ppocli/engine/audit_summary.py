"""Totals of an audit to its result: metrics, verdicts, recommendation, sizes, sums in several orders."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.audit_metrics import ARITHMETIC, STORAGE, metrics_of
from ppocli.core.audit_report import Answer, AuditResult, FormatAudit, Reduction
from ppocli.core.precision import PRECISIONS, Precision
from ppocli.core.report import NullNote
from ppocli.core.verdicts import Candidate, Verdict, judge, recommend
from ppocli.engine.audit_sizes import below, octaves, quantile
from ppocli.engine.audit_tables import IN_FLOAT64, IN_FORMAT, LOSS_ONLY, REFERENCE
from ppocli.kernels import running
from ppocli.kernels.rounding import round_one

if TYPE_CHECKING:
    from ppocli.core.report import Nonfinite, Number
    from ppocli.engine.audit_pass import Audit

STALLED = 100
"""Terms but 0 at the end that must not move a sum before it is said to stand still."""

QUANTILES = (("p50", 50), ("p99", 99))
EXTREMES = {
    "ratio_min": "ratio_min",
    "ratio_max": "ratio_max",
    "ratio_error_max": "ratio_error",
    "log_ratio_error_max": "log_ratio_error",
}
"""Metrics that are extremes, with their names in the totals."""
KLS = (("approx_kl_k1", "log_ratio", -1.0), ("approx_kl_k2", "kl_k2", 1.0), ("approx_kl_k3", "kl_k3", 1.0))


def summarise_audit(audit: Audit) -> AuditResult:
    """Turn the totals of an audit into its result."""
    made = _Summary(audit)
    formats = {name: made.format_audit(name) for name in audit.options.formats}
    candidates = made.candidates(formats)
    totals = audit.totals
    return AuditResult(
        formats=formats,
        recommendation=recommend(candidates, audit.options) if made.is_whole else None,
        candidates=candidates,
        sizes=made.sizes,
        histogram=octaves(totals.bins[1]),
        holds=made.holds(),
        reduction=made.reduction() if totals.n_tokens else None,
        n_tokens=totals.n_tokens,
        n_left_out=totals.n_valid - totals.n_tokens,
    )


class _Summary:
    """Makes the parts of one result."""

    def __init__(self, audit: Audit) -> None:
        self.audit, self.totals, self.options = audit, audit.totals, audit.options
        self.sizes: dict[str, Number] = {}
        for k, name in enumerate(("log_prob_abs", "log_ratio_abs")):
            for label, percent in QUANTILES:
                self.sizes[f"{name}_{label}"] = quantile(self.totals.bins[k], percent)
        self._pairwise = audit.ordered.pairwise()
        self._reference = self._shared(REFERENCE)
        self._reference["policy_loss"] = self.totals.mean(REFERENCE, "loss")

    @property
    def is_whole(self) -> bool:
        """Whether there are tokens, and all of them were audited."""
        return 0 < self.totals.n_tokens == self.totals.n_valid

    def variant(self, storage: str, kind: int) -> int:
        """Return the number of a variant."""
        found = (v for v, one in enumerate(self.audit.variants) if (one.storage, one.kind) == (storage, kind))
        return next(found)

    # ---------------------------------------------------------------------------------------- answers

    def format_audit(self, name: str) -> FormatAudit:
        """Answer both questions about a format."""
        one = PRECISIONS[name]
        storage = self._storage(one)
        return FormatAudit(storage, self._arithmetic(one) if one.arithmetic else None)

    def _storage(self, one: Precision) -> Answer:
        """Answer what storage in a format costs."""
        why = self.audit.scales.reason if one.scale == "sequence" and self.audit.scales else None
        v = self.variant(one.name, IN_FLOAT64)
        values = self._shared(v)
        values["policy_loss"] = self.totals.mean(v, "loss")
        values |= self._steps(one)
        return self._answer(STORAGE, v, values, why)

    def _arithmetic(self, one: Precision) -> Answer:
        """Answer what computing in a format costs; means are rounded to it."""
        v = self.variant(one.name, IN_FORMAT)
        values, n = self._shared(v), self.totals.n_tokens
        total = self._sum_in_order(v)
        for name, _, _ in KLS:
            values[name] = round_one(values[name], one.rule)
        values["policy_loss"] = round_one(total / n, one.rule) if n else math.nan
        values["policy_loss_of_rounded_sums"] = self._of_rounded_sums(total, n, one)
        return self._answer(ARITHMETIC, v, values, None)

    def _of_rounded_sums(self, total: float, n: int, one: Precision) -> float:
        """Return sum and count, each rounded, divided and rounded."""
        count = round_one(float(n), one.rule)
        if not n:
            return math.nan
        return round_one(round_one(total, one.rule) / count, one.rule)

    def _sum_in_order(self, v: int) -> float:
        """Return the sum of a variant's losses as `accumulate` says; other than "same" for the whole set."""
        ordered, how = self.audit.ordered, self.options.accumulate
        if how == "same" and v in self.audit.same:
            return float(ordered.same[self.audit.same.index(v)])
        if how == "pairwise":
            return float(self._pairwise[v])
        if how == "compensated":
            return round_one(self.totals.total(v, "loss_float32"), PRECISIONS["float32"].rule)
        return float(ordered.blocked[v])

    def _shared(self, v: int) -> dict[str, float]:
        """Return what is defined alike under both questions, but the loss."""
        t, n = self.totals, self.totals.n_tokens
        share = (lambda k: k / n) if n else (lambda _: math.nan)
        weight, square = t.total(v, "ratio"), t.total(v, "ratio_sq")
        size = t.total(REFERENCE, "gradient_abs")
        on, off = t.count(v, "flips_on"), t.count(v, "flips_off")
        out = {name: sign * t.mean(v, total) for name, total, sign in KLS}
        out |= {
            "clip_frac": share(t.count(v, "below") + t.count(v, "above")),
            "clip_frac_active": share(t.count(REFERENCE, "active") + on - off),
            "ess_frac": weight / n * (weight / square) if n and 0.0 < square < math.inf else math.nan,
            "ratio_mean": t.mean(v, "ratio"),
            **{name: t.extreme(v, kept) for name, kept in EXTREMES.items()},
            "clip_flips": on + off,
            "clip_flips_on": on,
            "clip_flips_off": off,
            "ratio_overflow": t.count(v, "overflow"),
            "ratio_underflow": t.count(v, "underflow"),
            "zero_log_ratio_frac": share(t.count(v, "zero")),
            "rounded_to_zero_frac": share(t.count(v, "rounded_to_zero")),
            "grad_abs_mean": t.mean(v, "gradient_abs"),
            "grad_error": _over(t.total(v, "gradient_error"), size),
            "grad_vanished": t.count(v, "vanished"),
            "grad_appeared": t.count(v, "appeared"),
            "grad_reversed": t.count(v, "reversed"),
        }
        if t.has_nan(v, "ratio"):
            # The kernels look past NaN: an extreme would be that of the other tokens.
            out |= dict.fromkeys(EXTREMES, math.nan)
        return out

    def _steps(self, one: Precision) -> dict[str, float]:
        """Return the format's step at two sizes of log-probs, and the share of drift below half of it."""
        out: dict[str, float] = {}
        for label, _ in QUANTILES:
            size = self.sizes[f"log_prob_abs_{label}"]
            if one.scale == "tensor" and self.audit.scales is not None:
                out[f"step_{label}"] = self.audit.scales.of_columns()[0]
            elif one.scale is None and size is not None:
                out[f"step_{label}"] = one.step(size)
            else:
                out[f"step_{label}"] = math.nan
        n, step = self.totals.n_tokens, out["step_p50"]
        hidden = below(self.totals.bins[1], step / 2.0) - self.totals.count(REFERENCE, "zero")
        out["below_step_frac"] = hidden / n if n and math.isfinite(step) else math.nan
        return out

    def _answer(self, question: str, v: int, values: dict[str, float], why: str | None) -> Answer:
        """Compare with the reference, judge, and turn what is not finite into nulls with a reason."""
        self._put_errors(values)
        t = self.totals
        left_out = t.n_valid - t.n_tokens
        metrics: dict[str, Number] = {}
        nulls: dict[str, NullNote] = {}
        judged: dict[str, Number] = {}
        for metric in metrics_of(question):
            value = values[metric.name]
            note = NullNote(why) if why else _note(metric.name, value, t.n_tokens)
            judged[metric.name] = None if note else int(value) if metric.unit == "count" else value + 0.0
            name = metric.name
            if left_out and not why:
                metrics[name], nulls[name] = None, NullNote(f"{left_out:,} valid tokens are not finite")
                name = f"{name}_finite"
            metrics[name] = judged[metric.name]
            if note:
                nulls[name] = note
        if why:
            verdict = Verdict("error", (f"not audited: {why}",))
        else:
            verdict = judge(judged, t.n_tokens, left_out, self.options.loss_tolerance)
        return Answer(metrics, nulls, verdict, t.flips.get(v))

    def _put_errors(self, values: dict[str, float]) -> None:
        """Enter the differences from the reference."""
        reference = self._reference
        for name in ("policy_loss", *(kl for kl, _, _ in KLS), "clip_frac", "clip_frac_active", "ess_frac"):
            values[f"{name}_error"] = values[name] - reference[name]
        error, size = abs(values["policy_loss_error"]), self.totals.mean(REFERENCE, "loss_abs")
        for name, by in (("rel", abs(reference["policy_loss"])), ("scaled", size)):
            values[f"policy_loss_{name}_error"] = _over(error, by)
        if "policy_loss_of_rounded_sums" in values:
            error = abs(values["policy_loss_of_rounded_sums"] - reference["policy_loss"])
            values["rounded_sums_scaled_error"] = _over(error, size)

    # ---------------------------------------------------------------------------------------- the rest

    def candidates(self, formats: dict[str, FormatAudit]) -> tuple[Candidate, ...]:
        """Return every format that columns are stored in with float32 and with float64 arithmetic."""
        out = []
        for name in (one for one in formats if PRECISIONS[one].stored):
            for arithmetic in ("float32", "float64"):
                kind = (
                    IN_FLOAT64 if arithmetic == "float64" else IN_FORMAT if name == "float32" else LOSS_ONLY
                )
                out.append(self._candidate(name, arithmetic, self.variant(name, kind)))
        return tuple(out)

    def _candidate(self, storage: str, arithmetic: str, v: int) -> Candidate:
        """Return one of them."""
        t, kind = self.totals, self.audit.variants[v].kind
        unknown = PRECISIONS[storage].scale == "sequence" and self.audit.scales and self.audit.scales.reason
        skipped = kind == LOSS_ONLY and self.audit.flips_of_storage(storage) > 0
        if unknown or skipped or not self.is_whole:
            return Candidate(storage, arithmetic, None, None)
        flips = t.count(v, "flips_on") + t.count(v, "flips_off")
        if kind == IN_FLOAT64:
            loss = t.mean(v, "loss")
        else:
            ordered = self.audit.ordered.blocked[v] if kind == LOSS_ONLY else self._sum_in_order(v)
            loss = round_one(float(ordered) / t.n_tokens, PRECISIONS["float32"].rule)
        scaled = _over(abs(loss - self._reference["policy_loss"]), t.mean(REFERENCE, "loss_abs"))
        return Candidate(storage, arithmetic, flips, scaled if math.isfinite(scaled) else None)

    def holds(self) -> dict[str, tuple[str, ...]]:
        """Return the narrow formats that hold every value of a log-prob column that is not constant."""
        from ppocli.engine.audit_pass import CHECKS

        t, out = self.totals, {}
        for k, role in enumerate(("log_probs", "old_log_probs")):
            names = tuple(name for c, (of, name) in enumerate(CHECKS) if of == role and not t.inexact[c])
            if names and t.low[k] < t.high[k]:
                out[role] = names
        return out

    def reduction(self) -> Reduction:
        """Return the sums of the reference losses in several orders."""
        state, ordered = self.audit.ordered.running, self.audit.ordered
        sums = {
            "naive": float(state[running.NAIVE]),
            "blocked": float(ordered.blocked[REFERENCE]),
            "pairwise": float(self._pairwise[REFERENCE]),
            "compensated": float(np.float32(state[running.NAIVE]) + np.float32(state[running.COMPENSATION])),
            "bfloat16": float(state[running.BFLOAT16]),
        }
        stops: dict[str, int | None] = {}
        idle: dict[str, int] = {}
        for name, moved, vain, since in (
            ("naive", running.NAIVE_MOVED, running.NAIVE_IDLE, running.NAIVE_SINCE),
            ("bfloat16", running.BFLOAT16_MOVED, running.BFLOAT16_IDLE, running.BFLOAT16_SINCE),
        ):
            idle[name] = int(state[vain])
            stops[name] = int(state[moved]) if state[since] >= STALLED else None
        exact = self.totals.total(REFERENCE, "loss_float32")
        return Reduction(
            exact=_finite(exact), sums={k: _finite(x) for k, x in sums.items()}, stops=stops, idle=idle
        )


def _over(error: float, size: float) -> float:
    """Return an error over a size; infinite over nothing, 0 where there is no error either."""
    return error / size if size else (math.inf if error else 0.0)


def _finite(x: float) -> Number:
    """Return a number, or None where it is not finite."""
    return x + 0.0 if math.isfinite(x) else None


def _note(name: str, value: float, n_tokens: int) -> NullNote | None:
    """Return why a value is null, or None where it is a number."""
    if not n_tokens:
        return NullNote("no token was audited")
    if math.isfinite(value):
        return None
    if name.startswith(("step_", "below_step")):
        return NullNote("the step is another one in each sequence")
    kind: Nonfinite = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return NullNote("not finite in this format", kind)
