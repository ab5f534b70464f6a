"""Behaviour cloning: a network learns by gradients to act as in recorded episodes.

Windows of recorded steps in, the recorded actions as the answers: mean squared error
for real-valued actions, cross-entropy for choices; AdamW with linear warm-up and
clipped gradients. Source: Chen et al. 2021, arXiv 2106.01345, whose settings Lorenc &
Neruda, arXiv 2501.13883, pretrain with. They have no noise on the weights, a
regulariser of recurrent networks (Graves et al. 2013, arXiv 1303.5778), which here
prepares θ for the noise of evolution.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_es.imitation.cloning_settings import CloningConfig
from jax_es.imitation.windows import PADDING_START, Steps, Windows, windows_at
from jax_es.rollout.devices import Devices
from jax_es.rollout.observation_statistics import View, normalized
from jax_es.types import ClonablePolicy, PyTree

_WEIGHTS_KEY = 2**32 - 1
"""What the key of the weights' noise folds: windows fold smaller numbers."""


class CloningState(NamedTuple):
    """What the next step of gradient descent depends on."""

    mean: PyTree
    """θ, the policy's ``"params"``."""
    optimizer_state: optax.OptState
    """optax's."""
    step: jax.Array
    """``[]`` int32, steps so far; the keys of noise and dropout follow from it."""


def warmed_up_adamw(config: CloningConfig) -> optax.GradientTransformation:
    """Builds AdamW with linear warm-up and clipped gradients.

    Step t (from 1) has the learning rate lr · min(t / warmup_steps, 1).
    """
    rate, warmup = config.learning_rate, config.warmup_steps
    if warmup > 1:
        rate = optax.linear_schedule(rate / warmup, rate, warmup - 1)
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_clip),
        optax.adamw(rate, weight_decay=config.weight_decay),
    )


class Cloner:
    """Gradient descent on windows, of which each device takes its share.

    ``view`` is how the policy sees observations; ``key`` is that of noise and dropout.
    """

    def __init__(
        self,
        policy: ClonablePolicy,
        config: CloningConfig,
        devices: Devices,
        view: View,
        key: jax.Array,
    ) -> None:
        self.policy = policy
        self.config = config
        self._devices = devices
        self._view = view
        self._optimizer = warmed_up_adamw(config)
        self._key = key
        self._descend = devices.map_together(self._descend_on_device, (None, 0, 0))
        self._measure = devices.map_together(self._measure_on_device, (None, 0))

    def init(self, mean: PyTree) -> CloningState:
        """Returns the state before the first step."""
        mean = jax.tree.map(jnp.asarray, mean)
        return CloningState(mean, jax.jit(self._optimizer.init)(mean), jnp.int32(0))

    def place(self, state: CloningState) -> CloningState:
        """Puts a state where later steps have it, so that none compiles again."""
        return self._devices.share(state)

    def descend(
        self, state: CloningState, steps: Steps, starts: np.ndarray
    ) -> tuple[CloningState, jax.Array]:
        """Takes a step on the windows that begin at ``starts [B]``; does not wait.

        Returns the next state, to be given to the next step, and the batch's loss.
        """
        windows = self._spread(steps, starts)
        positions = np.arange(windows.is_real[..., 0].size, dtype=np.int32)
        positions = self._devices.put(positions.reshape(self._devices.count, -1))
        return self._descend(state, windows, positions)

    def loss(self, mean: PyTree, steps: Steps, starts: np.ndarray) -> float:
        """Returns the mean loss over the steps of windows ``[n]``, without dropout."""
        size = self.config.batch_size
        padding = np.full(-len(starts) % size, PADDING_START)
        batches = np.concatenate([starts, padding]).reshape(-1, size)
        sums = [self._measure(mean, self._spread(steps, batch)) for batch in batches]
        loss, count = np.asarray(sums, np.float64).sum(axis=0)
        return float(loss / count)

    def _spread(self, steps: Steps, starts: np.ndarray) -> Windows:
        """Cuts a batch ``[B]`` and gives each device its share: ``[D, b, T]``."""
        num_devices = self._devices.count
        padding = np.full(-len(starts) % num_devices, PADDING_START)
        shares = np.concatenate([starts, padding]).reshape(num_devices, -1)
        return self._devices.put(windows_at(steps, shares, self.policy.window_length))

    def _descend_on_device(
        self,
        total: Callable[[PyTree], PyTree],
        state: CloningState,
        windows: Windows,
        positions: jax.Array,
    ) -> tuple[CloningState, jax.Array]:
        """Takes a step on this device's windows ``[b, T]``.

        ``total`` sums over the devices. ``positions [b]`` says which of the batch the
        windows are: their dropout does not depend on their device.
        """
        key = jax.random.fold_in(self._key, state.step)
        keys = jax.vmap(lambda position: jax.random.fold_in(key, position))(positions)
        num_steps = total(jnp.sum(windows.is_real, dtype=jnp.float32))
        noise_key = jax.random.fold_in(key, np.uint32(_WEIGHTS_KEY))
        loss, gradient = total(
            jax.value_and_grad(
                lambda mean: self._sum_of_losses(mean, windows, keys) / num_steps
            )(self._noisy(noise_key, state.mean))
        )
        updates, optimizer_state = self._optimizer.update(
            gradient, state.optimizer_state, state.mean
        )
        mean = optax.apply_updates(state.mean, updates)
        return CloningState(mean, optimizer_state, state.step + 1), loss

    def _noisy(self, key: jax.Array, mean: PyTree) -> PyTree:
        """Returns θ with a step's noise on it."""
        if not self.config.weight_noise:
            return mean
        noise = optax.tree.random_like(key, mean, jax.random.normal)
        return optax.tree.add_scale(mean, self.config.weight_noise, noise)

    def _measure_on_device(
        self, total: Callable[[PyTree], PyTree], mean: PyTree, windows: Windows
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the sum of the losses of windows ``[b, T]``, and their steps."""
        num_steps = jnp.sum(windows.is_real, dtype=jnp.float32)
        return total((self._sum_of_losses(mean, windows, None), num_steps))

    def _sum_of_losses(
        self, mean: PyTree, windows: Windows, keys: jax.Array | None
    ) -> jax.Array:
        """Adds up the losses of the steps of windows ``[b, T]``; padding's are 0."""

        def of_one(window: Windows, key: jax.Array | None) -> jax.Array:
            losses = self.policy.imitation_loss(
                {"params": mean},
                window.returns_to_go,
                self._seen(window.observations),
                window.actions,
                window.timesteps,
                self.config.dropout,
                key,
            )
            return jnp.sum(jnp.where(window.is_real, losses, 0.0))

        return jax.vmap(of_one)(windows, keys).sum()

    def _seen(self, observations: jax.Array) -> jax.Array:
        """Returns observations ``[T, …]`` as policies see them."""
        shape = observations.shape
        mean, std, clip = self._view.normalizer(shape[1:], observations.dtype)
        mean, std = (jnp.broadcast_to(part, shape) for part in (mean, std))
        return normalized(observations, mean, std, clip)
