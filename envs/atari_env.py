"""Atari 2600 games, seen as frames or as the console's memory.

Each slot has an emulator of its own (:mod:`jax_es.envs.atari_game`). ale-py's vector
environment steps them on C++ threads, but begins an episode of a seed only by loading
the ROM again, and gives no memory. Measured on one core of an AMD EPYC, for one of
eight Kangaroos with frames: a reset takes 88 ms there and 0.12 here, a step 0.37 to
0.43 there and 0.39 here.

Protocol: that of Mnih et al. 2015 as Lorenc & Neruda (arXiv 2501.13883) use it. Frames
are those of ``gymnasium.wrappers.AtariPreprocessing`` and ``FrameStackObservation``
with zero padding, to the bit, and memory that of ``obs_type="ram"``.
"""

import copy
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np

from jax_es.envs.atari_game import (
    EMULATOR_FPS,
    RAM_SIZE,
    AtariOptions,
    Game,
    ram_and_change,
)
from jax_es.envs.atari_shares import deal
from jax_es.envs.base import EpisodeVectorEnv, is_atari, positive_int, thread_count


class AtariVectorEnv(EpisodeVectorEnv):
    """``num_envs`` copies of a game.

    An observation is ``[frame_stack, frame_size, frame_size]`` uint8, by default the
    last four frames of 84×84 (grayscale, 0 to 255), the latest last; frames before the
    start are black. With ``observation ram`` it is the memory, ``[128]`` uint8, and
    with ``ram-change`` ``[256]`` float32, see
    :class:`jax_es.envs.atari_game.AtariOptions`.

    An episode ends when the game is over: all lives are lost. With
    ``terminate_on_life_loss`` the step in which one is lost is played to its fourth
    frame; Gymnasium's wrapper breaks off within it, so the episode's last frames may
    differ. It needs ale-py, which brings the games, and for frames OpenCV.

    Args:
        game: its name in any spelling: ``hero``, ``Hero``, ``ALE/Hero-v5``.
        num_envs: how many environments.
        num_threads: how many processes step them; one is this process. By default the
            number of CPUs this process may use.
        descriptor: which numbers of an episode's last observation describe it.
        **options: fields of :class:`jax_es.envs.atari_game.AtariOptions`.

    Raises:
        ValueError: the game is unknown, ale-py is not installed, or a number is out
            of its range.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        num_threads: int | None = None,
        descriptor: Sequence[int] = (),
        **options: Any,
    ) -> None:
        """Loads the game into every emulator (0.1 s each)."""
        rom = rom_name(game)
        self._options = chosen = AtariOptions(**options)
        num_envs = positive_int("num_envs", num_envs)
        num_processes = min(thread_count(num_threads), num_envs)
        space = _space(chosen)
        num_actions = Game(rom, chosen).num_actions
        super().__init__(
            num_envs,
            space,
            gymnasium.spaces.Discrete(num_actions),
            chosen.limit,
            descriptor,
        )
        self._rng = np.random.default_rng(0)
        self._table, self._shares = deal(
            num_envs, num_processes, space.shape, space.dtype, rom, chosen
        )
        self._observations = self._table.observation

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the processes."""
        for share in self._shares.values():
            share.close()

    def _start(
        self, mask: np.ndarray, seeds: list[int | None], options: dict[str, Any]
    ) -> dict[str, Any]:
        if options:
            raise ValueError(
                f"options: got {sorted(options)}, expected 'reset_mask' only"
            )
        drawn = self._rng.integers(2**31, size=len(seeds)).tolist()
        due = {
            row: new if seed is None else seed
            for row, seed, new in zip(
                np.flatnonzero(mask).tolist(), seeds, drawn, strict=True
            )
        }
        start, busy = 0, []
        for stop, share in self._shares.items():
            chosen = {row: due[row] for row in range(start, stop) if row in due}
            start = stop
            if chosen:
                share.begin(chosen)
                busy.append(share)
        _wait(busy)
        return {}

    def _advance(
        self, actions: np.ndarray, live: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | bool, dict[str, Any]]:
        table = self._table
        lives = table.lives.copy()
        np.copyto(table.action, actions, casting="unsafe")
        np.copyto(table.live, live)
        for share in self._shares.values():
            share.begin(None)
        _wait(self._shares.values())
        reward, over = table.reward.copy(), table.over.copy()
        if self._options.reward_clipping:
            reward = np.sign(reward)
        if self._options.terminate_on_life_loss:
            over |= table.lives < lives
        return reward, over, False, {"lives": table.lives.copy()}


def _wait(shares: Iterable[Any]) -> None:
    """Waits for all of them; raises what the first failed one says."""
    failed = [error for share in shares if (error := share.wait()) is not None]
    if failed:
        raise failed[0]


def _space(options: AtariOptions) -> gymnasium.spaces.Box:
    match options.observation:
        case "frames":
            return gymnasium.spaces.Box(0, 255, options.frames_shape, np.uint8)
        case "ram":
            return gymnasium.spaces.Box(0, 255, (RAM_SIZE,), np.uint8)
        case _:
            return gymnasium.spaces.Box(-1.0, 1.0, (2 * RAM_SIZE,), np.float32)


def make_single_atari_env(
    game: str, render_mode: str | None = None, **options: Any
) -> gymnasium.Env:
    """Builds one environment of Gymnasium's own with the same frames and rewards.

    It can render, which :class:`AtariVectorEnv` cannot, and is slower. The same seed
    leads to the same episode.

    Args:
        game: its name in any spelling.
        render_mode: as Gymnasium's.
        **options: fields of :class:`jax_es.envs.atari_game.AtariOptions`.

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
        frameskip=1 if sees_frames else chosen.frame_skip,
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
    env.metadata = {
        **env.metadata,
        "render_fps": max(1, EMULATOR_FPS // chosen.frame_skip),
    }
    return env


def _see_frames(env: gymnasium.Env, chosen: AtariOptions) -> gymnasium.Env:
    """Wraps an environment that skips no frames in Gymnasium's own."""
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    try:
        env = AtariPreprocessing(
            env,
            noop_max=chosen.noop_max,
            frame_skip=chosen.frame_skip,
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
            self.observation_space = _space(AtariOptions(observation="ram-change"))

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
        """Plays an action for all its frames."""
        ram, reward, terminated, truncated, info = self.env.step(action)
        has_lost = self._terminate_on_life_loss and info["lives"] < self._lives
        self._lives = info["lives"]
        seen = self._seen(ram, self._ram)
        return seen, reward, terminated or has_lost, truncated, info

    def _seen(self, ram: np.ndarray, before: np.ndarray) -> np.ndarray:
        self._ram = ram
        return ram_and_change(ram, before) if self._with_change else ram


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
        spec.max_episode_steps = chosen.frame_skip * chosen.limit + chosen.noop_max
    else:
        spec.max_episode_steps = chosen.limit
    return spec


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
    return re.sub(r"[^a-z0-9]", "", re.sub(r"^ale/|-v5$", "", name.lower()))
