from __future__ import annotations

from typing import Any

import pytest

from ppocli.core.chunk import ReadOptions
from ppocli.core.roles import ROLES
from ppocli.core.spec import LossSpec


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ([], {}),
        (["--clip-eps", "0.1"], {"clip_low": 0.1, "clip_high": 0.1}),
        (["--clip-eps", "0.1", "--clip-high", "0.28"], {"clip_low": 0.1, "clip_high": 0.28}),
        (["--clip-eps", "0.1", "--clip-low", "0"], {"clip_low": 0.0, "clip_high": 0.1}),
        (["--clip-low", "0.3"], {"clip_low": 0.3, "clip_high": 0.2}),
        (["--clip-high", "1.5"], {"clip_low": 0.2, "clip_high": 1.5}),
        (["--dual-clip", "3"], {"dual_clip": 3.0}),
        (["--delta", "4"], {"delta": 4.0}),
        (["--log-ratio-clamp", "20"], {"log_ratio_clamp": 20.0}),
        (["--agg", "seq-mean-token-sum"], {"agg": "seq-mean-token-sum"}),
        (["--horizon", "8192"], {"horizon": 8192}),
        (["--adv-norm", "batch"], {"adv_norm": "batch"}),
        (["--adv-norm-ddof", "1"], {"adv_norm_ddof": 1}),
        (["--adv-norm-eps", "1e-5"], {"adv_norm_eps": 1e-5}),
        (["--adv-norm-form", "var"], {"adv_norm_form": "var"}),
        (["--micro-batch", "4"], {"micro_batch": 4}),
        (["--value-clip", "0.2"], {"value_clip": 0.2}),
        (
            ["--vf-coef", "1", "--ent-coef", "-0.01", "--kl-coef", "0"],
            {"vf_coef": 1.0, "ent_coef": -0.01, "kl_coef": 0.0},
        ),
        (["--objective", "ppo"], {}),
        (["--objective", "cispo"], {"objective": "cispo"}),
        (
            ["--rollout-is", "sequence", "--rollout-is-cap", "2"],
            {"rollout_is": "sequence", "rollout_is_cap": 2.0},
        ),
        (
            ["--rollout-rs", "token_k1:0.5_2", "--rollout-rs", "veto:1e-4"],
            {"rollout_rs": ("token_k1:0.5_2", "veto:1e-4")},
        ),
        (["--adv-norm", "minibatch:64"], {"adv_norm": "minibatch:64"}),
        (
            ["--adv-norm", "group", "--adv-norm-unit", "sequence"],
            {"adv_norm": "group", "adv_norm_unit": "sequence"},
        ),
        (
            ["--objective", "sapo", "--set", "sapo_tau_neg=1.5"],
            {"objective": "sapo", "sapo_tau_neg": 1.5},
        ),
        (
            ["--objective", "gspo", "--set", "gspo_token_gradient=true"],
            {"objective": "gspo", "gspo_token_gradient": True},
        ),
        (["--set", "horizon=512", "--horizon", "64"], {"horizon": 64}),
        (["--set", "dual_clip=none"], {}),
        (["--set", "rollout_rs=token_k1:0.5_2,veto:1e-4"], {"rollout_rs": ("token_k1:0.5_2", "veto:1e-4")}),
        (["--set", "agg=token-sum"], {"agg": "token-sum"}),
    ],
)
def test_loss_options_reach_the_engine(
    engine: Any, run: Any, arguments: list[str], changes: dict[str, Any]
) -> None:
    assert run("eval", "x.parquet", *arguments)[0] == 0
    assert engine.calls[0]["spec"] == LossSpec(**changes)


