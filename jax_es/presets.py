"""Tuned settings as data: one entry a task.

:data:`PAPER_PRESETS` are the settings of Lorenc & Neruda (arXiv 2501.13883), sized for
a cluster. The other tasks' are sized for a workstation: a smaller transformer and fewer
pairs.
"""

import difflib
from dataclasses import replace
from typing import Any

from jax_es.checks import ConfigError, require
from jax_es.clipup_presets import CLIPUP_PRESETS
from jax_es.config import (
    ESTIMATING,
    SHARED,
    STRATEGIES,
    EnvConfig,
    ESConfig,
    EvaluationConfig,
    RolloutConfig,
)
from jax_es.control_presets import CONTROL_PRESETS, control_transformer
from jax_es.train_config import (
    POLICY_KINDS,
    CustomPolicyConfig,
    TrainConfig,
    policy_kind,
)
from models import (
    IMAGE_POLICIES,
    AnyPolicyConfig,
    CNNConfig,
    DecisionTransformerConfig,
    ImageDecisionTransformerConfig,
    LSTMConfig,
    MLPConfig,
)

DEFAULT_PRESET = "quickstart"

PRETRAINED_PRESETS = tuple(
    f"{task}-pretrained{contrast}"
    for task in ("humanoid-dt", "hopper", "walker2d")
    for contrast in ("", "-standard", "-statistics")
)
"""Presets that go on from another run's θ, and say nothing of which (``init``)."""

PAPER_PRESETS = (
    *("humanoid-mlp", "humanoid-dt", "humanoid-dt-half", "hero-dt"),
    *(name for name in PRETRAINED_PRESETS if name.startswith("humanoid")),
)
"""The presets with the paper's own settings."""

FAST_PRESETS = ("humanoid-mlp-fast", "humanoid-dt-fast", "hero-dt-fast")
"""The same networks and populations, with low-rank noise and cached attention."""

_HUMANOID_DT = TrainConfig(
    env=EnvConfig("Humanoid-v5"),
    policy=DecisionTransformerConfig(target_return=7000.0),
    es=ESConfig(num_pairs=20_000),
)

_SMALL_POLICIES: dict[str, AnyPolicyConfig] = {
    "mlp": MLPConfig(hidden_sizes=(64, 64)),
    "lstm": LSTMConfig(width=32),
}
"""What ``--policy`` means for the workstation-sized tasks; 2×64 is Salimans' MLP."""


def _task(
    env_id: str,
    target_return: float,
    reward_scale: float = 0.001,
    max_timestep: int = 1000,
) -> TrainConfig:
    """A MuJoCo task with the workstation-sized transformer and population."""
    return TrainConfig(
        env=EnvConfig(env_id),
        policy=DecisionTransformerConfig(
            context_length=8,
            width=32,
            num_layers=2,
            target_return=target_return,
            reward_scale=reward_scale,
            max_timestep=max_timestep,
        ),
        es=ESConfig(num_pairs=32, sigma=0.05, learning_rate=0.05),
        rollout=RolloutConfig(statistics_fraction=0.1),
        num_generations=100,
    )


# A fifth of the task's own limit: five times as many updates in the same time.
_SHORT = EnvConfig("HalfCheetah-v5", max_episode_steps=200)
_CHEETAH = CLIPUP_PRESETS["half-cheetah-clipup"]["decision-transformer"]
_QUICKSTART = replace(
    _CHEETAH,
    env=_SHORT,
    policy=replace(_CHEETAH.policy, target_return=1000.0),
    num_generations=100,
    max_env_steps=None,
    checkpoint_every=5,
)

# Where members are small: a step's fixed costs count half as much.
_MANY_SLOTS = RolloutConfig(slots_per_core=128)

_HUMANOID_MLP = replace(
    _HUMANOID_DT, policy=MLPConfig(), es=ESConfig(num_pairs=5_000), rollout=_MANY_SLOTS
)


def _fast(config: TrainConfig) -> TrainConfig:
    """The same task and network at a fraction of the cost; not the paper's numbers."""
    policy = config.policy
    if isinstance(policy, DecisionTransformerConfig):
        # On Hero, 16 pairs, 8 generations of 300 steps, one seed: θ's return went from
        # 14 to 2394 with thousands and a floor of 25.5 grey levels, to 84 with a floor
        # of 0.1, and from 19 to 53 with points as they are, which drive tanh to ±1.
        policy = replace(policy, attention="cache", reward_scale=0.001)
    es = replace(config.es, perturbation="low-rank")
    plays_games = isinstance(policy, IMAGE_POLICIES)
    rollout = _EMULATORS if plays_games else _MANY_SLOTS
    return replace(config, policy=policy, es=es, rollout=rollout)


