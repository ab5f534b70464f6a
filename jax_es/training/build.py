"""From a configuration to running parts: the composition root.

The only file that imports ``models`` and ``envs`` (settings of the networks stand in
``train_config.py`` and ``presets.py`` as well). Programs (``train.py``,
``evaluate.py``) and ``load_policy`` build what they need here.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Collection
from typing import Any

import gymnasium
import jax
import numpy as np

from jax_es import models
from jax_es.checks import ConfigError, is_own, require
from jax_es.config import EnvConfig, RolloutConfig
from jax_es.envs.atari_env import env_id_of
from jax_es.envs.base import available_cores, is_atari
from jax_es.envs.damages import Damage, damage
from jax_es.envs.damages import damages as named_damages
from jax_es.envs.make import make as make_vector_env
from jax_es.models.make import AnyPolicy
from jax_es.rollout.devices import Devices, local_devices, use_cores
from jax_es.runs.changes import check_workers, with_stored_machine
from jax_es.runs.directory import RunDirectory
from jax_es.runs.trust import find
from jax_es.train_config import (
    FLATTEN,
    JAX_PACKAGES,
    POLICY_KINDS,
    CustomPolicyConfig,
    PolicyConfig,
    TrainConfig,
    policy_kind,
)
from jax_es.training.custom_policy import make_custom_policy
from jax_es.training.shards import on_workers
from jax_es.types import Policy, PyTree, VectorEnv

MOST_SUBSTEPS = 4096
"""Physics steps in a step of the environment, which nothing can interrupt."""

SEEN = ("observation", "frame_size", "frame_stack")
"""Fields of ``EnvConfig`` that change what is seen of a game, and not the game."""


def make_env(
    config: EnvConfig,
    num_envs: int,
    num_threads: int | None,
    rollout: RolloutConfig | None = None,
) -> VectorEnv:
    """Builds the vector environment; one thread per available core if not told.

    Raises:
        ConfigError: if the environment does not exist or does not take the options.
    """
    require(config.id != "", "env.id is needed: the id of an environment.")
    register_own(config.id)
    given = {
        f"env.kwargs.{name}" if name in config.kwargs else f"env.{name}": value
        for name, value in config.options.items()
    }
    skip = config.kwargs.get("frame_skip")
    require(
        not isinstance(skip, int) or skip <= MOST_SUBSTEPS,
        f"env.kwargs.frame_skip must be at most {MOST_SUBSTEPS}, got {skip}; leave it "
        "out.",
    )
    given["env.descriptor"] = config.described_by or None
    if rollout is not None:
        given["rollout.vectorization_mode"] = rollout.vectorization_mode
    given = {name: value for name, value in given.items() if value is not None}
    options = {name.rpartition(".")[2]: value for name, value in given.items()}
    threads = num_threads or available_cores()
    physics = {} if rollout is None else rollout.physics
    if config.wrappers or config.kwargs:
        for name in config.kwargs:
            del options[name]
        options |= {"kwargs": config.kwargs, "wrappers": wrappers_of(config)}
    try:
        return make_vector_env(
            config.id, num_envs, num_threads=threads, physics=physics, **options
        )
    except TypeError as error:
        if not options:
            raise
        why = str(error).partition(" was raised from the environment creator")[0]
        named = [name for name in given if name.rpartition(".")[2] in why]
        refused = " or ".join(f"{name} {given[name]}" for name in named or given)
        raise ConfigError(
            f"{config.id} does not take {refused} ({why}); leave it out or choose "
            "another env.id, or no preset that sets it."
        ) from error
    except ValueError as error:
        text = re.sub(_NAMED_BY_ENVS, lambda match: _FIELDS[match[0]], str(error))
        if config.wrappers:
            own = " ".join(config.wrappers)
            text = text.replace("--env.wrappers ", f"--env.wrappers {own} ")
        raise ConfigError(text) from error


_registered: set[str] = set()
"""What :func:`register_own` has registered."""


def register_own(env_id: str) -> None:
    """Registers what ``module:Name`` names, a class or a function that makes one.

    Gymnasium then makes it by that id. What the module registers itself stays; an
    unversioned name means the latest of its versions.
    """
    module, _, name = env_id.partition(":")
    is_name = all(part.isidentifier() for part in name.split("."))
    if not (is_own(env_id) and is_name) or module in JAX_PACKAGES:
        return
    found: Any = None
    with contextlib.suppress(ConfigError):  # an id, or in no module: told when made
        found = find("--env.id", env_id)
    is_class = isinstance(found, type) and issubclass(found, gymnasium.Env)
    if not (is_class or inspect.isfunction(found)):  # os:system is neither
        return
    if name in _registered:
        gymnasium.registry.pop(name, None)
    for spec in gymnasium.registry.values():
        if name in (spec.id, spec.id.rpartition("-v")[0]):
            require(
                spec.entry_point in (found, env_id),
                f"env.id {env_id} would be {spec.id}, which Gymnasium knows already; "
                f"give {name} another name.",
            )
            return
    gymnasium.register(name, found)
    _registered.add(name)


_FIELDS = {
    "env_id": "env.id",
    "max_episode_steps": "env.max_episode_steps",
    "descriptor:": "env.descriptor:",
    "frame_size:": "env.frame_size:",
    "frame_stack:": "env.frame_stack:",
    "num_substeps": "rollout.num_substeps",
    "integrator": "rollout.integrator",
    "vectorization_mode": "rollout.vectorization_mode",
}
"""What the errors of ``envs`` name → our fields."""

_NAMED_BY_ENVS = rf"(?<![\w.-])(?:{'|'.join(_FIELDS)})(?!\w)"


def wrappers_of(config: EnvConfig) -> tuple[Callable[[gymnasium.Env], Any], ...]:
    """Imports the wrappers of an environment, the innermost first."""
    for target in config.wrappers:
        require(
            not hasattr(gymnasium.wrappers, target),
            f"--env.wrappers {target} cannot be imported; Gymnasium's is "
            f"gymnasium.wrappers:{target}.",
        )
    return tuple(find("--env.wrappers", target) for target in config.wrappers)


def damages(config: EnvConfig, names: Collection[str]) -> dict[str, Damage]:
    """Returns damaged robots by the names of their damages, ``all`` for all of them.

    Raises:
        ValueError: there is no such damage.
    """
    if tuple(names) == ("all",):
        return named_damages(config.id)
    return {name: damage(config.id, name) for name in names}


def shown_and_played(own: EnvConfig, changed: EnvConfig) -> tuple[EnvConfig, EnvConfig]:
    """Returns what shows a task, and what plays it, to a policy trained in ``own``.

    Of what was ``changed``, :data:`SEEN` holds for what shows a game alone.
    """
    if not is_atari(changed.id):
        return changed, changed
    if changed.observation != "frames":  # sizes of frames have no meaning there
        sizes = {name: getattr(EnvConfig, name) for name in SEEN[1:]}
        changed = dataclasses.replace(changed, **sizes)
    seen = {name: getattr(own, name) for name in SEEN}
    return changed, dataclasses.replace(changed, **seen)


def with_game(config: TrainConfig) -> TrainConfig:
    """Returns the configuration with a game's name replaced by the game's id.

    Raises:
        ValueError: the game is unknown.
    """
    if config.env.game is None:
        return config
    env = dataclasses.replace(config.env, id=env_id_of(config.env.game), game=None)
    return dataclasses.replace(config, env=env)


def make_policy(
    config: PolicyConfig,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    env: EnvConfig | None = None,
) -> Policy:
    """Builds the policy for one environment's spaces, or raises ``ConfigError``.

    The error says what to change about ``env``.
    """
    if isinstance(config, CustomPolicyConfig):
        return make_custom_policy(
            config, observation_space.shape or (), action_spec(action_space)
        )
    of_images = takes_images(type(config))
    takes = "images" if of_images else "observation vectors"
    if not (
        isinstance(observation_space, gymnasium.spaces.Box)
        and len(observation_space.shape) == (3 if of_images else 1)
    ):
        kinds = [
            name
            for name, kind in POLICY_KINDS.items()
            if takes_images(kind) != of_images and name != "afterstate"
        ]
        is_game = env is not None and is_atari(env.id)
        if is_game:
            remedies = [f"add --env.observation {'frames' if of_images else 'ram'}"]
        elif of_images:
            remedies = []
        else:
            flat = " ".join((*(env.wrappers if env else ()), FLATTEN))
            remedies = [f"add --env.wrappers {flat}"]
        if len(observation_space.shape or ()) == (1 if of_images else 3):
            remedies.append(f"choose --policy {' or '.join(kinds)}")
        if of_images and not is_game:
            remedies.append("choose another env.id")
        raise ConfigError(
            f"policy {policy_kind(config)} takes {takes}, got {observation_space}; "
            f"{', or '.join(remedies)}."
        )
    try:
        return models.make_policy(
            config, observation_space.shape, action_spec(action_space)
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def is_ours(policy: Policy) -> bool:
    """Returns whether a policy is its fields, so that equal ones act alike."""
    return isinstance(policy, typing.get_args(AnyPolicy))


def draw_weights(policy: Policy, key: jax.Array) -> PyTree:
    """Draws θ; for equal policies of ours the program is compiled once a process."""
    drawing = _drawing if is_ours(policy) else _drawing.__wrapped__
    return drawing(policy)(key)


@functools.lru_cache(maxsize=4)
def _drawing(policy: Policy) -> Callable[[jax.Array], PyTree]:
    return jax.jit(policy.init)


def make_twin_critic(observation_size: int, action_size: int, width: int) -> Any:
    """Builds the networks of a critic, with ``init`` and ``apply``."""
    return models.TwinCritic(observation_size, action_size, width)


def takes_images(kind: type[PolicyConfig]) -> bool:
    """Returns whether a kind of policy reads images; the others read vectors."""
    return issubclass(kind, models.IMAGE_POLICIES)


def action_spec(space: gymnasium.Space) -> models.ActionSpec:
    """Says what a policy must know of an action space, or raises ``ConfigError``."""
    match space:
        case gymnasium.spaces.Discrete():
            return models.DiscreteActions(int(space.n), int(space.start))
        case gymnasium.spaces.Box() if len(space.shape) == 1 and np.issubdtype(
            space.dtype, np.floating
        ):
            return models.BoxActions(
                tuple(space.low.tolist()), tuple(space.high.tolist())
            )
        case gymnasium.spaces.MultiDiscrete():
            nvec, start = space.nvec.ravel().tolist(), space.start.ravel().tolist()
            return models.MultiDiscreteActions(tuple(nvec), tuple(start), space.shape)
        case gymnasium.spaces.MultiBinary():
            return models.BinaryActions(space.shape)
    raise ConfigError(
        f"the action space {space} is no vector of real numbers, nor Discrete, "
        "MultiDiscrete or MultiBinary; add a wrapper that transforms actions "
        "(--env.wrappers module:Name)."
    )


def check_cores(config: RolloutConfig) -> None:
    """Rejects a new run that asks for more devices than cores."""
    require(
        (config.num_devices or 1) <= available_cores(),
        f"rollout.num_devices must be at most {available_cores()}, the cores here, "
        f"got {config.num_devices}.",
    )


def make_devices(config: RolloutConfig) -> Devices:
    """Chooses the local devices, or raises ``ConfigError`` if there are too few."""
    local = local_devices()
    count = len(local) if config.num_devices is None else config.num_devices
    require(
        count <= len(local),
        f"rollout.num_devices must be at most {len(local)}, the devices that JAX "
        f"shows here, got {count}.",
    )
    return Devices(local[:count])


def with_machine(
    config: TrainConfig,
    has_workers: bool = False,
    num_tasks: int = 0,
    num_members: int | None = None,
) -> TrainConfig:
    """Fills in how many devices and slots this machine, or a worker, gives a run.

    Args:
        config: of the run.
        has_workers: whether workers evaluate.
        num_tasks: as of :meth:`RolloutConfig.slots_on`.
        num_members: of a generation; the strategy's if not given.
    """
    if has_workers:
        return on_workers(config, num_members)
    devices = make_devices(config.rollout)
    rollout = dataclasses.replace(
        config.rollout,
        num_devices=devices.count,
        num_slots=num_slots(config.rollout, devices, num_tasks),
    )
    return dataclasses.replace(config, rollout=rollout)


def for_run(
    config: TrainConfig,
    run: RunDirectory,
    resume: bool,
    has_workers: bool,
    num_members: int | None = None,
) -> TrainConfig:
    """Fills in the machine as :func:`with_machine`; what goes on keeps the run's.

    It uses all cores, unless JAX has started before with fewer devices.
    """
    use_cores(1 if has_workers else config.rollout.num_devices)
    if resume:
        config = with_stored_machine(run, config)
    if resume or (config.rollout.shard_size is not None and not has_workers):
        check_workers(run, config, has_workers)
    num_tasks = config.tasks_of_long_episodes if num_members is None else 0
    return with_machine(config, has_workers, num_tasks, num_members)


def num_slots(config: RolloutConfig, devices: Devices, num_tasks: int = 0) -> int:
    """Returns S as configured, or as machine and tasks ask (``slots_on``)."""
    if devices.platform == "cpu":
        return config.slots_on(devices.count, num_tasks)
    # However few the accelerators are, every core needs environments to step.
    return config.slots_on(max(devices.count, available_cores()))


def slot_groups(
    config: RolloutConfig, num_tasks: int, devices: Devices
) -> tuple[int, ...]:
    """Returns the slots of each group: as configured, but no more than tasks.

    Rounded up, so that all groups are alike and each device holds equally many; no
    group is without a slot for each device.
    """
    num_groups = config.num_groups
    if num_groups is None:
        # On a CPU the policies and the physics share the cores: nothing overlaps.
        num_groups = 1 if devices.platform == "cpu" else 2
    slots = min(num_slots(config, devices), num_tasks)
    num_groups = min(num_groups, max(1, slots // devices.count))
    block = num_groups * devices.count
    return (-(-slots // block) * devices.count,) * num_groups
