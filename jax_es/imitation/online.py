"""Episodes that a network plays itself, in order to learn from them.

Behaviour cloning goes on with them: whole episodes, whose returns-to-go are what they
came to and not what they were asked for, take the place of the oldest. So a transformer
that is asked for more than it has reached finds out what its actions lead to. Source:
Online Decision Transformer, Zheng et al. 2022, arXiv 2202.05607. There the network says
how much its actions vary, at least by an entropy; here they vary by a fixed noise, so
that the most likely network is the one of least squares, as in cloning.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from minari.data_collector import EpisodeBuffer

from jax_es.checks import require
from jax_es.es.population import MeanPopulation
from jax_es.imitation.cloning_settings import CloningConfig
from jax_es.imitation.datasets import Episodes
from jax_es.imitation.recording_env import RecordingEnv, is_finite
from jax_es.rollout.engine import Rollout
from jax_es.rollout.jax_engine import CompiledEnv
from jax_es.rollout.memory import check_memory
from jax_es.rollout.observation_statistics import View
from jax_es.rollout.streams import stream
from jax_es.rollout.tasks import tasks_of_mean
from jax_es.training.parts import EvaluationParts
from jax_es.types import PyTree

COPIES = 4
"""Of the episodes, while some are added, cut into windows and saved."""


class OnlinePlayer:
    """Plays a network's episodes, with noise on its actions.

    Args:
        parts: of the run, whose environments it shares.
        config: the settings.
        view: how the network sees observations.
        episodes: what is remembered at first; of too many the best.

    Attributes:
        episodes: what is remembered; the worst or the oldest ones first.
        num_steps: environment steps of its own so far.

    Raises:
        ConfigError: if the environment has no range for its actions or is written in
            JAX, or the episodes do not fit into memory.
    """

    def __init__(
        self,
        parts: EvaluationParts,
        config: CloningConfig,
        view: View,
        episodes: Episodes,
    ) -> None:
        env, seed = parts.env, parts.config.seed
        require(
            not isinstance(env, CompiledEnv),
            f"--online-episodes: {parts.config.env.id} is written in JAX, which keeps "
            "no steps of its episodes; leave it out, or choose another --env.id.",
        )
        observed, acted = env.single_observation_space, env.single_action_space
        bounds = [getattr(acted, name, np.inf) for name in ("low", "high")]
        require(
            not config.online_noise
            or all(bool(np.isfinite(bound).all()) for bound in bounds),
            f"--online-noise {config.online_noise:g} is a share of the actions' range, "
            f"and {acted} has none; add --online-noise 0.",
        )
        step = observed.dtype.itemsize * int(np.prod(observed.shape))
        step += 4 * (2 + int(np.prod(acted.shape)))
        most = step * env.max_episode_steps * config.replay_episodes
        check_memory({f"--replay-episodes {config.replay_episodes}": COPIES * most})
        self._parts, self._config, self._view = parts, config, view
        best = np.argsort(episodes.returns, kind="stable")[-config.replay_episodes :]
        self.episodes, self.num_steps = episodes.chosen(best), 0
        self._ended: list[EpisodeBuffer] = []
        noise = config.online_noise, int(stream(seed, "online noise").integers(2**31))
        envs: Any = [RecordingEnv(e, *noise, self._ended.append) for e in parts.envs]
        self._rollout = Rollout(parts.policy, envs, parts.devices)

    def play(
        self, mean: PyTree, epoch: int, check_stop: Callable[[], None]
    ) -> float | None:
        """Plays an epoch's episodes and remembers them; returns their mean return.

        Those whose numbers are not finite are left out; None if that are all.

        Args:
            mean: θ.
            epoch: from 0; it decides the episodes' seeds.
            check_stop: called often. What it raises ends the play.

        Raises:
            ConfigError: if nothing is left to learn from.
        """
        config = self._parts.config
        draws = stream(config.seed, "online episodes", epoch)
        seeds = draws.integers(2**31, size=self._config.online_episodes)
        tasks = tasks_of_mean(seeds, self._parts.env.max_episode_steps)
        asked = getattr(config.policy, "target_return", None)
        if asked is not None:
            if self._config.online_return is not None:
                asked = self._config.online_return
            elif len(self.episodes.lengths):
                asked = float(self.episodes.returns.max())
            tasks = tasks.asked_for(asked)
        self._ended.clear()
        population = MeanPopulation(jax.tree.map(jnp.asarray, mean))
        self._rollout.evaluate(population, tasks, self._view, lambda _: check_stop())
        # In the order of the tasks, whatever order they ended in.
        order = {int(seed): index for index, seed in enumerate(seeds)}
        ended = sorted(self._ended, key=lambda episode: order[episode.seed or 0])
        played: list[Any] = [episode for episode in ended if is_finite(episode)]
        require(
            len(played) + len(self.episodes.lengths) > 0,
            "all episodes have numbers that are not finite, so nothing is there to "
            "learn from; start a new run with another --seed.",
        )
        if not played:
            return None
        own = Episodes(
            np.concatenate([each.observations[:-1] for each in played]),
            np.concatenate([each.actions for each in played]),
            np.concatenate([each.rewards for each in played]),
            np.array([len(each.rewards) for each in played]),
        )
        self.num_steps += len(own.rewards)
        # What stays is copied once, however many episodes are new.
        count = len(self.episodes.lengths)
        left = max(0, count + len(played) - self._config.replay_episodes)
        kept = self.episodes.chosen(np.arange(min(left, count), count))
        new = own.chosen(np.arange(max(0, left - count), len(played)))
        self.episodes = kept.followed_by(new)
        return float(own.returns.mean())

    def state(self) -> PyTree:
        """Returns what a resume needs."""
        return {"episodes": self.episodes._asdict(), "num_steps": self.num_steps}

    def restore(self, state: PyTree) -> None:
        """Goes on from what :meth:`state` returned."""
        self.episodes = Episodes(**state["episodes"])
        self.num_steps = int(state["num_steps"])
