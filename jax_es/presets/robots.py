"""The best settings found for MuJoCo's tasks: ClipUp, three networks a task.

What they share, and why:

- ClipUp steps by a fixed length along the estimate, whatever the scale of the fitness
  (Toklu et al. 2020, arXiv 2008.02387). Its speed is bounded by twice the step. Only
  Walker2d's linear policy takes ARS' plain steps.
- The fitness leaves out what a task pays for staying healthy: with it, standing still
  is an optimum (Mania et al. 2018, arXiv 1803.07055). Returns hold all of it.
- A generation takes about as many steps whatever its episodes' length: many pairs while
  bodies fall at once, few when they walk (PGPE's adaptive population, same paper as
  ClipUp).
- Observations are divided by their standard deviation down to 0.01 and cut at ±10.
- Heads begin near 0, so that the first actions are small.
- The transformer is small (width 16, two blocks, 8 steps), keeps keys and values, and
  has one row of timesteps: rows that short episodes never reach would stay noise.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.models import (
    AnyPolicyConfig,
    DecisionTransformerConfig,
    LinearConfig,
    LSTMConfig,
    MLPConfig,
)
from jax_es.phases import Phase
from jax_es.train_config import TrainConfig

LINEAR = LinearConfig()
TINY_MLP = MLPConfig(hidden_sizes=(16, 16), head_scale=0.1)
MLP = MLPConfig(hidden_sizes=(32, 32), head_scale=0.1)
LSTM = LSTMConfig(width=32)


def transformer(
    target_return: float, reward_scale: float = 0.001
) -> DecisionTransformerConfig:
    """Returns the small transformer."""
    return DecisionTransformerConfig(
        attention="cache",
        context_length=8,
        width=16,
        num_layers=2,
        target_return=target_return,
        reward_scale=reward_scale,
        max_timestep=1,
        timestep_scale=0.02,
        head_scale=0.1,
    )


def clipup(
    env: str | EnvConfig,
    policy: AnyPolicyConfig,
    max_env_steps: int,
    statistics_fraction: float = 0.1,
    std_floor: float = 0.01,
    evaluation_episodes: int = 10,
    physics: Mapping[str, Any] = MappingProxyType({}),
    phases: tuple[Phase, ...] = (),
    **es: Any,
) -> TrainConfig:
    """Returns a task with what all of them share."""
    shared = {"optimizer": "clipup", "shaping": "centered_rank", "weight_decay": 0.0}
    return TrainConfig(
        env=EnvConfig(env) if isinstance(env, str) else env,
        policy=policy,
        es=ESConfig(**{**shared, **es}),
        rollout=RolloutConfig(
            statistics_fraction=statistics_fraction,
            std_floor=std_floor,
            observation_clip=10.0,
            step_cap_factor=None,
            **physics,
        ),
        evaluation=EvaluationConfig(evaluation_episodes),
        num_generations=100_000,
        max_env_steps=max_env_steps,
        checkpoint_every=10,
        phases=phases,
    )


_KINDS = ("decision-transformer", "linear", "mlp")


def _task(
    env: str | EnvConfig,
    transformer: DecisionTransformerConfig,
    max_env_steps: int | tuple[int, int, int],
    steps: tuple[float, float, float],
    sigma: float | tuple[float, float, float],
    **settings: Any,
) -> dict[str, TrainConfig]:
    """Returns one configuration a network; tuples have a value of each.

    ``steps`` are learning rates.
    """
    sigmas = sigma if isinstance(sigma, tuple) else (sigma,) * len(_KINDS)
    lengths = max_env_steps
    lengths = lengths if isinstance(lengths, tuple) else (lengths,) * len(_KINDS)
    policies = (transformer, LINEAR, MLP)
    networks = {
        kind: clipup(env, policy, length, learning_rate=step, sigma=each, **settings)
        for kind, policy, length, step, each in zip(
            _KINDS, policies, lengths, steps, sigmas, strict=True
        )
    }
    # Not tuned: the MLP's steps.
    return networks | {"lstm": dataclasses.replace(networks["mlp"], policy=LSTM)}


_MILLION = 1_000_000
# The fitness of a walker: without what it is paid for standing.
_WALKING: dict[str, Any] = {"healthy_reward_weight": 0.0}
# A few pairs, and each counts by how far it walked: ARS' settings.
_FAR_COUNTS: dict[str, Any] = {
    "num_pairs": 40,
    "shaping": "standardize",
    "elite_fraction": 0.75,
    **_WALKING,
}
# Six times as fast as the task's own physics, and a few minutes there make up for it.
_COARSE = {"num_substeps": 3, "integrator": "implicitfast"}
# Then nearer to its own: RK4 with two steps, and in the end with its own five.
_FINER = {"rollout.num_substeps": 2, "rollout.integrator": None}
_OWN = {
    "rollout.num_substeps": None,
    "rollout.integrator": None,
    "evaluation.num_episodes": 40,
}
# θ walks, and goes on to learn it in finer physics. Seed 0 had 4 500 after 41 M steps
# (linear) and 68 M (transformer). Its population took up to 72 generations to rise by
# 5 %, and below 1 500 (at the first optimum, 450 to 750, it runs and falls) nothing but
# the steps ends the phase.
_WALKS = Phase(
    env_steps=140_000_000,
    return_reached=4500.0,
    plateau_generations=150,
    plateau_floor=1500.0,
)
_LAST_OF_LINEAR = {"es.sigma": 0.006, "es.learning_rate": 0.00018}
# The slowest starts stayed so: of the linear policy, seeds 1 and 3 had 677 and 651
# after 4 M steps, seed 2 had 548, and 960 after 44 M; the transformer's seeds 0 and 1
# had 770 and 529 after 9 M, and 1 612 and 925 after 60 M.
_LINEAR_PHASES = (
    dataclasses.replace(_WALKS, restart_below=600.0, restart_steps=4 * _MILLION),
    Phase(changes=_FINER, env_steps=4_000_000, plateau_generations=10),
    Phase(
        changes={**_FINER, "es.sigma": 0.01, "es.learning_rate": 0.0005},
        env_steps=6_000_000,
        plateau_generations=10,
        plateau_gain=0.03,
    ),
    Phase(
        changes={**_FINER, **_LAST_OF_LINEAR},
        env_steps=24_000_000,
        plateau_generations=20,
        plateau_gain=0.02,
    ),
    # The best θ is one of these, in the task's own physics.
    Phase(changes={**_OWN, **_LAST_OF_LINEAR}, generations=5),
)
_LAST_OF_TRANSFORMER = {"es.sigma": 0.02, "es.learning_rate": 0.1}
_TRANSFORMER_PHASES = (
    dataclasses.replace(_WALKS, restart_below=650.0, restart_steps=9 * _MILLION),
    Phase(
        changes={**_FINER, **_LAST_OF_TRANSFORMER},
        env_steps=4_500_000,
        plateau_generations=10,
    ),
    Phase(changes={**_OWN, **_LAST_OF_TRANSFORMER}, generations=5),
)
# As many pairs as make so many steps, within these bounds.
_FOLLOWING: dict[str, Any] = {
    "num_pairs": 64,
    "interactions_per_generation": 60_000,
    "max_num_pairs": 512,
}
# Acting costs more than its first steps earn: without the bonus Ant lies down.
_ANT = {**_FOLLOWING, "num_pairs": 24, "healthy_reward_weight": 0.5}

_HUMANOID = _task(
    "Humanoid-v5",
    transformer(7000.0),
    200 * _MILLION,
    steps=(0.2, 0.1, 0.2),
    sigma=(0.03, 0.02, 0.02),
    num_pairs=64,
    interactions_per_generation=100_000,
    max_num_pairs=1024,
    physics=_COARSE,
    **_WALKING,
)

# Kept up by its bonus alone: without it, falling at once would cost least. A single
# start is too noisy, and so are ten for θ: a member's fitness is the mean of eight, the
# same for all of a generation.
_PENDULUM = _task(
    "InvertedDoublePendulum-v5",
    transformer(9300.0),
    6 * _MILLION,
    steps=(0.25, 0.05, 0.15),
    sigma=0.05,
    evaluation_episodes=50,
    num_pairs=16,
    common_seeds="generation",
    episodes_per_member=8,
)

_CHEETAH: dict[str, Any] = {
    # At 4 M steps the transformer had 3 105 to 4 672, at best 4 188 to 5 746 by 10 M.
    "max_env_steps": (10 * _MILLION, 4 * _MILLION, 4 * _MILLION),
    "steps": (0.25, 0.1, 0.2),
    "sigma": 0.05,
    "num_pairs": 32,
}

ROBOT_PRESETS: dict[str, dict[str, TrainConfig]] = {
    "inverted-double-pendulum": {
        **_PENDULUM,
        # Where motors may be a step late, it does not pay to push to and fro at every
        # step, and no episode falls. The transformer did both all the same.
        "linear": dataclasses.replace(
            _PENDULUM["linear"],
            rollout=dataclasses.replace(
                _PENDULUM["linear"].rollout, variation_range=(("delay", 0.0, 1.0),)
            ),
        ),
    },
    "swimmer": _task(
        "Swimmer-v5",
        transformer(360.0, reward_scale=0.01),
        # At 2 M steps one seed of three was still at 150, at 3 M it had 330.
        (5 * _MILLION, 2 * _MILLION, 2 * _MILLION),
        steps=(0.25, 0.1, 0.25),
        # With 0.1 the transformer stayed at 20 for 0.6 M steps.
        sigma=(0.05, 0.1, 0.1),
        num_pairs=16,
    ),
    "hopper": _task(
        "Hopper-v5",
        transformer(3000.0),
        # The linear policy had 3 127 to 3 233 at 4 M.
        (4 * _MILLION, 10 * _MILLION, 4 * _MILLION),
        steps=(0.25, 0.05, 0.15),
        sigma=0.05,
        **{**_FOLLOWING, "interactions_per_generation": 40_000},
        **_WALKING,
    ),
    "half-cheetah": _task("HalfCheetah-v5", transformer(5000.0), **_CHEETAH),
    # A fifth of the task's own limit: five times as many updates in the same time.
    "quickstart": {
        kind: dataclasses.replace(
            config, num_generations=100, max_env_steps=None, checkpoint_every=5
        )
        for kind, config in _task(
            EnvConfig("HalfCheetah-v5", max_episode_steps=200),
            transformer(1000.0),
            **_CHEETAH,
        ).items()
    },
    # Under ranks it fell at once without the bonus, and nearly stood with it. Returns
    # divided by their deviation, less the worst pairs (ARS), give the rare members that
    # walk far their weight.
    "walker2d": {
        **_task(
            "Walker2d-v5",
            transformer(4000.0),
            4 * _MILLION,
            steps=(0.25, 0.05, 0.15),
            sigma=0.05,
            statistics_fraction=0.5,
            **_FAR_COUNTS,
        ),
        "linear": clipup(
            "Walker2d-v5",
            LINEAR,
            6 * _MILLION,
            statistics_fraction=1.0,
            # ClipUp's steps of 0.05 came to 1 300 in 2.6 M steps, these to 2 700.
            optimizer="sgd",
            learning_rate=0.002,
            sigma=0.025,
            **_FAR_COUNTS,
        ),
    },
    "ant": {
        **_task(
            "Ant-v5",
            transformer(3000.0),
            12 * _MILLION,
            steps=(0.2, 0.06, 0.15),
            sigma=0.03,
            **_ANT,
        ),
        # As the task's own physics to a few per cent, in half of the time.
        "decision-transformer": clipup(
            "Ant-v5",
            transformer(3000.0),
            12 * _MILLION,
            learning_rate=0.2,
            sigma=0.03,
            physics={"num_substeps": 10, "integrator": "Euler"},
            **_ANT,
        ),
    },
    # In JAX; its bodies hardly move while they stand, so that velocities divided by so
    # small a deviation would throw the first members about. With all of the cost of
    # acting, standing is an optimum that no member leaves. Weights that decay keep
    # actions from their bounds.
    "brax-ant": {
        "linear": clipup(
            EnvConfig("brax:ant", kwargs={"backend": "spring"}),
            LINEAR,
            10 * _MILLION,
            std_floor=1.0,
            evaluation_episodes=4,
            physics={"step_cap": 300, "slots_per_core": 32},
            phases=(
                Phase(
                    changes={"es.control_cost_weight": 0.0},
                    return_reached=1200.0,
                    env_steps=1_500_000,
                ),
                Phase(changes={"es.sigma": 0.05, "es.learning_rate": 0.1}),
            ),
            num_pairs=48,
            sigma=0.1,
            learning_rate=0.2,
            weight_decay=0.02,
        )
    },
    "humanoid": {
        **_HUMANOID,
        "decision-transformer": dataclasses.replace(
            _HUMANOID["decision-transformer"], phases=_TRANSFORMER_PHASES
        ),
        # ARS' settings in the units of our weights. Twice the step walks out of what
        # was learned, half of it is as fast. Hidden are masses and inertias: a policy
        # that reads them falls in a body of another weight.
        "linear": clipup(
            EnvConfig("Humanoid-v5", hide_observation=("45:175",)),
            LINEAR,
            200 * _MILLION,
            statistics_fraction=1.0,
            physics=_COARSE,
            phases=_LINEAR_PHASES,
            num_pairs=230,
            shaping="standardize",
            optimizer="sgd",
            learning_rate=0.0019,
            sigma=0.019,
            **_WALKING,
        ),
    },
}
"""By task and kind of policy; the first is the default."""
