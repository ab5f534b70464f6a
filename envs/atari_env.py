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

from envs.atari_game import FRAME_SKIP
from envs.base import EpisodeVectorEnv, positive_int, thread_count

EMULATOR_FPS = 60
"""Frames a second of the console."""

MAX_EPISODE_STEPS = 108_000 // FRAME_SKIP
"""Agent steps after which an episode is truncated: half an hour of play."""

OBSERVATION_SHAPE = 4, 84, 84
"""Stacked frames, rows, columns, if nothing else is asked for."""

OBSERVATIONS = "frames", "ram", "ram-change"
"""What policies can see of a game."""

_BATCH_SIZE = 8


@dataclasses.dataclass(frozen=True)
class AtariOptions:
    """What may differ from the protocol.

    Raises:
        ValueError: the limit is no count, or what is observed cannot be.
    """

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
    observation: str = OBSERVATIONS[0]
    """One of :data:`OBSERVATIONS`: frames, or the console's memory, see
    :mod:`envs.atari_ram`."""
    frame_size: int = OBSERVATION_SHAPE[1]
    """Rows and columns of a frame."""
    frame_stack: int = OBSERVATION_SHAPE[0]
    """Frames in an observation, the latest last."""

    def __post_init__(self) -> None:
        if self.max_episode_steps is not None:
            positive_int("max_episode_steps", self.max_episode_steps)
        positive_int("frame_size", self.frame_size)
        positive_int("frame_stack", self.frame_stack)
        if self.observation not in OBSERVATIONS:
            raise ValueError(
                f"observation: got {self.observation!r}, expected one of "
                f"{', '.join(OBSERVATIONS)}"
            )
        for name in ("frame_size", "frame_stack"):
            value, default = getattr(self, name), getattr(AtariOptions, name)
            if self.observation != "frames" and value != default:
                raise ValueError(
                    f"{name}: {value} has no meaning with observation "
                    f"{self.observation}; leave it out ({default})"
                )

    @property
    def frames_shape(self) -> tuple[int, int, int]:
        """Of an observation of frames."""
        return self.frame_stack, self.frame_size, self.frame_size

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

    An observation is ``[frame_stack, frame_size, frame_size]``, by default the last
    four frames of 84×84 (grayscale, 0 to 255), the latest last; frames before the start
    are black. An episode ends when the game is
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
            gymnasium.spaces.Box(0, 255, chosen.frames_shape, np.uint8),
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
        stack_num=options.frame_stack,
        img_height=options.frame_size,
        img_width=options.frame_size,
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
    from gymnasium.wrappers import ClipReward, TimeLimit

    sees_frames = chosen.observation == "frames"
    env = gymnasium.make(
        env_id,
        render_mode=render_mode,
        obs_type="rgb" if sees_frames else "ram",
        frameskip=1 if sees_frames else FRAME_SKIP,
        repeat_action_probability=chosen.sticky_actions,
        full_action_space=chosen.full_action_space,
        max_num_frames_per_episode=chosen.later_limit,
    )
    if sees_frames:
        env = _see_frames(env, chosen)
    else:
        env = RamRules(
            env,
            chosen.noop_max,
            chosen.terminate_on_life_loss,
            chosen.observation == "ram-change",
        )
    if chosen.reward_clipping:
        env = ClipReward(env, -1.0, 1.0)  # scores are whole numbers
    env = TimeLimit(env, chosen.limit)
    # What is seen after each step, in the time that it takes on the console.
    env.metadata = {**env.metadata, "render_fps": EMULATOR_FPS // FRAME_SKIP}
    return env


def _see_frames(env: gymnasium.Env, chosen: AtariOptions) -> gymnasium.Env:
    """Wraps an environment that skips no frames in Gymnasium's own."""
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    try:
        env = AtariPreprocessing(
            env,
            noop_max=chosen.noop_max,
            frame_skip=FRAME_SKIP,
            screen_size=chosen.frame_size,
            terminal_on_life_loss=chosen.terminate_on_life_loss,
        )
    except gymnasium.error.DependencyNotInstalled as error:
        raise ValueError(
            f"env.id: {env.spec.id if env.spec else env} needs OpenCV to be rendered: "
            "pip install -e '.[atari]'"
        ) from error
    return FrameStackObservation(env, chosen.frame_stack, padding_type="zero")


class RamRules(gymnasium.Wrapper, gymnasium.utils.RecordConstructorArgs):
    """What ale-py's own environment with ``obs_type="ram"`` lacks.

    Args:
        env: ale-py's.
        noop_max: an episode begins with 1 to this many frames of doing nothing.
        terminate_on_life_loss: end the episode with the first life.
        with_change: observe ``[256]`` float32: the memory divided by 255, and its
            change since the last observation, divided alike.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        noop_max: int = 0,
        terminate_on_life_loss: bool = False,
        with_change: bool = False,
    ) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(
            self,
            noop_max=noop_max,
            terminate_on_life_loss=terminate_on_life_loss,
            with_change=with_change,
        )
        gymnasium.Wrapper.__init__(self, env)
        self._noop_max = noop_max
        self._terminate_on_life_loss = terminate_on_life_loss
        self._with_change = with_change
        if with_change:
            self.observation_space = RAM_AND_CHANGE

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Begins an episode; a game that ends while nothing is done begins again."""
        ram, info = self.env.reset(seed=seed, options=options)
        emulator: Any = self.env.unwrapped
        noops = 0
        if self._noop_max:
            noops = emulator.np_random.integers(1, self._noop_max + 1)
        for _ in range(noops):
            emulator.ale.act(0)
            if emulator.ale.game_over():
                self.env.reset()
        ram, self._lives = emulator.ale.getRAM(), emulator.ale.lives()
        return self._seen(ram, ram), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Plays four frames."""
        ram, reward, terminated, truncated, info = self.env.step(action)
        has_lost = self._terminate_on_life_loss and info["lives"] < self._lives
        self._lives = info["lives"]
        seen = self._seen(ram, self._ram)
        return seen, reward, terminated or has_lost, truncated, info

    def _seen(self, ram: np.ndarray, before: np.ndarray) -> np.ndarray:
        self._ram = ram
        return ram_and_change(ram, before) if self._with_change else ram


RAM_AND_CHANGE = gymnasium.spaces.Box(-1.0, 1.0, (256,), np.float32)


def ram_and_change(ram: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Returns ``[…, 256]`` float32 of two memories ``[…, 128]`` uint8."""
    now, then = np.float32(ram), np.float32(before)
    return np.concatenate([now, now - then], axis=-1) / np.float32(255)


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
    if chosen.observation == "frames":
        spec.max_episode_steps = FRAME_SKIP * chosen.limit + chosen.noop_max
    else:
        spec.max_episode_steps = chosen.limit
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
