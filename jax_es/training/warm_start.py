"""A run that begins with another run's θ: ``--init RUN``.

What makes θ act as it did comes along: the observation statistics that it saw through,
and a reference batch. The optimizer's momentum, the noise and the step cap start again.
"""

import dataclasses
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import ConfigError, require, spelled
from jax_es.runs.directory import RunDirectory, seed_runs
from jax_es.runs.find import find_run
from jax_es.runs.reproduce import option
from jax_es.train_config import differences, policy_kind
from jax_es.training.build import action_spec
from jax_es.training.generation import TrainState, initial_state
from jax_es.training.parts import EvaluationParts, Parts
from jax_es.training.trained_mean import TrainedMean, check_fits, load_mean, spaces
from jax_es.types import needs_reference

FREE_TO_DIFFER = {
    "decision-transformer": ("policy.attention", "policy.target_return"),
    "image-decision-transformer": ("policy.sample_actions", "policy.target_return"),
    "cnn": ("policy.sample_actions",),
    **dict.fromkeys(("mlp", "linear", "lstm"), ("policy.target_return",)),
}
"""Fields of each policy in which the two runs may differ: how the same weights read the
past (on images they are not the same), what return they are asked for, and whether
discrete actions are drawn. Any other gives weights another shape or another meaning, as
``reward_scale`` does."""

NORMALIZING = tuple(
    f"rollout.{field}"
    for field in ("observation_statistics", "std_floor", "observation_clip")
)
"""Fields in which the two runs may not differ once θ saw through statistics."""


def find_source(init: str, parts: EvaluationParts) -> TrainedMean:
    """Reads the run that ``init`` names, and checks that its θ fits; writes nothing.

    Args:
        init: the configuration's.
        parts: of the run that is to begin.

    Raises:
        ConfigError: if there is no such run or checkpoint, or its θ would not act here
            as it did there.
    """
    config = parts.config
    try:
        run = _run(Path(init), config.seed)
        trained = load_mean(run.path, config.init_checkpoint)
        _check_spaces(trained, parts)
        _check_acts_alike(trained, parts)
    except ValueError as error:
        raise ConfigError(f"--init: {error}") from error
    return trained


def _run(path: Path, seed: int) -> RunDirectory:
    """Opens a run, or of a folder of runs the one with this seed."""
    seeds = seed_runs(path)
    if not seeds or RunDirectory(path).exists():
        return find_run(path)
    run = RunDirectory(path / f"seed-{seed}")
    require(
        run.exists(),
        f"{path} has no seed-{seed}, with which the run of this seed would begin, but "
        f"{', '.join(run.path.name for run in seeds)}; choose other seeds or one run.",
    )
    return run


def _check_spaces(trained: TrainedMean, parts: EvaluationParts) -> None:
    """Rejects an environment with other observations or actions."""
    there, here = trained.config.env, parts.config.env
    if there == here:
        return
    env = parts.env
    sizes_there = _sizes(*spaces(trained.config))
    sizes_here = _sizes(env.single_observation_space, env.single_action_space)
    require(
        sizes_there == sizes_here,
        f"{trained.path} was trained on {there.id} ({sizes_there}), which does not fit "
        f"{here.id} ({sizes_here}); choose another run or another --env.id.",
    )


def _sizes(observation_space: Any, action_space: Any) -> str:
    """Says what weights depend on."""
    unit = "pixels" if observation_space.dtype == np.uint8 else "numbers"
    kind = type(action_space).__name__
    spec = action_spec(action_space)
    sizes = getattr(spec, "nvec", spec.num_outputs)
    return f"{unit} {observation_space.shape}, {kind} actions of {sizes}"


def _check_acts_alike(trained: TrainedMean, parts: EvaluationParts) -> None:
    """Rejects weights that would have another shape or meaning, or see otherwise."""
    there, here = trained.config, parts.config
    kind, policy = policy_kind(here.policy), parts.policy
    require(
        policy_kind(there.policy) == kind,
        f"{trained.path} has policy {policy_kind(there.policy)}, not {kind}; add "
        f"--policy {policy_kind(there.policy)} or choose another run.",
    )
    statistics, free = trained.statistics, FREE_TO_DIFFER.get(kind, ())
    is_normalized = statistics is not None and bool(statistics.count > 0)
    changed = {
        field: values
        for field, values in differences(there, here).items()
        if (field.startswith("policy.") and field not in free)
        or (is_normalized and field in NORMALIZING)
    }
    listed = ", ".join(
        f"{field} is {old!r} there and {new!r} here"
        for field, (old, new) in changed.items()
    )
    options = [word for f, (old, _) in changed.items() for word in option(f, old)]
    require(
        not changed,
        f"θ of {trained.path} would not act as it did: {listed}; add "
        f"{shlex.join(options)} or choose another run.",
    )
    check_fits(trained, policy, parts.env.single_observation_space)


def find_sources(parts: EvaluationParts, seeds: range) -> Iterator[TrainedMean]:
    """Finds where the run of each seed begins; nothing without ``init``."""
    init = parts.config.init
    if init is None:
        return
    for seed in seeds:
        one = dataclasses.replace(parts.config, seed=seed)
        yield find_source(init, dataclasses.replace(parts, config=one))


def first_state(parts: Parts, source: TrainedMean) -> TrainState:
    """Returns the state before the first generation of a run that begins so."""
    mean = jax.tree.map(jnp.asarray, source.mean)
    reference = source.reference if needs_reference(parts.policy) else ()
    state = initial_state(parts, mean, reference)
    if not parts.config.rollout.observation_statistics:
        return state
    if source.statistics is not None:
        return state._replace(observation_statistics=source.statistics)
    warnings.warn(
        spelled(
            f"--init: θ of {source.path} saw observations as they are; from the second "
            "generation on they are normalised here. "
            "--rollout.no-observation-statistics leaves them."
        ),
        stacklevel=2,
    )
    return state


def provenance(source: TrainedMean) -> dict[str, Any]:
    """Returns what a run's record says of where its θ is from, as JSON values."""
    where = {"run": str(source.path), "checkpoint": source.generation}
    return {"init": {**where, "method": source.method}}
