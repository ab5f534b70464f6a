"""SAC and TD3 as SBX has them, learning one task: the only file that knows SBX.

SBX, the JAX sibling of Stable-Baselines3, collects steps, keeps them and learns from
them. This file hands it our configuration and our transformer, and takes θ from it.

A training is a sequence of *stretches*. Each begins with a new episode, and with every
random number seeded by the run's seed and the steps taken so far. So nothing but the
networks, their optimizers and the replay buffer passes from one to the next, and a run
that continues from what was saved between two makes the numbers of one never stopped.
"""

import importlib.metadata
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sbx
from sbx.common.type_aliases import RLTrainState
from sbx.td3.policies import TD3Policy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import NormalActionNoise

from jax_es.config import ConfigError, check_types, require
from jax_es.imitation.teacher_settings import TeacherSettings
from jax_es.rollout.memory import check_memory
from jax_es.runs.files import read_json
from jax_es.streams import stream
from jax_es.training.build import (
    TrainConfig,
    make_history_actor,
    make_learning_env,
    policy_kind,
)
from jax_es.types import PyTree

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}

LIBRARIES = ("sbx-rl", "stable_baselines3")
"""Packages that must be as they were for a saved training to be continued."""

MODEL_FILE = "model.zip"
"""What ``sbx.SAC.load`` and ``sbx.TD3.load`` read; we do not, since that unpickles."""
NETWORKS_FILE = "networks.npz"
REPLAY_FILE = "replay_buffer.npz"
VERSIONS_FILE = "versions.json"

_REPLAY_ARRAYS = (
    *("observations", "next_observations", "actions"),
    *("rewards", "dones", "timeouts"),
)


