from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Batch, batches

from ppocli.core import reference
from ppocli.core.spec import LossSpec
from ppocli.errors import UsageProblem

LN2 = math.log(2.0)


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


# ---- one formula at a time, values by hand --------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "loss"),
    [
        (LN2, 2.0, -2.4),  # ratio 2 held at 1.2
        (LN2, -2.0, 4.0),  # the unclipped product is the smaller one
        (-LN2, 2.0, -1.0),  # ratio 0.5, unclipped
        (-LN2, -2.0, 1.6),  # ratio 0.5 held at 0.8
        (0.0, 3.0, -3.0),
        (1000.0, 1.0, -1.2),  # an overflowing ratio is held
        (1000.0, -1.0, math.inf),
        (-1000.0, -1.0, 0.8),
        (-1000.0, 1.0, 0.0),
    ],
)
def test_ppo_loss_of_one_token(log_ratio: float, advantage: float, loss: float) -> None:
    got = reference.ppo_loss(array(log_ratio), array(advantage), LossSpec())
    assert got[0] == pytest.approx(loss, rel=1e-15)


@pytest.mark.parametrize("log_ratio", [0.0, 1.0, -1.0, 1000.0, -1000.0, math.inf, -math.inf])
def test_zero_advantage_adds_exactly_zero(log_ratio: float) -> None:
    spec = LossSpec(dual_clip=3.0, delta=1.5, log_ratio_clamp=20.0)
    for one in (LossSpec(), spec):
        for function in (reference.ppo_loss, reference.unclipped_loss, reference.loss_gradient):
            got = function(array(log_ratio), array(0.0), one)[0]
            assert got == 0.0
            assert math.copysign(1.0, got) == 1.0


def test_a_zero_advantage_adds_0_even_beside_nan() -> None:
    for function in (reference.ppo_loss, reference.unclipped_loss, reference.loss_gradient):
        assert function(array(math.nan), array(0.0), LossSpec())[0] == 0.0


def test_dual_clip_bounds_negative_advantages_only() -> None:
    spec = LossSpec(dual_clip=3.0)
    log_ratio, adv = array(math.log(5.0), math.log(5.0), 1000.0, LN2), array(-2.0, 2.0, -1.0, -2.0)
    assert reference.ppo_loss(log_ratio, adv, spec) == pytest.approx([6.0, -2.4, 3.0, 4.0], rel=1e-15)
    assert reference.clip_masks(log_ratio, adv, spec).dual.tolist() == [True, False, True, False]


def test_delta_bounds_the_unclipped_branch() -> None:
    spec = LossSpec(delta=4.0)
    log_ratio, adv = array(math.log(5.0), math.log(5.0), LN2), array(-1.0, 1.0, -1.0)
    assert reference.ppo_loss(log_ratio, adv, spec) == pytest.approx([4.0, -1.2, 2.0], rel=1e-15)
    assert reference.clip_masks(log_ratio, adv, spec).delta.tolist() == [True, False, False]


def test_log_ratio_clamp_bounds_the_ratio() -> None:
    spec = LossSpec(log_ratio_clamp=1.0)
    assert reference.ppo_loss(array(5.0), array(-1.0), spec)[0] == pytest.approx(math.e, rel=1e-15)
    assert reference.loss_gradient(array(5.0, 0.5), array(-1.0, -1.0), spec) == pytest.approx(
        [0.0, math.exp(0.5)], rel=1e-15
    )


def test_clip_masks_by_region_and_by_branch() -> None:
    masks = reference.clip_masks(
        array(LN2, LN2, -LN2, -LN2, 0.0, math.nan), array(1.0, -1.0, 1.0, -1.0, 1.0, 1.0), LossSpec()
    )
    assert masks.low.tolist() == [False, False, True, True, False, False]
    assert masks.high.tolist() == [True, True, False, False, False, False]
    assert masks.active_low.tolist() == [False, False, False, True, False, False]
    assert masks.active_high.tolist() == [True, False, False, False, False, False]


def test_a_ratio_on_the_bound_is_not_clipped() -> None:
    masks = reference.clip_masks(array(0.0), array(1.0), LossSpec(clip_low=0.0, clip_high=0.0))
    assert not masks.low[0]
    assert not masks.high[0]


