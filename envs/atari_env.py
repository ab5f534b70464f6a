"""Atari 2600 games on ale-py's own C++ threads.

ale-py steps a batch of emulators side by side, frame skip, maximum over two frames,
scaling and stacking included. Two of its habits matter here. A batch always steps
whole; so the environments are dealt to small batches, and one whose episodes have all
ended is left alone. And an unseeded reset is not quite a new game: what was played
before shows in some pixels (measured on Hero, from the seventh frame on, in about every
third episode). A seeded one reloads the ROM and is, for 95 ms of a core instead of 7;
so every reset is seeded.

Protocol: that of Mnih et al. 2015 as Lorenc & Neruda (arXiv 2501.13883) use it. Frames
are those of ``gymnasium.wrappers.AtariPreprocessing`` and ``FrameStackObservation``
with zero padding, to the bit.
"""

import copy
import dataclasses
import difflib
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numpy as np

from envs.base import EpisodeVectorEnv, positive_int, thread_count

FRAME_SKIP = 4
"""Emulator frames that an action lasts."""

EMULATOR_FPS = 60
"""Frames a second of the console."""

MAX_EPISODE_STEPS = 108_000 // FRAME_SKIP
"""Agent steps after which an episode is truncated: half an hour of play."""

OBSERVATION_SHAPE = 4, 84, 84
"""Stacked frames, rows, columns."""

_BATCH_SIZE = 8


@dataclasses.dataclass(frozen=True)
class AtariOptions:
    """What may differ from the protocol; the limit alone is checked here."""

    max_episode_steps: int | None = None
    """The limit on an episode in agent steps (four frames each);
    :data:`MAX_EPISODE_STEPS` if not given."""
    sticky_actions: float = 0.0
    """Probability that the emulator repeats the last action instead; 0.25 in Machado et
    al. 2018."""
    reward_clipping: bool = False
    """Pay the sign of the score's change only."""
    noop_max: int = 0
    """An episode begins with 1 to this many actions that do nothing; 0 for none."""
    terminate_on_life_loss: bool = False
    """End the episode with the first life."""
    full_action_space: bool = False
    """All 18 actions instead of those that the game reads."""

    def __post_init__(self) -> None:
        if self.max_episode_steps is not None:
            positive_int("max_episode_steps", self.max_episode_steps)

    @property
    def limit(self) -> int:
        """The limit on an episode, in agent steps."""
        return self.max_episode_steps or MAX_EPISODE_STEPS

    @property
    def later_limit(self) -> int:
        """A limit in emulator frames, an int32, that :attr:`limit` comes before."""
        return min(FRAME_SKIP * self.limit + 1000, 2**31 - 1)


