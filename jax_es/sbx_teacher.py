"""SAC and TD3, as SBX has them, learning one task: the only file that knows SBX.

SBX (the JAX sibling of Stable-Baselines3) collects steps, keeps them and makes the
gradient updates; this file gives it our configuration, and hands θ back as the
parameters of our own policies.

A training is a sequence of *stretches*. Each begins with all random numbers seeded by
the run's seed and the steps taken so far, and with a new episode, so that nothing but
the networks and the replay buffer passes from one to the next: a run that continues
from what was saved between two stretches makes the numbers of one never stopped.
"""

import dataclasses
import importlib.metadata
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from jax_es.config import ConfigError, require
from jax_es.types import PyTree

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}

LIBRARIES = ("sbx-rl", "stable_baselines3")
"""Packages that must be as they were for a saved training to be read."""

VERSIONS_FILE = "versions.json"


@dataclasses.dataclass(frozen=True)
class TeacherSettings:
    """Hyperparameters of SAC and TD3. Defaults: Stable-Baselines3's SAC."""

    algo: Literal["sac", "td3"] = "sac"
    """Soft actor-critic (arXiv 1801.01290) or twin delayed DDPG (arXiv 1802.09477)."""
    learning_rate: float = 3e-4
    """Adam's step for actor, critics and temperature."""
    batch_size: int = 256
    """Transitions in a gradient step."""
    buffer_size: int = 1_000_000
    """Transitions that the replay buffer holds, of the latest."""
    learning_starts: int = 100
    """Environment steps with uniformly random actions, before the first update."""
    gamma: float = 0.99
    """Discount of the critics' returns, per environment step."""
    tau: float = 0.005
    """Share of the new critics in the target critics, at each gradient step."""
    train_freq: int = 1
    """Environment steps between two updates."""
    gradient_steps: int = -1
    """Gradient steps of an update; -1 means as many as environment steps."""
    critic_hidden_sizes: tuple[int, ...] = (256, 256)
    """Width of the critics' hidden layers, in units."""
    action_noise: float = 0.1
    """TD3: standard deviation of the exploration noise; actions are in [-1, 1]."""
    policy_delay: int = 2
    """TD3: gradient steps of the critics for one of the actor."""

    def __post_init__(self) -> None:
        """Checks every field."""
        counts = ("batch_size", "buffer_size", "train_freq", "policy_delay")
        for name in counts:
            value = getattr(self, name)
            require(value >= 1, f"--{_option(name)} must be at least 1, got {value}.")
        require(
            self.algo in ("sac", "td3"),
            f"--algo must be one of sac, td3, got {self.algo!r}.",
        )
        require(
            0 < self.learning_rate < float("inf"),
            f"--learning-rate must be positive and finite, got {self.learning_rate}; "
            "0.0003 is usual.",
        )
        require(
            self.learning_starts >= 0,
            f"--learning-starts must be at least 0, got {self.learning_starts}.",
        )
        require(0 <= self.gamma <= 1, f"--gamma must be in [0, 1], got {self.gamma}.")
        require(0 < self.tau <= 1, f"--tau must be in (0, 1], got {self.tau}.")
        require(
            self.gradient_steps >= 1 or self.gradient_steps == -1,
            "--gradient-steps must be at least 1, or -1 for as many as environment "
            f"steps, got {self.gradient_steps}.",
        )
        require(
            all(size >= 1 for size in self.critic_hidden_sizes),
            "--critic-hidden-sizes must be at least 1, got "
            f"{self.critic_hidden_sizes}; 256 256 is usual.",
        )
        require(
            0 <= self.action_noise < float("inf"),
            f"--action-noise must be at least 0 and finite, got {self.action_noise}.",
        )


def _option(name: str) -> str:
    return name.replace("_", "-")


