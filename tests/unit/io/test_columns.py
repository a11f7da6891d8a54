from __future__ import annotations

import pytest

from ppocli.core.roles import MAIN_ROLES
from ppocli.errors import InputError, UsageProblem
from ppocli.io.columns import Resolution, resolve


def find(
    *names: str, col: dict[str, str] | None = None, required: tuple[str, ...] = MAIN_ROLES
) -> Resolution:
    return resolve("f.parquet", dict.fromkeys(names, "float32"), col or {}, required)


def refusal(
    *names: str, col: dict[str, str] | None = None, required: tuple[str, ...] = MAIN_ROLES
) -> InputError:
    with pytest.raises(InputError) as caught:
        find(*names, col=col, required=required)
    assert caught.value.exit_code == 3
    assert caught.value.where is not None
    assert caught.value.where.startswith("f.parquet\ncolumns: ")
    return caught.value


def test_own_names() -> None:
    found = find("advantages", "old_log_probs", "log_probs", "reward_model", "mask")
    assert found.columns == {
        "log_probs": "log_probs",
        "old_log_probs": "old_log_probs",
        "advantages": "advantages",
        "mask": "mask",
    }
    assert list(found.columns)[:2] == ["log_probs", "old_log_probs"]
    assert found.notes == ()


def test_aliases_are_compared_without_case_and_noted() -> None:
    found = find("Log_Probs_New", "LOG_PROBS_OLD", "adv", "Response_Mask")
    assert found.columns == {
        "log_probs": "Log_Probs_New",
        "old_log_probs": "LOG_PROBS_OLD",
        "advantages": "adv",
        "mask": "Response_Mask",
    }
    assert "advantages: column 'adv'" in found.notes
    assert "mask: column 'Response_Mask'" in found.notes
    assert len(found.notes) == 4


def test_a_role_name_in_other_case_is_an_alias() -> None:
    assert find("new_logp", "Old_Log_Probs", "ADVANTAGES").columns["old_log_probs"] == "Old_Log_Probs"


def test_own_name_goes_before_aliases() -> None:
    found = find("log_probs", "old_log_probs", "adv", "advantages")
    assert found.columns["advantages"] == "advantages"


def test_two_aliases_of_one_role_are_an_error_with_the_lines_to_type() -> None:
    error = refusal("log_probs", "old_log_probs", "adv", "gae")
    assert error.message == "columns 'adv', 'gae' all fit the role 'advantages'"
    assert "--col advantages=adv\n--col advantages=gae" in str(error.hint)


def test_two_masks_are_an_error_although_no_mask_is_required() -> None:
    error = refusal("log_probs", "old_log_probs", "advantages", "loss_mask", "response_mask")
    assert "'mask'" in error.message
    chosen = find(
        "log_probs", "old_log_probs", "advantages", "loss_mask", "response_mask", col={"mask": "loss_mask"}
    )
    assert chosen.columns["mask"] == "loss_mask"


def test_two_token_id_columns_are_left_alone() -> None:
    found = find("log_probs", "old_log_probs", "advantages", "input_ids", "response_ids")
    assert "token_id" not in found.columns
    assert any("'input_ids', 'response_ids'" in note for note in found.notes)


@pytest.mark.parametrize("name", ["log_probs", "logprobs", "log_prob", "logp", "action_log_probs"])
def test_beside_a_clear_old_column_an_ambiguous_name_is_the_current_policy(name: str) -> None:
    found = find(name, "old_logp", "advantages")
    assert found.columns["log_probs"] == name
    assert found.columns["old_log_probs"] == "old_logp"


@pytest.mark.parametrize("name", ["log_probs", "logprobs", "action_log_probs"])
def test_without_an_old_column_it_is_refused(name: str) -> None:
    error = refusal(name, "advantages")
    assert f"column '{name}' is ambiguous" in error.message
    assert f"--col log_probs={name}" in str(error.hint)
    assert f"--col old_log_probs={name}" in str(error.hint)


def test_beside_only_a_rollout_column_it_is_refused_and_the_line_is_complete() -> None:
    error = refusal("log_probs", "rollout_log_probs", "advantages")
    assert "beside rollout_log_probs ('rollout_log_probs')" in error.message
    line = {"log_probs": "log_probs", "old_log_probs": "rollout_log_probs"}
    assert "--col log_probs=log_probs --col old_log_probs=rollout_log_probs" in str(error.hint)
    found = find("log_probs", "rollout_log_probs", "advantages", col=line)
    assert found.columns["old_log_probs"] == "rollout_log_probs"
    assert "rollout_log_probs" not in found.columns