class Teacher:
    """A training by SBX, from its first environment step on."""

    def __init__(
        self, settings: TeacherSettings, config: TrainConfig, num_steps: int
    ) -> None:
        """Builds the environment, the networks and the replay buffer.

        Args:
            settings: the method and its hyperparameters.
            config: environment, actor (an ``mlp``, or of TD3 a
                ``decision-transformer``) and seed.
            num_steps: of the whole training; the buffer need not hold more.

        Raises:
            ConfigError: if critics or replay buffer do not fit into memory.
        """
        self._config, self._env = config, make_learning_env(config)
        self._is_mlp = policy_kind(config.policy) == "mlp"
        # An update's last block of steps may go beyond the end.
        self._capacity = min(settings.buffer_size, num_steps + settings.train_freq)
        _check_fits(settings, self._capacity, self._env)
        self._model = self._make_model(settings)
        self._model.set_logger(_no_logger())

    @property
    def num_steps(self) -> int:
        """Environment steps taken so far."""
        return int(self._model.num_timesteps)

    def learn(self, num_steps: int, on_step: Callable[[int], None]) -> None:
        """Goes through one stretch.

        Args:
            num_steps: environment steps, rounded up to whole updates.
            on_step: called after each with the steps so far. If it raises, the
                training is of no more use.
        """
        stretch = stream(self._config.seed, "gradient teacher", self.num_steps)
        # Python's, NumPy's and JAX' generators, the environment's and its actions'.
        self._model.set_random_seed(int(stretch.integers(2**31)))
        self._model.set_env(self._model.get_env())  # starts a new episode

        def go_on(*_: Any) -> bool:
            on_step(self.num_steps)
            return True

        self._model.learn(num_steps, callback=go_on, reset_num_timesteps=False)

    def mean(self) -> PyTree:
        """Returns θ of the actor without exploration, as our policy's ``"params"``."""
        params = jax.device_get(self._model.policy.actor_state.params["params"])
        if not self._is_mlp:
            return params
        num_hidden = len(self._model.policy.net_arch_pi)
        names = [*(f"hidden_{i}" for i in range(num_hidden)), "head"]
        return {name: dict(params[f"Dense_{i}"]) for i, name in enumerate(names)}

    def predict(self, observations: np.ndarray) -> np.ndarray:
        """Returns SBX's own actions, without exploration.

        Args:
            observations: ``[B, …]`` or of one environment, as ``make_learning_env``'s.
        """
        return self._model.predict(observations, deterministic=True)[0]

    def save(self, directory: Path) -> None:
        """Saves all that :meth:`restore` needs, as ``directory/<steps so far>``.

        Raises:
            OSError: if it cannot be written; what was saved before is intact.
        """
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = directory / ".unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        self._model.save(unfinished / MODEL_FILE)
        buffer = self._model.replay_buffer
        filled = {k: getattr(buffer, k)[: buffer.size()] for k in _REPLAY_ARRAYS}
        with (unfinished / REPLAY_FILE).open("wb") as file:
            np.savez(file, pos=buffer.pos, full=buffer.full, **filled)
        _save_networks(self._model, unfinished / NETWORKS_FILE)
        (unfinished / VERSIONS_FILE).write_text(json.dumps(library_versions()))
        for path in [*unfinished.iterdir(), unfinished]:
            _sync(path)
        # Renamed into place: what was saved is there whole or not at all.
        saved = directory / str(self.num_steps)
        shutil.rmtree(saved, ignore_errors=True)
        unfinished.rename(saved)
        _sync(directory)

    def restore(self, saved: Path) -> None:
        """Continues from a folder that :meth:`save` made with the same settings.

        Raises:
            ConfigError: if it is damaged, or other versions of :data:`LIBRARIES` wrote
                it.
        """
        try:
            then = check_types(read_json(saved / VERSIONS_FILE))
        except (ConfigError, TypeError) as error:
            raise ConfigError(_damaged(saved, error)) from error
        now = library_versions()
        other = [name for name in now if now[name] != then.get(name)]
        require(
            not other,
            f"{saved} was saved by {_listed(then, other)}, and here is "
            f"{_listed(now, other)}: install what it was saved by to continue it, or "
            "start a new run. evaluate and load_policy do not need SBX.",
        )
        try:
            _load_networks(self._model, saved / NETWORKS_FILE)
            _fill(self._model.replay_buffer, saved / REPLAY_FILE)
        # NumPy documents no error types; whatever it raises, the folder is of no use.
        except Exception as error:
            raise ConfigError(_damaged(saved, error)) from error

    def close(self) -> None:
        """Releases the environment."""
        self._env.close()

    def _make_model(self, settings: TeacherSettings) -> Any:
        policy: Any = self._config.policy
        critic = list(settings.critic_hidden_sizes)
        if self._is_mlp:
            kind, network = (
                "MlpPolicy",
                {
                    "net_arch": {"pi": list(policy.hidden_sizes), "qf": critic},
                    "activation_fn": ACTIVATIONS[policy.activation],
                },
            )
        else:
            kind, network = (
                HistoryTD3Policy,
                {
                    "net_arch": {"pi": [], "qf": critic},
                    "history_actor": make_history_actor(self._config, self._env),
                },
            )
        arguments: dict[str, Any] = {
            "policy": kind,
            "env": self._env,
            "policy_kwargs": network,
            "seed": self._config.seed,
            "buffer_size": self._capacity,
        }
        for name in (
            *("learning_rate", "batch_size", "learning_starts", "train_freq"),
            *("gradient_steps", "gamma", "tau"),
        ):
            arguments[name] = getattr(settings, name)
        if settings.algo == "sac":
            return sbx.SAC(**arguments)
        zeros = np.zeros(self._env.action_space.shape or ())
        noise = NormalActionNoise(zeros, zeros + settings.action_noise)
        delay = settings.policy_delay
        return sbx.TD3(**arguments, action_noise=noise, policy_delay=delay)


