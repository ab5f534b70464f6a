"""Descriptors are what Gymnasium's own environments say of the same episodes."""

import gymnasium
import numpy as np
import pytest

from jax_es.envs.gait import FEET, PARTS
from jax_es.envs.make import make
from jax_es.envs.mujoco_tasks import TASKS

NUM_STEPS = 60


def by_gymnasium(env_id, seed, actions):
    """Final x and y of an episode, each foot's share of steps on the floor, steps."""
    env = gymnasium.make(env_id)
    env.reset(seed=seed)
    model, data = env.unwrapped.model, env.unwrapped.data
    floor = model.geom("floor").id
    feet = [model.geom(name).id for name in FEET[TASKS[env_id].__name__]]
    touches, num_steps, info = np.zeros(len(feet)), 0, {}
    for action in actions:
        _, _, terminated, _, info = env.step(action)
        num_steps += 1
        pairs = {frozenset(contact.geom.tolist()) for contact in data.contact}
        touches += [frozenset((floor, foot)) in pairs for foot in feet]
        if terminated:
            break
    env.close()
    position = info["x_position"], info.get("y_position", 0.0)
    return np.array([*position, *(touches / num_steps)]), num_steps


@pytest.mark.parametrize(
    "env_id",
    [
        "Humanoid-v5",
        "Hopper-v5",
        "Walker2d-v5",
        "Ant-v5",
        "Swimmer-v5",
    ],
)
def test_gait_is_read_off_gymnasiums_contacts(env_id):
    env = make(env_id, 3, num_threads=1, descriptor="gait")
    assert env.descriptor_size == 2 + len(FEET[TASKS[env_id].__name__])
    rng = np.random.default_rng(0)
    low, high = env.single_action_space.low, env.single_action_space.high
    actions = rng.uniform(low, high, (NUM_STEPS, 3, len(low))).astype(np.float32)
    # The second episodes of some: nothing of the first may be left.
    env.reset(seed=[5, 6, 7])
    for action in actions[:20]:
        env.step(action)
    env.reset(seed=[1, 2, 3], options={"reset_mask": np.array([True, True, True])})
    for action in actions:
        env.step(action)
    found = env.descriptors()
    for part, numbers in PARTS.items():
        other = make(env_id, 3, num_threads=1, descriptor=part)
        assert other.descriptor_size == found[:, numbers].shape[1]
        other.close()
    lengths = []
    for i in range(3):
        expected, length = by_gymnasium(env_id, i + 1, actions[:, i])
        np.testing.assert_allclose(found[i], expected, rtol=1e-12, atol=1e-12)
        lengths.append(length)
    if env_id != "Swimmer-v5":  # some steps on the floor, some in the air
        assert 0 < found[:, 2:].mean() < 1
    if env_id in ("Humanoid-v5", "Hopper-v5", "Walker2d-v5"):
        assert max(lengths) < NUM_STEPS, "none stood still while others went on"
    env.close()


def test_numbers_of_the_last_observation_describe_other_tasks():
    env = make("CartPole-v1", 2, descriptor=(2, 0))
    env.reset(seed=[1, 2])
    ended = np.zeros(2, bool)
    while not ended.all():
        observation, _, terminated, truncated, _ = env.step(np.array([1, 1]))
        ended = terminated | truncated
    np.testing.assert_array_equal(env.descriptors(), observation[:, [2, 0]])
    env.close()
    assert make("CartPole-v1", 2).descriptors().shape == (2, 0)


@pytest.mark.parametrize(
    ("env_id", "descriptor", "message"),
    [
        ("CartPole-v1", (4,), r"descriptor: got \(4,\), expected indices from 0 to 3"),
        ("Reacher-v5", "gait", "descriptor: got 'gait'"),
        ("Hopper-v5", "hands", "descriptor: got 'hands'"),
        ("CartPole-v1", "gait", "descriptor: got 'gait', expected indices from 0"),
    ],
)
def test_a_descriptor_that_there_is_not_is_named(env_id, descriptor, message):
    with pytest.raises(ValueError, match=message):
        make(env_id, 1, descriptor=descriptor)


def test_a_varied_motor_does_its_share():
    """Strength s and action a are strength 1 and action s·a, episode by episode."""
    varied, plain = (make("Hopper-v5", 2, num_threads=1) for _ in range(2))
    strength = np.array([[0.5, 1.0, 0.0], [1.0, 1.0, 1.0]])
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 2, 3)).astype(np.float32)
    for variation in (strength, None):
        options = {} if variation is None else {"variation": variation}
        varied.reset(seed=[3, 4], options=options)
        plain.reset(seed=[3, 4])
        share = np.float32(1.0 if variation is None else variation)
        for action in actions:
            one, two = varied.step(action), plain.step(action * share)
            for a, b in zip(one[:4], two[:4], strict=True):
                np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match=r"options\['variation'\]: got shape \(2, 2\)"):
        varied.reset(seed=0, options={"variation": strength[:, :2]})
    varied.close()
    plain.close()
