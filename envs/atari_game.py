"""One Atari game: its options, and an emulator that begins anew without loading it.

A seed chooses the number of actions that do nothing at the beginning, and which actions
the emulator repeats instead of what it is told (sticky actions): nothing else of a game
is left to chance. So its state right after the first reset is kept and put back, for
0.1 ms of a core, where to load the ROM again takes 95; and both choices are drawn
here, number for number as Gymnasium and ale-py draw them: ale-py seeds a Mersenne
twister and takes two words of it, one for each player, in every frame. An episode is
that of ``gymnasium.make("ALE/…")`` with the same seed, to the bit. Four games of
ale-py's 104 need more, see :data:`RESETS` and :data:`LOADED`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from jax_es.envs.base import positive_int

FRAME_SKIP = 4
"""Emulator frames that an action lasts, if nothing else is asked for."""

EMULATOR_FPS = 60
"""Frames a second of the console."""

MAX_EPISODE_FRAMES = 108_000
"""Emulator frames after which an episode is truncated: half an hour of play."""

OBSERVATION_SHAPE = 4, 84, 84
"""Stacked frames, rows, columns, if nothing else is asked for."""

OBSERVATIONS = "frames", "ram", "ram-change"
"""What policies can see of a game."""

RAM_SIZE = 128
"""Bytes of the console's memory."""

RESETS = "qbert", "tetris"
"""Games of which something stays as it was when a state is put back: the console is
reset instead (12 ms)."""

LOADED = "berzerk", "double_dunk"
"""Games whose reset plays frames in which actions are sticky, too, if they are: the ROM
is loaded again with the seed, and ale-py draws what is repeated."""

_FRAMES_AHEAD = 2048
"""Frames whose repeated actions are drawn at once."""


