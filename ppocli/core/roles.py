"""Input roles: what a column can mean, and the names under which frameworks store it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["log_prob", "real", "mask", "id"]


@dataclass(frozen=True, slots=True)
class Role:
    """One role.

    Attributes
    ----------
    name : str
        The role's name, also the column name that is found first.
    kind : {"log_prob", "real", "mask", "id"}
        Which types are accepted: reals are floating point; masks bool, integer or float 0/1; ids integer or
        text.
    text : str
        What it is, in a few words.
    aliases : tuple of str
        Other names, compared without case, best first. A name that frameworks use for different roles is not
        listed here but in `AMBIGUOUS`.
    """

    name: str
    kind: Kind
    text: str
    aliases: tuple[str, ...] = ()


ROLES: dict[str, Role] = {
    role.name: role
    for role in (
        Role(
            "log_probs",
            "log_prob",
            "log-probability under the current policy, nats",
            (
                "log_probs_new",
                "new_log_probs",
                "new_log_prob",
                "new_logprobs",
                "new_logprob",
                "new_logp",
                "newlogprob",
                "curr_logprobs",
                "current_logprobs",
                "current_log_probs",
                "trainer_logprobs",
                "target_logprobs",
                "per_token_logps",
                "policy_logprobs",
                "logp_new",
            ),
        ),
        Role(
            "old_log_probs",
            "log_prob",
            "log-probability under the policy the ratio is taken against (constant), nats",
            (
                "log_probs_old",
                "old_log_prob",
                "old_logprobs",
                "old_logprob",
                "old_logp",
                "logp_old",
                "oldlogprob",
                "prev_logprobs",
                "prox_logp",
                "proximal_logprobs",
                "old_per_token_logps",
                "original_logprobs",
                "b_logprobs",
                "old_actions_log_prob",
            ),
        ),
        Role(
            "rollout_log_probs",
            "log_prob",
            "log-probability as reported by the sampler, nats",
            (
                "rollout_logprobs",
                "generation_logprobs",
                "inference_logprobs",
                "infer_logprobs",
                "sampling_logprobs",
                "sampling_per_token_logps",
                "rollout_per_token_logps",
                "vllm_logprobs",
            ),
        ),
        Role(
            "ref_log_probs",
            "log_prob",
            "log-probability under the frozen reference policy, nats",
            (
                "ref_log_prob",
                "ref_logprobs",
                "reference_policy_logprobs",
                "base_action_log_probs",
                "ref_per_token_logps",
                "ref_logp",
                "teacher_log_probs",
            ),
        ),
        Role(
            "advantages",
            "real",
            "advantage estimate",
            ("advantage", "token_advantages", "adv", "advs", "b_advantages", "gae", "adv_buf", "adv_targ"),
        ),
        Role(
            "mask",
            "mask",
            "1 where a token counts",
            (
                "response_mask",
                "loss_mask",
                "loss_masks",
                "action_mask",
                "completion_mask",
                "token_loss_mask",
                "token_mask",
                "final_response_mask",
                "assistant_mask",
            ),
        ),
        Role(
            "values",
            "real",
            "value prediction of the current critic",
            ("value", "new_values", "vpreds", "new_value"),
        ),
        Role(
            "old_values",
            "real",
            "value prediction at rollout time",
            ("old_value", "vf_preds", "value_preds", "b_values", "old_vpreds"),
        ),
        Role(
            "returns",
            "real",
            "return target",
            ("return", "ret", "value_target", "value_targets", "b_returns"),
        ),
        Role("rewards", "real", "reward", ("reward", "rew")),
        Role("entropy", "real", "entropy of the policy at the token, nats", ("entropies", "entropys")),
        Role("sequence_id", "id", "which sequence a token belongs to", ("seq_id", "episode_id", "eps_id")),
        Role(
            "group_id",
            "id",
            "which prompt's group a sequence belongs to",
            ("group_index", "group_ids", "prompt_id", "prompt_idx", "uid"),
        ),
        Role("step", "id", "training step", ("global_step", "train_step", "training_step")),
        Role(
            "token_id",
            "id",
            "token of the vocabulary",
            ("token_ids", "input_ids", "response_ids", "completion_ids", "output_ids"),
        ),
    )
}
"""Every role by name, in the order in which tables list them."""

AMBIGUOUS: dict[str, tuple[str, ...]] = {
    "log_prob": ("log_probs", "old_log_probs"),
    "logprobs": ("log_probs", "old_log_probs", "rollout_log_probs"),
    "logprob": ("log_probs", "old_log_probs", "rollout_log_probs"),
    "logp": ("log_probs", "old_log_probs"),
    "log_probs": ("log_probs", "old_log_probs"),
    "action_log_probs": ("log_probs", "old_log_probs"),
    "action_log_prob": ("log_probs", "old_log_probs"),
    "actions_log_prob": ("log_probs", "old_log_probs"),
    "action_logp": ("log_probs", "old_log_probs"),
    "sample_log_prob": ("old_log_probs", "rollout_log_probs"),
    "log_prob_actions": ("log_probs", "old_log_probs"),
    "behavior_log_probs": ("old_log_probs", "rollout_log_probs"),
    "behavior_logprobs": ("old_log_probs", "rollout_log_probs"),
    "behaviour_log_probs": ("old_log_probs", "rollout_log_probs"),
    "behave_logprobs": ("old_log_probs", "rollout_log_probs"),
    "behave_log_probs": ("old_log_probs", "rollout_log_probs"),
}
"""Names that frameworks use for different roles.

The first group (`log_probs` and its kin) is taken as the current policy only beside a clear old column; the
`behavior_*` group as the rollout policy only beside a clear old column. Otherwise the user has to say.
"""

NEGATED = ("neglogp", "neglogpacs", "neglogpac", "old_neglogp", "oldneglogpac", "old_logp_actions")
"""Names under which libraries store minus the log-prob: taken with `--neglogp` only, named in the error."""

PROBABILITIES = ("action_prob", "action_probs", "probs")
"""Names under which libraries store probabilities: taken with `--probs` only, named in the error."""

MAIN_ROLES = ("log_probs", "old_log_probs", "advantages")
"""What `eval` cannot do without."""
