"""One Atari game that begins anew without its ROM being loaded again.

A seed chooses the number of actions that do nothing at the beginning, and which actions
the emulator repeats instead of what it is told (sticky actions): nothing else of a game
is left to chance. So its state right after the first reset is kept and put back, for
0.2 ms instead of 95, and both choices are drawn here, number for number as Gymnasium
and ale-py draw them: ale-py seeds a Mersenne twister and takes two words of it for each
frame. An episode is that of ``gymnasium.make("ALE/…")`` with the same seed, to the bit.
"""

import numpy as np

FRAME_SKIP = 4
"""Emulator frames that an action lasts."""

_FRAMES_AHEAD = 2048


class Game:
    """An emulator with one game.

    Args:
        rom: ale-py's name of the game.
        sticky_actions: probability that the last frame's action is repeated instead.
        noop_max: an episode begins with 1 to this many frames of doing nothing; 0 for
            none.
        full_action_space: all 18 actions instead of those that the game reads.
    """

    def __init__(
        self,
        rom: str,
        sticky_actions: float = 0.0,
        noop_max: int = 0,
        full_action_space: bool = False,
    ) -> None:
        """Loads the game."""
        from ale_py import ALEInterface, LoggerMode, roms  # optional

        ALEInterface.setLoggerMode(LoggerMode.Error)
        self._ale = ale = ALEInterface()
        ale.setFloat("repeat_action_probability", 0.0)
        ale.setInt("random_seed", 1)
        ale.loadROM(roms.get_rom_path(rom))
        ale.reset_game()
        self._start = ale.cloneState()
        every, read = ale.getLegalActionSet(), ale.getMinimalActionSet()
        self._actions = every if full_action_space else read
        self._noop_max = noop_max
        self._sticky_actions = sticky_actions

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

    def reset(self, seed: int) -> None:
        """Begins the episode of a seed, an integer of at least 0."""
        self._ale.restoreState(self._start)
        self._last = self._actions[0]
        # As AtariEnv.seed_game of ale-py.
        noop_seed, ale_seed = np.random.SeedSequence(seed).generate_state(2)
        if self._sticky_actions:
            self._words = np.random.RandomState(ale_seed)
            self._draw_repeats()
        if self._noop_max:
            generator = np.random.default_rng(int(noop_seed))
            for _ in range(generator.integers(1, self._noop_max + 1)):
                self._frame(0)
                if self.is_over:
                    self._ale.restoreState(self._start)

    def step(self, action: int) -> float:
        """Plays an action for four frames, and returns by how much the score rose."""
        return float(sum(self._frame(action) for _ in range(FRAME_SKIP)))

    def read_ram(self, out: np.ndarray) -> None:
        """Copies the memory to ``[128]`` uint8."""
        self._ale.getRAM(out)

    def _frame(self, action: int) -> int:
        if self._sticky_actions:
            if self._frames_drawn == _FRAMES_AHEAD:
                self._draw_repeats()
            is_repeated = self._repeats[self._frames_drawn]
            self._frames_drawn += 1
            if is_repeated:
                return self._ale.act(self._last)
            self._last = self._actions[action]
        return self._ale.act(self._actions[action])

    def _draw_repeats(self) -> None:
        """Draws in which of the next frames the last action is repeated."""
        words = self._words.randint(2**32, size=(_FRAMES_AHEAD, 2), dtype=np.uint32)
        draws = words[:, 0] / 2.0**32  # the other word is the second player's
        self._repeats = (draws < self._sticky_actions).tolist()
        self._frames_drawn = 0
