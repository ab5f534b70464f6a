"""Atari's games from the console's memory, by the field's protocol: a preset a game.

Sticky actions (0.25) and up to 30 frames of doing nothing, in training and evaluation;
scores as they are; whole games. Two things made most difference in short trials of
linear policies on Freeway and Kangaroo (``docs/results/atari.md``):

- The network sees bytes divided by 255, and nothing is normalised. Bytes that hardly
  vary then act like biases, and what an elite sees stays what it was chosen by.
- A genetic algorithm keeps one lucky member. The first 32 around a network of zeros
  held one that crosses Freeway's road; an estimated gradient needed many generations.

The other games have the same settings, untried, and so has ``mlp``.
"""

from dataclasses import replace

from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.robot_presets import LINEAR
from jax_es.train_config import TrainConfig
from models import MLPConfig

GAMES = {
    "freeway": "ALE/Freeway-v5",
    "kangaroo": "ALE/Kangaroo-v5",
    "frostbite": "ALE/Frostbite-v5",
    "zaxxon": "ALE/Zaxxon-v5",
    "space-invaders": "ALE/SpaceInvaders-v5",
    "hero": "ALE/Hero-v5",
}


def _from_memory(env_id: str) -> dict[str, TrainConfig]:
    """The networks of a game."""
    linear = TrainConfig(
        env=EnvConfig(env_id, sticky_actions=0.25, noop_max=30, observation="ram"),
        policy=LINEAR,
        es=ESConfig(
            strategy="ga",
            num_pairs=16,
            sigma=0.03,
            common_seeds="generation",
            kwargs={"first_sigma": 0.1},
        ),
        rollout=RolloutConfig(
            slots_per_core=32, observation_statistics=False, step_cap_factor=None
        ),
        evaluation=EvaluationConfig(num_episodes=4),
        num_generations=10_000,
        max_env_steps=10_000_000,
    )
    return {
        "linear": linear,
        "mlp": replace(linear, policy=MLPConfig(hidden_sizes=(64,))),
    }


GAME_PRESETS: dict[str, dict[str, TrainConfig]] = {
    name: _from_memory(env_id) for name, env_id in GAMES.items()
}
"""By preset and kind of policy; the first is the default."""