def test_an_old_column_named_by_hand_is_clear() -> None:
    found = find("logprobs", "sampler", "advantages", col={"old_log_probs": "sampler"})
    assert found.columns["log_probs"] == "logprobs"


def test_log_probs_goes_before_aliases_and_other_ambiguous_names() -> None:
    found = find("new_logp", "logprobs", "log_probs", "old_log_probs", "advantages")
    assert found.columns["log_probs"] == "log_probs"
    assert any("column 'logprobs' not used" in note for note in found.notes)


def test_two_ambiguous_names_beside_an_old_column_are_refused() -> None:
    error = refusal("logprobs", "action_log_probs", "old_log_probs", "advantages")
    assert "'logprobs', 'action_log_probs' all fit the role 'log_probs'" in error.message


def test_ambiguous_name_beside_a_clear_current_column_is_not_used() -> None:
    found = find("new_logp", "logprobs", "old_log_probs", "advantages")
    assert found.columns["log_probs"] == "new_logp"
    assert "logprobs" not in found.columns.values()


@pytest.mark.parametrize("name", ["behavior_log_probs", "behave_logprobs", "behaviour_log_probs"])
def test_behavior_is_the_rollout_beside_an_old_column(name: str) -> None:
    found = find("log_probs", "old_log_probs", name, "advantages")
    assert found.columns["rollout_log_probs"] == name


def test_behavior_without_an_old_column_is_refused() -> None:
    error = refusal("new_logp", "behavior_log_probs", "advantages")
    assert "--col old_log_probs=behavior_log_probs" in str(error.hint)
    assert "--col rollout_log_probs=behavior_log_probs" in str(error.hint)
    assert "--col log_probs=behavior_log_probs" not in str(error.hint)


def test_old_and_rollout_only_points_to_drift() -> None:
    error = refusal("old_log_probs", "rollout_log_probs", "advantages")
    assert "current policy" in error.message
    assert "old_log_probs ('old_log_probs')" in error.message
    assert "rollout_log_probs ('rollout_log_probs')" in error.message
    assert "advantages ('advantages')" in error.message
    assert "ppocli drift f.parquet  (" in str(error.hint)
    line = "ppocli eval f.parquet --col log_probs=old_log_probs --col old_log_probs=rollout_log_probs  ("
    assert line in str(error.hint)
    both = ("old_log_probs", "rollout_log_probs")
    assert list(find("old_log_probs", "rollout_log_probs", required=both).columns) == list(both)


def test_the_line_for_drift_repeats_the_columns_that_were_named() -> None:
    columns = ("mine", "rollout_log_probs")
    error = refusal(*columns, col={"old_log_probs": "mine"})
    assert "ppocli drift f.parquet --col old_log_probs=mine  (" in str(error.hint)
    assert error.message.endswith("; no advantages either")
    assert "ppocli eval" not in str(error.hint)  # no such line would work without advantages
    assert "--col log_probs=NAME --col advantages=NAME  (names the missing columns)" in str(error.hint)


def test_current_and_rollout_only_is_what_prime_rl_exports() -> None:
    error = refusal("trainer_logprobs", "inference_logprobs", "advantages")
    assert error.message.startswith("the ratio needs a policy to be taken against (role 'old_log_probs')")
    assert "ppocli drift f.parquet --a log_probs --b rollout_log_probs  (" in str(error.hint)
    line = "ppocli eval f.parquet --col log_probs=trainer_logprobs --col old_log_probs=inference_logprobs  ("
    assert line in str(error.hint)


def test_the_line_for_drift_names_what_only_a_framework_makes_clear() -> None:
    names = dict.fromkeys(("action_log_probs", "rollout_log_probs", "advantages"), "float32")
    with pytest.raises(InputError) as caught:
        resolve("f.parquet", names, {}, MAIN_ROLES, aliases={"old_log_probs": ("action_log_probs",)})
    line = "ppocli drift f.parquet --col old_log_probs=action_log_probs  ("
    assert str(caught.value.hint).startswith(line)
    both = ("old_log_probs", "rollout_log_probs")
    found = find(*names, col={"old_log_probs": "action_log_probs"}, required=both)
    assert found.columns["rollout_log_probs"] == "rollout_log_probs"


def test_what_a_comparison_lacks_is_no_ratio() -> None:
    both = ("old_log_probs", "rollout_log_probs")
    error = refusal("trainer_logprobs", "inference_logprobs", required=both)
    assert error.message.startswith("no column for role 'old_log_probs'; found are log_probs ('trainer_")
    assert str(error.hint).splitlines() == [
        "ppocli drift f.parquet --a log_probs --b rollout_log_probs  (compares the two policies)",
        "--col old_log_probs=NAME  (names the missing column)",
    ]