# An emulator takes 0.1 s to start, and its steps outweigh a step's fixed costs.
_EMULATORS = RolloutConfig(slots_per_core=32, std_floor=25.5)

_HERO_DT = TrainConfig(
    env=EnvConfig("ALE/Hero-v5"),
    policy=ImageDecisionTransformerConfig(),
    es=ESConfig(num_pairs=40_000),
    rollout=replace(_EMULATORS, std_floor=0.1),
    num_generations=60,
)

_ATARI_CNN = TrainConfig(
    # Salimans et al. begin an episode with up to 30 actions that do nothing.
    env=EnvConfig("ALE/Hero-v5", noop_max=30),
    policy=CNNConfig(),
    es=ESConfig(num_pairs=1_000, perturbation="low-rank"),
    # Normalised inside the network, by the reference batch.
    rollout=replace(_EMULATORS, observation_statistics=False),
)

PRESETS: dict[str, TrainConfig] = {
    "quickstart": _QUICKSTART,
    # What most notebooks compare: the paper's optimizer on the quickstart's task.
    "half-cheetah-short": replace(
        _task("HalfCheetah-v5", target_return=1000.0), env=_SHORT, checkpoint_every=5
    ),
    "humanoid-mlp": _HUMANOID_MLP,
    "humanoid-mlp-fast": _fast(_HUMANOID_MLP),
    "humanoid-dt": _HUMANOID_DT,
    "humanoid-dt-fast": _fast(_HUMANOID_DT),
    "humanoid-dt-half": replace(_HUMANOID_DT, es=ESConfig(num_pairs=10_000)),
    "hero-dt": _HERO_DT,
    "hero-dt-fast": _fast(_HERO_DT),
    "atari-cnn": _ATARI_CNN,
    "humanoid-standup": _task("HumanoidStandup-v5", 150_000.0, reward_scale=1e-5),
    "ant": _task("Ant-v5", 3000.0),
    "half-cheetah": _task("HalfCheetah-v5", 3000.0),
    "hopper": _task("Hopper-v5", 3000.0),
    "walker2d": _task("Walker2d-v5", 3000.0),
    "swimmer": _task("Swimmer-v5", 360.0, reward_scale=0.01),
    "inverted-pendulum": _task("InvertedPendulum-v5", 1000.0),
    "inverted-double-pendulum": _task("InvertedDoublePendulum-v5", 9300.0),
    "reacher": _task("Reacher-v5", -4.0, reward_scale=0.1, max_timestep=50),
    "pusher": _task("Pusher-v5", -25.0, reward_scale=0.1, max_timestep=100),
}


def _repertoire(env_id: str, descriptor: str, healthy_weight: float) -> TrainConfig:
    """A task of QDax's whose archive a workstation fills: small networks, 250 steps.

    Fitness leaves out what is paid for staying up: it would be most of all fitness.
    """
    return TrainConfig(
        env=EnvConfig(env_id, max_episode_steps=250, descriptor=(descriptor,)),
        policy=MLPConfig(hidden_sizes=(32, 32)),
        # With emitter es, which is ME-ES (arXiv 2003.01825) with a tenth of its pairs.
        es=ESConfig(
            num_pairs=50,
            sigma=0.02,
            learning_rate=0.01,
            optimizer="adam",
            shaping="centered_rank",
            healthy_reward_weight=healthy_weight,
        ),
        rollout=RolloutConfig(observation_statistics=False),
        evaluation=EvaluationConfig(num_episodes=4),
        num_generations=500,
        checkpoint_every=10,
    )


PRESETS |= {
    "ant-uni": _repertoire("Ant-v5", "feet", 0.0),
    "ant-omni": _repertoire("Ant-v5", "position", 0.0),
    "half-cheetah-uni": _repertoire("HalfCheetah-v5", "feet", 1.0),
    "hopper-uni": _repertoire("Hopper-v5", "feet", 0.0),
    "walker2d-uni": _repertoire("Walker2d-v5", "feet", 0.0),
}


def _pretrained(name: str) -> TrainConfig:
    """How the paper goes on from a clone, and what it compares with that.

    σ = learning rate = 0.01 and no observation statistics; ``-standard`` takes σ and
    learning rate of the task's own preset instead, ``-statistics`` gathers statistics.
    With both it is the task's own preset.
    """
    task, _, contrast = name.partition("-pretrained")
    config = PRESETS[task]
    if contrast != "-standard":
        es = replace(config.es, sigma=0.01, learning_rate=0.01)
        config = replace(config, es=es)
    if contrast != "-statistics":
        rollout = replace(config.rollout, observation_statistics=False)
        config = replace(config, rollout=rollout)
    return config


