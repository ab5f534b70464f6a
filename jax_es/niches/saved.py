"""The niches of a run, read from its last checkpoint."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jax_es.checks import require
from jax_es.niches.mutation import Mutator, described
from jax_es.niches.niche import NEVER
from jax_es.niches.settings import settings_of
from jax_es.rollout.observation_statistics import ObservationStatistics
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.exported import niche_mean, restore
from jax_es.runs.find import find_run
from jax_es.runs.folders import program_command
from jax_es.runs.method import POET, Method
from jax_es.runs.trust import check_imports
from jax_es.train_config import TrainConfig, in_own_physics
from jax_es.training.build import make_env, make_policy
from jax_es.training.load_policy import LoadedPolicy
from jax_es.training.trained_mean import TrainedMean


class SavedNiche(NamedTuple):
    """A niche of a run; generations are counted from 0, and −1 is never."""

    number: int
    """How many there were before it."""
    parent: int
    """Number of the niche that it is a child of; −1 for the first."""
    created: int
    """Generation that began with it."""
    solved: int
    """Generation in which it was solved first."""
    retired: int
    """Generation before which it retired."""
    terrain: dict[str, float]
    """Its numbers by their names, as ``evaluate --variation`` takes them."""
    scores: tuple[float, ...]
    """Mean returns of its policy in its last evaluations, the latest last."""
    policy: LoadedPolicy
    """As ``jax_es.load_policy`` returns it."""

    @property
    def is_active(self) -> bool:
        """Whether it has not retired."""
        return self.retired == NEVER

    def __repr__(self) -> str:
        """Says what it is."""
        terrain = ", ".join(
            f"{name} {value:.4g}" for name, value in self.terrain.items()
        )
        state = "active" if self.is_active else f"retired at {self.retired}"
        return f"SavedNiche({self.number} of {self.parent}: {terrain}; {state})"


def load_niches(
    run: str | os.PathLike[str], seed: int = 0, trust: bool = False
) -> list[SavedNiche]:
    """Loads the niches that ``python -m jax_es.poet`` grew, by their numbers.

    Args:
        run: the run's folder, ``runs/<name>``.
        seed: for policies that sample their actions.
        trust: whether the modules of its environment and policy may be imported.

    Raises:
        ValueError: if the run, its environment or the checkpoint cannot be read.
    """
    directory = find_run(run)
    method, config = directory.method(), in_own_physics(directory.config())
    require(
        method.name == POET,
        f"{directory.path} was trained by {method.title} and has no niches; make some "
        f"with {program_command('poet')}.",
    )
    check_imports(config, directory.path, trust)
    restored = Checkpoints(directory.checkpoints).restore("last")
    stored, statistics = restored.state["niches"], None
    if config.rollout.observation_statistics:
        statistics = ObservationStatistics(**restored.state["observation_statistics"])
    with contextlib.closing(make_env(config.env, 1, 1)) as env:
        space, actions = env.single_observation_space, env.single_action_space
        neutral = getattr(env, "variations", {})
    policy = make_policy(config.policy, space, actions)
    names = Mutator(settings_of(method).mutate, neutral).names
    niches = []
    for row, number in enumerate(stored["number"].tolist()):
        mean = niche_mean(stored, row)
        terrain = stored["terrain"][row].tolist() if names else []
        trained = TrainedMean(config, mean, statistics, restored.step, method=method)
        scores = stored["scores"][row, : stored["num_scores"][row]]
        niches.append(
            SavedNiche(
                number=number,
                parent=int(stored["parent"][row]),
                created=int(stored["created"][row]),
                solved=int(stored["solved"][row]),
                retired=int(stored["retired"][row]),
                terrain=dict(zip(names, terrain, strict=True)),
                scores=tuple(scores.tolist()),
                policy=LoadedPolicy(policy, trained, space, seed),
            )
        )
    return niches


def played(
    run: RunDirectory, checkpoint: str | int
) -> tuple[int, dict[str, float]] | None:
    """Returns the number and the terrain of the niche whose θ a checkpoint is.

    The modules that the run names must be trusted. None if it is not a niche's, or the
    checkpoint does not say where it is at home, as those of earlier versions.
    """
    if not run.has_niches:
        return None
    es = restore(run, checkpoint).state["es"]
    with contextlib.closing(make_env(run.config().env, 1, 1)) as env:
        neutral = getattr(env, "variations", {})
    names = Mutator(settings_of(run.method()).mutate, neutral).names
    if "number" not in es or (names and "terrain" not in es):
        return None
    terrain = es["terrain"].tolist() if names else []
    return int(es["number"]), dict(zip(names, terrain, strict=True))


def terrains_of(
    method: Method, config: TrainConfig, stored: Mapping[str, Any]
) -> list[str]:
    """Returns what the niches of a checkpoint are, in words.

    The module of an environment of the user's own is not imported: numbers stand alone
    where some of them, nobody knows which, are ends of ranges.

    Args:
        method: the run's.
        config: the run's.
        stored: arrays of all niches, as a checkpoint has them.
    """
    terrains = stored.get("terrain", np.zeros((len(stored["number"]), 0)))
    mutate = settings_of(method).mutate
    if ":" in config.env.id:
        names = [name for name, *_ in mutate]
        if terrains.shape[1] == 2 * len(names):
            names = [f"{name}-{end}" for name in names for end in ("low", "high")]
        if terrains.shape[1] != len(names):
            return [", ".join(f"{value:.4g}" for value in row) for row in terrains]
    else:
        with contextlib.closing(make_env(config.env, 1, 1)) as env:
            names = Mutator(mutate, getattr(env, "variations", {})).names
    return [described(names, terrain) for terrain in terrains]
