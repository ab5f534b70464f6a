"""Evolution of any function of weights: ``jax_es.evolve``.

What a run in an environment and this have in common is shared: the strategy, noise and
optimizers (``es/``), the weighted sum (``rollout/weighted_sum.py``), and a folder with
lock, records, checkpoints and digests (``runs/``).
"""

import contextlib
import dataclasses
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_es.checks import check_numbers, from_json, require
from jax_es.cli.progress import Layout, Progress, named, nothing_left
from jax_es.config import ESConfig
from jax_es.es.noise import make_noise
from jax_es.es.openai_es import ESState, OpenAIES, openai_es
from jax_es.rollout.devices import Devices, local_devices
from jax_es.rollout.evaluator import RolloutProgress, never
from jax_es.rollout.weighted_sum import spread_weighted_sum
from jax_es.runs.changes import changed_jax, require_unchanged, warn_of_versions
from jax_es.runs.checkpoint import Checkpoints
from jax_es.runs.directory import RunDirectory
from jax_es.runs.folders import EVOLUTION_FILE
from jax_es.runs.metrics import check_own_records
from jax_es.runs.records import GenerationRecord, return_statistics
from jax_es.runs.tracking import Callback, check_callbacks
from jax_es.runs.wording import significant
from jax_es.train_config import differing, flatten
from jax_es.training.function_fitness import Fitness, FunctionFitness
from jax_es.training.session import Elapsed, OnStep, Step, run_session
from jax_es.types import PyTree

OF_EPISODES = (
    *("healthy_reward_weight", "control_cost_weight"),
    *("objective", "interactions_per_generation"),
    *("max_num_pairs", "command_low", "command_high"),
    *("obedience_weight", "obedience_weight_end"),
)
"""Fields of ``ESConfig`` that only episodes of an environment give a meaning."""


class EvolutionState(NamedTuple):
    """Everything that the next generation depends on; what a checkpoint holds."""

    es: ESState
    """The strategy's; its ``mean`` is θ in float32."""
    best: PyTree
    """The θ whose own fitness was highest so far."""
    best_fitness: float
    """That fitness."""


class EvolutionResult(NamedTuple):
    """What :func:`evolve` returns."""

    theta: PyTree
    """θ after the last generation, in the form and the types in which it was given."""
    best_theta: PyTree
    """The θ whose own fitness was highest, in one evaluation of each."""
    state: EvolutionState
    """After the last generation."""
    records: list[GenerationRecord]
    """One per generation of this call: ``return_mean`` and others are of the members'
    fitness, ``evaluation_return_mean`` is θ's own before the update."""
    final_fitness: float
    """Of ``theta``."""
    best_fitness: float
    """Of ``best_theta``."""

    def __repr__(self) -> str:
        """Says how well it went; the weights would fill the screen."""
        return (
            f"EvolutionResult(generation {int(self.state.es.generation)}; fitness "
            f"{self.final_fitness:.6g} at the end, {self.best_fitness:.6g} at best)"
        )


