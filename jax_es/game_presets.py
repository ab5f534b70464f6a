"""Atari's games from the console's memory, by the field's protocol: a preset a game.

Sticky actions (0.25) and up to 30 frames of doing nothing, in training and evaluation;
scores as they are; whole games. The networks see 128 bytes, each divided by its
standard deviation, which counts as one grey level at least: bytes that hardly vary
would be blown up otherwise. Fitness is ranked, so the games' scales do not matter, and
ClipUp's steps have one length.

Settings are from short trials of linear policies on Freeway and Kangaroo
(``docs/results/atari.md``); the other games have the same, untried, and so has ``mlp``.
"""

from dataclasses import replace

from jax_es.config import EnvConfig
from jax_es.robot_presets import LINEAR, clipup
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
    linear = clipup(
        EnvConfig(env_id, sticky_actions=0.25, noop_max=30, observation="ram"),
        LINEAR,
        10_000_000,
        std_floor=1.0,
        num_pairs=24,
        sigma=0.1,
        learning_rate=0.4,
    )
    mlp = MLPConfig(hidden_sizes=(64,), head_scale=0.1)
    steps = replace(linear.es, sigma=0.05, learning_rate=0.2)
    return {"linear": linear, "mlp": replace(linear, policy=mlp, es=steps)}


GAME_PRESETS: dict[str, dict[str, TrainConfig]] = {
    name: _from_memory(env_id) for name, env_id in GAMES.items()
}
"""By preset and kind of policy; the first is the default."""
