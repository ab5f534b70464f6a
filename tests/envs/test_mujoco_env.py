"""MuJoCo tasks: equal to Gymnasium's, and safe when a simulation fails."""

import gc
import os
import time

import gymnasium
import mujoco
import numpy as np
import pytest
from mujoco.batch import SimulationError

from jax_es.envs.mujoco_batch import ContactForceBatch
from jax_es.envs.mujoco_env import MujocoVectorEnv
from tests.envs.following import follow

NUM_ENVS = 3
# Reward of the last bit: Gymnasium squares scalars there, with C's pow (REFERENCE, 7).
REWARD_RTOL = {"InvertedDoublePendulum-v5": 1e-14}
# Tasks that only their limit ends run beyond it once, the others fall many times.
NUM_STEPS = {
    "HalfCheetah-v5": 1010,
    "HumanoidStandup-v5": 1010,
    "Swimmer-v5": 1010,
}
# Bodies that fall go on until this limit.
UNHEALTHY = {"terminate_when_unhealthy": False, "max_episode_steps": 120}
WITH_HEALTH = ("Ant-v5", "Hopper-v5", "Humanoid-v4", "Humanoid-v5", "Walker2d-v5")


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
@pytest.mark.parametrize(
    ("env_id", "options"),
    [(env_id, {}) for env_id in MujocoVectorEnv.supported]
    + [(env_id, UNHEALTHY) for env_id in WITH_HEALTH],
)
def test_equals_gymnasium(env_id, options):
    """Whole episodes, out of phase, actions beyond their bounds: equal to the bit."""
    singles = [gymnasium.make(env_id, **options) for _ in range(NUM_ENVS)]
    env = MujocoVectorEnv(env_id, NUM_ENVS, **options)
    env.report(())
    assert env.single_action_space == singles[0].action_space
    assert env.single_observation_space.shape == singles[0].observation_space.shape
    assert env.max_episode_steps == singles[0].spec.max_episode_steps
    low, high = 1.2 * env.single_action_space.low, 1.2 * env.single_action_space.high
    rng, unhealthy = np.random.default_rng(0), []

    def draw():
        return rng.uniform(low, high, env.action_space.shape).astype(np.float32)

    singles[0].reset(seed=0)
    *_, theirs = singles[0].step(singles[0].action_space.sample())
    names = {name for name, value in theirs.items() if np.ndim(value) == 0}

    def on_step(info):
        assert names <= {*info}
        assert not info["simulation_failed"].any()
        unhealthy.extend(env._task.unhealthy())

    rtol = REWARD_RTOL.get(env_id, 0)
    num_steps = NUM_STEPS.get(env_id, 300)
    episodes = follow(env, singles, num_steps, draw, rtol, on_step)
    assert episodes.sum() > NUM_ENVS + 2  # more than begin, and begin again
    if options:  # steps of fallen bodies are among them
        assert sum(unhealthy) > 100
    env.close()


def break_qpos(env, actions):
    env._task.qpos[1, 3] = np.nan


def break_qacc(env, actions):
    env._task.qvel[1] = 1e9


def break_action(env, actions):
    actions[1, 0] = np.nan


def break_engine(env, actions):
    """MuJoCo raises: the others are done, that one keeps its state."""
    step = env._batch.step

    def failing_step(ids, nstep):
        env._batch.step = step
        step(np.array([0, 2], np.int32), nstep=nstep)
        raise SimulationError(np.array([1], np.int32), "no room", 3)

    env._batch.step = failing_step


