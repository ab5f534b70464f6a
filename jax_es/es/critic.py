"""A critic that learns from the population's steps, and where it would move θ.

It is TD3's (Fujimoto et al. 2018, arXiv 1802.09477), of the policy μ_θ itself: with two
networks Q₁, Q₂ and their slow copies Q′, a step (o, a, r, o′) has the target

    y = r + γ · min Q′(o′, μ_θ(o′) + noise),   without the second part at a task's end,

and both learn (Q(o, a) − y)² from batches of a store of steps. The deterministic policy
gradient ∇_θ mean Q₁(o, μ_θ(o)) is the direction that guided ES leans towards.

There is no actor beside θ: one that climbs on for itself leaves what the population has
tried, and the critic knows nothing there. CEM-RL therefore evaluates those that climb:
each of its policies takes the gradient's steps while the critic learns, and the critic
judges them in turn. No time is measured: a generation of as many
environment steps makes as many gradient steps, so a resumed run makes the same.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_es.checks import (
    Count,
    Fraction,
    NotNegativeFinite,
    Positive,
    Share,
    check_fields,
)
from jax_es.es.replay import Replay, Transitions, empty_replay, remember
from jax_es.types import PyTree

NOISE_BOUND = 2.5
"""Bound of the noise on targets' actions, in its standard deviations."""

STEPS_PER_CALL = 1000
"""Gradient steps of one call on the device: what a stop signal waits for, a second or
two."""


class Direction(NamedTuple):
    """A critic that says where θ should go: its advice is ∇_θ of the mean value."""

    batches: int
    """Over which the gradient is averaged."""


class Climb(NamedTuple):
    """A critic that policies climb while it learns; they are its advice."""

    learning_rate: float
    """Of Adam, which begins anew in each generation."""
    delay: int
    """The critic's gradient steps for each of theirs."""


@dataclasses.dataclass(frozen=True)
class CriticOptions:
    """What a critic learns by, each as --es.kwargs.NAME VALUE."""

    replay_size: Count = 300_000
    """Latest environment steps that the critic learns from (C)."""
    replay_ratio: NotNegativeFinite = 1.0
    """The critic's gradient steps for each environment step that it remembers: all of a
    generation's, or those of its first episodes, as many as certainly fit."""
    batch_size: Count = 128
    """Steps in a batch."""
    width: Count = 64
    """Units in each of the critic's two hidden layers; there are two such networks."""
    critic_learning_rate: Positive = 0.001
    """Of Adam."""
    discount: Fraction = 0.99
    """What a reward is worth one step later."""
    target_rate: Share = 0.005
    """How far the target networks follow in a gradient step."""
    target_noise: NotNegativeFinite = 0.2
    """Standard deviation of the noise on the actions that targets are computed for, in
    half ranges of the actions; cut at 2.5 times as much."""

    def __post_init__(self) -> None:
        check_fields(self, "es.kwargs.")

    @property
    def way(self) -> Direction | Climb:
        """What the strategy asks the critic for."""
        raise NotImplementedError


class CriticState(NamedTuple):
    """What the critic's next generation depends on; NumPy arrays and numbers."""

    weights: PyTree
    """Of Q₁ and Q₂."""
    targets: PyTree
    """Of their slow copies."""
    optimizer_state: PyTree
    """optax's of Adam."""
    num_updates: int
    """Gradient steps so far."""
    owed: float
    """Part of a gradient step that the last generation left over, in [0, 1)."""
    replay: Replay
    """The latest steps of the population and of θ."""


class Learned(NamedTuple):
    """What a generation of the critic comes to."""

    state: CriticState
    advice: PyTree
    """Like the policies: those that climbed, or ∇_θ of the mean value, which is zeros
    if nothing was learned."""
    loss: float
    """Mean of (Q − y)² over the generation's gradient steps; NaN without any."""
    value: float
    """Mean value of the policies' actions, over the batches of the direction or over
    their own gradient steps."""


