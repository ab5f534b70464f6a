"""Environments in JAX: rollouts on the device, beside the environment alone.

Alone means: the same number of environments in one compiled loop, under random actions;
one that ends goes on from the state in which it began, so that no reset is computed. It
is measured before and after the rollout. Everything has one core.
"""

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_es.benchmark.measure import SLICE_SECONDS, Network, roll, run, watch
from jax_es.benchmark.rows import IN_JAX, Row, Work
from jax_es.envs.jax_env import JaxEnvironment, Step
from jax_es.envs.physics import calls_per_second
from jax_es.presets import preset
from jax_es.train_config import TrainConfig
from jax_es.training.build import with_machine
from jax_es.training.episodes import population_tasks
from jax_es.training.generation import initial_state
from jax_es.training.parts import Parts, build

STEPS_A_CALL = 128
"""Steps of the environment alone between two looks at the clock."""

SHORTEST = 20
"""Steps of the shortest episode of a slice."""

WARM_UP_CALLS = 6
"""Of the loop, before a slice begins."""

EPISODES_A_SLOT = 16
"""Of a whole generation."""

MEMBERS = 4096
"""Of the rows beside evosax."""


class Endless:
    """An environment whose episodes nothing but a limit ends."""

    def __init__(self, environment: JaxEnvironment) -> None:
        self._environment = environment

    def __getattr__(self, name: str) -> Any:
        """Returns what the environment has."""
        return getattr(self._environment, name)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Step:
        """Applies one action."""
        *stepped, _, _, info = self._environment.step(state, action, key)
        goes_on = jnp.zeros((), bool)
        return (*stepped, goes_on, goes_on, info)  # type: ignore[return-value]


def in_jax(row: Row, work: Work) -> dict[str, Any]:
    """Measures a row; returns its fields, as JSON values."""
    with contextlib.closing(build(config_of(row.network, work))) as parts:
        env: Any = parts.env
        if row.condition != "untrained":
            env.environment = Endless(env.environment)
        before = steps_alone(parts, work.seconds)
        measures = {"": slice_, "untrained": whole, "members": members}
        measure: Callable[..., dict[str, Any]] = measures.get(row.condition, evosax)
        fields = measure(Network(parts, initial_state(parts), 0, 0.0, {}), work)
        alone = statistics.mean([before, steps_alone(parts, work.seconds)])
        return {
            **fields,
            "ratio_to_physics": fields["steps_per_second"] / alone,
            "physics_steps_per_second": alone,
            "num_slots": parts.num_slots,
        }


def config_of(name: str, work: Work) -> TrainConfig:
    """Returns the configuration of one of ``IN_JAX``."""
    chosen = IN_JAX[name]
    changes = {
        "phases": (),
        "es.num_pairs": MEMBERS // 2,
        "es.max_num_pairs": None,
        "es.interactions_per_generation": None,
        **chosen.changes,
        **work.slots(),
    }
    return with_machine(preset(chosen.preset, chosen.policy).replace(changes))


