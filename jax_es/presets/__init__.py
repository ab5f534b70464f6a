"""Tuned settings as data: a table by task and network, and what chooses from it.

The tables: ``paper.py`` (the papers' settings and their workstation-sized forms),
``robots.py`` (the best found for MuJoCo's tasks), ``control.py`` (small tasks),
``games.py`` (Atari's games from memory) and ``own.py`` (tasks of one's own).
"""

import difflib
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from jax_es.checks import ConfigError, is_own, require
from jax_es.config import RolloutConfig
from jax_es.config.es import (
    COMMANDS,
    ESTIMATING,
    OBJECTIVES,
    SHARED,
    STRATEGIES,
    WEIGHTS,
    ESConfig,
)
from jax_es.models import MLPConfig
from jax_es.phases import Phase
from jax_es.presets.control import CONTROL_PRESETS
from jax_es.presets.games import GAME_PRESETS
from jax_es.presets.own import OWN_PRESETS
from jax_es.presets.paper import PAPER_PRESETS, REPERTOIRE_PRESETS, SMALL_PRESETS
from jax_es.presets.robots import ROBOT_PRESETS
from jax_es.train_config import (
    POLICY_KINDS,
    CustomPolicyConfig,
    TrainConfig,
    policy_kind,
)

DEFAULT_PRESET = "quickstart"

TUNED: dict[str, dict[str, TrainConfig]] = {
    **ROBOT_PRESETS,
    **SMALL_PRESETS,
    **PAPER_PRESETS,
    **REPERTOIRE_PRESETS,
    **CONTROL_PRESETS,
    **GAME_PRESETS,
    **OWN_PRESETS,
}
"""Preset → kind of policy → configuration; a preset's first policy is its default."""

PRESETS: dict[str, TrainConfig] = {
    name: next(iter(networks.values())) for name, networks in TUNED.items()
}
"""Preset → configuration, with the preset's own policy."""

RENAMED = {
    f"{task}-clipup": task
    for task in (
        *("inverted-double-pendulum", "swimmer", "hopper", "half-cheetah"),
        *("walker2d", "ant", "humanoid"),
    )
}
"""Names of version 0.2 → today's; both work."""

FINE_TUNED = {
    f"{start}-pretrained{contrast}": task
    for start, task in (
        *(("humanoid-dt", "humanoid-dt"), ("hopper", "hopper-small")),
        ("walker2d", "walker2d-small"),
    )
    for contrast in ("", "-standard", "-statistics")
}
"""Names of version 0.2 → the presets that they are now, with ``fine_tune``."""


FOR_STRATEGY: dict[str, dict[str, Any]] = {
    # As in the paper few members, which the critic improves. Paid for what the task
    # pays: without the bonus for staying healthy, one Walker2d of two fell at once.
    "cem-rl": {"num_pairs": 5, "sigma": 0.03, "healthy_reward_weight": 1.0},
}
"""Strategy → its own values of what all strategies read, whatever the preset."""


def meant_by(recorded: str) -> tuple[str, ...]:
    """Returns the presets that a run may mean by the name that it recorded.

    Up to version 0.2 ``hopper`` was what is ``hopper-small`` now, and so on. None if
    the name is no preset's.
    """
    today = RENAMED.get(recorded) or FINE_TUNED.get(recorded, recorded)
    names = (today,) if today != recorded else (today, f"{today}-small")
    return tuple(name for name in names if name in TUNED)


def current_name(name: str) -> str:
    """Returns what a preset is called now, with a warning if it was renamed.

    Raises:
        ConfigError: there is no such preset; it names the closest ones.
    """
    if name in RENAMED:
        new = RENAMED[name]
        warnings.warn(f"preset {name} is called {new} now", FutureWarning, stacklevel=3)
        return new
    require(
        name not in FINE_TUNED,
        f"preset {name} is {FINE_TUNED.get(name)} with --fine-tune now.",
    )
    require(name in TUNED, unknown("preset", name, TUNED))
    return name


def preset(
    name: str,
    policy: str | None = None,
    strategy: str | None = None,
    fine_tune: bool = False,
) -> TrainConfig:
    """Returns a preset, with another kind of policy or strategy if asked for.

    Args:
        name: one of :data:`PRESETS`.
        policy: one of ``POLICY_KINDS`` or ``module:Name``; the preset's own if not
            given.
        strategy: one of ``STRATEGIES``, with the preset's values of what all strategies
            read, or those of :data:`FOR_STRATEGY`; the preset's own if not given.
        fine_tune: as :func:`for_fine_tuning`.

    Raises:
        ConfigError: for unknown names; it lists the closest ones.
    """
    networks = TUNED[current_name(name)]
    config = with_strategy(_with_policy(networks, policy), strategy)
    return for_fine_tuning(config) if fine_tune else config


