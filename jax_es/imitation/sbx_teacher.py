"""SAC, TD3 and PPO as SBX has them, learning one task: the only file that knows SBX.

What a resume needs is saved as arrays: what SBX itself saves are pickles, which may run
any code when they are loaded.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sbx
from sbx.common.type_aliases import RLTrainState
from sbx.ppo.policies import Actor
from sbx.td3.policies import TD3Policy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import NormalActionNoise

from jax_es.imitation.teacher_settings import TeacherSettings
from jax_es.rollout.memory import check_memory
from jax_es.rollout.observation_statistics import ObservationStatistics
from jax_es.rollout.streams import stream
from jax_es.training.build import TrainConfig, policy_kind
from jax_es.training.single_env import (
    make_history_actor,
    make_learning_env,
    normalizing,
)
from jax_es.types import PyTree

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}

_OFF_POLICY_SETTINGS = (
    *("learning_rate", "batch_size", "learning_starts", "train_freq"),
    *("gradient_steps", "gamma", "tau"),
)
_PPO_SETTINGS = (
    *("learning_rate", "batch_size", "gamma", "n_steps", "n_epochs", "gae_lambda"),
    *("clip_range", "ent_coef", "vf_coef", "max_grad_norm"),
)
REPLAY = (
    *("observations", "next_observations", "actions"),
    *("rewards", "dones", "timeouts"),
)
_RUNNING = "mean", "var", "count"
"""Of Gymnasium's running statistics."""


