"""Atari's games from the console's memory, by the field's protocol: a preset a game.

Sticky actions (0.25) and up to 30 frames of doing nothing, in training and evaluation;
scores as they are; whole games. From short trials of linear policies
(``docs/results/atari.md``), two kinds:

- *Searched*: a genetic algorithm. The network sees bytes divided by 255, and nothing is
  normalised. Bytes that hardly vary then act like biases, and what an elite sees stays
  what it was chosen by. On Freeway this made most difference. Scores are noisy, so a
  member's fitness is the mean of three games.
- *Estimated*: OpenAI-ES with ClipUp, and bytes less their mean, divided by their
  standard deviation but never by less than a tenth of their range. On Hero and Zaxxon
  actions are drawn from the logits' softmax: θ begins as random play, and what it
  returns changes smoothly. On Hero, where most policies that take the largest logit get
  nothing, it is at three times random play within seven generations. On Kangaroo two
  seeds of three stayed at a return of 600 for 4 million steps; three of the genetic
  algorithm have 916 to 1,196 after 2.5 million.

Members' games are cut after 4,500 steps, five minutes (Machado et al. 2018): Frostbite
never ends where nobody moves, and half the steps of a run went into its first
generation.

Other networks are untried. The small transformer is asked for about what Salimans et
al. 2017 report.
"""

from dataclasses import replace

from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.models import MLPConfig
from jax_es.presets.robots import LINEAR, clipup, transformer
from jax_es.train_config import TrainConfig

_STEP_CAP = 4_500


def _env(game: str) -> EnvConfig:
    return EnvConfig(
        f"ALE/{game}-v5", sticky_actions=0.25, noop_max=30, observation="ram"
    )


def _searched(game: str, sigma: float = 0.015, num_games: int = 3) -> TrainConfig:
    """A linear policy by the genetic algorithm; a member plays ``num_games``."""
    return TrainConfig(
        env=_env(game),
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
            step_cap=_STEP_CAP,
        ),
        evaluation=EvaluationConfig(num_episodes=8),
        num_generations=10_000,
        max_env_steps=10_000_000,
    )


def _estimated(game: str) -> TrainConfig:
    """A linear policy by OpenAI-ES with ClipUp."""
    config = clipup(
        _env(game),
        replace(LINEAR, sample_actions=True),
        10_000_000,
        std_floor=25.5,
        evaluation_episodes=8,
        physics={"step_cap": _STEP_CAP},
        num_pairs=32,
        sigma=0.1,
        learning_rate=0.5,
    )
    return replace(config, num_generations=10_000)


def _networks(linear: TrainConfig, target_return: float) -> dict[str, TrainConfig]:
    """The networks of a game; the transformer is asked for a return."""
    sampled = linear.policy.sample_actions
    mlp = MLPConfig(hidden_sizes=(64,), sample_actions=sampled)
    asked = transformer(target_return, reward_scale=1 / target_return)
    asked = replace(asked, sample_actions=sampled)
    return {
        "linear": linear,
        "mlp": replace(linear, policy=mlp),
        "decision-transformer": replace(linear, policy=asked),
    }


GAME_PRESETS: dict[str, dict[str, TrainConfig]] = {
    "freeway": _networks(_searched("Freeway", 0.03, 1), 30.0),
    "kangaroo": _networks(_searched("Kangaroo"), 10_000.0),
    "frostbite": _networks(_searched("Frostbite"), 1_000.0),
    "zaxxon": _networks(_estimated("Zaxxon"), 6_000.0),
    "space-invaders": _networks(_searched("SpaceInvaders"), 1_000.0),
    "hero": _networks(_estimated("Hero"), 8_000.0),
}
"""By preset and kind of policy; the first is the default."""