def test_missing_role_lists_columns_and_the_nearest_name() -> None:
    error = refusal("log_probs", "old_log_probs", "advantges")
    assert error.message == "no column for role 'advantages'"
    assert "advantges float32" in str(error.where)
    assert "did you mean 'advantges' for advantages?" in str(error.hint)
    assert "--col advantages=advantges" in str(error.hint)


def test_positional_names_are_not_guessed() -> None:
    error = refusal("arr_0", "arr_1", "arr_2")
    assert "'log_probs', 'old_log_probs', 'advantages'" in error.message
    assert "--col log_probs=NAME --col old_log_probs=NAME --col advantages=NAME" in str(error.hint)


@pytest.mark.parametrize("name", ["neglogp", "neglogpacs", "old_logp_actions", "OLDNEGLOGPAC"])
def test_negated_names_are_named_but_never_taken(name: str) -> None:
    error = refusal("log_probs", name, "advantages")
    assert f"'{name}' is a name for minus the log-prob" in str(error.hint)


def test_probability_names_are_named_but_never_taken() -> None:
    error = refusal("new_logp", "action_prob", "advantages")
    assert "'action_prob' is a name for a probability" in str(error.hint)


def test_unknown_role_is_a_usage_problem_with_the_nearest() -> None:
    with pytest.raises(UsageProblem) as caught:
        find("log_probs", col={"old_logprobs": "x"})
    assert caught.value.exit_code == 2
    assert "did you mean 'old_log_probs'?" in str(caught.value.hint)


def test_missing_column_of_col_is_an_input_error_with_the_nearest() -> None:
    error = refusal("log_probs", "old_log_probs", "my_adv", col={"advantages": "my_ad"})
    assert error.message == "column 'my_ad' for role 'advantages' not found"
    assert error.hint == "did you mean 'my_adv'?  --col advantages=my_adv"


def test_names_are_quoted_for_the_shell() -> None:
    error = refusal("log_probs", "old_log_probs", "my adv", col={"advantages": "my ad"})
    assert "--col 'advantages=my adv'" in str(error.hint)


def test_col_wins_over_the_own_name() -> None:
    found = find("log_probs", "old_log_probs", "advantages", "a2", col={"advantages": "a2"})
    assert found.columns["advantages"] == "a2"
    assert found.notes == ()


def test_fields_of_structures_only_by_name() -> None:
    columns = dict.fromkeys(("log_probs", "old_log_probs"), "float32")
    inside = {"info.advantages": "float32"}
    with pytest.raises(InputError, match="no column for role 'advantages'"):
        resolve("f", columns, {}, MAIN_ROLES, named_only=inside)
    found = resolve("f", columns, {"advantages": "info.advantages"}, MAIN_ROLES, named_only=inside)
    assert found.columns["advantages"] == "info.advantages"


def test_nothing_required_takes_what_is_clear_and_says_the_rest() -> None:
    found = find("logprobs", "adv", "gae", "mask", required=())
    assert found.columns == {"mask": "mask"}
    assert any("column 'logprobs' not used" in note for note in found.notes)
    assert any("'adv', 'gae' all fit" in note for note in found.notes)


def test_long_listings_are_cut_with_a_count() -> None:
    error = refusal(*[f"c{index}" for index in range(100)])
    assert "c39 float32 and 60 more" in str(error.where)


def test_a_frameworks_names_go_before_the_roles_own() -> None:
    columns = dict.fromkeys(("log_probs", "train_lp", "Adv_T", "advantages", "sampler"), "float32")
    aliases = {"log_probs": ("train_lp",), "old_log_probs": ("log_probs",), "advantages": ("adv_t",)}
    found = resolve("f", columns, {}, MAIN_ROLES, aliases=aliases)
    assert found.columns == {"log_probs": "train_lp", "old_log_probs": "log_probs", "advantages": "Adv_T"}
    assert "old_log_probs: column 'log_probs'" in found.notes


def test_what_is_chosen_by_hand_goes_before_a_frameworks_names() -> None:
    columns = dict.fromkeys(("new", "old", "advantages", "other"), "float32")
    chosen = {"log_probs": "new", "old_log_probs": "old"}
    found = resolve(
        "f", columns, chosen, MAIN_ROLES, aliases={"log_probs": ("other",), "old_log_probs": ("new",)}
    )
    assert {role: found.columns[role] for role in chosen} == chosen
