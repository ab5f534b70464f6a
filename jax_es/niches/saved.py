"""The niches of a run, read from its last checkpoint."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_es.checks import require
from jax_es.niches.mutation import Mutator, described
from jax_es.niches.niche import NEVER
from jax_es.niches.settings import settings_of
from jax_es.rollout.observation_statistics import ObservationStatistics
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.find import find_run
from jax_es.runs.folders import program_command
from jax_es.runs.method import POET, Method
from jax_es.runs.trust import check_imports
from jax_es.train_config import TrainConfig, in_own_physics
from jax_es.training.build import make_env, make_policy
from jax_es.training.load_policy import LoadedPolicy, TrainedMean


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

    def __repr__(self) -> str:
        """Says what it is."""
        terrain = ", ".join(
            f"{name} {value:.4g}" for name, value in self.terrain.items()
        )
        state = "active" if self.retired == NEVER else f"retired at {self.retired}"
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
    # Those of the active and of the retired niches, each in the order of their numbers.
    kinds = {True: stored["es"]["mean"], False: stored.get("left")}
    done, niches = {True: 0, False: 0}, []
    for row, number in enumerate(stored["number"].tolist()):
        is_active = bool(stored["retired"][row] == NEVER)
        at = done[is_active]
        mean = jax.tree.map(lambda leaf, at=at: leaf[at], kinds[is_active])
        done[is_active] += 1
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


def terrains_of(
    method: Method, config: TrainConfig, stored: Mapping[str, Any]
) -> list[str]:
    """Returns what the niches of a checkpoint are, in words.

    Numbers alone where the environment's module, which knows their names, would have
    to be imported.

    Args:
        method: the run's.
        config: the run's.
        stored: arrays of all niches, as a checkpoint has them.
    """
    terrains = stored.get("terrain", np.zeros((len(stored["number"]), 0)))
    if ":" in config.env.id:
        return [", ".join(f"{value:.4g}" for value in row) for row in terrains]
    with contextlib.closing(make_env(config.env, 1, 1)) as env:
        neutral = getattr(env, "variations", {})
    names = Mutator(settings_of(method).mutate, neutral).names
    return [described(names, terrain) for terrain in terrains]