class Teacher:
    """A training by SBX, from its first environment step on.

    Raises:
        ConfigError: if the replay buffer does not fit into memory.
    """

    def __init__(self, settings: TeacherSettings, config: TrainConfig) -> None:
        self._settings, self._config = settings, config
        self._env = make_learning_env(config)
        self.close = self._env.close
        self._is_mlp = policy_kind(config.policy) == "mlp"
        self._running: dict[str, Any] = {}
        if settings.algo == "ppo":
            self._model = self._make_ppo()
        else:
            self._model = self._make_off_policy()
        # SBX's own logger makes a temporary folder.
        self._model.set_logger(Logger(None, []))

    @property
    def num_steps(self) -> int:
        """Environment steps taken so far."""
        return int(self._model.num_timesteps)

    def learn(self, on_step: Callable[[int], None]) -> None:
        """Learns to the end; calls ``on_step`` after each step with the steps so far.

        If that raises, the training is of no more use.
        """

        def go_on(*_: Any) -> bool:
            on_step(self.num_steps)
            return self.num_steps < self._settings.steps

        left = self._settings.steps - self.num_steps
        self._model.learn(left, callback=go_on, reset_num_timesteps=False)

    def mean(self) -> PyTree:
        """Returns θ of the actor without exploration, as our policy's ``"params"``."""
        params = jax.device_get(self._model.policy.actor_state.params["params"])
        if not self._is_mlp:
            return params
        num_hidden = len(self._model.policy.net_arch_pi)
        names = [*(f"hidden_{i}" for i in range(num_hidden)), "head"]
        return {name: dict(params[f"Dense_{i}"]) for i, name in enumerate(names)}

    def statistics(self) -> ObservationStatistics | None:
        """Returns those that the actor sees observations by, if it learns them."""
        if "observations" not in self._running:
            return None
        seen = self._running["observations"]
        count, mean = np.float64(seen.count), seen.mean
        return ObservationStatistics(
            np.asarray(count), count * mean, count * (seen.var + mean**2)
        )

    def save(self, file: Path) -> None:
        """Writes what was learned, optimizers and replay buffer, as arrays."""
        model, replay = self._model, getattr(self._model, "replay_buffer", None)
        arrays: dict[str, Any] = {"counts": (model.num_timesteps, model._n_updates)}
        for i, leaf in enumerate(jax.tree.leaves(self._networks())):
            arrays[f"network_{i}"] = leaf
        for name, sums in self._running.items():
            arrays |= {f"{name}_{part}": getattr(sums, part) for part in _RUNNING}
        if replay is not None:
            arrays["counts"] += (replay.pos, int(replay.full))
            arrays |= {name: getattr(replay, name)[: replay.size()] for name in REPLAY}
        np.savez(file, **arrays)

    def restore(self, file: Path) -> None:
        """Continues from what :meth:`save` wrote, in a new episode.

        The random numbers of exploration are others than an uninterrupted training's.
        """
        model, replay = self._model, getattr(self._model, "replay_buffer", None)
        leaves, structure = jax.tree.flatten(self._networks())
        with np.load(file) as state:  # which loads no pickle
            arrays = [jnp.asarray(state[f"network_{i}"]) for i in range(len(leaves))]
            steps, updates, *replayed = map(int, state["counts"])
            for name, sums in self._running.items():
                for part in _RUNNING:
                    setattr(sums, part, state[f"{name}_{part}"])
            if replay is not None:
                for name in REPLAY:
                    getattr(replay, name)[: len(state[name])] = state[name]
                replay.pos, replay.full = replayed[0], bool(replayed[1])
        model.num_timesteps, model._n_updates = steps, updates
        for name, value in jax.tree.unflatten(structure, arrays).items():
            setattr(model.policy if hasattr(model.policy, name) else model, name, value)
        seed = stream(self._config.seed, "gradient teacher", steps).integers(2**31)
        model.set_random_seed(int(seed))

    def export(self, file: Path) -> None:
        """Writes what ``sbx.SAC.load`` and its siblings read."""
        self._model.save(file)

    def _make_off_policy(self) -> Any:
        settings, space = self._settings, self._env.action_space
        # An update's last block of steps may go beyond the end.
        capacity = min(settings.buffer_size, settings.steps + settings.train_freq)
        observed, acted = self._env.observation_space.shape, space.shape
        numbers = 2 * np.prod(observed or ()) + np.prod(acted or ()) + 3
        # It is filled up in a few hours' time.
        check_memory(
            {f"--buffer-size {settings.buffer_size}": 4 * int(numbers) * capacity}
        )
        shared = {
            **self._network("qf"),
            "env": self._env,
            "buffer_size": capacity,
            **{name: getattr(settings, name) for name in _OFF_POLICY_SETTINGS},
        }
        if settings.algo == "sac":
            return sbx.SAC(**shared)
        zeros = np.zeros(space.shape or ())
        noise = NormalActionNoise(zeros, zeros + settings.action_noise)
        return sbx.TD3(**shared, action_noise=noise, policy_delay=settings.policy_delay)

    def _make_ppo(self) -> Any:
        settings = self._settings
        numbers = sum(
            int(np.prod(space.shape or ()))
            for space in (self._env.observation_space, self._env.action_space)
        )
        check_memory(
            {f"--n-steps {settings.n_steps}": 4 * (numbers + 6) * settings.n_steps}
        )
        clip = self._config.rollout.observation_clip or np.inf
        env, self._running = normalizing(self._env, settings.gamma, clip)
        network = self._network("vf")
        network["policy_kwargs"] |= {
            "log_std_init": settings.log_std_init,
            "actor_class": BoundedActor,
        }
        own = {name: getattr(settings, name) for name in _PPO_SETTINGS}
        return sbx.PPO(**network, env=env, **own)

    def _network(self, critic: str) -> dict[str, Any]:
        """Returns what all methods are told of the actor and of their critics."""
        policy: Any = self._config.policy
        layers = {critic: list(self._settings.critic_hidden_sizes), "pi": []}
        network: dict[str, Any] = {"net_arch": layers}
        if self._is_mlp:
            kind = "MlpPolicy"
            layers["pi"] = list(policy.hidden_sizes)
            network["activation_fn"] = ACTIVATIONS[policy.activation]
        else:
            kind = HistoryTD3Policy
            network["history_actor"] = make_history_actor(self._config, self._env)
        return {"policy": kind, "policy_kwargs": network, "seed": self._config.seed}

    def _networks(self) -> dict[str, PyTree]:
        """Returns what SBX learns and draws by, by the names of its attributes."""
        critic = "vf_state" if self._settings.algo == "ppo" else "qf_state"
        names = "actor_state", critic, "key", "noise_key"
        networks = {name: getattr(self._model.policy, name) for name in names}
        if hasattr(self._model, "ent_coef_state"):  # SAC's temperature
            networks["ent_coef_state"] = self._model.ent_coef_state
        return networks


class BoundedActor(Actor):
    """PPO's actor with a mean that is a policy's action: tanh of its outputs."""

    def __call__(self, x: jax.Array) -> Any:
        """Returns the distribution of actions at ``x``."""
        normal: Any = super().__call__(x)
        return normal.copy(loc=jnp.tanh(normal.loc))


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
