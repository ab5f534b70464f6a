"""Tetris against boards played by hand, and against a slow game written anew."""

import gymnasium
import numpy as np
import pytest

from jax_es.envs.make import make
from jax_es.envs.tetris import HEIGHT, NUM_PLACEMENTS, PIECES, WIDTH, TetrisVectorEnv
from tests.envs.following import follow


def board(*lines):
    """A wall ``[20]`` of bits from its lowest rows, drawn from the top."""
    wall = np.zeros(HEIGHT, np.uint16)
    for row, line in enumerate(reversed(lines)):
        wall[row] = sum(1 << i for i, cell in enumerate(line) if cell == "#")
    return wall


def game(piece, *lines, features="bertsekas"):
    """One game with this wall, in which this piece comes next."""
    env = TetrisVectorEnv(1, features=features)
    env.reset(seed=0)
    env.walls[0], env.pieces[0] = board(*lines), list(PIECES).index(piece)
    env._observe(np.array([0]))
    return env


def described(env):
    return env._observations.reshape(NUM_PLACEMENTS, -1)


def drop(env, action):
    _, rewards, terminated, _, _ = env.step(np.array([action]))
    return rewards[0], terminated[0]


def test_pieces_have_as_many_placements_as_they_should():
    counts = [len(np.unique(described(game(piece)), axis=0)) for piece in PIECES]
    assert counts == [17, 9, 17, 17, 34, 34, 34]


@pytest.mark.parametrize(("piece", "ends"), [("O", True), ("I", False)])
def test_a_game_ends_when_the_next_piece_fits_nowhere(piece, ends):
    env = game("I", *["#########."] * 19)
    assert len(np.unique(described(env), axis=0)) == 7 + 1  # lying, or down the well
    env._drawn[0, 1] = list(PIECES).index(piece)
    shown = env._observations.copy()
    assert drop(env, 0) == (0, ends)
    assert np.array_equal(env._observations, shown) == ends


def test_dellacheries_numbers_by_hand():
    wall = "#.........", "#.########", "#.########"
    env = game("I", *wall, features="dellacherie")
    row = described(env)[8]  # upright in the well
    landing, eroded, along_rows, along_columns, holes, wells = row.tolist()
    assert landing == 1.5
    assert eroded == 2 * 2  # two rows, two cells of the piece in them
    # Left are "##" and ".#" above it, in 20 rows between two full walls.
    assert along_rows == 2 * 18 + 2 + 4
    # The floor to the sky: columns 2 to 9 are empty, both others end once, and the
    # second row covers nothing.
    assert along_columns == 8 + 2
    assert (holes, wells) == (0, 1)


def slow_game(seed, choose, num_steps):
    """Lists of rows and loops: returns the rewards, and the walls, as sets of cells."""
    env = TetrisVectorEnv(1)
    env.reset(seed=seed)
    cells, rewards = set(), []
    for _ in range(num_steps):
        forms = list(PIECES.values())[env.pieces[0]]
        found = []
        for form in forms:
            lines = form.split("/")[::-1]
            for left in range(WIDTH - len(lines[0]) + 1):
                own = {
                    (r, left + c)
                    for r, line in enumerate(lines)
                    for c, cell in enumerate(line)
                    if cell == "#"
                }
                fall = HEIGHT + 4
                while fall and not any((r + fall - 1, c) in cells for r, c in own):
                    fall -= 1
                placed = {(r + fall, c) for r, c in own}
                if max(r for r, _ in placed) < HEIGHT:
                    found.append(placed)
        action = choose(len(found))
        after = cells | found[action % len(found)]
        full = [r for r in range(HEIGHT) if all((r, c) in after for c in range(WIDTH))]
        cells = {(r - sum(f < r for f in full), c) for r, c in after if r not in full}
        _, reward, terminated, _, _ = env.step(np.array([action]))
        assert reward[0] == len(full)
        rewards.append(len(full))
        seen = {
            (r, c)
            for r in range(HEIGHT)
            for c in range(WIDTH)
            if env.walls[0, r] >> c & 1
        }
        assert seen == cells
        if terminated[0]:
            break
    return rewards


@pytest.mark.parametrize("seed", range(3))
def test_random_games_are_those_of_the_slow_one(seed):
    random = np.random.default_rng(seed)
    assert slow_game(seed, lambda count: random.integers(NUM_PLACEMENTS), 60)


def test_numbers_are_those_of_the_wall_that_comes_next():
    """What a placement promised is what the wall then is."""
    env = TetrisVectorEnv(16)
    env.reset(seed=0)
    random = np.random.default_rng(0)
    for _ in range(40):
        promised = env._observations.reshape(16, NUM_PLACEMENTS, -1).copy()
        # Low walls live longer, and complete rows; what is beyond a piece's own
        # placements are these again.
        actions = promised[..., -1].argmin(axis=1)
        anything = random.integers(NUM_PLACEMENTS, size=16)
        actions = np.where(random.random(16) < 0.2, anything, actions)
        live = ~(env._terminated | env._truncated)
        env.step(actions)
        for i in np.flatnonzero(live):
            wall = env.walls[i]
            cells = (wall[:, None] >> np.arange(WIDTH)) & 1
            heights = [max(np.flatnonzero(c) + 1, default=0) for c in cells.T]
            numbers = promised[i, actions[i]]
            np.testing.assert_array_equal(numbers[:10], heights)
            np.testing.assert_array_equal(numbers[10:19], np.abs(np.diff(heights)))
            assert numbers[19] == max(heights)
            assert numbers[20] == sum(heights) - cells.sum()


def test_gymnasiums_form_is_the_same_game():
    singles = [gymnasium.make("Tetris-v0") for _ in range(3)]
    assert (follow(make("Tetris-v0", 3), singles, 100) > 2).all()


def test_a_game_can_be_seen():
    with gymnasium.make("Tetris-v0", render_mode="ansi") as game:
        game.reset(seed=3)
        for action in (0, 20, 5, 33):
            game.step(action)
        text = game.render()
    lines = text.splitlines()
    assert len(lines) == HEIGHT + 1 and lines[-1].startswith("next ")
    assert text.count("[]") == 16
    with gymnasium.make("Tetris-v0", render_mode="rgb_array") as game:
        game.reset(seed=3)
        assert game.render().shape == (400, 200, 3)


def test_an_unknown_set_of_numbers_is_named():
    with pytest.raises(ValueError, match="features: got 'all', expected bertsekas or"):
        make("Tetris-v0", 1, kwargs={"features": "all"})
