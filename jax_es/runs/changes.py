"""Whether a run goes on as it began: what of its configuration may change."""

import dataclasses
import warnings
from typing import Any

from jax_es.checks import require
from jax_es.runs.digests import DIGESTS
from jax_es.runs.directory import RunDirectory, resume_options
from jax_es.runs.folders import program_command
from jax_es.runs.machine import JAX_SETTINGS, jax_settings, versions
from jax_es.runs.method import FREE_SETTINGS, Method
from jax_es.train_config import (
    TrainConfig,
    differences,
    differing,
    require_same,
    to_dict,
)

FREE_TO_CHANGE = (
    "num_generations",
    "max_env_steps",
    "stop_at_return",
    "checkpoint_every",
    "rollout.num_threads",
    "rollout.vectorization_mode",
)
"""Fields that a resumed run may change: none of them changes a generation's numbers."""

ROUNDING_ALONE = (
    "rollout.num_slots",
    "rollout.slots_per_core",
    "rollout.num_groups",
    "rollout.num_devices",
    "rollout.shard_size",
)
"""Fields that change a run's numbers by rounding alone; they follow the machine."""

SAME_EXPERIMENT = ("seed", *FREE_TO_CHANGE, *FREE_SETTINGS, *ROUNDING_ALONE)
"""Fields in which runs of one experiment may differ: its seeds, and what changes no
number, or rounding alone."""


def check_method(run: RunDirectory, method: Method) -> None:
    """Raises ``ConfigError`` unless a run was begun by this method and settings.

    Strategies are one method here: which one it was is a field of the configuration.
    """
    stored, given = run.method(), method.settings
    require(
        stored.name == method.name or (stored.is_evolution and method.is_evolution),
        f"--resume: {run.path} was trained by {stored.title}, not by {method.title}; "
        f"continue it with {program_command(stored.program.removeprefix('jax_es.'))} "
        f"{resume_options(run)}.",
    )
    settings: dict[str, object] = {k: stored.settings.get(k) for k in given}
    require_unchanged(run, differing(settings, given))


def with_stored_machine(run: RunDirectory, config: TrainConfig) -> TrainConfig:
    """Fills in devices and slots that the run began with, where none are given."""
    rollout, stored = config.rollout, run.config().rollout
    fields = ("num_devices", "num_slots", "shard_size")
    open_ = [name for name in fields if getattr(rollout, name) is None]
    if rollout.num_slots is None:
        open_.append("slots_per_core")
    kept = {name: getattr(stored, name) for name in open_}
    rollout = dataclasses.replace(rollout, **kept)
    return dataclasses.replace(config, rollout=rollout)


def check_resumable(run: RunDirectory, config: TrainConfig) -> None:
    """Raises ``ConfigError`` unless ``config`` continues this run's numbers."""
    changed = differences(run.config(), config)
    changed = {k: v for k, v in changed.items() if k not in FREE_TO_CHANGE}
    require_unchanged(run, changed | changed_jax(run))


def check_workers(run: RunDirectory, config: TrainConfig, has_workers: bool) -> None:
    """Raises ``ConfigError`` unless the run goes on as it began.

    On workers, or in one process: as ``rollout.shard_size`` says.
    """
    size = config.rollout.shard_size
    require(
        size is None or has_workers,
        f"{run.path} is a run of workers (rollout.shard_size {size}); add "
        "--workers N, where any N gives the same numbers.",
    )
    require(
        size is not None or not has_workers,
        f"{run.path} began in one process, and workers would round its numbers "
        "differently; leave --workers and --cluster out, or start a new run.",
    )


def changed_jax(run: RunDirectory) -> dict[str, tuple[object, object]]:
    """Returns JAX's settings that were others: variable → (was, now)."""
    recorded = run.record().get("jax")
    stored = recorded if isinstance(recorded, dict) else {}
    began = {name: stored.get(name, usual) for name, usual in JAX_SETTINGS.items()}
    changed = differing(began, jax_settings())
    return {name.upper(): values for name, values in changed.items()}


def require_unchanged(
    run: RunDirectory, changed: dict[str, tuple[object, object]]
) -> None:
    """Raises ``ConfigError`` if a resume changes anything: name → (was, now)."""
    remedy = "start a new run with another --name"
    require_same(f"the run in {run.path}", changed, remedy)


def take_over(run: RunDirectory, config: TrainConfig, step: int) -> None:
    """Takes over what a resumed run may change: from now on it is the run's.

    Warns of packages that changed since the run began.

    Args:
        run: the run, of an older configuration.
        config: of the run from now on.
        step: of the checkpoint that it goes on from.
    """
    warn_of_versions(run)
    record = run.record()
    entries: dict[str, Any] = {}
    if differences(run.config(), config):
        entries["config"] = to_dict(config)
    if DIGESTS not in record:  # of an earlier version
        entries[DIGESTS] = {"first_step": step + 1}
    if entries:
        run.update(**entries)


def warn_of_versions(run: RunDirectory) -> None:
    """Warns of packages that changed since the run began."""
    began = run.record().get("versions", {})
    now: dict[str, object] = {k: v for k, v in versions().items() if k in began}
    changed = differing(began, now).items()
    if changed:
        listed = ", ".join(f"{k} {then} → {new}" for k, (then, new) in changed)
        warnings.warn(
            f"{run.path} began with other versions ({listed}); its numbers may "
            "differ from an uninterrupted run's.",
            stacklevel=3,
        )