def _with_policy(networks: dict[str, TrainConfig], policy: str | None) -> TrainConfig:
    """Returns the configuration with a kind of policy, from a preset's row."""
    config = next(iter(networks.values()))
    if policy is None:
        return config
    if ":" in policy:
        return replace(config, policy=CustomPolicyConfig(target=policy))
    require(policy in POLICY_KINDS, unknown("policy", policy, POLICY_KINDS))
    untuned = replace(config, policy=POLICY_KINDS[policy]())
    return networks.get(policy, untuned)


def with_strategy(config: TrainConfig, name: str | None) -> TrainConfig:
    """Returns the configuration with another strategy.

    What both read stays, unless :data:`FOR_STRATEGY` has it; the rest goes back to its
    default, and phases change none of it.
    """
    es = config.es
    if name is None or name == es.strategy:
        return config
    if name not in STRATEGIES and not is_own(name):
        raise ConfigError(unknown("strategy", name, STRATEGIES))
    if {name, es.strategy} <= {*ESTIMATING}:
        changed = replace(es, strategy=name, kwargs={})
    else:
        shared: dict[str, Any] = {field: getattr(es, field) for field in SHARED}
        shared |= FOR_STRATEGY.get(name, {})
        changed = ESConfig(strategy=name, **shared)
    phases = _without(config.phases, lambda field: field.startswith("es."))
    return replace(config, es=changed, phases=phases)


def _without(
    phases: Iterable[Phase], is_dropped: Callable[[str], bool]
) -> tuple[Phase, ...]:
    """Returns phases that change nothing of what is dropped."""
    return tuple(
        replace(
            phase,
            changes={k: v for k, v in phase.changes.items() if not is_dropped(k)},
        )
        for phase in phases
    )


def with_objective(config: TrainConfig, name: str | None) -> TrainConfig:
    """Returns the configuration with another objective.

    One of the user's own sees all that episodes came to, so what ours read of the
    configuration goes back to its defaults.
    """
    es = config.es
    if name is None or name == es.objective:
        return config
    if name not in OBJECTIVES and not is_own(name):
        raise ConfigError(unknown("objective", name, OBJECTIVES))
    read = [] if name == "commanded-return" else [*COMMANDS, "objective_kwargs"]
    read += WEIGHTS if is_own(name) else []
    own = ESConfig()
    back = {field: getattr(own, field) for field in read}
    phases = _without(config.phases, lambda field: field.removeprefix("es.") in back)
    return replace(config, es=replace(es, objective=name, **back), phases=phases)


def for_fine_tuning(config: TrainConfig) -> TrainConfig:
    """Returns a configuration as the paper goes on from a pretrained policy (``init``).

    σ = learning rate = 0.01 and no observation statistics (arXiv 2501.13883).
    """
    es = replace(config.es, sigma=0.01)
    if es.strategy in ESTIMATING:
        es = replace(es, learning_rate=0.01)
    rollout = replace(config.rollout, observation_statistics=False)
    return replace(config, es=es, rollout=rollout)


def for_cloning(config: TrainConfig) -> TrainConfig:
    """Returns a preset as the paper clones: 100 evaluation episodes, no statistics.

    Cloning has no phases.
    """
    return replace(
        config,
        phases=(),
        rollout=replace(config.rollout, observation_statistics=False),
        evaluation=replace(config.evaluation, num_episodes=100),
    )


def for_teaching(config: TrainConfig) -> TrainConfig:
    """Returns what gradients take of a preset: its environment and transformer.

    A feed-forward actor is the one that SAC, TD3 and PPO are used with, whatever the
    preset's is, and a transformer reads windows, which TD3 stores.
    """
    policy = config.policy
    match policy_kind(policy):
        case "mlp":
            policy = MLPConfig(activation="relu")
        case "decision-transformer":
            policy = replace(policy, attention="window")
    return TrainConfig(
        env=config.env,
        policy=policy,
        rollout=RolloutConfig(observation_statistics=False),
    )


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """Returns the message for an unknown name, with the three closest or all of few.

    ``module.Name`` is probably meant to be a part of one's own.
    """
    module, dot, own = str(name).rpartition(".")
    if dot and what in ("policy", "strategy", "objective"):
        return f"{what} {name!r} is unknown; of a module's, write {module}:{own}."
    if len(known) > 15:
        first, second, third = difflib.get_close_matches(str(name), known, cutoff=0.0)
        close = f"did you mean {first}, {second} or {third}?"
        return f"{what} {name!r} is unknown; {close}"
    matches = difflib.get_close_matches(str(name), known, cutoff=0.5)
    hint = f"did you mean {' or '.join(matches)}? " if matches else ""
    return f"{what} {name!r} is unknown; {hint}Known: {', '.join(known)}."