def evolve(
    fitness: Fitness,
    theta: PyTree,
    es: ESConfig | None = None,
    *,
    num_generations: int = 200,
    seed: int = 0,
    path: str | os.PathLike[str] | None = None,
    resume: bool = False,
    chunk_size: int | None = None,
    num_devices: int | None = None,
    checkpoint_every: int = 1,
    check_stop: Callable[[], None] = never,
    callbacks: Sequence[Callback] = (),
    verbose: bool = True,
) -> EvolutionResult:
    """Maximises a function of weights by OpenAI-ES; it needs no derivative.

    ``fitness(variables, key)`` is written in JAX, for one member: it is traced once (a
    second time where noise in factors is not read), and computed for ``chunk_size``
    members at a time on all devices. So memory does not grow with their number.

    ``variables`` looks as ``theta`` does:

    - If that is a dictionary with the collection ``"params"``, as a Flax module's
      ``init`` returns, ``module.apply(variables, inputs)`` works; other collections
      stay as they are. Low-rank noise reaches each ``nn.Dense`` (and the layers of
      ``jax_es.models.layers``) as factors: the members share
      ``variables["params"]``, and the layer's call adds a member's own part from
      ``variables["perturbation"]``. A matrix that is read by no such call is perturbed
      in ``"params"``; one that is read both by a layer's call and otherwise must not
      be.
    - Any other pytree is given to the function perturbed.

    ``key`` is common to an antithetic pair (or, with ``es.common_seeds`` generation, to
    all members), and another one in each generation: draw a batch of data with it.

    θ and its noise are float32, whatever ``theta`` holds. Where that is ``bfloat16`` or
    integers (``int8``), members are θ rounded to these types plus float32 noise, so σ
    and the step may be smaller than what a weight can tell apart.

    On a CPU call ``jax_es.configure_cpu_devices()`` before the first use of JAX.

    Args:
        fitness: ``(variables, key) → []``; larger is better. What is not finite ranks
            worst.
        theta: the weights to start from: a pytree of real arrays.
        es: settings of OpenAI-ES, as of a run; its defaults if not given.
        num_generations: counted from the start, those before a resume included.
        seed: of the noise and of the keys.
        path: a folder for ``metrics.jsonl`` and checkpoints; nothing is kept if not
            given.
        resume: go on from the last checkpoint in ``path``, to the numbers of an
            uninterrupted run, to the bit. Of ``theta``, only shapes and types are read.
        chunk_size: members whose fitness is computed at the same time, on all devices
            together; 256 if not given, and what it was on a resume. Numbers depend on
            it, and on the next, by rounding alone.
        num_devices: JAX devices to use; all local ones if not given, and as many as
            before on a resume.
        checkpoint_every: generations between checkpoints.
        check_stop: called often; raises an exception to end the run, after a checkpoint
            of the last finished generation.
        callbacks: told of each generation; one that returns ``True`` ends the run.
        verbose: whether to show progress.

    Raises:
        ConfigError: (a ``ValueError``) for bad input, before any work.

    Example:
        >>> import jax.numpy as jnp
        >>> def fitness(variables, key):  # of a polynomial's coefficients
        ...     x = jax.random.uniform(key, (64,))
        ...     found = jnp.polyval(variables["coefficients"], x)
        ...     return -jnp.mean((found - (2 * x - 1)) ** 2)
        >>> es = ESConfig(num_pairs=32, sigma=0.1, learning_rate=0.3, weight_decay=0.0)
        >>> theta = {"coefficients": jnp.zeros(2)}
        >>> result = evolve(fitness, theta, es, num_generations=60, verbose=False)
        >>> bool(result.best_fitness > -0.01)
        True
    """
    es = ESConfig() if es is None else es
    _check(es, resume, path)
    check_callbacks(callbacks)
    settings = {"es": dataclasses.asdict(es), "seed": seed}
    settings |= {"num_generations": num_generations}
    settings |= {"checkpoint_every": checkpoint_every}
    run = None if path is None else RunDirectory(Path(path), EVOLUTION_FILE)
    with contextlib.ExitStack() as stack:
        if run is not None and resume:
            stored = run.record()["config"]
            chunk_size = chunk_size or stored["chunk_size"]
            num_devices = num_devices or stored["num_devices"]
        local = local_devices()
        require(
            num_devices is None or 1 <= num_devices <= len(local),
            f"num_devices must be from 1 to {len(local)}, the devices that JAX shows "
            f"here, got {num_devices}.",
        )
        devices = Devices(local[:num_devices])
        settings |= {"chunk_size": chunk_size or 256, "num_devices": devices.count}
        _check_counts(settings)
        noise = make_noise(es, theta)
        function = FunctionFitness(
            fitness, theta, es, noise, devices, settings["chunk_size"]
        )
        total = spread_weighted_sum(noise, devices, check_stop, es.num_pairs)
        strategy = openai_es(es, noise, total)
        # As a run's: the same seed draws the same noise.
        keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"))
        mean = function.mean
        state = EvolutionState(strategy.init(keys[1], mean), mean, -math.inf)
        if run is not None:
            stack.enter_context(run.lock())
            own = getattr(fitness, "__qualname__", type(fitness).__qualname__)
            name = f"{fitness.__module__}:{own}"
            if resume:
                state = _taken_up(run, settings, state, name)
            else:
                run.begin(config=settings, fitness=name)
                # A resume goes on from it, whatever it is given.
                Checkpoints(run.checkpoints).save(0, state)
        state = state._replace(es=devices.share(state.es))
        evolution = _Evolution(function, strategy, keys[0], num_generations, state)
        progress = Progress(
            num_generations, evolution.generation, layout=SHOWN, verbose=verbose
        )
        if limits := evolution.limits_reached():
            progress.message(nothing_left(limits))
        records = run_session(
            evolution, run, progress, checkpoint_every, check_stop, callbacks
        )
    final, ended = evolution.final_fitness, evolution.ended
    progress.message(
        f"Fitness: {significant(final)} at the end, "
        f"{significant(ended.best_fitness)} at best, after "
        f"{evolution.generation} generations."
    )
    return EvolutionResult(
        function.like_theta(ended.es.mean),
        function.like_theta(ended.best),
        ended,
        records,
        final,
        ended.best_fitness,
    )


def _check(es: Any, resume: bool, path: Any) -> None:
    require(
        isinstance(es, ESConfig),
        f"es must be an ESConfig, for instance jax_es.ESConfig(num_pairs=64), got "
        f"{es!r}.",
    )
    require(
        es.strategy == "openai-es",
        f"es.strategy must be openai-es for evolve, got {es.strategy}; leave it out.",
    )
    for field in dataclasses.fields(es):
        value = getattr(es, field.name)
        require(
            field.name not in OF_EPISODES or value == field.default,
            f"es.{field.name} {value} has no meaning for evolve, which runs no "
            f"episodes; leave it out ({field.default}).",
        )
    require(
        not resume or path is not None,
        "resume=True needs path, the folder of the run to continue.",
    )


def _check_counts(settings: dict[str, Any]) -> None:
    for name in ("num_generations", "checkpoint_every", "chunk_size", "seed"):
        least, value = int(name != "seed"), settings[name]
        require(
            isinstance(value, int) and not isinstance(value, bool) and value >= least,
            f"{name} must be a whole number of at least {least}, got {value!r}.",
        )
    check_numbers({k: v for k, v in settings.items() if k != "es"})


