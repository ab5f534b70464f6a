"""From a run back to the command line that makes it anew."""

import shlex
from collections.abc import Collection
from typing import NamedTuple

from jax_es.experiment import TrainConfig, differences, policy_kind
from jax_es.presets import PRESETS, preset


class Origin(NamedTuple):
    """The preset that a configuration is told by.

    Attributes:
        preset: the one that it was made from; the nearest one if that is not known.
        kind: the policy, if it is not the preset's own.
        changes: field → (the preset's value, the configuration's).
    """

    preset: str
    kind: str | None
    changes: dict[str, tuple[object, object]]


def origin(config: TrainConfig, recorded: str) -> Origin:
    """Finds a configuration's preset and what was changed of it.

    Args:
        config: of a run.
        recorded: the preset that the run recorded; ``python`` and the like are none.
    """
    names = [recorded] if recorded in PRESETS else list(PRESETS)
    return min((_from(config, name) for name in names), key=lambda o: len(o.changes))


def _from(config: TrainConfig, name: str) -> Origin:
    kind: str | None = policy_kind(config.policy)
    base = preset(name, kind)
    if kind == policy_kind(PRESETS[name].policy):
        kind = None
    return Origin(name, kind, differences(base, config))


def command(
    config: TrainConfig,
    recorded: str,
    num_seeds: int = 1,
    leave_out: Collection[str] = (),
) -> str:
    """Returns the command that trains a configuration anew.

    Args:
        config: of the run, or of the first of several seeds.
        recorded: the preset that the run recorded.
        num_seeds: how many, counting up from the configuration's.
        leave_out: fields to say nothing of, as ``seed`` or ``rollout.num_devices``.
    """
    start = origin(config, recorded)
    words = ["python", "-m", "jax_es.train", start.preset]
    if start.kind is not None:
        words += ["--policy", start.kind]
    for field, (_, value) in start.changes.items():
        if field not in leave_out:
            words += _option(field, value)
    if num_seeds > 1:
        words += ["--seeds", str(num_seeds)]
    return shlex.join(words)


def _option(field: str, value: object) -> list[str]:
    """Returns a field's value as the command line takes it."""
    *parents, name = field.replace("_", "-").split(".")
    if isinstance(value, bool):
        name = name if value else f"no-{name}"
        return ["--" + ".".join([*parents, name])]
    values = value if isinstance(value, tuple | list) else (value,)
    return ["--" + ".".join([*parents, name]), *map(str, values)]