class AtariVectorEnv(EpisodeVectorEnv):
    """``num_envs`` copies of a game; observations are stacked frames, uint8.

    An observation is ``[4, 84, 84]``, the last four frames (grayscale, 0 to 255), the
    latest last; frames before the start are black. An episode ends when the game is
    over: all lives are lost. (With ``terminate_on_life_loss`` the step in which one is
    lost is played to its fourth frame; Gymnasium's wrapper breaks off within it, so the
    episode's last observation may differ.) It needs ale-py, which brings the games.

    Args:
        game: its name in any spelling: ``hero``, ``Hero``, ``ALE/Hero-v5``.
        num_envs: how many environments.
        num_threads: how many environments are stepped at the same time, at least:
            each batch of eight has a thread of its own. By default the number of CPUs
            this process may use.
        **options: fields of :class:`AtariOptions`.

    Attributes:
        resets_at_once: how many resets should come together, since they run side by
            side (about 3 % of the environments at most).

    Raises:
        ValueError: the game is unknown, ale-py is not installed, or a number is out
            of its range.
    """

    def __init__(
        self, game: str, num_envs: int, num_threads: int | None = None, **options: Any
    ) -> None:
        """Loads the game into every emulator (0.1 s each)."""
        rom = rom_name(game)
        chosen = AtariOptions(**options)
        num_envs = positive_int("num_envs", num_envs)
        num_threads = thread_count(num_threads)
        size = min(_BATCH_SIZE, -(-num_envs // num_threads))
        self._slices = [
            slice(start, min(start + size, num_envs))
            for start in range(0, num_envs, size)
        ]
        self._batches = [
            make_batch(rom, part.stop - part.start, chosen) for part in self._slices
        ]
        self._threads = ThreadPoolExecutor(num_threads)
        self._terminate_on_life_loss = chosen.terminate_on_life_loss
        self._seeds = np.random.default_rng(0)
        self._lives = np.zeros(num_envs, np.int32)
        # Two for each thread, since neighbours' resets may meet in one batch.
        self.resets_at_once = max(1, min(2 * num_threads, num_envs // 32))
        super().__init__(
            num_envs,
            gymnasium.spaces.Box(0, 255, OBSERVATION_SHAPE, np.uint8),
            self._batches[0].single_action_space,
            chosen.limit,
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Releases the emulators and their threads."""
        self._threads.shutdown()
        del self._batches

    def _start(
        self, mask: np.ndarray, seeds: list[int | None], options: dict[str, Any]
    ) -> dict[str, Any]:
        if options:
            raise ValueError(
                f"options: got {sorted(options)}, expected 'reset_mask' only"
            )
        drawn = self._seeds.integers(2**31, size=len(seeds))
        seed = np.zeros(self.num_envs, np.int64)
        # ale-py's seeds are 31 bits wide: negative ones mean none.
        seed[mask] = [
            int(new) if given is None else given % 2**31
            for given, new in zip(seeds, drawn, strict=True)
        ]

        def reset(batch: Any, part: slice) -> None:
            chosen = mask[part]
            if chosen.any():
                observations, info = batch.reset(
                    seed=seed[part][chosen], options={"reset_mask": chosen}
                )
                self._keep(part, chosen, observations, info)

        # ale-py resets one after the other, without Python's lock.
        list(self._threads.map(reset, self._batches, self._slices))
        return {}

    def _advance(
        self, actions: np.ndarray, live: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        # Ended environments of a batch that goes on play some game without actions, at
        # its usual cost; nobody looks at it.
        actions = np.where(live, actions, 0).astype(np.int32)
        rewards = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, bool)
        truncated = np.zeros(self.num_envs, bool)
        stepped = [
            (batch, part)
            for batch, part in zip(self._batches, self._slices, strict=True)
            if live[part].any()
        ]
        for batch, part in stepped:
            batch.send(actions[part])
        lives_before = self._lives.copy()
        for batch, part in stepped:
            observations, paid, over, cut, info = batch.recv()
            rewards[part], terminated[part], truncated[part] = paid, over, cut
            self._keep(part, live[part], observations, info)
        if self._terminate_on_life_loss:
            terminated |= self._lives < lives_before
        return rewards, terminated, truncated, {"lives": self._lives.copy()}

    def _keep(
        self,
        part: slice,
        chosen: np.ndarray,
        observations: np.ndarray,
        info: dict[str, np.ndarray],
    ) -> None:
        """Copies a batch's observations and lives where ``chosen``."""
        if chosen.all():  # several times faster than by a mask
            self._observations[part] = observations
        else:
            self._observations[part][chosen] = observations[chosen]
        np.copyto(self._lives[part], info["lives"], where=chosen)


def make_batch(
    rom: str, num_envs: int, options: AtariOptions, num_threads: int = 1
) -> Any:
    """Builds one of ale-py's vector environments, and resets it."""
    from ale_py.vector_env import AtariVectorEnv as ALEVectorEnv

    batch = ALEVectorEnv(
        rom,
        num_envs,
        num_threads=num_threads,
        max_num_frames_per_episode=options.later_limit,
        repeat_action_probability=options.sticky_actions,
        full_action_space=options.full_action_space,
        frameskip=FRAME_SKIP,
        stack_num=OBSERVATION_SHAPE[0],
        img_height=OBSERVATION_SHAPE[1],
        img_width=OBSERVATION_SHAPE[2],
        noop_max=options.noop_max,
        use_fire_reset=False,
        reward_clipping=options.reward_clipping,
        # A lost life is noticed here, in AtariVectorEnv: ale-py would go on in the game
        # that it has begun, and a return depend on the one before.
        episodic_life=False,
    )
    batch.reset()  # a partial reset needs a full one before it
    return batch


def make_single_atari_env(
    game: str, render_mode: str | None = None, **options: Any
) -> gymnasium.Env:
    """Builds one environment of Gymnasium's own with the same frames and rewards.

    It can render, which :class:`AtariVectorEnv` cannot, and is slower. Where chance has
    a part, the same seed leads to another episode than there.

    Args:
        game: its name in any spelling.
        render_mode: as Gymnasium's.
        **options: fields of :class:`AtariOptions`.

    Raises:
        ValueError: the game is unknown, or ale-py or OpenCV is not installed.
    """
    env_id, chosen = env_id_of(game), AtariOptions(**options)
    from gymnasium.wrappers import (
        AtariPreprocessing,
        ClipReward,
        FrameStackObservation,
        TimeLimit,
    )

    env = gymnasium.make(
        env_id,
        render_mode=render_mode,
        frameskip=1,
        repeat_action_probability=chosen.sticky_actions,
        full_action_space=chosen.full_action_space,
        max_num_frames_per_episode=chosen.later_limit,
    )
    try:
        env = AtariPreprocessing(
            env,
            noop_max=chosen.noop_max,
            frame_skip=FRAME_SKIP,
            screen_size=OBSERVATION_SHAPE[1],
            terminal_on_life_loss=chosen.terminate_on_life_loss,
        )
    except gymnasium.error.DependencyNotInstalled as error:
        raise ValueError(
            f"env.id: {env_id} needs OpenCV to be rendered: pip install -e '.[atari]'"
        ) from error
    env = FrameStackObservation(env, OBSERVATION_SHAPE[0], padding_type="zero")
    if chosen.reward_clipping:
        env = ClipReward(env, -1.0, 1.0)  # scores are whole numbers
    env = TimeLimit(env, chosen.limit)
    # What is seen after each step, in the time that it takes on the console.
    env.metadata = {**env.metadata, "render_fps": EMULATOR_FPS // FRAME_SKIP}
    return env


def single_atari_spec(game: str, **options: Any) -> Any:
    """Returns the description from which ``gymnasium.make`` makes the same game.

    Except for the observation after the step that reaches the limit, which lacks the
    last frame. Arguments are those of :func:`make_single_atari_env`.
    """
    env = make_single_atari_env(game, **options)
    spec: Any = copy.deepcopy(env.spec)
    env.close()
    # There the limit counts frames, since it comes before they are skipped, and those
    # in which nothing is done at the beginning.
    chosen = AtariOptions(**options)
    spec.max_episode_steps = FRAME_SKIP * chosen.limit + chosen.noop_max
    return spec


def is_atari(env_id: str) -> bool:
    """Returns whether an environment's id is that of a game."""
    return env_id.startswith("ALE/")


def env_id_of(game: str) -> str:
    """Returns Gymnasium's id of a game: ``hero``, ``Hero``, ``ALE/Hero-v5``.

    Raises:
        ValueError: the game is unknown, or ale-py is not installed.

    Example:
        >>> env_id_of("ms_pacman")
        'ALE/MsPacman-v5'
    """
    argument = "env.id" if is_atari(game) else "env.game"
    try:
        import ale_py
    except ImportError as error:
        raise ValueError(
            f"{argument}: {game!r} needs ale-py, which is not installed: "
            "pip install -e '.[atari]'"
        ) from error
    gymnasium.register_envs(ale_py)
    # ale-py has more ROMs than games it can play: the others end the process.
    known = {
        _spelling(env_id): env_id
        for env_id in gymnasium.registry
        if is_atari(env_id) and env_id.endswith("-v5")
    }
    wanted = _spelling(game)
    if wanted in known:
        return known[wanted]
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.0)
    names = ", ".join(known[spelling][4:-3] for spelling in close)
    raise ValueError(
        f"{argument}: ale-py has no game {game!r}; the closest of its {len(known)} are "
        f"{names}"
    )


def rom_name(game: str) -> str:
    """Returns ale-py's name of a game in any spelling; see :func:`env_id_of`.

    Example:
        >>> rom_name("ALE/MsPacman-v5")
        'ms_pacman'
    """
    return gymnasium.spec(env_id_of(game)).kwargs["game"]


def _spelling(name: str) -> str:
    """Returns a name without what spellings differ in."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"^ale/|-v\d+$", "", name.lower()))
