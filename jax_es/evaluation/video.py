"""One episode of a trained policy as a video file."""

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from jax_es.config import ConfigError, EnvConfig, require
from jax_es.runs.files import whole_file
from jax_es.training.build import make_single_env
from jax_es.training.load_policy import LoadedPolicy

FORMATS = (".mp4", ".gif")


def record_video(policy: LoadedPolicy, env: EnvConfig, file: Path, seed: int) -> float:
    """Records one episode, rendered by Gymnasium's own environment.

    Args:
        policy: acts.
        env: where.
        file: ``.mp4`` or ``.gif``; its folder is created.
        seed: of the episode.

    Returns:
        The episode's return.

    Raises:
        ConfigError: if there is no encoder, no renderer, or another kind of file.
    """
    check_encoder(file)
    # Without a display Gymnasium would still choose the renderer that needs one.
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")
    try:
        episode = make_single_env(env, "rgb_array")
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(_cannot_render(env.id, error)) from error
    _follow(episode)
    total, done = 0.0, False
    policy.reset()
    with warnings.catch_warnings(), episode:
        # Gymnasium tries a window before it renders off screen, and the encoder is a
        # process of its own: warnings about either concern nobody.
        warnings.simplefilter("ignore")
        observation, _ = episode.reset(seed=seed)
        reward = 0.0
        # The file is opened once there is something to write.
        frame = _frame(episode, env.id)
        frames_per_second = episode.metadata.get("render_fps", 30)
        with _written(file) as draft, _open(draft, frames_per_second) as writer:
            while not done:
                writer.append_data(frame)
                action = policy(observation, reward)
                observation, reward, terminated, truncated, _ = episode.step(action)
                frame = _frame(episode, env.id)
                total += float(reward)
                done = terminated or truncated
    return total


def _follow(episode: gymnasium.Env) -> None:
    """Takes the camera that follows the body, in MuJoCo's tasks that have one.

    Gymnasium 1.4 leaves the camera where an episode begins, and robots run away.
    """
    renderer: Any = getattr(episode.unwrapped, "mujoco_renderer", None)
    if renderer is not None:
        with contextlib.suppress(KeyError):
            renderer.camera_id = renderer.model.camera("track").id


def check_format(file: Path) -> None:
    """Raises ``ConfigError`` unless ``file`` can be encoded, by its name."""
    require(
        file.suffix in FORMATS,
        f"--video must end in {' or '.join(FORMATS)}, got {file.name}.",
    )


def check_encoder(file: Path) -> None:
    """Raises ``ConfigError`` unless ``file`` can be encoded on this machine."""
    check_format(file)
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


def _open(file: Path, frames_per_second: float) -> Any:
    """Opens an encoder."""
    import imageio  # Imported here because it is optional.

    if file.suffix == ".gif":
        return imageio.get_writer(file, duration=1000 / frames_per_second, loop=0)
    return imageio.get_writer(file, fps=frames_per_second, macro_block_size=2)


@contextlib.contextmanager
def _written(file: Path) -> Iterator[Path]:
    """Yields where to write the video.

    Raises:
        ConfigError: if nothing can be written.
    """
    try:
        with whole_file(file) as draft:
            yield draft
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written ({str(error).splitlines()[0]}); "
            "choose another --video."
        ) from error


def _frame(episode: gymnasium.Env, env_id: str) -> np.ndarray:
    """Renders one frame.

    Raises:
        ConfigError: if no frame comes: the machine has no way to render.
    """
    try:
        frame = episode.render()
    except (Exception, SystemExit) as error:
        raise ConfigError(_cannot_render(env_id, error)) from error
    return np.asarray(frame)


def _cannot_render(env_id: str, error: BaseException) -> str:
    return (
        f"{env_id} cannot be rendered here ({str(error).splitlines()[0]}); install "
        "EGL (libegl1) or OSMesa (libosmesa6, and set MUJOCO_GL=osmesa)."
    )
