"""The kernel of the audit against the loss in exact arithmetic, step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from audit_kernel import evaluate, extreme, parameters, result, rows_of
from audit_oracle import INF, Bounds, Token, audit, counts, nearest

from ppocli.core.audit_spec import AuditOptions
from ppocli.core.precision import PRECISIONS
from ppocli.engine.audit_tables import Variant, variants_of
from ppocli.kernels import audit_layout
from ppocli.kernels.audit_layout import AuditWorkspace

if TYPE_CHECKING:
    from ppocli.kernels.audit import Audited

GUARDS = {
    "plain": Bounds(),
    "guarded": Bounds(0.8, 1.28, dual=3.0, delta=1.6, clamp=0.9),
    "one-sided": Bounds(0.0, 1.5),
}


def draw(n: int, spread: float = 0.3, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng([n, seed])
    old = -rng.exponential(2.0, n)
    new = old + rng.normal(0.0, spread, n)
    adv = rng.normal(0.0, 1.0, n)
    new[::7], adv[::5] = old[::7], 0.0
    return new, old, adv


def close(got: float, terms: list[float], slack: float = 2.0**-47) -> None:
    assert abs(got - math.fsum(terms)) <= slack * math.fsum(map(abs, terms))


def check_variant(
    out: Audited, v: int, reference: list[Token], tokens: list[Token], low: float, high: float
) -> None:
    """Compare sums, counts and extremes of one variant with those of its tokens."""
    # exp of the kernel is within 0.65 ulp of the exact one, that of the oracle within 0.5.
    slack = 2.0**-46
    close(result(out, v, "loss"), [t.loss for t in tokens], slack)
    if v == 0:
        close(result(out, v, "loss_float32"), [nearest(t.loss, "float32") for t in tokens], slack)
        close(result(out, v, "loss_abs"), [abs(t.loss) for t in tokens], slack)
    close(result(out, v, "log_ratio"), [t.log_ratio for t in tokens])
    close(result(out, v, "kl_k2"), [t.k2 for t in tokens])
    close(result(out, v, "kl_k3"), [t.k3 for t in tokens], slack)
    close(result(out, v, "ratio"), [t.ratio for t in tokens], slack)
    close(result(out, v, "ratio_sq"), [t.ratio**2 for t in tokens], slack)
    close(result(out, v, "gradient_abs"), [abs(t.gradient) for t in tokens], slack)
    off = [abs(t.gradient - r.gradient) for r, t in zip(reference, tokens, strict=True)]
    size = math.fsum(abs(r.gradient) for r in reference)
    assert abs(result(out, v, "gradient_error") - math.fsum(off)) <= 2.0**-46 * size
    for name, count in counts(reference, tokens, low, high).items():
        if name != "active" or v == 0:
            assert result(out, v, name) == count, name
    check_extremes(out, v, reference, tokens)


def check_extremes(out: Audited, v: int, reference: list[Token], tokens: list[Token]) -> None:
    pairs = list(zip(reference, tokens, strict=True))
    shifts = max(abs(t.log_ratio - r.log_ratio) for r, t in pairs)
    errors = max(abs(t.ratio - r.ratio) / r.ratio for r, t in pairs)
    flips = [abs(t.ratio - r.ratio) for r, t in pairs if (t.side != 0) != (r.side != 0)]
    assert extreme(out, v, "ratio_min") == pytest.approx(min(t.ratio for t in tokens), rel=2**-51)
    assert extreme(out, v, "ratio_max") == pytest.approx(max(t.ratio for t in tokens), rel=2**-51)
    assert extreme(out, v, "log_ratio_error") == shifts
    assert extreme(out, v, "ratio_error") == pytest.approx(errors, rel=1e-12, abs=2**-51)
    assert extreme(out, v, "worst_flip") == pytest.approx(max(flips, default=-1.0), rel=1e-12, abs=2**-51)


ALL = variants_of(AuditOptions(formats=tuple(name for name, one in PRECISIONS.items() if one.scale is None)))


@pytest.mark.parametrize("guards", GUARDS)
@pytest.mark.parametrize("n", [1, 9, 257, 2100])
def test_every_variant_against_exact_arithmetic(n: int, guards: str) -> None:
    b, columns = GUARDS[guards], draw(n)
    out = evaluate(columns, ALL, b)
    assert out.counts.sum() == n
    reference = audit(columns, None, None, b)
    for v, one in enumerate(ALL):
        steps = one.steps.name if one.steps else None
        tokens = audit(columns, one.storage if v else None, steps, b)
        if one.kind == audit_layout.LOSS_ONLY:
            # In float64 the log-probs of narrow formats; their losses in float32.
            close(result(out, v, "loss"), [t.loss for t in tokens])
            expected = counts(reference, tokens, 0.0, 0.0)
            for name in ("flips_on", "flips_off"):
                assert result(out, v, name) == expected[name]
        else:
            check_variant(out, v, reference, tokens, nearest(b.low, steps), nearest(b.high, steps))


@pytest.mark.parametrize("name", ["float32", "tf32", "bfloat16", "float16"])
@pytest.mark.parametrize("spread", [0.05, 6.0])
def test_single_tokens_bit_for_bit(name: str, spread: float) -> None:
    b, columns = Bounds(), draw(600, spread, 3)
    variants = (Variant("float64", audit_layout.IN_FLOAT64), Variant(name, audit_layout.IN_FORMAT))
    rows = rows_of(evaluate(columns, variants, b, dump=True), 1, 600)
    tokens = audit(columns, name, name, b)
    for key, values in (
        ("log_ratio", [t.log_ratio for t in tokens]),
        ("ratio", [t.ratio for t in tokens]),
        ("loss", [t.loss for t in tokens]),
        ("gradient", [t.gradient for t in tokens]),
        ("side", [float(t.side) for t in tokens]),
    ):
        assert np.array_equal(rows[f"{key} audited"], values, equal_nan=True), key


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("size", [0.33, 0.35, 2.99, 3.01, 38.9, 39.1, 40.5, 89.0, 750.0])
@pytest.mark.parametrize("adv", [1.0, 511.0, 513.0, 3000.0, 1e5, 1e39])
def test_one_token_that_is_far_off_changes_no_other(name: str, size: float, adv: float) -> None:
    # Shorter ways are taken for a whole run of 256 tokens, by its largest log-ratio and advantage.
    b, columns = Bounds(), draw(256, 0.05, 4)
    for place, sign in ((17, 1.0), (101, -1.0)):
        columns[0][place] = columns[1][place] + sign * size
        columns[2][place + 1] = columns[2][place] = -adv
    variants = (
        Variant("float64", audit_layout.IN_FLOAT64),
        Variant(name, audit_layout.IN_FLOAT64),
        Variant(name, audit_layout.IN_FORMAT),
    )
    out = evaluate(columns, variants, b, dump=True)
    stored, steps = audit(columns, name, None, b), audit(columns, name, name, b)
    for v, tokens in ((1, stored), (2, steps)):
        rows = rows_of(out, v, 256)
        for key in ("log_ratio", "ratio", "loss", "gradient"):
            want = [getattr(t, key) for t in tokens]
            exactly = v == 2 or key == "log_ratio"
            np.testing.assert_allclose(rows[f"{key} audited"], want, rtol=0 if exactly else 2.0**-51)
        assert rows["side audited"].tolist() == [float(t.side) for t in tokens]
    reference = audit(columns, None, None, b)
    for v, tokens in ((1, stored), (2, steps)):
        got = {key: result(out, v, key) for key in ("overflow", "underflow", "vanished", "appeared")}
        want = counts(reference, tokens, 0.8, 1.2)
        assert got == {key: want[key] for key in got}


def test_what_overflows_is_as_bad_as_in_a_trainer() -> None:
    # exp(12) overflows float16; times an advantage of 0 that is NaN, and so is the sum.
    new, old = np.array([-1.0, -1.0, -1.0, -30.0]), np.array([-13.0, -13.0, -1.0, -1.0])
    columns = new, old, np.array([1.0, 0.0, 1.0, -1.0])
    variants = variants_of(AuditOptions(formats=("float16",)))
    out = evaluate(columns, variants, Bounds())
    assert result(out, 1, "overflow") == 0
    assert result(out, 2, "overflow") == 2
    assert result(out, 2, "underflow") == 1
    assert math.isnan(result(out, 2, "loss"))
    assert result(out, 1, "loss") == pytest.approx(-1.2 - 1.0 + 0.8)
    assert extreme(out, 2, "ratio_max") == INF


def test_overflow_in_storage() -> None:
    # 9,999 is beyond float8_e4m3fn: NaN, or 448; beyond float8_e5m2 it is not.
    columns = np.array([-9999.0, -1.0]), np.array([-9998.0, -1.0]), np.array([1.0, 1.0])
    formats = ("float8_e4m3fn", "float8_e4m3fn_saturating", "float8_e5m2")
    variants = tuple(one for one in variants_of(AuditOptions(formats=formats)) if one.kind == 0)
    out = evaluate(columns, variants, Bounds())
    assert [result(out, v, "overflow") for v in range(4)] == [0, 1, 0, 0]
    assert [result(out, v, "rounded_to_zero") for v in range(4)] == [0, 0, 1, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masked_and_infinite_tokens_are_left_out(dtype: Any) -> None:
    n = 3000
    columns = tuple(values.astype(dtype) for values in draw(n, seed=1))
    mask = (np.random.default_rng(2).random(n) < 0.8).astype(np.uint8)
    spoiled = tuple(values.copy() for values in columns)
    keep = mask != 0
    for place, values, bad in ((5, 0, np.nan), (2100, 1, -np.inf), (2999, 2, np.inf)):
        spoiled[values][place], keep[place] = bad, False
    spoiled[0][~keep & (mask == 0)] = np.nan
    out = evaluate(spoiled, ALL, Bounds(), mask=mask)
    kept = tuple(values[keep] for values in columns)
    assert out.counts.sum() == keep.sum()
    reference = audit(kept, None, None, Bounds())
    for v, one in enumerate(ALL[:4]):
        tokens = audit(kept, one.storage if v else None, one.steps.name if one.steps else None, Bounds())
        if one.kind != audit_layout.LOSS_ONLY:
            steps = one.steps.name if one.steps else None
            check_variant(out, v, reference, tokens, nearest(0.8, steps), nearest(1.2, steps))
    assert np.isnan(out.terms[0, :n]).tolist() == (~keep).tolist()


def test_results_do_not_depend_on_workers_or_on_other_variants() -> None:
    columns = draw(2048 * 40 + 77)
    spaces = [AuditWorkspace(k, len(ALL)) for k in (1, 3)]
    one, three = (evaluate(columns, ALL, GUARDS["guarded"], workspace=space) for space in spaces)
    for name in ("counts", "results", "extremes", "runs", "inexact", "terms"):
        assert getattr(one, name).tobytes() == getattr(three, name).tobytes(), name
    assert spaces[0].histograms().tolist() == spaces[1].histograms().tolist()
    few = (ALL[0], *(x for x in ALL if x.storage == "bfloat16"))
    alone = evaluate(columns, few, GUARDS["guarded"])
    n = audit_layout.N_RESULTS
    for v, x in enumerate(few):
        other = ALL.index(x)
        assert (
            alone.results[:, v * n : v * n + n].tobytes()
            == one.results[:, other * n : other * n + n].tobytes()
        )


def test_the_type_of_equal_values_does_not_matter() -> None:
    narrow = tuple(values.astype(np.float32) for values in draw(5000))
    wide = tuple(values.astype(np.float64) for values in narrow)
    one, two = evaluate(narrow, ALL, Bounds()), evaluate(wide, ALL, Bounds())
    assert one.results.tobytes() == two.results.tobytes()
    # float32 holds these values: storage in it is the reference.
    for name in audit_layout.RESULTS:
        if name not in ("loss_float32", "loss_abs", "active"):
            assert result(one, 0, name) == result(one, 1, name), name


def test_wanted_blocks_only() -> None:
    columns = draw(2048 * 3)
    every, some = evaluate(columns, ALL, Bounds()), evaluate(columns, ALL, Bounds(), wanted=np.array([1]))
    assert some.results[1].tobytes() == every.results[1].tobytes()
    assert not some.results[[0, 2]].any()
    assert some.counts.tolist() == [0, 2048, 0]


def test_float32_sums_of_runs() -> None:
    columns = draw(700)
    out = evaluate(columns, ALL[:1], Bounds())
    losses = [t.loss for t in audit(columns, None, None, Bounds())]
    for run in range(3):
        lanes = np.zeros(8, dtype=np.float32)
        for place, loss in enumerate(losses[run * 256 : (run + 1) * 256]):
            lanes[place % 8] += np.float32(loss)
        assert out.runs[run, 0] == np.float32(math.fsum(lanes.tolist()))
    assert out.runs[3:, 0].tolist() == [0.0] * 5
    assert out.terms[0, :700].tolist() == pytest.approx(losses, rel=2**-50)


@pytest.mark.parametrize("with_advantages", [False, True])
def test_normalised_and_stored_advantages(with_advantages: bool) -> None:
    new, old, adv = draw(500)
    # In bfloat16 0.2502 is 0.25, on the other side of the mean.
    new[3], adv[3] = old[3] + 0.01, 0.2502
    shift, scale = 0.2501, 0.5
    p = parameters(Bounds(), shift, scale)
    variants = (Variant("float64", 0), Variant("bfloat16", audit_layout.IN_FLOAT64))
    out = evaluate((new, old, adv), variants, Bounds(), p=p, with_advantages=with_advantages)
    used = [(nearest(a, "bfloat16" if with_advantages else None) - shift) / scale for a in adv.tolist()]
    tokens = audit((new, old, used), "bfloat16", None, Bounds())
    reference = audit((new, old, [(a - shift) / scale for a in adv.tolist()]), None, None, Bounds())
    check_variant(out, 1, reference, tokens, 0.8, 1.2)
    assert (result(out, 1, "reversed") > 0) == with_advantages


def test_int8_with_one_scale_and_with_one_for_each_token() -> None:
    columns = draw(300)
    scales = [np.float32(np.abs(c).max()) / np.float32(127.0) for c in columns]
    given = {"int8": tuple(float(s) for s in scales)}
    reference = audit(columns, None, None, Bounds())

    def stored(values: np.ndarray, scale: Any) -> np.ndarray:
        number = np.clip(np.rint(values.astype(np.float32) / scale), -127, 127)
        return (number * scale).astype(np.float64)

    tokens = audit(
        (*(stored(c, s) for c, s in zip(columns[:2], scales[:2], strict=True)), columns[2]),
        None,
        None,
        Bounds(),
    )
    out = evaluate(columns, (Variant("float64", 0), Variant("int8", 0)), Bounds(), scales=given)
    check_variant(out, 1, reference, tokens, 0.8, 1.2)
    each = [np.zeros(304, dtype=np.float32) for _ in range(3)]
    for k in range(2):
        each[k][:150], each[k][150:300] = scales[k], scales[k] * np.float32(2.0)
    halves = [
        np.concatenate([stored(c[:150], s), stored(c[150:], s * np.float32(2.0))])
        for c, s in zip(columns[:2], scales[:2], strict=True)
    ]
    tokens = audit((*halves, columns[2]), None, None, Bounds())
    out = evaluate(columns, (Variant("float64", 0), Variant("int8_per_sequence", 0)), Bounds(), each=each)
    check_variant(out, 1, reference, tokens, 0.8, 1.2)


def test_sizes_are_binned_by_32_to_a_power_of_two() -> None:
    new = np.array([0.0, 2.0**-42, 1.0, 1.03, 1.5, -1.984375, 4095.9, 1e6])
    old = np.zeros(8)
    workspace = AuditWorkspace(1, 1)
    evaluate((new, old, np.ones(8)), ALL[:1], Bounds(), workspace=workspace)
    one = 41 * 32
    expected = {0: 2, one: 2, one + 16: 1, one + 31: 1, 53 * 32 - 1: 2}
    for counted in workspace.histograms().tolist():
        assert {place: n for place, n in enumerate(counted) if n} == expected


def test_values_of_narrow_formats_are_noticed() -> None:
    new, old, adv = draw(400)
    new = np.array([nearest(x, "bfloat16") for x in new.tolist()])
    old = np.array([nearest(x, "float16") for x in old.tolist()])
    n_old = sum(nearest(x, "bfloat16") != x for x in old.tolist())
    n_new = sum(nearest(x, "float16") != x for x in new.tolist())
    out = evaluate((new, old, adv), ALL[:1], Bounds())
    assert out.inexact.sum(axis=0).tolist() == [0, n_old, n_new, 0]
    assert n_old > 200
