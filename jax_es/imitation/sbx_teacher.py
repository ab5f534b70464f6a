"""SAC and TD3 as SBX has them, learning one task: the only file that knows SBX.

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
from sbx.td3.policies import TD3Policy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import NormalActionNoise

from jax_es.imitation.teacher_settings import TeacherSettings
from jax_es.rollout.memory import check_memory
from jax_es.rollout.streams import stream
from jax_es.training.build import TrainConfig, policy_kind
from jax_es.training.single_env import make_history_actor, make_learning_env
from jax_es.types import PyTree

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}

_SHARED_SETTINGS = (
    *("learning_rate", "batch_size", "learning_starts", "train_freq"),
    *("gradient_steps", "gamma", "tau"),
)
REPLAY = (
    *("observations", "next_observations", "actions"),
    *("rewards", "dones", "timeouts"),
)


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
        # An update's last block of steps may go beyond the end.
        capacity = min(settings.buffer_size, settings.steps + settings.train_freq)
        observed, acted = self._env.observation_space, self._env.action_space
        numbers = 2 * np.prod(observed.shape or ()) + np.prod(acted.shape or ()) + 3
        # It is filled up in a few hours' time.
        check_memory(
            {f"--buffer-size {settings.buffer_size}": 4 * int(numbers) * capacity}
        )
        self._model = self._make_model(capacity)
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

    def save(self, file: Path) -> None:
        """Writes networks, optimizers and replay buffer, as arrays."""
        model, buffer = self._model, self._model.replay_buffer
        counts = model.num_timesteps, model._n_updates, buffer.pos, int(buffer.full)
        leaves = enumerate(jax.tree.leaves(self._networks()))
        replay = {name: getattr(buffer, name)[: buffer.size()] for name in REPLAY}
        np.savez(
            file, counts=counts, **{f"network_{i}": x for i, x in leaves}, **replay
        )

    def restore(self, file: Path) -> None:
        """Continues from what :meth:`save` wrote, in a new episode.

        The random numbers of exploration are others than an uninterrupted training's.
        """
        model, buffer = self._model, self._model.replay_buffer
        leaves, structure = jax.tree.flatten(self._networks())
        with np.load(file) as state:  # which loads no pickle
            arrays = [jnp.asarray(state[f"network_{i}"]) for i in range(len(leaves))]
            for name in REPLAY:
                getattr(buffer, name)[: len(state[name])] = state[name]
            steps, updates, position, is_full = map(int, state["counts"])
        model.num_timesteps, model._n_updates = steps, updates
        buffer.pos, buffer.full = position, bool(is_full)
        for name, value in jax.tree.unflatten(structure, arrays).items():
            setattr(model.policy if hasattr(model.policy, name) else model, name, value)
        seed = stream(self._config.seed, "gradient teacher", steps).integers(2**31)
        model.set_random_seed(int(seed))

    def export(self, file: Path) -> None:
        """Writes what ``sbx.SAC.load`` and ``sbx.TD3.load`` read."""
        self._model.save(file)

    def _make_model(self, capacity: int) -> Any:
        settings = self._settings
        policy: Any = self._config.policy
        layers = {"qf": list(settings.critic_hidden_sizes), "pi": []}
        network: dict[str, Any] = {"net_arch": layers}
        if self._is_mlp:
            kind = "MlpPolicy"
            layers["pi"] = list(policy.hidden_sizes)
            network["activation_fn"] = ACTIVATIONS[policy.activation]
        else:
            kind = HistoryTD3Policy
            network["history_actor"] = make_history_actor(self._config, self._env)
        shared: dict[str, Any] = {
            "policy": kind,
            "env": self._env,
            "policy_kwargs": network,
            "seed": self._config.seed,
            "buffer_size": capacity,
            **{name: getattr(settings, name) for name in _SHARED_SETTINGS},
        }
        if settings.algo == "sac":
            return sbx.SAC(**shared)
        zeros = np.zeros(self._env.action_space.shape or ())
        noise = NormalActionNoise(zeros, zeros + settings.action_noise)
        return sbx.TD3(**shared, action_noise=noise, policy_delay=settings.policy_delay)

    def _networks(self) -> dict[str, PyTree]:
        """Returns what SBX learns and draws by, by the names of its attributes."""
        names = "actor_state", "qf_state", "key", "noise_key"
        networks = {name: getattr(self._model.policy, name) for name in names}
        if hasattr(self._model, "ent_coef_state"):  # SAC's temperature
            networks["ent_coef_state"] = self._model.ent_coef_state
        return networks


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
