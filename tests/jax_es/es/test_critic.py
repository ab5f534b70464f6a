"""A critic on steps whose values are known, and the store that they come from."""

import jax
import numpy as np
import pytest

from jax_es.es.cem_rl import CEMRLOptions
from jax_es.es.critic import td3_critic
from jax_es.es.guided import GuidedOptions
from jax_es.es.replay import Transitions, empty_replay, remember
from jax_es.models import TwinCritic
from jax_es.rollout.observation_statistics import normalized
from tests.comparing import assert_equal_bits

AS_IT_IS = np.zeros(1, np.float32), np.ones(1, np.float32), np.float32(np.inf)


def steps(observations, actions, rewards, after, terminated):
    """Steps with one number each."""
    fields = (observations, actions, rewards, np.zeros(len(rewards)), after)
    o, a, r, h, n = (np.asarray(field, np.float32) for field in fields)
    return Transitions(
        o[:, None], a[:, None], r, h, n[:, None], np.asarray(terminated, bool)
    )


def made(weight=1.0, kind=GuidedOptions, **options):
    """A critic of one observed number, one action and a policy a = θ o."""
    given = {"width": 32, "batch_size": 64, "replay_size": 500, "discount": 0.5}
    options = kind(**{**given, "critic_learning_rate": 0.003, **options})
    network = TwinCritic(1, 1, options.width)
    return td3_critic(
        options,
        network.init,
        network.apply,
        lambda theta, observation: theta["w"] * observation,
        lambda action: action / 2.0,
        normalized,
        (1, 1),
        weight,
    ), network


def values(network, learned, observations, actions):
    """What the networks say, ``[2, B]``; actions in the environment's unit."""
    o, a = np.float32(observations)[:, None], np.float32(actions)[:, None] / 2.0
    return np.asarray(network.apply(learned.state.weights, o, a))


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_it_learns_the_values_of_a_chain(weight):
    """States 1, 2, 3, a reward of 1 a step, and the end; and one that never ends.

    With γ = ½ a step is worth 1 + ½ · what follows.
    """
    critic, network = made(
        weight, replay_ratio=80.0, target_rate=0.05, target_noise=0.0
    )
    chain = steps([1, 2, 3, -1], np.zeros(4), np.ones(4), [2, 3, 0, -1], [0, 0, 1, 0])
    chain = Transitions(*(np.repeat(field, 10, axis=0) for field in chain))
    chain = chain._replace(healthy_rewards=np.full(40, 0.5, np.float32))
    theta = {"w": np.zeros((), np.float32)}
    learned = critic.learn(
        critic.init(jax.random.key(0)), chain, theta, AS_IT_IS, jax.random.key(1)
    )
    found = values(network, learned, [1, 2, 3, -1], np.zeros(4))
    # Half of each reward is for staying healthy.
    expected = np.array([1.75, 1.5, 1.0, 2.0]) * (1.0 if weight else 0.5)
    np.testing.assert_allclose(found, np.stack([expected, expected]), atol=0.08)
    assert learned.state.num_updates == 3200 and learned.loss < 1.0
    assert learned.value == pytest.approx(expected.mean(), abs=0.1)


def test_it_leads_the_policy_to_the_better_actions():
    """r = −(a − 1.5 o)² in one step: the best θ is 1.5."""
    rng = np.random.default_rng(0)
    o, a = rng.uniform(-1, 1, 400), rng.uniform(-2, 2, 400)
    told = steps(o, a, -((a - 1.5 * o) ** 2), o, np.ones(400))
    critic, network = made(replay_ratio=20.0, critic_learning_rate=0.001)
    state, theta = critic.init(jax.random.key(0)), {"w": np.float32(0)}
    # What there is to learn is the same for every policy: the way is long only once.
    state = critic.learn(state, told, theta, AS_IT_IS, jax.random.key(1)).state
    few = Transitions(*(field[:20] for field in told))
    ways = []
    for w in (0.0, 1.5, 2.0):
        theta = {"w": np.float32(w)}
        learned = critic.learn(state, few, theta, AS_IT_IS, jax.random.key(1))
        ways.append(float(learned.advice["w"]))
    # The gradient is −2 (θ − 1.5) E[o²], E[o²] = ⅓.
    np.testing.assert_allclose(ways, [1.0, 0.0, -1 / 3], atol=0.1)
    found = values(network, learned, [0.5, -0.5], [0.0, 1.0])
    np.testing.assert_allclose(found[0], [-0.5625, -3.0625], atol=0.2)


