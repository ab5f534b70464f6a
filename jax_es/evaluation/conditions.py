"""Episodes of trained mean policies, as they are and under changed conditions.

All conditions of a run meet the same environment seeds and run in the same compiled
programs of the batched rollout engine: another target return is the tasks' command,
another body or floor is their variation, rounding is other values, and noisy weights
are the members of a population.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import ConfigError, require
from jax_es.config import EnvConfig, Precision
from jax_es.distributed.workers import Workers
from jax_es.es.noise import FullNoise
from jax_es.es.population import AntitheticPopulation, MeanPopulation
from jax_es.evaluation.quantization import round_weights
from jax_es.presets import with_objective
from jax_es.rollout.evaluator import NOTHING, EpisodeResults
from jax_es.rollout.memory import TASK_BYTES, check_memory
from jax_es.rollout.random_play import play_at_random
from jax_es.rollout.streams import stream
from jax_es.rollout.tasks import Tasks
from jax_es.rollout.variations import check_begins, varied
from jax_es.runs.changes import SAME_EXPERIMENT
from jax_es.runs.directory import RunDirectory
from jax_es.runs.trust import remember
from jax_es.train_config import TrainConfig, differences, differing
from jax_es.training.custom import make_own_objective
from jax_es.training.episodes import evaluation_tasks
from jax_es.training.objective import Objective, reported_for
from jax_es.training.parts import EvaluationParts, build_evaluation
from jax_es.training.trained_mean import TrainedMean, check_asked, check_fits, load_mean
from jax_es.types import PyTree


@dataclasses.dataclass(frozen=True)
class Condition:
    """What is changed about a policy; nothing by default."""

    target_return: float | None = None
    """The return asked for instead of the one in the run's configuration."""
    weights: Precision | None = None
    """What the weights are rounded to."""
    weight_noise: float | None = None
    """Standard deviation of the noise on every weight."""
    random_actions: Literal[True] | None = None
    """Actions are uniformly random instead of the policy's: a baseline."""
    variation: tuple[tuple[str, float], ...] | None = None
    """What is changed about the environment, by names."""

    def __str__(self) -> str:
        """Names the condition in tables.

        Example:
            >>> str(Condition(target_return=-1000.0)), str(Condition())
            ('target return -1000', 'base')
        """
        parts = []
        for name, value in vars(self).items():
            if value is not None:
                words = "" if value is True else f" {described(value)}"
                parts.append(name.replace("_", " ") + words)
        return ", ".join(parts) or "base"


def described(value: Any) -> str:
    """Returns what is changed to which value, as a table or a picture says it.

    Example:
        >>> described((("mass", 1.05), ("delay", 1.0))), described(0.1)
        ('mass 1.05 delay 1', '0.1')
    """
    if isinstance(value, tuple):
        return " ".join(f"{name} {number:.10g}" for name, number in value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)


BASE = Condition()
"""The policy as it was trained."""


def sweeps(
    target_returns: Sequence[float] = (),
    weights: Sequence[Precision] = (),
    weight_noise: Sequence[float] = (),
    random_actions: bool = False,
    variations: Mapping[str, Sequence[float]] | None = None,
) -> list[Condition]:
    """Lists the base condition and each sweep from it; sweeps are not crossed.

    Args:
        target_returns: to ask for.
        weights: what they are rounded to.
        weight_noise: standard deviations.
        random_actions: whether they are a condition.
        variations: of the environment, name → values, whose grid is one sweep.
    """
    grid = itertools.product(*(variations or {}).values())
    changed = [tuple(zip(variations or {}, each, strict=True)) for each in grid]
    swept = [
        *(Condition(target_return=value) for value in target_returns),
        *(Condition(weights=value) for value in weights),
        *(Condition(weight_noise=value) for value in weight_noise),
        *([Condition(random_actions=True)] if random_actions else []),
        *(Condition(variation=value) for value in changed if value),
    ]
    return [BASE, *dict.fromkeys(swept)]


class SeedGroup(NamedTuple):
    """Runs that differ in their seeds alone, and the parts that run all of them."""

    trained: dict[Path, TrainedMean]
    """Their mean policies, by the runs' folders."""
    parts: EvaluationParts
    objective: Objective | None = None
    """What else is said of their episodes."""


class Evaluation(NamedTuple):
    """The episodes of one run, in the folder ``path``."""

    path: Path
    trained: TrainedMean
    results: dict[Condition, EpisodeResults]
    """By condition; episode i has the same seed in all of them."""
    fitness: Mapping[Condition, np.ndarray] = MappingProxyType({})
    """What each episode came to by the objective, if there is one."""


