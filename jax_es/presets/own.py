"""Settings for tasks that have no preset of their own, by what their policies see.

They cannot know the task, so

- fitness is ranked: its scale and its offset do not matter, and where all members
  return alike, θ stays where it is;
- ClipUp's steps have the same length everywhere;
- σ and steps are large at first, so that some members act otherwise than others, and
  small after 200 generations, for tasks that are about precision (with σ of 0.2 for
  most of them Reacher ended at −12 instead of −6);
- choices are drawn by their probabilities: MiniGrid's reward, which random play meets
  in one episode of twelve, no member met that took the largest output;
- short episodes get more pairs;
- observations are divided by their standard deviation down to 0.001: velocities are
  small in many tasks;
- the network is small, as the populations are.

``docs/guides/own_tasks.md`` says what they reached.
"""

from dataclasses import replace
from typing import Any

from jax_es.config import EnvConfig, RolloutConfig
from jax_es.models import (
    CNNConfig,
    ImageDecisionTransformerConfig,
    LSTMConfig,
    MLPConfig,
)
from jax_es.presets.robots import LINEAR, TINY_MLP, clipup, transformer
from jax_es.train_config import FLATTEN, TrainConfig, policy_kind

_SMALL: dict[str, Any] = {
    "statistics_fraction": 0.25,
    "std_floor": 0.001,
    "num_pairs": 16,
    "interactions_per_generation": 6_000,
    "max_num_pairs": 64,
    "schedule_generations": 200,
}
# Where an episode begins decides much of a return (Reacher's goals): pairs are ranked
# by their differences, in which it cancels.
_VECTOR = clipup(
    EnvConfig(id=""),
    TINY_MLP,
    1_000_000,
    sigma=0.1,
    sigma_end=0.01,
    learning_rate=0.3,
    learning_rate_end=0.02,
    schedule="exponential",
    shaping="pair_rank",
    **_SMALL,
)
_DISCRETE = clipup(
    EnvConfig(id=""),
    replace(TINY_MLP, sample_actions=True),
    1_000_000,
    sigma=0.2,
    sigma_end=0.02,
    learning_rate=0.6,
    learning_rate_end=0.05,
    schedule="cosine",
    **_SMALL,
)


def _networks(config: TrainConfig) -> dict[str, TrainConfig]:
    """Policies of observation vectors; one that draws its choices explores by them."""
    policies = (TINY_MLP, LINEAR, LSTMConfig(width=16), transformer(1000.0))
    samples = config.policy.sample_actions
    return {
        policy_kind(policy): replace(
            config, policy=replace(policy, sample_actions=samples)
        )
        for policy in policies
    }


_IMAGE = replace(
    clipup(
        EnvConfig(id=""),
        CNNConfig(),
        1_000_000,
        num_pairs=64,
        sigma=0.02,
        learning_rate=0.2,
        perturbation="low-rank",
    ),
    # Normalised inside the network, by the reference batch.
    rollout=RolloutConfig(slots_per_core=32, observation_statistics=False),
)

# In JAX, MinAtar's steps cost little: larger generations, of more steps in all.
_GRID = clipup(
    EnvConfig(id="", wrappers=(FLATTEN,)),
    MLPConfig(hidden_sizes=(64,), head_scale=0.1, sample_actions=True),
    30_000_000,
    statistics_fraction=0.25,
    std_floor=0.001,
    num_pairs=64,
    interactions_per_generation=40_000,
    max_num_pairs=256,
    sigma=0.2,
    sigma_end=0.02,
    learning_rate=0.6,
    learning_rate_end=0.05,
    schedule="cosine",
    schedule_generations=1000,
    perturbation="low-rank",
    physics={"slots_per_core": 256},
)

OWN_PRESETS: dict[str, dict[str, TrainConfig]] = {
    "own-vector": _networks(_VECTOR),
    "own-discrete": _networks(_DISCRETE),
    "own-grid": {
        "mlp": _GRID,
        "cnn": replace(
            _GRID,
            env=EnvConfig(id=""),
            policy=CNNConfig(
                features=(16,),
                hidden_size=64,
                normalization="none",
                sample_actions=True,
            ),
            rollout=RolloutConfig(slots_per_core=256, observation_statistics=False),
        ),
    },
    # Not measured.
    "own-image": {
        "cnn": _IMAGE,
        "image-decision-transformer": replace(
            _IMAGE,
            policy=ImageDecisionTransformerConfig(
                attention="cache", target_return=1000.0, reward_scale=0.001
            ),
            rollout=RolloutConfig(slots_per_core=32, std_floor=25.5),
        ),
    },
}
"""By preset and kind of policy; the first is the default."""