PRESETS |= {
    name: networks["decision-transformer"] for name, networks in CLIPUP_PRESETS.items()
}
PRESETS |= CONTROL_PRESETS
PRESETS |= {name: _pretrained(name) for name in PRETRAINED_PRESETS}


def preset(
    name: str, policy: str | None = None, strategy: str | None = None
) -> TrainConfig:
    """Returns a preset, with another kind of policy or strategy if asked for.

    Args:
        name: one of :data:`PRESETS`.
        policy: one of ``POLICY_KINDS`` or ``module:Name``; the preset's own if not
            given.
        strategy: one of ``STRATEGIES``, with the preset's values of what all strategies
            read; the preset's own if not given.

    Raises:
        ConfigError: for unknown names; it lists the closest ones.
    """
    return with_strategy(_with_policy(name, policy), strategy)


def with_strategy(config: TrainConfig, name: str | None) -> TrainConfig:
    """Returns the configuration with another strategy.

    What both read stays; the rest goes back to its default.
    """
    es = config.es
    if name is None or name == es.strategy:
        return config
    if name not in STRATEGIES:
        raise ConfigError(unknown("strategy", name, STRATEGIES))
    if {name, es.strategy} <= {*ESTIMATING}:
        return replace(config, es=replace(es, strategy=name, kwargs={}))
    shared: dict[str, Any] = {field: getattr(es, field) for field in SHARED}
    return replace(config, es=ESConfig(strategy=name, **shared))


def _with_policy(name: str, policy: str | None) -> TrainConfig:
    if name not in PRESETS:
        raise ConfigError(unknown("preset", name, PRESETS))
    config = PRESETS[name]
    if policy is None:
        return config
    if ":" in policy:
        return replace(config, policy=CustomPolicyConfig(target=policy))
    if policy not in POLICY_KINDS:
        raise ConfigError(unknown("policy", policy, POLICY_KINDS))
    if policy == policy_kind(config.policy):
        return config
    if policy in (tuned := CLIPUP_PRESETS.get(name, {})):
        return tuned[policy]
    cheetah = CLIPUP_PRESETS["half-cheetah-clipup"]
    if name == "quickstart" and policy in cheetah:
        return replace(config, policy=cheetah[policy].policy, es=cheetah[policy].es)
    if name in CONTROL_PRESETS and policy == "decision-transformer":
        return replace(config, policy=control_transformer(name))
    if name in FAST_PRESETS:
        return _fast(replace(config, policy=POLICY_KINDS[policy]()))
    if name in PAPER_PRESETS or policy not in _SMALL_POLICIES:
        return replace(config, policy=POLICY_KINDS[policy]())
    if name == "inverted-double-pendulum":
        # Episodes are short there and updates many: at 0.05 θ grows faster than it
        # learns.
        config = replace(config, es=replace(config.es, learning_rate=0.01))
    return replace(config, policy=_SMALL_POLICIES[policy])


def check_init(preset_name: str, config: TrainConfig) -> None:
    """Checks that a new run that needs another run's θ names that run."""
    require(
        config.init is not None or preset_name not in PRETRAINED_PRESETS,
        f"preset {preset_name} goes on from a pretrained policy; add --init RUN (the "
        f"program pretrain {preset_name} makes one).",
    )


def for_cloning(config: TrainConfig) -> TrainConfig:
    """Returns a preset as the paper clones: 100 evaluation episodes, no statistics."""
    return replace(
        config,
        rollout=replace(config.rollout, observation_statistics=False),
        evaluation=replace(config.evaluation, num_episodes=100),
    )


def for_teaching(config: TrainConfig) -> TrainConfig:
    """Returns what SAC and TD3 take of a preset: its environment and transformer.

    A feed-forward actor is the one that they are used with, whatever the preset's is.
    """
    policy = config.policy
    if policy_kind(policy) == "mlp":
        policy = replace(policy, hidden_sizes=(256, 256), activation="relu")
    return TrainConfig(
        env=config.env,
        policy=policy,
        rollout=RolloutConfig(observation_statistics=False),
    )


def unknown(what: str, name: str, known) -> str:
    """Returns the message for an unknown name, the closest known ones first."""
    close = difflib.get_close_matches(str(name), list(known), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{what} {name!r} is unknown; {hint}Known: {', '.join(known)}."