def prepare(
    runs: Sequence[RunDirectory],
    checkpoint: str,
    conditions: Sequence[Condition],
    num_episodes: int,
    trust: bool = False,
    workers: Workers | None = None,
    changed: Callable[[EnvConfig], EnvConfig] = lambda env: env,
    objective: str | None = None,
) -> list[SeedGroup]:
    """Reads runs, sorts them by what differs in seeds alone and builds their parts.

    Workers evaluate, if there are any, in environments that may be ``changed``, and an
    objective of the user's own (``module:function``) says what episodes come to.

    Raises:
        ConfigError: if environments differ, or a policy has no target return.
        CheckpointError: if a checkpoint is missing, damaged or of another network.
    """
    num_results = len(runs) * len(conditions)
    check_memory(
        {f"--episodes {num_episodes}": TASK_BYTES * num_episodes * num_results}
    )
    if objective is not None:  # typed, hence trusted
        remember(with_objective(TrainConfig(), objective))
    loaded: dict[Path, TrainedMean] = {}
    for run in runs:
        trained = load_mean(run.path, checkpoint, trust).in_environment(changed)
        config = with_objective(trained.config, objective)
        loaded[run.path] = trained._replace(config=config)
    first = next(iter(loaded))
    groups: list[SeedGroup] = []
    for path, trained in loaded.items():
        env = dataclasses.replace(loaded[first].config, env=trained.config.env)
        for name, (here, there) in differences(loaded[first].config, env).items():
            raise ConfigError(
                f"runs of different environments cannot be compared: {name} is "
                f"{here!r} in {first} and {there!r} in {path}; evaluate them one by "
                "one."
            )
        group = next((g for g in groups if _differ_in_seeds(g, trained)), None)
        if group is None:
            noisy = any(c.weight_noise is not None for c in conditions)
            kind = _perturbed if noisy else MeanPopulation
            own, reported = None, NOTHING
            if objective is not None:
                es = trained.config.es
                own, reported = make_own_objective(es), reported_for(es)
            require(
                reported == NOTHING or not any(c.random_actions for c in conditions),
                f"--objective {objective} reads the environment's info, of which "
                "random play keeps nothing; leave --random-actions out.",
            )
            with trained.blaming_changes():
                parts = build_evaluation(
                    trained.config, num_episodes, kind, workers, reported
                )
            wanted = [dict(c.variation) for c in conditions if c.variation is not None]
            check_begins(parts.env, wanted, "--variation")
            group = SeedGroup({}, parts, own)
            groups.append(group)
        parts = group.parts
        check_fits(trained, parts.policy, parts.env.single_observation_space)
        if any(condition.target_return is not None for condition in conditions):
            try:
                check_asked(group.parts.policy, trained.config)
            except ConfigError as error:
                raise ConfigError(
                    f"--target-returns or --obedience, {path}: {error}"
                ) from error
        group.trained[path] = trained
    return groups


def _differ_in_seeds(group: SeedGroup, trained: TrainedMean) -> bool:
    """Returns whether a run differs from a group's in its seed alone."""
    first = next(iter(group.trained.values()))
    one, other = (each.method.values(each.config) for each in (first, trained))
    return differing(one, other).keys() <= {*SAME_EXPERIMENT}


def evaluate_experiment(
    group: SeedGroup,
    conditions: Sequence[Condition],
    num_episodes: int,
    seed: int,
    on_result: Callable[[Path, Condition, EpisodeResults], None] = lambda *_: None,
) -> list[Evaluation]:
    """Runs every run of a group under every condition; closes its parts.

    Args:
        group: from :func:`prepare`, for the same conditions.
        conditions: what is changed about the policies.
        num_episodes: episodes of each run under each condition.
        seed: as in :func:`evaluate`.
        on_result: called after each condition of each run.
    """
    evaluations = []
    for path, trained in group.trained.items():
        results, fitness = {}, {}
        evaluations.append(Evaluation(path, trained, results, fitness))
        for condition in conditions:
            result = evaluate(group.parts, trained, num_episodes, seed, condition)
            results[condition] = result
            if group.objective is not None:
                fitness[condition] = np.asarray(group.objective(result))
            on_result(path, condition, result)
    group.parts.close()
    return evaluations


def evaluate(
    parts: EvaluationParts,
    trained: TrainedMean,
    num_episodes: int,
    seed: int,
    condition: Condition = BASE,
) -> EpisodeResults:
    """Runs episodes of a trained mean policy, each to its own end.

    Under weight noise σ episode i is one of the weights θ + σεᵢ, with a standard normal
    draw εᵢ of its own, so that statistics over episodes are over draws as well. εᵢ does
    not depend on σ: as episodes' seeds, draws follow from ``seed`` alone.
    """
    tasks = episode_tasks(parts, num_episodes, seed)
    if condition.random_actions:
        return play_at_random(parts.env, tasks)
    tasks = _varied(tasks, parts, condition)
    target = condition.target_return
    if target is None and getattr(parts.policy, "reads_command", False):
        # One program for all conditions.
        target = getattr(trained.config.policy, "target_return", None)
    if target is not None:
        tasks = tasks.asked_for(target)
    mean = trained.mean
    if condition.weights is not None:
        mean = round_weights(mean, condition.weights)
    if condition.weight_noise is None:
        population = MeanPopulation(jax.tree.map(jnp.asarray, mean))
    else:
        noise_seed = int(stream(seed, "weight noise").integers(2**31))
        population = _perturbed(mean, condition.weight_noise, noise_seed, num_episodes)
        tasks = tasks._replace(member=2 * np.arange(num_episodes, dtype=np.int32))
    return parts.rollout.evaluate(population, tasks, trained.view())


def _varied(tasks: Tasks, parts: EvaluationParts, condition: Condition) -> Tasks:
    """Returns tasks in the environment that a condition says."""
    if condition.variation is None:
        return tasks
    return varied(tasks, parts.env, dict(condition.variation), "--variation")


def _perturbed(
    mean: PyTree, sigma: float = 1.0, seed: int = 0, num_episodes: int = 1
) -> AntitheticPopulation:
    """Returns the weights θ + σεᵢ of episode i as member 2i."""
    key = jax.random.key(seed, impl="threefry2x32")
    scale = jnp.float32(sigma)
    return AntitheticPopulation(mean, key, scale, num_episodes, FullNoise())


def episode_tasks(parts: EvaluationParts, num_episodes: int, seed: int) -> Tasks:
    """Lists episodes that no training met; fewer are the first of more."""
    limit = parts.env.max_episode_steps
    return evaluation_tasks(seed, 0, num_episodes, limit, "test tasks")