def test_gradient_is_the_slope_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    log_ratio, adv = rng.normal(0.0, 0.7, 400), rng.normal(0.0, 1.0, 400)
    for spec in (LossSpec(), LossSpec(dual_clip=1.5), LossSpec(delta=1.6), LossSpec(log_ratio_clamp=0.4)):
        step = 1e-6
        slope = (
            reference.ppo_loss(log_ratio + step, adv, spec) - reference.ppo_loss(log_ratio - step, adv, spec)
        ) / (2 * step)
        assert reference.loss_gradient(log_ratio, adv, spec) == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize(
    "x", [0.0, 1e-300, -1e-12, 1e-9, 1e-4, -0.01, 0.3, -0.4999999, 0.5, -0.7, 3.0, -30.0]
)
def test_k3_keeps_its_digits(x: float) -> None:
    with mpmath.workdps(60):
        exact = float(mpmath.expm1(mpmath.mpf(x)) - mpmath.mpf(x))
    got = float(reference.kl_k3(array(x))[0])
    assert got == pytest.approx(exact, rel=2e-15, abs=0.0)
    assert got >= 0.0


def test_k1_k2_k3_of_infinite_log_ratios() -> None:
    ends = array(-math.inf, math.inf)
    assert reference.kl_k1(ends).tolist() == [math.inf, -math.inf]
    assert reference.kl_k2(ends).tolist() == [math.inf, math.inf]
    assert reference.kl_k3(ends)[0] == math.inf
    assert math.isnan(reference.kl_k3(ends)[1])  # inf - inf


def test_aggregations_of_two_sequences() -> None:
    # Sequence 0 holds 1, 2, 3; sequence 1 holds 10; both tokens of group 7 are in sequence 0.
    loss, seq = array(1.0, 2.0, 3.0, 10.0), np.array([0, 0, 0, 1])
    group = np.array([7, 7, 8, 8])

    def agg(name: str, **more: object) -> float:
        return reference.aggregate(loss, name, sequence_id=seq, group_id=group, **more)

    assert agg("token-mean") == 4.0
    assert agg("token-sum") == 16.0
    assert agg("seq-mean-token-mean") == 6.0
    assert agg("seq-mean-token-sum") == 8.0
    assert agg("seq-mean-token-sum-norm", horizon=4) == 2.0
    assert agg("group-mean") == 4.0
    assert math.isnan(reference.aggregate(array(), "token-mean"))


def test_an_aggregation_without_its_ids_is_refused() -> None:
    with pytest.raises(UsageProblem, match="seq-mean-token-mean"):
        reference.aggregate(array(1.0), "seq-mean-token-mean")


def test_sequence_ratios() -> None:
    sums, means = reference.sequence_log_ratio(array(LN2, LN2, -LN2), np.array([5, 5, 9]))
    assert np.exp(sums) == pytest.approx([4.0, 0.5])
    assert np.exp(means) == pytest.approx([2.0, 0.5])


def test_ess_frac() -> None:
    assert reference.ess_frac(array(0.0, 0.0, 0.0)) == 1.0
    # Weights 1 and 3: 16 / (2 * 10).
    assert reference.ess_frac(array(0.0, math.log(3.0))) == pytest.approx(0.8, rel=1e-15)
    assert reference.ess_frac(array(900.0, 900.0 + math.log(3.0))) == pytest.approx(0.8, rel=1e-12)
    assert math.isnan(reference.ess_frac(array()))


def test_normalised_advantages() -> None:
    adv = array(1.0, 2.0, 3.0)
    s0 = math.sqrt(2.0 / 3.0)  # and 1 with ddof 1
    normalise = reference.normalise_advantages
    assert normalise(adv) == pytest.approx([-1 / (s0 + 1e-8), 0.0, 1 / (s0 + 1e-8)], rel=1e-15)
    assert normalise(adv, ddof=1, eps=0.5) == pytest.approx([-1 / 1.5, 0.0, 1 / 1.5])
    assert normalise(adv, ddof=1, eps=2.0, form="max") == pytest.approx([-0.5, 0.0, 0.5])
    assert normalise(adv, ddof=1, eps=3.0, form="var") == pytest.approx([-0.5, 0.0, 0.5])
    assert normalise(array(7.0)).tolist() == [7.0]
    assert normalise(np.full(9, 0.1)).tolist() == [0.0] * 9