class Critic(NamedTuple):
    """Pure functions over :class:`CriticState`.

    Attributes:
        init: ``key → state``.
        learn: ``(state, steps, policies, (mean, std, clip), key) → Learned``. Steps
            are the generation's :class:`~jax_es.es.replay.Transitions`; the policies
            see observations normalised by the three, and are judged: θ, or ``[K, …]``
            per leaf of θ where they climb.
    """

    init: Callable[[jax.Array], CriticState]
    learn: Callable[..., Learned]


def td3_critic(
    options: CriticOptions,
    init: Callable[[jax.Array], PyTree],
    values: Callable[[PyTree, jax.Array, jax.Array], jax.Array],
    act: Callable[[PyTree, jax.Array], jax.Array],
    unit: Callable[[Any], jax.Array],
    normalize: Callable[..., Any],
    sizes: tuple[int, int],
    healthy_reward_weight: float = 1.0,
    on_call: Callable[[], None] = lambda: None,
) -> Critic:
    """Builds a critic.

    Args:
        options: its hyperparameters.
        init: ``key → weights`` of both networks.
        values: ``(weights, observations [B, O], actions [B, A]) → [2, B]``.
        act: ``(θ, observation [O]) → action [A]``, differentiable in θ, in the
            environment's own unit.
        unit: actions in the environment's unit → in [−1, 1].
        normalize: ``(observations, mean, std, clip)`` → as policies see them.
        sizes: O and A.
        healthy_reward_weight: share of the reward for staying healthy that counts.
        on_call: called every :data:`STEPS_PER_CALL` gradient steps, for instance to
            notice a stop signal.
    """
    optimizer = optax.adam(options.critic_learning_rate)
    way: Any = options.way
    climbs = isinstance(way, Climb)
    ascent: Any = optax.adam(way.learning_rate) if climbs else None
    noise_bound = NOISE_BOUND * options.target_noise

    def of_policy(mean: PyTree, observations: Any) -> jax.Array:
        return unit(jax.vmap(act, in_axes=(None, 0))(mean, observations))

    def batch(key: jax.Array, steps: Transitions, size: jax.Array) -> Transitions:
        rows = jax.random.randint(key, (options.batch_size,), 0, size)
        return Transitions(*(field[rows] for field in steps))

    def loss(
        weights: PyTree, targets: PyTree, mean: PyTree, view: Any, own: Transitions, key
    ) -> jax.Array:
        after = normalize(own.next_observations, *view)
        actions = of_policy(mean, after)
        noise = options.target_noise * jax.random.normal(key, actions.shape)
        noise = jnp.clip(noise, -noise_bound, noise_bound)
        to_come = values(targets, after, jnp.clip(actions + noise, -1.0, 1.0))
        rewards = own.rewards - (1.0 - healthy_reward_weight) * own.healthy_rewards
        goes_on = 1.0 - own.terminated
        wanted = rewards + options.discount * goes_on * to_come.min(axis=0)
        found = values(weights, normalize(own.observations, *view), unit(own.actions))
        return jnp.mean((found - jax.lax.stop_gradient(wanted)) ** 2)

    def worth(mean: PyTree, weights: PyTree, observations: jax.Array) -> jax.Array:
        first = jax.tree.map(lambda leaf: leaf[:1], weights)  # Q₁ alone
        return values(first, observations, of_policy(mean, observations))[0].mean()

    def ascend(actors: Any, weights: PyTree, observations: jax.Array) -> Any:
        """Takes a gradient step of each policy; all see the same batch."""
        policies, optimizer_state, total, count = actors
        found, gradient = jax.vmap(jax.value_and_grad(worth), in_axes=(0, None, None))(
            policies, weights, observations
        )
        downhill = jax.tree.map(jnp.negative, gradient)
        change, optimizer_state = ascent.update(downhill, optimizer_state)
        policies = optax.apply_updates(policies, change)
        return policies, optimizer_state, total + found.mean(), count + 1

    @jax.jit
    def descend(learner, actors, steps: Transitions, size, view, key, first, end):
        """Takes gradient steps ``first`` … ``end`` − 1; returns also their loss."""

        def step(i: jax.Array, carry: Any) -> Any:
            (weights, targets, optimizer_state), actors, total = carry
            batch_key, noise_key = jax.random.split(jax.random.fold_in(key, i))
            own = batch(batch_key, steps, size)
            judged = actors
            if climbs:  # each in turn
                judged = jax.tree.map(lambda leaf: leaf[i % len(leaf)], actors[0])
            found, gradient = jax.value_and_grad(loss)(
                weights, targets, judged, view, own, noise_key
            )
            change, optimizer_state = optimizer.update(gradient, optimizer_state)
            weights = optax.apply_updates(weights, change)
            targets = optax.incremental_update(weights, targets, options.target_rate)
            if climbs:
                observations = normalize(own.observations, *view)
                actors = jax.lax.cond(
                    i % way.delay == 0,
                    lambda actors: ascend(actors, weights, observations),
                    lambda actors: actors,
                    actors,
                )
            return (weights, targets, optimizer_state), actors, total + found

        nothing = jnp.float32(0.0)
        return jax.lax.fori_loop(first, end, step, (learner, actors, nothing))

    @jax.jit
    def point(weights: PyTree, steps: Transitions, size, mean, view, key):
        """Returns the mean value of θ's actions, and its gradient."""

        def add(total: Any, key: jax.Array) -> tuple[Any, None]:
            observations = normalize(batch(key, steps, size).observations, *view)
            found = jax.value_and_grad(worth)(mean, weights, observations)
            return jax.tree.map(jnp.add, total, found), None

        nothing = jnp.float32(0.0), jax.tree.map(jnp.zeros_like, mean)
        total, _ = jax.lax.scan(add, nothing, jax.random.split(key, way.batches))
        return jax.tree.map(lambda leaf: leaf / way.batches, total)

    def begin(key: jax.Array) -> CriticState:
        weights = jax.device_get(jax.jit(init)(key))
        return CriticState(
            weights=weights,
            targets=jax.tree.map(np.copy, weights),
            optimizer_state=jax.device_get(optimizer.init(weights)),
            num_updates=0,
            owed=0.0,
            replay=empty_replay(options.replay_size, *sizes),
        )

    def learn(
        state: CriticState,
        steps: Transitions,
        policies: PyTree,
        view: Any,
        key: jax.Array,
    ) -> Learned:
        steps = steps.finite()
        replay = remember(state.replay, steps)
        policies = jax.device_get(policies)  # one device learns, wherever they are
        due = state.owed + options.replay_ratio * len(steps.rewards)
        count = int(due)
        if not (replay.size and count):
            nothing = policies if climbs else jax.tree.map(np.zeros_like, policies)
            state = state._replace(replay=replay, owed=due)
            return Learned(state, nothing, np.nan, np.nan)
        rows, size = jax.device_put((replay.steps, np.int32(replay.size)))
        steps_key, point_key = jax.random.split(key)
        learner: Any = state.weights, state.targets, state.optimizer_state
        actors = policies
        if climbs:
            nothing = np.float32(0.0), np.int32(0)
            actors = policies, jax.device_get(ascent.init(policies)), *nothing
        lost = 0.0
        for first in range(0, count, STEPS_PER_CALL):
            on_call()
            ends = np.int32(first), np.int32(min(first + STEPS_PER_CALL, count))
            learner, actors, found = jax.device_get(
                descend(learner, actors, rows, size, view, steps_key, *ends)
            )
            lost += float(found)
        if climbs:
            advice, _, total, taken = actors
            value = total / taken
        else:
            value, advice = jax.device_get(
                point(learner[0], rows, size, policies, view, point_key)
            )
        learned = CriticState(
            *learner,
            num_updates=state.num_updates + count,
            owed=due - count,
            replay=replay,
        )
        return Learned(learned, advice, lost / count, float(value))

    return Critic(begin, learn)