def _taken_up(
    run: RunDirectory, settings: dict[str, Any], template: EvolutionState, fitness: str
) -> EvolutionState:
    """Returns the state with which a run goes on, if its settings are as they were."""
    stored = run.record()["config"]
    # A field that it lacks was not there yet, and has its default's meaning.
    es = dataclasses.asdict(from_json(ESConfig, stored["es"]))
    changed = differing(flatten({**stored, "es": es}), flatten(settings))
    for name in ("num_generations", "checkpoint_every"):  # change no numbers
        changed.pop(name, None)
    require_unchanged(run, changed | changed_jax(run))
    warn_of_versions(run)
    checkpoints = Checkpoints(run.checkpoints)
    if checkpoints.steps():
        template = checkpoints.restore("last", template).state
    finished, limit = int(template.es.generation), settings["num_generations"]
    require(
        finished <= limit,
        f"num_generations must be at least {finished}, the generations that {run.path} "
        f"has finished, got {limit}.",
    )
    if (before := run.record().get("fitness", fitness)) != fitness:
        warnings.warn(f"fitness was {before}, now {fitness}", stacklevel=3)
    best = template.best_fitness
    check_own_records(run.path, finished - 1, best_evaluation_return=best)
    run.update(config=settings)
    return template


class _Evolution:
    """What evaluates and what updates: a session's training."""

    final_fitness: float
    """Of the last θ, after :meth:`finish`; the next likewise."""
    ended: EvolutionState

    def __init__(
        self,
        function: FunctionFitness,
        strategy: OpenAIES,
        key: jax.Array,
        num_generations: int,
        state: EvolutionState,
    ) -> None:
        self._function, self._strategy, self._key = function, strategy, key
        self._num_generations, self.state = num_generations, state

    @property
    def generation(self) -> int:
        """Generations done."""
        return int(self.state.es.generation)

    def limits_reached(self) -> list[str]:
        """Says what ends the run, if anything does."""
        limit = self._num_generations
        return [f"num_generations {limit}"] * (self.generation >= limit)

    def advance(self, on_step: OnStep, elapsed: Elapsed) -> Step:
        """Evaluates θ and its members, then updates θ."""
        started = time.perf_counter()
        own, members = self._evaluated(on_step)
        evaluated = time.perf_counter()
        state = _with_best(self.state, own)
        es, info = jax.block_until_ready(self._strategy.tell(state.es, members))
        finished = time.perf_counter()
        statistics = return_statistics(members)._asdict()
        reported = {**info._asdict(), "num_nonfinite": statistics.pop("num_nonfinite")}
        record = _record(
            state,
            own,
            elapsed(),
            num_episodes=members.size,
            **{f"return_{name}": value for name, value in statistics.items()},
            fitness_mean=statistics["mean"],
            **reported,
            seconds_policy=evaluated - started,
            seconds_update=finished - evaluated,
            seconds_total=finished - started,
        )
        self.state = state._replace(es=es)
        return Step(record, self.state)

    def finish(self, on_step: OnStep, elapsed: Elapsed) -> Step:
        """Evaluates the last θ."""
        self.final_fitness, _ = self._evaluated(on_step, mean_only=True)
        ended = self.ended = _with_best(self.state, self.final_fitness)
        return Step(_record(ended, self.final_fitness, elapsed()), ended)

    def _evaluated(
        self, on_step: OnStep, mean_only: bool = False
    ) -> tuple[float, np.ndarray]:
        """Returns the fitness of θ, and of its members."""
        es = self.state.es
        return self._function.evaluate(
            self._strategy.ask(es),
            jax.random.fold_in(self._key, es.generation),
            lambda done, total: on_step(RolloutProgress(done, total, 0, 0, {})),
            mean_only,
        )


def _record(
    state: EvolutionState, fitness: float, seconds_elapsed: float, **fields: Any
) -> GenerationRecord:
    """Returns the record of θ's own fitness, and of what else there is."""
    is_finite = math.isfinite(fitness)
    return GenerationRecord(
        generation=int(state.es.generation),
        total_env_steps=0,
        evaluation_return_mean=fitness if is_finite else math.nan,
        evaluation_num_nonfinite=not is_finite,
        best_evaluation_return=state.best_fitness,
        seconds_elapsed=seconds_elapsed,
        **fields,
    )


def _with_best(state: EvolutionState, fitness: float) -> EvolutionState:
    """Returns the state, which knows of θ's own fitness."""
    if not (math.isfinite(fitness) and fitness > state.best_fitness):
        return state
    return state._replace(best=state.es.mean, best_fitness=fitness)


def _fields(record: GenerationRecord) -> list[str]:
    """Returns how good θ and its members are."""
    return [
        named("fitness", record.evaluation_return_mean, width=11),
        named("mean", record.return_mean, width=11),
        named("max", record.return_max, width=11),
        f"seconds {record.seconds_total:7.2f}",
    ]


SHOWN = Layout("generation", "chunk", _fields)