def steps_alone(parts: Parts, seconds: float) -> float:
    """Measures the steps/s of as many environments as there are slots."""
    env: Any = parts.env
    size, space = env.num_envs, env.single_action_space
    first, _ = jax.vmap(env.environment.reset)(
        jax.random.split(jax.random.key(0), size)
    )

    def drawn(key: jax.Array) -> jax.Array:
        if hasattr(space, "n"):
            return jax.random.randint(key, (size,), 0, space.n)
        return jax.random.uniform(key, (size, *space.shape), minval=-1.0)

    def step(_: jax.Array, loop: Any) -> Any:
        state, key, total = loop
        key, action_key, step_key = jax.random.split(key, 3)
        state, observation, reward, terminated, truncated, _ = jax.vmap(
            env.environment.step
        )(state, drawn(action_key), jax.random.split(step_key, size))
        ended = terminated | truncated

        def back(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(ended.reshape(-1, *(1,) * (new.ndim - 1)), old, new)

        total += reward.sum() + observation.sum()  # so that both are computed
        return jax.tree.map(back, state, first), key, total

    steps = jax.jit(lambda loop: jax.lax.fori_loop(0, STEPS_A_CALL, step, loop))
    loop: Any = first, jax.random.key(1), jnp.zeros(())

    def call() -> None:
        nonlocal loop
        loop = jax.block_until_ready(steps(loop))

    for _ in range(2):  # types may settle at the second
        call()
    return size * STEPS_A_CALL * calls_per_second(call, seconds)


def slice_(network: Network, work: Work) -> dict[str, Any]:
    """Measures some seconds in the midst of a generation."""
    parts, seconds = network.parts, SLICE_SECONDS * work.seconds
    longest = parts.env.max_episode_steps
    fastest = steps_alone(parts, work.seconds)
    mean_length = (SHORTEST + longest) / 2
    # Calls are some seconds long, too, and begin before the warm-up.
    count = int(4 * parts.num_slots + (3 * seconds + 10) * fastest / mean_length)
    tasks = population_tasks(parts.config, 0, longest, count)
    lengths = np.random.default_rng(0).integers(SHORTEST, longest, len(tasks.member))
    tasks = tasks._replace(max_steps=lengths.astype(np.int32))
    run(network, tasks._replace(max_steps=np.full_like(tasks.max_steps, 2)))
    progress, watched = roll(network, tasks, WARM_UP_CALLS, seconds)
    return {
        **watched,
        "steps_per_second": progress.env_steps / watched["seconds"],
        "slot_utilization": progress.env_steps / progress.computed_steps,
    }


def whole(network: Network, work: Work) -> dict[str, Any]:
    """Measures episodes from the first to the last."""
    parts = network.parts
    count, longest = EPISODES_A_SLOT * parts.num_slots, parts.env.max_episode_steps
    tasks = population_tasks(parts.config, 0, longest, count)
    run(network, tasks._replace(max_steps=np.full_like(tasks.max_steps, 2)))
    with watch() as watched:
        result = run(network, tasks)
    return {
        **watched,
        "steps_per_second": result.env_steps / watched["seconds"],
        "slot_utilization": result.slot_utilization,
    }


def members(network: Network, work: Work) -> dict[str, Any]:
    """Measures a generation with its update; each episode has all its steps."""
    parts, state = network.parts, network.state
    longest = parts.env.max_episode_steps
    tasks = population_tasks(parts.config, 0, longest, MEMBERS)
    jax.block_until_ready(parts.strategy.tell(state.es, np.zeros(MEMBERS)))
    run(network, tasks._replace(max_steps=np.full_like(tasks.max_steps, 2)))
    with watch() as watched:
        result = run(network, tasks)
        jax.block_until_ready(parts.strategy.tell(state.es, result.returns))
    return {
        **watched,
        "steps_per_second": result.env_steps / watched["seconds"],
        "slot_utilization": result.slot_utilization,
        "num_pairs": MEMBERS // 2,
    }


def evosax(network: Network, work: Work) -> dict[str, Any]:
    """Measures a generation of evosax's Open_ES in evosax's own rollout."""
    from evosax.algorithms import Open_ES
    from evosax.problems import GymnaxProblem
    from evosax.problems.networks import MLP

    config = network.parts.config
    policy: Any = config.policy
    sizes = *policy.hidden_sizes, int(network.parts.env.single_action_space.n)
    net = MLP(sizes, output_fn=lambda x, key: x.argmax(-1))
    problem = GymnaxProblem(config.env.id.partition(":")[2], net)
    key = jax.random.key(0)
    solution = problem.sample(key)
    strategy = Open_ES(MEMBERS, solution, optimizer=optax.sgd(0.01))
    params = strategy.default_params
    state, seen = strategy.init(key, solution, params), problem.init(key)

    def generation() -> None:
        population, asked = strategy.ask(key, state, params)
        fitness, *_ = problem.eval(key, population, seen)
        jax.block_until_ready(strategy.tell(key, population, -fitness, asked, params))

    generation()
    with watch() as watched:
        started = time.perf_counter()
        generation()
        seconds = time.perf_counter() - started
    steps = MEMBERS * problem.episode_length
    return {**watched, "steps_per_second": steps / seconds, "num_pairs": MEMBERS // 2}
