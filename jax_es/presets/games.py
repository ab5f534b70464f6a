"""Atari's games from the console's memory, by the field's protocol: a preset a game.

Sticky actions (0.25) and up to 30 frames of doing nothing, in training and evaluation;
scores as they are; whole games. From short trials of linear policies on Freeway and
Kangaroo (``docs/results/atari.md``):

- The network sees bytes divided by 255, and nothing is normalised. Bytes that hardly
  vary then act like biases, and what an elite sees stays what it was chosen by. On
  Freeway this made most difference, to OpenAI-ES as well.
- A genetic algorithm searches: on Kangaroo θ's best evaluation was 875 within 0.34 M
  steps, and with OpenAI-ES 600 within 0.44 M. Scores there are noisy, so a member's
  fitness is the mean of three games.
- Members' games are cut after 4,500 steps, five minutes (Machado et al. 2018):
  Frostbite never ends where nobody moves, and half the steps of a run went into its
  first generation.

The other games have Kangaroo's settings; other networks are untried. The small
transformer is asked for about what Salimans et al. 2017 report.
"""

from dataclasses import replace
from typing import Any

from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.models import MLPConfig
from jax_es.presets.robots import LINEAR, transformer
from jax_es.train_config import TrainConfig

GAMES: dict[str, Any] = {
    "freeway": ("ALE/Freeway-v5", 30.0, 0.03, 1),
    "kangaroo": ("ALE/Kangaroo-v5", 10_000.0),
    "frostbite": ("ALE/Frostbite-v5", 1_000.0),
    "zaxxon": ("ALE/Zaxxon-v5", 6_000.0),
    "space-invaders": ("ALE/SpaceInvaders-v5", 1_000.0),
    "hero": ("ALE/Hero-v5", 8_000.0),
}
"""Preset → id, the return that a transformer is asked for, and what is its own."""


def _from_memory(
    env_id: str, target_return: float, sigma: float = 0.015, num_games: int = 3
) -> dict[str, TrainConfig]:
    """The networks of a game; a member plays ``num_games`` of them."""
    linear = TrainConfig(
        env=EnvConfig(env_id, sticky_actions=0.25, noop_max=30, observation="ram"),
        policy=LINEAR,
        es=ESConfig(
            strategy="ga",
            num_pairs=16,
            sigma=sigma,
            episodes_per_member=num_games,
            common_seeds="generation",
            kwargs={"first_sigma": 0.1},
        ),
        rollout=RolloutConfig(
            slots_per_core=32,
            observation_statistics=False,
            step_cap_factor=None,
            step_cap=4_500,
        ),
        evaluation=EvaluationConfig(num_episodes=8),
        num_generations=10_000,
        max_env_steps=10_000_000,
    )
    asked = transformer(target_return, reward_scale=1 / target_return)
    return {
        "linear": linear,
        "mlp": replace(linear, policy=MLPConfig(hidden_sizes=(64,))),
        "decision-transformer": replace(linear, policy=asked),
    }


GAME_PRESETS: dict[str, dict[str, TrainConfig]] = {
    name: _from_memory(*game) for name, game in GAMES.items()
}
"""By preset and kind of policy; the first is the default."""