def test_value_loss_takes_the_larger_square() -> None:
    values, old, returns = array(1.0, 1.0), array(0.0, 0.9), array(2.0, 2.0)
    assert reference.value_loss(values, returns).tolist() == [1.0, 1.0]
    # 0 + 0.2 - 2 = -1.8; the second value is inside the interval.
    assert reference.value_loss(values, returns, old, 0.2) == pytest.approx([3.24, 1.0])
    outside, active = reference.value_clip_masks(values, returns, old, 0.2)
    assert outside.tolist() == [True, False]
    assert active.tolist() == [True, False]


def test_explained_variance() -> None:
    # Residuals 0, 1, -1: variance 2/3 against 2/3 * 4.
    assert reference.explained_variance(array(0.0, 2.0, 4.0), array(0.0, 1.0, 5.0)) == pytest.approx(0.75)
    assert math.isnan(reference.explained_variance(array(3.0, 3.0), array(1.0, 2.0)))


def test_total_loss() -> None:
    total = reference.total_loss
    spec = LossSpec(vf_coef=0.5, ent_coef=0.01, kl_coef=0.04)
    assert total(1.0, spec, value_loss=2.0, entropy=3.0, ref_kl=5.0) == pytest.approx(1 + 1 - 0.03 + 0.2)
    assert total(1.0, LossSpec(), value_loss=2.0, entropy=3.0, ref_kl=math.inf) == 2.0
    assert total(1.0, LossSpec(kl_coef=0.0), ref_kl=math.inf) == 1.0
    assert total(1.0, LossSpec()) == 1.0
    assert math.isnan(total(1.0, LossSpec(kl_coef=0.1)))


# ---- the oracle against loops ----------------------------------------------------------------------------


def valid_columns(batch: Batch) -> dict[str, np.ndarray]:
    keep = np.ones(batch.n_tokens, bool) if batch.mask is None else batch.mask
    return {role: values[keep] for role, values in batch.columns.items()}


@given(batches(spoil=False, widest=600.0))
def test_the_oracle_agrees_with_the_loops(batch: Batch) -> None:
    want = batch.naive()
    spec = LossSpec(**batch.settings)
    columns = valid_columns(batch)
    d = reference.log_ratio(columns["log_probs"], columns["old_log_probs"])
    adv = columns["advantages"]
    if spec.adv_norm == "batch":
        adv = reference.normalise_advantages(
            adv, ddof=spec.adv_norm_ddof, eps=spec.adv_norm_eps, form=spec.adv_norm_form
        )
        # Division by a deviation near 0 magnifies the last bit of the mean without bound.
        if np.ptp(columns["advantages"]) <= 1e-6 * np.max(np.abs(columns["advantages"]), initial=1e-300):
            return
    masks = reference.clip_masks(d, adv, spec)
    means = {
        "unclipped_loss": reference.unclipped_loss(d, adv, spec),
        "approx_kl_k1": reference.kl_k1(d),
        "approx_kl_k2": reference.kl_k2(d),
        "approx_kl_k3": reference.kl_k3(d),
        "ratio_mean": reference.ratio(d, spec.log_ratio_clamp),
        "clip_frac_low": masks.low,
        "clip_frac_high": masks.high,
        "clip_frac_active_low": masks.active_low,
        "clip_frac_active_high": masks.active_high,
        "grad_abs_mean": np.abs(reference.loss_gradient(d, adv, spec)),
    }
    if spec.dual_clip is not None:
        means["dual_clip_frac"] = masks.dual
    if spec.delta is not None:
        means["delta_clip_frac"] = masks.delta
    for name, terms in means.items():
        agrees(float(np.mean(terms)), want, name)
    agrees(float(np.mean(reference.ppo_loss(d, adv, spec))), want, "policy_loss_by_agg", "token-mean")
    agrees(reference.ess_frac(d), want, "ess_frac")


def agrees(got: float, want: naive.Result, name: str, key: str | None = None) -> None:
    value = want.metrics[name] if key is None else want.metrics[name][key]
    scale = want.scale.get(name if key is None else f"{name}.{key}", abs(value or 0.0))
    assert value is not None, name
    assert abs(got - value) <= 1e-12 * scale + 1e-300, (name, got, value)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=40))
def test_the_loops_add_up_exactly(terms: list[float]) -> None:
    exact = sum(map(Fraction, terms)) / len(terms)
    assert naive.mean(terms) == pytest.approx(float(exact), rel=3e-16, abs=5e-324)
    centre = exact
    spread = sum((Fraction(x) - centre) ** 2 for x in terms) / len(terms)
    assert naive.variance(terms) == pytest.approx(float(spread), rel=1e-9, abs=1e-25)