def test_like_brings_its_settings_and_options_override_them(engine: Any, run: Any) -> None:
    assert run("eval", "x.parquet", "--like", "sb3", "--clip-high", "0.3", "--set", "adv_norm_ddof=0")[0] == 0
    call = engine.calls[0]
    assert call["like"] == "sb3"
    assert call["spec"] == LossSpec(adv_norm="batch", adv_norm_ddof=0, clip_high=0.3)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ReadOptions()),
        (["--layout", "time"], ReadOptions(layout="time")),
        (["--sum-dims"], ReadOptions(sum_dims=True)),
        (
            ["--bits", "log_probs", "--bits", "old_log_probs"],
            ReadOptions(bits=frozenset({"log_probs", "old_log_probs"})),
        ),
        (
            ["--col", "old_log_probs=lp_old", "--col", "mask=a=b c"],
            ReadOptions(columns={"old_log_probs": "lp_old", "mask": "a=b c"}),
        ),
    ],
)
def test_data_options_reach_the_engine(
    engine: Any, run: Any, arguments: list[str], expected: ReadOptions
) -> None:
    assert run("eval", *arguments, "x.parquet")[0] == 0
    assert engine.calls[0]["options"] == expected


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ([], "by", "file"),
        (["--by", "total"], "by", "total"),
        ([], "worst", 0),
        (["--worst", "5"], "worst", 5),
        ([], "threads", None),
        (["--threads", "3"], "threads", 3),
        (["--chunk-rows", "1000"], "chunk_rows", 1000),
        ([], "allow_empty", False),
        (["--allow-empty"], "allow_empty", True),
        (["--skip-bad"], "skip_bad", True),
        (["b.npz", "runs/*"], "paths", ["x.parquet", "b.npz", "runs/*"]),
        (["--", "-x.parquet"], "paths", ["x.parquet", "-x.parquet"]),
    ],
)
def test_other_options_reach_the_engine(
    engine: Any, run: Any, arguments: list[str], name: str, value: Any
) -> None:
    assert run("eval", "x.parquet", *arguments)[0] == 0
    assert engine.calls[0][name] == value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clip-eps", "abc"], "--clip-eps: 'abc' is not a number"),
        (["--clip-eps", "nan"], "--clip-eps is a number between 0 and 1, not nan"),
        (["--clip-eps", "1.5"], "--clip-eps is a number between 0 and 1, not 1.5"),
        (["--clip-low", "-0.1"], "--clip-low is a finite number between 0 and 1, not -0.1"),
        (["--clip-high", "inf"], "--clip-high is a finite number of at least 0, not inf"),
        (["--dual-clip", "1"], "--dual-clip is a bound on the ratio above 1, not 1"),
        (["--horizon", "0"], "--horizon is a whole number of at least 1, not 0"),
        (["--horizon", "2.5"], "--horizon: '2.5' is not a whole number"),
        (["--threads", "0"], "--threads is a whole number of at least 1, not 0"),
        (["--chunk-rows", "-1"], "--chunk-rows is a whole number of at least 1, not -1"),
        (["--threads", "two"], "--threads: 'two' is not a whole number"),
        (["--threads"], "option '--threads' requires an argument"),
        (["--worst", "-1"], "--worst is a whole number of at least 0, not -1"),
        (["--digits", "0"], "--digits is a whole number from 1 to 17, not 0"),
        (["--digits", "18"], "--digits is a whole number from 1 to 17, not 18"),
        (["--objective", "grpo"], "--objective 'grpo' is not known"),
        (["--agg", "token-meen"], "--agg 'token-meen' is not known"),
        (["--like", "verll"], "--like 'verll' is not known"),
        (["--set", "clip"], "--set 'clip' is not known"),
        (["--set", "dual_clip"], "--set dual_clip needs a value"),
        (["--set", "dual_clip=x"], "--set dual_clip: 'x' is not a number"),
        (["--set", "gspo_token_gradient=perhaps"], "gspo_token_gradient must be of type bool, not 'perhaps'"),
        (["--adv-norm-eps", "-1"], "--adv-norm-eps is a finite number of at least 0, not -1"),
        (["--set", "vespo_k_pos=5"], "vespo_k_pos is a setting of vespo, and changes nothing under ppo"),
        (
            ["--like", "verl:sapo", "--dual-clip", "3"],
            "--dual-clip is a setting of ppo, gspo, decoupled, and changes nothing under sapo",
        ),
        (["--rollout-is", "row"], "rollout_is 'row' is not known"),
        (["--rollout-rs", "token_k1"], "'token_k1' is not MODE:BOUNDS"),
        (["--rollout-is-cap", "2"], "rollout_is_cap bounds a weight, and no weight is asked for"),
        (["--adv-norm", "groups"], "--adv-norm 'groups' is not known"),
        (["--layout", "tokens"], "--layout 'tokens' is not known"),
        (["--by", ""], "--by takes file, total, step or the name of a column, not ''"),
        (
            ["--by", "step", "--partials", "p.json"],
            "--by step reads all files in one process, so it takes no --partials",
        ),
        (["--format", "yaml"], "--format 'yaml' is not known"),
        (["--color", "red"], "--color 'red' is not known"),
        (["--progress", "on"], "--progress 'on' is not known"),
        (["--sort", "clip"], "--sort: metric 'clip' is not known"),
        (["--sort", "policy_loss_by_agg"], "--sort: policy_loss_by_agg is one number for each aggregation"),
        (["--sort", "clip_frac", "--by", "total"], "--sort orders files, and --by total shows none"),
        (["--col", "log_probs"], "--col takes ROLE=COLUMN, not 'log_probs'"),
        (["--col", "log_probs="], "--col takes ROLE=COLUMN, not 'log_probs='"),
        (["--col", "log_prob=a"], "--col: role 'log_prob' is not known"),
        (["--col", "mask=a", "--col", "mask=b"], "--col gives role 'mask' two columns: 'a' and 'b'"),
        (["--bits", "logp"], "--bits: role 'logp' is not known"),
        (["--clip-epz", "0.2"], "no such option: --clip-epz"),
        (["--sum-dims=3"], "option '--sum-dims' does not take a value"),
    ],
)
def test_usage_errors_come_before_anything_is_read(
    engine: Any, run: Any, arguments: list[str], message: str
) -> None:
    code, out, err = run("eval", "x.parquet", *arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == f"error: {message}"
    assert engine.calls == []


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        (["--col", "log_prob=a"], "did you mean 'log_probs'? one of: " + ", ".join(ROLES)),
        (["--agg", "token-meen"], "did you mean 'token-mean'? "),
        (
            ["--sort", "policy_loss_by_agg"],
            "--agg chooses which of them is policy_loss: --agg seq-mean-token-mean --sort policy_loss",
        ),
        (["--sort", "clip_fra"], "did you mean 'clip_frac'? 'ppocli explain --list' lists all names"),
        (["--clip-epz", "1"], "did you mean --clip-eps"),
        (["--format", "jsn"], "did you mean 'json'? one of: table, json, jsonl, csv, tsv, md"),
    ],
)
def test_did_you_mean(run: Any, arguments: list[str], guess: str) -> None:
    assert run("eval", "x", *arguments)[2].splitlines()[1].startswith(f"help: {guess}")


def test_defaults_in_the_help_are_those_of_the_loss(run: Any) -> None:
    text = " ".join(run("eval", "--help")[1].split())
    spec = LossSpec()
    assert spec.clip_low == spec.clip_high
    for line in (
        f"[1 - X, 1 + X]. Default {spec.clip_low:g}.",
        f"Default {spec.agg}.",
        f"Default {spec.adv_norm}.",
        f"divides by n - N. Default {spec.adv_norm_ddof}.",
        "division by zero. Default 1e-8.",
        "Weight of value_loss in total_loss. Default 0.5.",
    ):
        assert line in text
    assert spec.adv_norm_eps == 1e-8
