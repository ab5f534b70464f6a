"""Settings for classic control, Box2D and traps, each found by trying on one core.

ClipUp with ranked returns, as for MuJoCo's tasks (``robots.py``). These tasks
are small: episodes of some hundred steps, policies of a few numbers, so that σ is large
beside the weights and a generation takes a second.
"""

from dataclasses import replace
from typing import Any

from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.models import AfterstateConfig, LSTMConfig, MLPConfig
from jax_es.phases import Phase
from jax_es.presets.robots import (
    LINEAR,
    ROBOT_PRESETS,
    TINY_MLP,
    clipup,
    transformer,
)
from jax_es.train_config import PolicyConfig, TrainConfig, policy_kind

_ANT = ROBOT_PRESETS["ant"]["mlp"]
_HUMANOID = ROBOT_PRESETS["humanoid"]["mlp"]
_WALKER2D = ROBOT_PRESETS["walker2d"]["linear"]
_POSITION = ("position",)


def _networks(
    config: TrainConfig, good_return: float, default: TrainConfig | None = None
) -> dict[str, TrainConfig]:
    """A task's own network, and others sized for the few numbers that it shows.

    ``good_return`` is what a Decision Transformer is asked for. A ``default`` comes
    first, with settings of its own.
    """
    own: PolicyConfig = config.policy
    others = (
        TINY_MLP,
        LINEAR,
        LSTMConfig(width=16),
        transformer(good_return, reward_scale=1.0 / abs(good_return)),
    )
    networks = {} if default is None else {policy_kind(default.policy): default}
    networks.setdefault(policy_kind(own), config)
    for policy in others:
        policy = replace(policy, action_bins=own.action_bins)
        networks.setdefault(policy_kind(policy), replace(config, policy=policy))
    return networks


_POINT = TrainConfig(
    env=EnvConfig("PointTrap-v0", descriptor=_POSITION),
    policy=MLPConfig(hidden_sizes=(16,), head_scale=0.1),
    es=ESConfig(
        num_pairs=32,
        sigma=0.1,
        learning_rate=0.05,
        optimizer="adam",
        shaping="centered_rank",
    ),
    rollout=RolloutConfig(
        slots_per_core=128, observation_statistics=False, step_cap_factor=None
    ),
    evaluation=EvaluationConfig(num_episodes=5),
    num_generations=150,
    checkpoint_every=50,
)

_FEW = {"num_pairs": 16, "sigma": 0.2, "learning_rate": 0.2}
_MORE = {**_FEW, "num_pairs": 24}
_WALKER = {**_MORE, "sigma": 0.1}
_WHOLE_WALKS = {
    "rollout.step_cap": None,
    "es.learning_rate": 0.1,
    "evaluation.num_episodes": 10,
}

# A fall costs 100 and standing nearly nothing: in whole episodes of 1 600 steps, of
# which 4 M steps have fifty generations, a policy stood for all of them. In 400 steps
# it learns to walk, then in whole episodes to arrive, and last, with half of σ, to do
# so fast: with a step of 0.03 θ went from 296 to 298 in 1.1 M steps, with 0.1 from
# there to 301 in 0.5 M (seed 0).
_BIPEDAL_WALKER = clipup(
    "BipedalWalker-v3",
    LINEAR,
    8_000_000,
    evaluation_episodes=5,
    physics={"step_cap": 400},
    phases=(
        Phase(return_reached=250.0, env_steps=1_500_000),
        Phase(changes=_WHOLE_WALKS, env_steps=3_000_000),
        Phase(changes={**_WHOLE_WALKS, "es.sigma": 0.05}),
    ),
    **_WALKER,
)
# With a critic it runs, where a fall costs nothing but the rest of the episode. Where
# it cost 100, θ stood until it was stopped after 0.25 M steps (seed 0): too early to
# compare. What falls after 400 steps is seen in whole episodes only.
_CLIMBING_WALKER = replace(
    _BIPEDAL_WALKER,
    policy=TINY_MLP,
    es=ESConfig(
        strategy="cem-rl",
        num_pairs=5,
        sigma=0.03,
        healthy_reward_weight=0.0,
        kwargs={"width": 128, "discount": 0.98},
    ),
    evaluation=EvaluationConfig(num_episodes=1),
    max_env_steps=1_500_000,
    phases=(
        Phase(env_steps=1_000_000),
        Phase(changes={"rollout.step_cap": None, "evaluation.num_episodes": 5}),
    ),
)


def _up_to(pit: float, stump: float, stair: float) -> dict[str, Any]:
    """Each episode draws how large its obstacles are at most; the least is 0."""
    sizes = {"pit-gap": pit, "stump-height": stump, "stair-height": stair}
    ranges = [("whole-sizes", 0.0, 0.0)]
    for name, most in sizes.items():
        ranges += [(f"{name}-low", 0.0, 0.0), (f"{name}-high", 0.0, most)]
    return {"rollout.variation_range": ranges}


# BipedalWalkerHardcore-v3 to the bit, and with numbers for a curriculum.
_HARDCORE = EnvConfig("BipedalWalkerTerrain-v0", kwargs={"hardcore": True})
_HARDCORE_WALKER = replace(
    _CLIMBING_WALKER,
    env=_HARDCORE,
    policy=MLPConfig(hidden_sizes=(40, 40), head_scale=0.1),
    max_env_steps=10_000_000,
    phases=(
        Phase(changes=_up_to(0, 0, 0), env_steps=500_000),
        Phase(
            changes={**_up_to(3, 2, 1), "rollout.step_cap": 800}, env_steps=2_000_000
        ),
        Phase(changes={"rollout.step_cap": None, "evaluation.num_episodes": 5}),
    ),
)