@pytest.mark.parametrize(
    "break_one", [break_qpos, break_qacc, break_action, break_engine]
)
def test_a_failed_simulation_ends_its_episode_only(
    break_one, monkeypatch, tmp_path, capfd
):
    monkeypatch.chdir(tmp_path)
    env, sound = (MujocoVectorEnv("Humanoid-v5", 3, num_threads=2) for _ in range(2))
    env.reset(seed=0)
    sound.reset(seed=0)
    env.action_space.seed(0)
    for step in range(8):
        actions = env.action_space.sample()
        expected = [x.copy() for x in sound.step(actions)[:4]]
        if step == 4:
            break_one(env, actions)
        *outcome, info = env.step(actions)
        for actual, wanted in zip(outcome, expected, strict=True):
            assert np.array_equal(actual[[0, 2]], wanted[[0, 2]])
        assert info["simulation_failed"].tolist() == [False, step == 4, False]
        observations, rewards, terminated, truncated = outcome
        assert np.isfinite(observations).all()
        assert terminated.tolist() == [False, step >= 4, False]
        assert not truncated.any()
        if step >= 4:
            assert np.isnan(rewards[1]) if step == 4 else rewards[1] == 0

    # The slot is as good as new after its reset.
    mask = np.array([False, True, False])
    for one in (env, sound):
        one.reset(seed=5, options={"reset_mask": mask})
    for _ in range(5):
        actions = env.action_space.sample()
        expected = [x.copy() for x in sound.step(actions)[:4]]
        *outcome, info = env.step(actions)
        for actual, wanted in zip(outcome, expected, strict=True):
            assert np.array_equal(actual, wanted)
        assert not info["simulation_failed"].any()

    assert os.listdir(tmp_path) == []  # MUJOCO_LOG.TXT
    assert capfd.readouterr() == ("", "")


def test_contact_force_batch_survives_an_error_of_the_engine(tmp_path):
    """A model with too little memory for a contact: MuJoCo raises in simulation 1."""
    path = tmp_path / "little_memory.xml"
    path.write_text(
        """<mujoco><size memory="8K"/><option integrator="RK4"/><worldbody>
        <geom type="plane" size="5 5 .1"/>
        <body pos="0 0 1"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
        </worldbody></mujoco>"""
    )
    model = mujoco.MjModel.from_xml_path(str(path))
    batch, alone = (ContactForceBatch(model, n, 2) for n in (3, 1))
    qpos = batch.bind("qpos")
    alone.step(nstep=5)
    qpos[1, 2] = 0.05
    with pytest.raises(SimulationError, match="out of memory") as raised:
        batch.step(nstep=5)
    assert raised.value.ids.tolist() == [1]
    assert qpos[1, 2] == 0.05
    assert np.array_equal(qpos[[0, 2]], alone.bind("qpos")[[0, 0]])


def num_tasks():
    return len(os.listdir("/proc/self/task"))


@pytest.mark.skipif(
    not os.path.isdir("/proc/self/task"),
    reason="counts threads in /proc, which Linux alone has",
)
def test_close_ends_the_threads_when_no_view_is_left():
    gc.collect()  # other tests' environments, whose threads end a little later
    time.sleep(0.1)
    before = num_tasks()
    env = MujocoVectorEnv("Ant-v5", 4, num_threads=4)
    env.reset(seed=0)
    view = env._task.qpos
    expected = view.copy()
    env.close()
    assert num_tasks() == before + 3
    assert np.array_equal(view, expected)
    del view
    deadline = time.monotonic() + 5  # a joined thread may be listed a little longer
    while num_tasks() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert num_tasks() == before


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="env_id: got 'Hopper-v3', expected one of"):
        MujocoVectorEnv("Hopper-v3", 1)
    with pytest.raises(ValueError, match="num_threads: got 0, expected"):
        MujocoVectorEnv("Hopper-v5", 1, num_threads=0)
    with pytest.raises(ValueError, match=r"options: got \['x'\], expected"):
        MujocoVectorEnv("Hopper-v5", 1).reset(options={"x": 1})
    for env_id in set(MujocoVectorEnv.supported) - set(WITH_HEALTH):
        with pytest.raises(ValueError, match=f"unhealthy: {env_id} has no such option"):
            MujocoVectorEnv(env_id, 1, terminate_when_unhealthy=False)
