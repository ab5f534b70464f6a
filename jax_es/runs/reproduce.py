"""From a run back to the command that trains it again."""

import dataclasses
import shlex
import typing
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from jax_es.checks import is_own
from jax_es.phases import Phase, written
from jax_es.presets import (
    PRESETS,
    for_cloning,
    for_teaching,
    meant_by,
    preset,
    with_objective,
)
from jax_es.runs.method import CLONING, OPENAI_ES, TEACHER, Method
from jax_es.train_config import KWARGS, TrainConfig, differences, policy_kind


class Origin(NamedTuple):
    """A preset, and how a configuration differs from it."""

    preset: str
    """The one that it was made from; the nearest one if that is not known."""
    kind: str | None
    """The policy, unless the program chooses it by itself."""
    fine_tune: bool
    """Whether it goes on from another run with gentler settings (``--fine-tune``)."""
    changes: dict[str, tuple[object, object]]
    """Field → (the preset's value, the configuration's)."""


def origin(config: TrainConfig, recorded: str, method: Method = OPENAI_ES) -> Origin:
    """Finds a configuration's preset and what was changed of it, where it matters.

    ``recorded`` is the preset that the run recorded; ``python`` and the like are none.
    """
    names = meant_by(recorded) or PRESETS
    gentle = (False, True) if config.init and method.is_evolution else (False,)
    origins = [_from(config, name, fine, method) for name in names for fine in gentle]
    return min(origins, key=lambda o: len(o.changes))


def _from(config: TrainConfig, name: str, fine_tune: bool, method: Method) -> Origin:
    kind: str | None = policy_kind(config.policy)
    base = preset(name, kind, config.es.strategy, fine_tune)
    if is_own(config.es.objective):
        base = with_objective(base, config.es.objective)
    # Compared with what the program itself makes of the preset.
    if method.program == TEACHER:
        base = for_teaching(base)
    elif method.name == CLONING:
        base = for_cloning(base)
    run = config.rollout
    if run.num_slots is not None and run.num_devices is not None:
        # As many slots as the preset has on the run's devices, or had before few
        # episodes were dealt out evenly.
        num_slots = base.rollout.slots_on(run.num_devices)
        if run.num_slots != num_slots:
            tasks = config.tasks_of_long_episodes
            num_slots = base.rollout.slots_on(run.num_devices, tasks)
        rollout = dataclasses.replace(
            base.rollout,
            num_slots=num_slots,
            slots_per_core=run.slots_per_core,
        )
        base = dataclasses.replace(base, rollout=rollout)
    # The program takes the preset's own policy, but a teacher an mlp.
    if kind == policy_kind(PRESETS[name].policy) and method.program != TEACHER:
        kind = None
    changes = differences(base, config)
    read = {f: v for f, v in changes.items() if method.reads(f)}
    return Origin(name, kind, fine_tune, read)


def command(
    config: TrainConfig,
    recorded: str,
    num_seeds: int = 1,
    leave_out: Collection[str] = (),
    method: Method = OPENAI_ES,
) -> str:
    """Returns the command that trains a configuration again.

    Args:
        config: of the run, or of the first of several seeds.
        recorded: the preset that the run recorded.
        num_seeds: how many, counting up from the configuration's; one by gradients.
        leave_out: fields that are left out, such as ``seed``.
        method: how the run was trained.
    """
    start = origin(config, recorded, method)
    words = ["python", "-m", method.program, start.preset]
    if start.kind is not None:
        words += ["--policy", start.kind]
    if method.is_evolution and config.es.strategy != preset(start.preset).es.strategy:
        words += ["--strategy", config.es.strategy]
    if is_own(config.es.objective):
        words += ["--objective", config.es.objective]
    words += ["--fine-tune"] * start.fine_tune
    if method.program == TEACHER:
        words += ["--algo", method.name]
        # A teacher is only evaluated by rollouts, and has no options for them.
        leave_out = [*leave_out, *(f for f in start.changes if f.startswith("rollout"))]
    changed = {field: value for field, (_, value) in start.changes.items()}
    for field, value in {**changed, **method.settings}.items():
        if field not in leave_out:
            words += option(field, value)
    if config.rollout.shard_size is not None:
        words += ["--workers", "2"]  # any number gives the same numbers
    if num_seeds > 1:
        words += ["--seeds", str(num_seeds)]
    return shlex.join(words)


def option(field: str, value: object) -> list[str]:
    """Returns a field's value as the command line takes it."""
    if field.startswith(KWARGS):
        return [f"--{field}", value if isinstance(value, str) else repr(value)]
    if field == "phases":
        phases = typing.cast(Sequence[dict[str, Any]], value)
        return ["--phases", written(tuple(Phase(**phase) for phase in phases))]
    *parents, name = field.replace("_", "-").split(".")
    if isinstance(value, bool):
        name = name if value else f"no-{name}"
        return ["--" + ".".join([*parents, name])]
    values: Any = value if isinstance(value, tuple | list) else (value,)
    option = "--" + ".".join([*parents, name])
    if values and isinstance(values[0], tuple | list):  # given once for each
        return [word for each in values for word in (option, *map(str, each))]
    return [option, *map(str, values)]