CONTROL_PRESETS: dict[str, dict[str, TrainConfig]] = {
    "cartpole": _networks(clipup("CartPole-v1", LINEAR, 200_000, **_FEW), 500.0),
    "acrobot": _networks(clipup("Acrobot-v1", LINEAR, 200_000, **_FEW), -70.0),
    # Its reward is all or nothing, and standing still costs nothing: members must climb
    # the hill by chance. Velocities are small, and must not drown under the floor.
    "mountain-car-continuous": _networks(
        clipup(
            "MountainCarContinuous-v0",
            LINEAR,
            200_000,
            std_floor=0.001,
            **{**_FEW, "sigma": 1.0, "learning_rate": 0.5},
        ),
        95.0,
    ),
    # Where the pendulum begins decides more of a return than the policy does: pairs are
    # ranked by their differences, in which it cancels. By statistics, which move while
    # it learns to swing, it more often stays at −820.
    "pendulum": _networks(
        replace(
            clipup(
                "Pendulum-v1",
                MLPConfig(hidden_sizes=(16,), head_scale=0.1),
                1_000_000,
                shaping="pair_rank",
                **{**_FEW, "num_pairs": 32, "learning_rate": 0.4},
            ),
            rollout=RolloutConfig(observation_statistics=False, step_cap_factor=None),
        ),
        -150.0,
    ),
    # 1 297 numbers, and 1 361 with two biases a gate, as PyTorch has them: the policy
    # reads 0 in the velocity's place.
    "pendulum-hidden-velocity": _networks(
        clipup(
            EnvConfig("Pendulum-v1", hide_observation=("2",)),
            LSTMConfig(width=16),
            4_700_000,
            num_pairs=64,
            sigma=0.1,
            learning_rate=0.8,
            learning_rate_end=0.2,
            schedule="linear",
            schedule_generations=150,
        ),
        -200.0,
    ),
    # Two neurons, 18 numbers.
    "lunar-lander": _networks(
        clipup("LunarLanderContinuous-v3", LINEAR, 600_000, **_MORE), 300.0
    ),
    "lunar-lander-discrete": _networks(
        clipup("LunarLander-v3", LINEAR, 1_000_000, **_MORE), 300.0
    ),
    "bipedal-walker": _networks(_BIPEDAL_WALKER, 300.0, _CLIMBING_WALKER),
    "bipedal-walker-hardcore": _networks(
        clipup(
            _HARDCORE,
            TINY_MLP,
            10_000_000,
            **{**_WALKER, "num_pairs": 64},
        ),
        300.0,
        _HARDCORE_WALKER,
    ),
    # Flat ground, from which POET's niches begin. In one trial each, neither two layers
    # of 40, as published, learned to walk in 2 M steps, nor a linear policy to which a
    # fall costs nothing. No statistics: they would differ from niche to niche.
    "bipedal-terrain": _networks(
        replace(
            clipup(
                EnvConfig("BipedalWalkerTerrain-v0", kwargs={"roughness": 0.0}),
                LINEAR,
                100_000_000,
                **_WALKER,
            ),
            rollout=RolloutConfig(
                observation_statistics=False, step_cap_factor=None, step_cap=400
            ),
            evaluation=EvaluationConfig(num_episodes=5),  # as published
            checkpoint_every=5,
        ),
        300.0,
    ),
    # Nearly flat ground, in coarse physics. Without statistics it stood at a leap of a
    # metre after 30 generations (one seed); POET goes on from a run of it (--init) and
    # keeps that one's, which is why the ground is not quite flat.
    "walker2d-terrain": _networks(
        replace(
            _WALKER2D,
            env=EnvConfig(
                "Walker2dTerrain-v0",
                kwargs={
                    "roughness": 0.1,
                    "pit_gap_high": 0.05,
                    "stump_height_high": 0.025,
                },
            ),
            es=replace(_WALKER2D.es, healthy_reward_weight=1.0),
            rollout=replace(
                _WALKER2D.rollout,
                num_substeps=2,
                integrator="implicitfast",
            ),
            evaluation=EvaluationConfig(num_episodes=5),
            max_env_steps=5_000_000,
        ),
        300.0,
    ),
    # 22 numbers: a weight for each of 21, and the bias. Szita & Lőrincz' settings: 100
    # members a generation, a tenth of them elites, variance 100, noise 5 − t/10.
    "tetris": _networks(
        TrainConfig(
            env=EnvConfig("Tetris-v0"),
            policy=AfterstateConfig(),
            es=ESConfig(strategy="cem", num_pairs=50, sigma=10.0),
            rollout=RolloutConfig(
                slots_per_core=128, observation_statistics=False, step_cap_factor=None
            ),
            num_generations=100_000,
            max_env_steps=3_300_000,
        ),
        300.0,
    ),
    # Fitness deceives: --strategy novelty finds the way out.
    "point-trap": _networks(_POINT, 10.0),
    "point-flat": _networks(
        replace(_POINT, env=EnvConfig("PointFlat-v0", descriptor=_POSITION)), 14.0
    ),
    "ant-trap": _networks(
        replace(_ANT, env=EnvConfig("AntTrap-v0", descriptor=_POSITION)), 3000.0
    ),
    "humanoid-trap": _networks(
        replace(_HUMANOID, env=EnvConfig("HumanoidTrap-v0", descriptor=_POSITION)),
        7000.0,
    ),
    # Each joint takes one of 11 torques, the middle one being 0.
    "ant-binned": _networks(
        replace(
            _ANT,
            policy=MLPConfig(
                hidden_sizes=(64, 64), activation="relu", head_scale=0.1, action_bins=11
            ),
        ),
        3000.0,
    ),
}
"""By task and kind of policy; the first is the default."""