class HistoryTD3Policy(TD3Policy):
    """TD3 with an actor of ours in place of SBX's; the critics are SBX's."""

    def __init__(self, *args: Any, history_actor: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._history_actor = history_actor

    def build(self, key: jax.Array, lr_schedule: Any, qf_learning_rate: float):
        """Builds the networks; SBX calls it."""
        key, actor_key = jax.random.split(key)
        key = super().build(key, lr_schedule, qf_learning_rate)
        self.actor: Any = self._history_actor
        variables = self.actor.init(actor_key)
        optimizer: Any = self.optimizer_class
        self.actor_state = RLTrainState.create(
            apply_fn=self.actor.apply,
            params=variables,
            target_params=variables,
            tx=optimizer(learning_rate=lr_schedule(1), **self.optimizer_kwargs),
        )
        return key


def _no_logger() -> Logger:
    # SBX's own makes a temporary folder for each stretch.
    return Logger(None, [])


def _check_fits(settings: TeacherSettings, capacity: int, env: Any) -> None:
    """Refuses what would fill up memory, the replay buffer in a few hours' time."""
    (observation_size,), (action_size,) = (
        env.observation_space.shape,
        env.action_space.shape,
    )
    sizes = (observation_size + action_size, *settings.critic_hidden_sizes, 1)
    num_weights = sum(a * b for a, b in itertools.pairwise(sizes))
    transition = 4 * (2 * observation_size + action_size + 3)
    critics = " ".join(map(str, settings.critic_hidden_sizes))
    check_memory(
        {
            # Two critics, their targets and Adam's two moments.
            f"--critic-hidden-sizes {critics}": 4 * 8 * num_weights,
            f"--buffer-size {settings.buffer_size}": transition * capacity,
        }
    )


def _networks(model: Any) -> dict[str, PyTree]:
    """Returns what SBX learns and draws by; with the replay buffer all that it keeps.

    By the names of its attributes: the policy's, and SAC's temperature.
    """
    names = "actor_state", "qf_state", "key", "noise_key"
    state = {name: getattr(model.policy, name) for name in names}
    if hasattr(model, "ent_coef_state"):
        state["ent_coef_state"] = model.ent_coef_state
    return state


def _save_networks(model: Any, file: Path) -> None:
    leaves = jax.tree.leaves(_networks(model))
    counts = {"steps": model.num_timesteps, "updates": model._n_updates}
    np.savez(file, **counts, **{str(i): leaf for i, leaf in enumerate(leaves)})


def _load_networks(model: Any, file: Path) -> None:
    """Puts what :func:`_save_networks` saved into a new model of the same settings."""
    leaves, structure = jax.tree.flatten(_networks(model))
    with np.load(file, allow_pickle=False) as stored:
        arrays = [jnp.asarray(stored[str(i)]) for i in range(len(leaves))]
        model.num_timesteps = int(stored["steps"])
        model._n_updates = int(stored["updates"])
    for array, leaf in zip(arrays, leaves, strict=True):
        if array.shape != np.shape(leaf):
            raise ValueError(f"an array has shape {array.shape}, not {np.shape(leaf)}")
    for name, value in jax.tree.unflatten(structure, arrays).items():
        setattr(model.policy if hasattr(model.policy, name) else model, name, value)


def _fill(buffer: Any, file: Path) -> None:
    """Fills a new replay buffer, of the same capacity or larger."""
    with np.load(file, allow_pickle=False) as stored:
        for name in _REPLAY_ARRAYS:
            values = stored[name]
            getattr(buffer, name)[: len(values)] = values
        buffer.pos, buffer.full = int(stored["pos"]), bool(stored["full"])


def library_versions() -> dict[str, str]:
    """Returns the versions that a saved training depends on."""
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


def _listed(versions: dict[str, str], names: list[str]) -> str:
    return ", ".join(f"{name} {versions.get(name)}" for name in names)


def _damaged(saved: Path, error: Exception) -> str:
    reason = str(error).partition("\n")[0]
    return (
        f"{saved} cannot be read ({type(error).__name__}: {reason}); restore it from a "
        "copy, or start a new run with another --name."
    )


def saved_steps(directory: Path) -> list[int]:
    """Returns the steps at which a training was saved, oldest first."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())


def prune(directory: Path, kept: int) -> None:
    """Deletes what was saved at other steps than ``kept``."""
    for step in saved_steps(directory):
        if step != kept:
            # Deleting takes several calls; a half-deleted folder has a hidden name.
            trash = directory / ".deleted"
            shutil.rmtree(trash, ignore_errors=True)
            (directory / str(step)).rename(trash)
            shutil.rmtree(trash)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
