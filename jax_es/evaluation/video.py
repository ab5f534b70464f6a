"""Episodes of trained policies as a video file, side by side."""

import contextlib
import os
import sys
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from jax_es.checks import ConfigError, require
from jax_es.config import EnvConfig
from jax_es.runs.files import whole_file, writing
from jax_es.training.load_policy import LoadedPolicy
from jax_es.training.single_env import make_rendered_env

FORMATS = (".mp4", ".gif")


def record_video(
    policies: Mapping[str, LoadedPolicy],
    env: EnvConfig,
    file: Path,
    seed: int,
    columns: int | None = None,
    terrains: Sequence[Mapping[str, float]] = (),
) -> list[float]:
    """Records an episode of each policy; returns the episodes' returns.

    Gymnasium's own environment renders them, or the one in JAX, from the same seed.
    They are shown in rows of ``columns``, or in one; one that ends before the others
    stays as it was. Policies are given by their captions, which the return so far
    follows; "" for none. Each may have a terrain, numbers of the environment's
    variations by their names; bodies of MuJoCo's tasks stay as they are.

    Raises:
        ConfigError: if there is no encoder, no renderer, or another kind of file.
    """
    check_encoder(file)
    import imageio  # late, because it is optional

    # Without a display Gymnasium would still choose the renderer that needs one.
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        # Gymnasium tries a window before it renders off screen, and the encoder is a
        # process of its own: neither warning helps a user.
        warnings.simplefilter("ignore")
        rows = terrains or [{}] * len(policies)
        episodes = [
            _pictures(*each, env, seed, terrain)
            for each, terrain in zip(policies.items(), rows, strict=True)
        ]
        for episode in episodes:
            stack.callback(episode.close)
        now = [next(episode) for episode in episodes]  # before the file is opened
        options: dict[str, Any] = {"fps": now[0].rate, "macro_block_size": 2}
        if file.suffix == ".gif":
            options = {"duration": 1000 / now[0].rate, "loop": 0}
        with (
            writing(file, "choose another --video"),
            whole_file(file) as draft,
            imageio.get_writer(draft, **options) as writer,
        ):
            while not all(picture.is_last for picture in now):
                frame = _in_rows([p.frame for p in now], columns or len(now))
                writer.append_data(frame)  # type: ignore
                now = [next(e, last) for e, last in zip(episodes, now, strict=True)]
    return [picture.total for picture in now]


def _in_rows(frames: list[np.ndarray], columns: int) -> np.ndarray:
    """Puts pictures together, row by row; what is left of the last row is black."""
    missing = [np.zeros_like(frames[0])] * (-len(frames) % columns)
    frames = [*frames, *missing]
    rows = (frames[i : i + columns] for i in range(0, len(frames), columns))
    return np.vstack([np.hstack(row) for row in rows])


class Picture(NamedTuple):
    """One moment of an episode."""

    frame: np.ndarray
    """``[height, width, 3]`` uint8."""
    total: float
    """The return so far."""
    is_last: bool
    """Whether the episode is over."""
    rate: float
    """How many moments a second has."""


def _pictures(
    caption: str,
    policy: LoadedPolicy,
    env: EnvConfig,
    seed: int,
    terrain: Mapping[str, float],
) -> Generator[Picture, None, None]:
    """Plays an episode."""
    with _renderable(env.id):
        episode = make_rendered_env(env)
    follow_robot(episode)
    rate = episode.metadata.get("render_fps", 30)
    policy.reset()
    with episode:
        neutral = getattr(episode.unwrapped, "variations", {})
        row = [terrain.get(name, value) for name, value in neutral.items()]
        options = {"variation": row} if terrain and row else None
        observation, _ = episode.reset(seed=seed, options=options)
        total, reward, done = 0.0, 0.0, False
        while True:
            with _renderable(env.id):
                frame = np.asarray(episode.render())
            if caption:
                frame = _captioned(frame, f"{caption}: {total:.0f}")
            yield Picture(frame, total, done, rate)
            if done:
                return
            action = policy(observation, reward)
            observation, reward, ended, truncated, _ = episode.step(action)
            total += float(reward)
            done = ended or truncated


def _captioned(frame: np.ndarray, text: str) -> np.ndarray:
    """Writes into the upper left corner of a picture."""
    from PIL import Image, ImageDraw  # imageio needs it

    image, size = Image.fromarray(frame), max(8, frame.shape[1] // 20)
    ImageDraw.Draw(image).text(
        (size / 2, size / 2),
        text,
        fill="white",
        font_size=size,
        stroke_width=max(1, size // 12),
        stroke_fill="black",
    )
    return np.asarray(image)


def follow_robot(episode: gymnasium.Env) -> None:
    """Takes the camera that follows the body, in MuJoCo's tasks that have one.

    Gymnasium 1.4 leaves the camera where an episode begins, and robots run away.
    """
    renderer: Any = getattr(episode.unwrapped, "mujoco_renderer", None)
    if renderer is not None:
        with contextlib.suppress(KeyError):
            renderer.camera_id = renderer.model.camera("track").id


def check_encoder(file: Path) -> None:
    """Raises ``ConfigError`` unless ``file`` can be encoded on this machine."""
    require(
        file.suffix in FORMATS,
        f"--video must end in {' or '.join(FORMATS)}, got {file.name}.",
    )
    try:
        import imageio  # noqa: F401

        if file.suffix == ".mp4":
            import imageio_ffmpeg

            imageio_ffmpeg.get_ffmpeg_version()  # runs it
    except (ImportError, OSError, RuntimeError) as error:
        raise ConfigError(
            f"--video {file} needs an encoder ({str(error).splitlines()[0]}); "
            "pip install -e '.[video]'."
        ) from error


@contextlib.contextmanager
def _renderable(env_id: str) -> Iterator[None]:
    """Says in one line that a machine has no way to render."""
    try:
        yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        what = f"{env_id} cannot be rendered here ({str(error).splitlines()[0]})"
        remedy = "install EGL (libegl1) or OSMesa (libosmesa6; MUJOCO_GL=osmesa)"
        if "TypeError" in str(error):  # a class that knows nothing of it
            remedy = "let its __init__ take render_mode, and its render() return pixels"
        raise ConfigError(f"{what}; {remedy}.") from error