class Teacher:
    """A training by SBX.

    Attributes:
        num_steps: environment steps taken so far.
    """

    def __init__(
        self,
        settings: TeacherSettings,
        env: gymnasium.Env,
        hidden_sizes: tuple[int, ...],
        activation: str,
        seed: int,
        num_steps: int,
    ) -> None:
        """Builds the networks and the replay buffer.

        Args:
            settings: the hyperparameters.
            env: the task, a single environment with a vector of bounded real actions.
            hidden_sizes: of the actor.
            activation: of actor and critics.
            seed: decides every random number.
            num_steps: of the whole training; the buffer need not hold more.
        """
        self._settings, self._env, self._seed = settings, env, seed
        self._model = _make_model(
            settings, env, hidden_sizes, activation, seed, num_steps
        )

    @property
    def num_steps(self) -> int:
        """Environment steps taken so far."""
        return int(self._model.num_timesteps)

    def learn(self, num_steps: int, on_step: Callable[[int], None]) -> None:
        """Takes the next stretch of environment steps, and learns.

        Args:
            num_steps: how many, at least.
            on_step: called after each with the number so far; may raise.
        """
        model = self._model

        def go_on(*_: Any) -> bool:
            on_step(self.num_steps)
            return True

        stretch = np.random.SeedSequence([self._seed, self.num_steps])
        model.set_random_seed(int(stretch.generate_state(1)[0]) % 2**31)
        model.set_env(model.get_env())  # so that it begins with a new episode
        model.learn(num_steps, callback=go_on, reset_num_timesteps=False)

    def mean(self) -> PyTree:
        """Returns the deterministic actor's θ, as our MLP names it."""
        layers = self._model.policy.actor_state.params["params"]
        num_hidden = len(self._model.policy.net_arch_pi)
        names = {f"hidden_{i}": f"Dense_{i}" for i in range(num_hidden)}
        names["head"] = f"Dense_{num_hidden}"
        return jax.device_get({ours: dict(layers[its]) for ours, its in names.items()})

    def save(self, directory: Path) -> None:
        """Saves all that :meth:`restore` needs into ``directory/<steps so far>``."""
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = directory / ".unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        self._model.save(unfinished / "model.zip")
        self._model.save_replay_buffer(unfinished / "replay_buffer.pkl")
        (unfinished / VERSIONS_FILE).write_text(json.dumps(library_versions()))
        for path in [*unfinished.iterdir(), unfinished]:
            _sync(path)
        # Renamed into place: a step is there whole or not at all.
        unfinished.rename(directory / str(self.num_steps))

    def restore(self, directory: Path) -> None:
        """Continues from one of the folders that :meth:`save` made.

        Raises:
            ConfigError: if it is damaged, or another version's.
        """
        then, now = (
            json.loads((directory / VERSIONS_FILE).read_text()),
            library_versions(),
        )
        require(
            then == now,
            f"{directory} was saved with {then}, and here is {now}; install those.",
        )
        try:
            self._model = type(self._model).load(directory / "model.zip", self._env)
            self._model.load_replay_buffer(directory / "replay_buffer.pkl")
        except Exception as error:
            raise ConfigError(
                f"{directory} cannot be read by SBX ({error}); start a new run."
            ) from error
        self._model.set_logger(_no_logger())


def _make_model(
    settings: TeacherSettings,
    env: gymnasium.Env,
    hidden_sizes: tuple[int, ...],
    activation: str,
    seed: int,
    num_steps: int,
) -> Any:
    import sbx
    from stable_baselines3.common.noise import NormalActionNoise

    num_actions = int(np.prod(env.action_space.shape or ()))
    arguments: dict[str, Any] = {
        "learning_rate": settings.learning_rate,
        "batch_size": settings.batch_size,
        "buffer_size": min(settings.buffer_size, num_steps),
        "learning_starts": settings.learning_starts,
        "gamma": settings.gamma,
        "tau": settings.tau,
        "train_freq": settings.train_freq,
        "gradient_steps": settings.gradient_steps,
        "seed": seed,
        "policy_kwargs": {
            "net_arch": {
                "pi": list(hidden_sizes),
                "qf": list(settings.critic_hidden_sizes),
            },
            "activation_fn": ACTIVATIONS[activation],
        },
    }
    if settings.algo == "sac":
        model = sbx.SAC("MlpPolicy", env, **arguments)
    else:
        noise = NormalActionNoise(
            np.zeros(num_actions), np.full(num_actions, settings.action_noise)
        )
        model = sbx.TD3(
            "MlpPolicy",
            env,
            action_noise=noise,
            policy_delay=settings.policy_delay,
            **arguments,
        )
    model.set_logger(_no_logger())
    return model


def _no_logger() -> Any:
    # SBX's default makes a folder in the temporary directory at each stretch.
    from stable_baselines3.common.logger import Logger

    return Logger(None, [])


def library_versions() -> dict[str, str]:
    """Returns the versions that a saved training depends on."""
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


def saved_steps(directory: Path) -> list[int]:
    """Returns the steps at which a training was saved, oldest first."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())


def prune(directory: Path, kept: int) -> None:
    """Deletes what was saved at other steps than ``kept``."""
    for step in saved_steps(directory):
        if step != kept:
            # Deleting takes several calls; a half-deleted step has a hidden name.
            trash = (directory / str(step)).rename(directory / ".deleted")
            shutil.rmtree(trash)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