@dataclasses.dataclass(frozen=True)
class AtariOptions:
    """What may differ from the protocol.

    Raises:
        ValueError: the limit is no count, or what is observed cannot be.
    """

    max_episode_steps: int | None = None
    """The limit on an episode in agent steps (``frame_skip`` frames each);
    :data:`MAX_EPISODE_FRAMES` if not given."""
    frame_skip: int = FRAME_SKIP
    """Emulator frames that an action lasts."""
    sticky_actions: float = 0.0
    """Probability that the emulator repeats the last action instead; 0.25 in Machado et
    al. 2018."""
    reward_clipping: bool = False
    """Pay the sign of the score's change only."""
    noop_max: int = 0
    """An episode begins with 1 to this many frames in which nothing is done; 0 for
    none."""
    terminate_on_life_loss: bool = False
    """End the episode with the first life."""
    full_action_space: bool = False
    """All 18 actions instead of those that the game reads."""
    observation: str = OBSERVATIONS[0]
    """One of :data:`OBSERVATIONS`: frames, the console's memory ``[128]`` uint8, or
    ``[256]`` float32: the memory divided by 255, and its change since the last step."""
    frame_size: int = OBSERVATION_SHAPE[1]
    """Rows and columns of a frame."""
    frame_stack: int = OBSERVATION_SHAPE[0]
    """Frames in an observation, the latest last."""

    def __post_init__(self) -> None:
        if self.max_episode_steps is not None:
            positive_int("max_episode_steps", self.max_episode_steps)
        positive_int("frame_skip", self.frame_skip)
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
        return self.max_episode_steps or -(-MAX_EPISODE_FRAMES // self.frame_skip)

    @property
    def later_limit(self) -> int:
        """A limit in emulator frames, an int32, that :attr:`limit` comes before."""
        return min(self.frame_skip * self.limit + 1000, 2**31 - 1)


class Game:
    """An emulator with one game.

    Args:
        rom: ale-py's name of the game.
        options: what differs from the protocol. Limits, clipping and lives are left to
            the caller.
    """

    def __init__(self, rom: str, options: AtariOptions) -> None:
        """Loads the game."""
        from ale_py import Action, ALEInterface, LoggerMode, roms  # optional

        self._sees_frames = options.observation == "frames"
        if self._sees_frames:
            self._resize = _resizer()

        ALEInterface.setLoggerMode(LoggerMode.Error)
        self._ale = ale = ALEInterface()
        ale.setFloat("repeat_action_probability", 0.0)
        ale.setInt("random_seed", 1)
        self._path = str(roms.get_rom_path(rom))
        ale.loadROM(self._path)
        ale.reset_game()
        self._start = ale.cloneState()
        self._noop = Action.NOOP
        self._is_loaded = rom in LOADED and bool(options.sticky_actions)
        self._is_reset = self._is_loaded or rom in RESETS
        every, read = ale.getLegalActionSet(), ale.getMinimalActionSet()
        self._actions = every if options.full_action_space else read
        self._options = options
        self._screens = np.zeros((2, *ale.getScreenDims()), np.uint8)
        # No part of the state: what is put back shows after its first frame.
        self._first_screen = ale.getScreenGrayscale()
        self._ram = np.zeros((2, RAM_SIZE), np.uint8)

    @property
    def num_actions(self) -> int:
        """How many actions there are."""
        return len(self._actions)

    @property
    def lives(self) -> int:
        """Lives left."""
        return self._ale.lives()

    @property
    def is_over(self) -> bool:
        """Whether all lives are lost."""
        return self._ale.game_over(with_truncation=False)

    def reset(self, seed: int, out: np.ndarray) -> None:
        """Begins the episode of a seed, an integer of at least 0.

        Writes the first observation to ``out``. Frames before the start are black.
        """
        # As AtariEnv.seed_game of ale-py.
        noop_seed, ale_seed = np.random.SeedSequence(seed).generate_state(2)
        if self._is_loaded:
            sticky = self._options.sticky_actions
            self._ale.setFloat("repeat_action_probability", sticky)
            self._ale.setInt("random_seed", int(ale_seed.astype(np.int32)))
            self._ale.loadROM(self._path)
        elif self._options.sticky_actions:
            self._words = np.random.RandomState(ale_seed)
            self._draw_repeats()
        self._begin()
        if self._options.noop_max:
            generator = np.random.default_rng(int(noop_seed))
            for _ in range(generator.integers(1, self._options.noop_max + 1)):
                self._frame(self._noop)
                if self.is_over:
                    self._begin()
            self._ale.getScreenGrayscale(self._screens[0])
        if self._sees_frames:
            out[:] = 0
        else:
            self._ale.getRAM(self._ram[1])
        self._observe(out)

    def _begin(self) -> None:
        """Begins the game."""
        self._last = self._noop
        self._screens[0], self._screens[1] = self._first_screen, 0
        if not self._is_reset:
            self._ale.restoreState(self._start)
            return
        self._ale.reset_game()
        self._ale.getScreenGrayscale(self._screens[0])

    def step(self, action: int, out: np.ndarray) -> float:
        """Plays an action for all its frames, and returns by how much the score rose.

        Writes what is observed then to ``out``, which holds what was observed before.
        A frame is the brighter of the last two, pixel by pixel, as the console's screen
        showed them; where the game ends, the one before.
        """
        reward, last = 0.0, self._options.frame_skip - 1
        for frame in range(last + 1):
            reward += self._frame(self._actions[action])
            if self.is_over:
                break
            if self._sees_frames and frame >= last - 1:
                self._ale.getScreenGrayscale(self._screens[last - frame])
        self._observe(out)
        return reward

    def _observe(self, out: np.ndarray) -> None:
        match self._options.observation:
            case "frames":
                out[:-1] = out[1:]
                brightest = np.maximum(*self._screens, out=self._screens[0])
                out[-1] = self._resize(brightest, out.shape[:0:-1])
            case "ram":
                self._ale.getRAM(out)
            case _:
                now, before = self._ram
                self._ale.getRAM(now)
                out[:] = ram_and_change(now, before)
                before[:] = now

    def _frame(self, action: Any) -> int:
        if self._options.sticky_actions and not self._is_loaded:
            if self._frames_drawn == _FRAMES_AHEAD:
                self._draw_repeats()
            is_repeated = self._repeats[self._frames_drawn]
            self._frames_drawn += 1
            if is_repeated:
                return self._ale.act(self._last)
            self._last = action
        return self._ale.act(action)

    def _draw_repeats(self) -> None:
        """Draws in which of the next frames the last action is repeated."""
        words = self._words.randint(2**32, size=(_FRAMES_AHEAD, 2), dtype=np.uint32)
        draws = words[:, 0] / 2.0**32  # the other word is the second player's
        self._repeats = (draws < self._options.sticky_actions).tolist()
        self._frames_drawn = 0


def _resizer() -> Callable[..., np.ndarray]:
    """Returns what makes frames smaller, as Gymnasium's wrapper does."""
    try:
        import cv2  # optional
    except ImportError as error:
        raise ValueError(
            f"env.observation: frames need OpenCV ({error}): pip install -e '.[atari]'"
        ) from error
    return functools.partial(cv2.resize, interpolation=cv2.INTER_AREA)


def ram_and_change(ram: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Returns ``[…, 256]`` float32 of two memories ``[…, 128]`` uint8."""
    now, then = np.float32(ram), np.float32(before)
    return np.concatenate([now, now - then], axis=-1) / np.float32(255)
