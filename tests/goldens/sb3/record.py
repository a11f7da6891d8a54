"""Trains a small policy with Stable-Baselines3, records both minibatches, and keeps what SB3 logged.

Run by hand, with torch 2.13.0 and stable-baselines3 2.9.2 installed beside ppocli; not part of the tests:

    python tests/goldens/sb3/record.py

One rollout of 256 steps, two epochs of one minibatch each: then SB3's averages over minibatches are means of
two numbers, its approx_kl is that of the second epoch, and its loss that of the last minibatch.
"""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium
import stable_baselines3
import torch

import ppocli

HERE = Path(__file__).parent
SETTINGS = {"n_steps": 256, "batch_size": 256, "n_epochs": 2, "learning_rate": 1e-2, "clip_range": 0.05}


def main() -> None:
    model = stable_baselines3.PPO("MlpPolicy", "CartPole-v1", seed=7, device="cpu", ent_coef=0.01, **SETTINGS)
    batches, evaluate = model.rollout_buffer.get, model.policy.evaluate_actions
    current = []

    def get(*arguments):
        for batch in batches(*arguments):
            current.append(batch)
            yield batch

    def evaluate_actions(observations, actions):
        values, log_prob, entropy = evaluate(observations, actions)
        batch, number = current[-1], len(current) - 1
        path = HERE / f"minibatch_{number}.parquet"
        with ppocli.RolloutWriter(path, overwrite=True, torch=torch.__version__) as writer:
            writer.append(
                log_probs=log_prob,
                old_log_probs=batch.old_log_prob,
                advantages=batch.advantages,
                values=values,
                old_values=batch.old_values,
                returns=batch.returns,
                entropy=entropy,
            )
        return values, log_prob, entropy

    model.rollout_buffer.get, model.policy.evaluate_actions = get, evaluate_actions
    model.learn(SETTINGS["n_steps"])
    logged = {
        key: float(value) for key, value in model.logger.name_to_value.items() if key.startswith("train/")
    }
    versions = {
        "torch": torch.__version__,
        "stable-baselines3": stable_baselines3.__version__,
        "gymnasium": gymnasium.__version__,
    }
    document = {
        "versions": versions,
        "settings": {**SETTINGS, "ent_coef": 0.01, "vf_coef": 0.5},
        "logged": logged,
    }
    (HERE / "logged.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