def test_policies_climb_to_the_better_actions():
    """The same one step: whoever climbs ends at 1.5, and who was told stays."""
    rng = np.random.default_rng(0)
    o, a = rng.uniform(-1, 1, 400), rng.uniform(-2, 2, 400)
    told = steps(o, a, -((a - 1.5 * o) ** 2), o, np.ones(400))
    options = {"replay_ratio": 20.0, "critic_learning_rate": 0.001}
    critic, _ = made(kind=CEMRLOptions, actor_delay=2, **options)
    state = critic.init(jax.random.key(0))
    policies = {"w": np.float32([0.0, 1.0, 2.0])}
    before = np.copy(policies["w"])
    learned = critic.learn(state, told, policies, AS_IT_IS, jax.random.key(1))
    np.testing.assert_allclose(learned.advice["w"], 1.5, atol=0.15)
    np.testing.assert_array_equal(policies["w"], before)
    # The value is the mean over their way: at its end it is 0.
    assert -0.5 < learned.value < 0.05
    # Nothing to learn from: they stay where they were drawn.
    none = Transitions(*(field[:0] for field in told))
    nothing = critic.learn(state, none, policies, AS_IT_IS, jax.random.key(1))
    np.testing.assert_array_equal(nothing.advice["w"], before)


def test_a_policy_steps_along_the_critics_own_gradient():
    """One step of the critic's and of theirs, Adam's first: the rate, by the sign."""
    critic, network = made(
        kind=CEMRLOptions, replay_ratio=0.25, actor_learning_rate=0.01
    )
    rng = np.random.default_rng(0)
    told = steps(*rng.normal(size=(4, 4)), np.zeros(4))
    policies = {"w": np.float32([-2.0, -0.5, 0.5, 2.0])}
    learned = critic.learn(
        critic.init(jax.random.key(0)), told, policies, AS_IT_IS, jax.random.key(1)
    )

    def value(w, observations):
        own = observations[:, None]
        return network.apply(learned.state.weights, own, w * own / 2.0)[0].mean()

    assert learned.state.num_updates == 1
    batch_key, _ = jax.random.split(
        jax.random.fold_in(jax.random.split(jax.random.key(1))[0], 0)
    )
    seen = told.observations[jax.random.randint(batch_key, (64,), 0, 4), 0]
    uphill = [float(jax.grad(value)(w, seen)) for w in policies["w"]]
    moved = learned.advice["w"] - policies["w"]
    np.testing.assert_allclose(moved, 0.01 * np.sign(uphill), rtol=1e-3)
    expected = np.mean([float(value(w, seen)) for w in policies["w"]])
    assert learned.value == pytest.approx(expected, rel=1e-4)


def test_observations_are_seen_as_policies_see_them():
    """Raw ones are stored; the same numbers in another unit give the same critic."""
    critic, _ = made(replay_ratio=1.0)
    rng = np.random.default_rng(1)
    o, a = rng.normal(size=50), rng.normal(size=50)
    plain = steps(o, a, o * a, o, np.zeros(50))
    other = steps(16.0 * o, a, o * a, 16.0 * o, np.zeros(50))
    view = np.zeros(1, np.float32), np.full(1, 16, np.float32), np.float32(np.inf)
    theta, state = {"w": np.float32(0.5)}, critic.init(jax.random.key(0))
    key = jax.random.key(2)
    first = critic.learn(state, plain, theta, AS_IT_IS, key)
    second = critic.learn(state, other, theta, view, key)
    np.testing.assert_allclose(
        first.advice["w"], second.advice["w"], rtol=1e-3, atol=1e-5
    )


def test_a_generation_is_pure_and_owes_what_is_left_of_a_step():
    critic, _ = made(replay_ratio=0.3)
    told = steps(*np.random.default_rng(0).normal(size=(4, 5)), np.zeros(5))
    state, theta = critic.init(jax.random.key(0)), {"w": np.float32(0.5)}
    before = jax.tree.map(np.copy, state)
    runs = [
        critic.learn(state, told, theta, AS_IT_IS, jax.random.key(1)) for _ in range(2)
    ]
    assert_equal_bits(*(run.state for run in runs))
    assert_equal_bits(state, before)
    # 1.5 steps are due, then 2.
    assert runs[0].state.num_updates == 1 and runs[0].state.owed == 0.5
    again = critic.learn(runs[0].state, told, theta, AS_IT_IS, jax.random.key(2))
    assert again.state.num_updates == 3 and again.state.owed == 0.0
    none = Transitions(*(field[:0] for field in told))
    nothing = critic.learn(state, none, theta, AS_IT_IS, jax.random.key(1))
    assert nothing.advice["w"] == 0 and np.isnan(nothing.loss)


def test_the_store_keeps_the_latest_steps():
    def numbered(first, count):
        n = np.arange(first, first + count)
        return steps(n, n, n, n + 1, n % 2)

    replay = empty_replay(5, 1, 1)
    first = replay = remember(replay, numbered(0, 3))
    assert replay.size == 3 and replay.steps.rewards[:3].tolist() == [0, 1, 2]
    replay = remember(replay, numbered(3, 4))
    assert replay.size == 5 and replay.position == 2
    assert replay.steps.rewards.tolist() == [5, 6, 2, 3, 4]
    assert replay.steps.next_observations[:, 0].tolist() == [6, 7, 3, 4, 5]
    assert first.steps.rewards.tolist() == [0, 1, 2, 0, 0]  # as it was
    assert sorted(remember(replay, numbered(7, 12)).steps.rewards) == [*range(14, 19)]
    broken = numbered(0, 4)
    broken.rewards[1], broken.next_observations[2] = np.nan, np.inf
    assert broken.finite().rewards.tolist() == [0, 3]
