"""What shows a strategy the way: a critic, from a run's configuration to its state.

A strategy that follows a critic (``es/guided.py``, ``es/cem_rl.py``) says after each
generation which policies it asks about, and is given the critic's advice. Here are the
checks of what a critic can judge, which episodes' steps it learns from, and where its
networks (``models``) meet its algorithm (``es/critic.py``).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_es.checks import require
from jax_es.es.critic import (
    Critic,
    CriticOptions,
    CriticState,
    Learned,
    td3_critic,
)
from jax_es.rollout.evaluator import EpisodeResults
from jax_es.rollout.jax_engine import CompiledEnv
from jax_es.rollout.memory import check_memory, num_bytes
from jax_es.rollout.observation_statistics import View, normalized
from jax_es.rollout.tasks import Tasks
from jax_es.train_config import TrainConfig, policy_kind
from jax_es.training.build import action_spec, make_twin_critic
from jax_es.types import Policy, PyTree, VectorEnv, needs_reference

COPIES = 4
"""Of the replay buffer, while a generation is added: the old one, the new one, and
what the device learns from and a checkpoint writes."""


@dataclasses.dataclass(frozen=True)
class Guidance:
    """The critic of a run."""

    critic: Critic
    seed: int
    """Of the run."""
    most_episodes: int
    """Episodes of a generation whose steps are kept, at most: those that fill the
    replay buffer if each is as long as can be."""
    observation: jax.ShapeDtypeStruct
    """Of the environment."""

    def initial(self) -> CriticState:
        """Returns the state before the first generation; the seed decides it."""
        return self.critic.init(self._key(0))

    def recording(self, tasks: Tasks) -> Tasks:
        """Returns the tasks, of which the first ones are recorded."""
        first = np.arange(len(tasks.member)) < self.most_episodes
        return tasks._replace(recorded=first)

    def learn(
        self,
        state: CriticState,
        results: EpisodeResults,
        policies: PyTree,
        view: View,
        generation: int,
    ) -> Learned:
        """Learns from a generation's steps.

        Args:
            state: before it.
            results: of the generation, with its recorded steps.
            policies: what the strategy asks about, after its update.
            view: how they will see observations.
            generation: its number.
        """
        seen = view.normalizer(self.observation.shape, self.observation.dtype)
        key = self._key(generation + 1)
        return self.critic.learn(state, results.transitions, policies, seen, key)

    def _key(self, index: int) -> jax.Array:
        """Returns a key that neither θ nor the noise is drawn from."""
        key = jax.random.key(self.seed, impl="threefry2x32")
        return jax.random.fold_in(jax.random.split(key, 3)[2], index)


def make_guidance(
    config: TrainConfig,
    policy: Policy,
    env: VectorEnv,
    options: CriticOptions,
    has_workers: bool = False,
    on_call: Callable[[], None] = lambda: None,
) -> Guidance:
    """Builds the critic of a configuration.

    Args:
        config: of the run.
        policy: what the critic judges.
        env: of the run.
        options: the strategy's.
        has_workers: whether workers evaluate.
        on_call: called now and then while it learns, to notice a stop signal.

    Raises:
        ConfigError: the critic cannot judge such a policy in such an environment, or
            its replay buffer does not fit into memory.
    """
    other = "or choose --strategy openai-es"
    guided = f"es.strategy {config.es.strategy}"
    require(
        not has_workers,
        f"--workers: {guided} learns from every step of episodes, which workers do not "
        f"send; leave --workers out, {other}.",
    )
    require(
        not isinstance(env, CompiledEnv),
        f"{guided} learns from every step of episodes, and {config.env.id} is written "
        "in JAX, which keeps none; choose another env.id, "
        f"{other}.",
    )
    require(
        config.es.control_cost_weight == 1,
        f"es.control_cost_weight must be 1 with {guided}, got "
        f"{config.es.control_cost_weight}: the critic learns from rewards with all of "
        f"their costs; add es.control_cost_weight 1, {other}.",
    )
    space, actions = env.single_observation_space, env.single_action_space
    is_box = hasattr(actions, "low") and np.issubdtype(actions.dtype, np.floating)
    bins = getattr(config.policy, "action_bins", None)
    require(
        is_box and bins is None,
        f"{guided} follows the gradient of real-valued actions, and those of "
        f"{config.env.id} are choices ({actions if bins is None else f'{bins} bins'}); "
        f"choose another env.id, {other}.",
    )
    require(
        len(space.shape) == 1,
        f"{guided} judges observation vectors, and {config.env.id} observes "
        f"{space.shape}; choose another env.id, {other}.",
    )
    has_memory = bool(jax.tree.leaves(jax.eval_shape(policy.initial_carry)))
    require(
        not has_memory and not needs_reference(policy),
        f"{guided} judges policies that see one observation at a time, and policy "
        f"{policy_kind(config.policy)} remembers an episode's past, or reads a return "
        f"to go; choose --policy mlp or linear, {other}.",
    )
    sizes = space.shape[0], actions.shape[0]
    rows = 4 * (2 * sizes[0] + sizes[1] + 3) * options.replay_size
    check_memory(
        {f"es.kwargs.replay_size {options.replay_size}": COPIES * rows},
        remedy="choose a smaller one",
    )
    network = make_twin_critic(*sizes, options.width)
    check_memory(
        {f"es.kwargs.width {options.width}": 8 * num_bytes(_shapes(network))},
        remedy="choose a smaller one",
    )
    # Steps are noise-free: what an action is does not depend on the key.
    key = jax.random.key(0, impl="threefry2x32")

    def act(mean: PyTree, observation: jax.Array) -> jax.Array:
        zero, first = jnp.float32(0.0), jnp.bool_(False)
        carry = policy.initial_carry()
        return policy.apply({"params": mean}, carry, observation, zero, first, key)[1]

    return Guidance(
        td3_critic(
            options,
            network.init,
            network.apply,
            act,
            _to_unit(action_spec(actions)),
            normalized,
            sizes,
            config.es.healthy_reward_weight,
            on_call,
        ),
        config.seed,
        max(1, options.replay_size // env.max_episode_steps),
        jax.ShapeDtypeStruct(space.shape, space.dtype),
    )


def _shapes(network: Any) -> PyTree:
    """Returns the shapes of a critic's weights."""
    return jax.eval_shape(network.init, jax.random.key(0, impl="threefry2x32"))


def _to_unit(actions: Any) -> Any:
    """Returns what takes bounded actions to [−1, 1], and leaves others as they are."""
    low, high = np.float32(actions.low), np.float32(actions.high)
    is_bounded = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        centre = np.where(is_bounded, (low + high) / 2, 0.0).astype(np.float32)
        half = np.where(is_bounded, (high - low) / 2, 1.0).astype(np.float32)
    return lambda action: (action - centre) / half
