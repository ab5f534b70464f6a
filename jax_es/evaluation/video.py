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

from jax_es.checks import ConfigError, require
from jax_es.config import EnvConfig
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
    import imageio  # late, because it is optional

    # Without a display Gymnasium would still choose the renderer that needs one.
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")
    with _renderable(env.id):
        episode = make_single_env(env, "rgb_array")
    follow_robot(episode)
    total, done, reward = 0.0, False, 0.0
    policy.reset()
    with warnings.catch_warnings(), episode:
        # Gymnasium tries a window before it renders off screen, and the encoder is a
        # process of its own: neither warning helps a user.
        warnings.simplefilter("ignore")
        observation, _ = episode.reset(seed=seed)
        with _renderable(env.id):
            frame = episode.render()  # the file is opened once there is one
        rate = episode.metadata.get("render_fps", 30)
        options: dict[str, Any] = {"fps": rate, "macro_block_size": 2}
        if file.suffix == ".gif":
            options = {"duration": 1000 / rate, "loop": 0}
        try:
            with (
                whole_file(file) as draft,
                imageio.get_writer(draft, **options) as writer,
            ):
                while not done:
                    writer.append_data(np.asarray(frame))  # type: ignore
                    action = policy(observation, reward)
                    observation, reward, ended, truncated, _ = episode.step(action)
                    frame = episode.render()
                    total += float(reward)
                    done = ended or truncated
        except OSError as error:
            raise ConfigError(
                f"{file} cannot be written ({str(error).splitlines()[0]}); choose "
                "another --video."
            ) from error
    return total


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
        raise ConfigError(
            f"{env_id} cannot be rendered here ({str(error).splitlines()[0]}); install "
            "EGL (libegl1) or OSMesa (libosmesa6, and set MUJOCO_GL=osmesa)."
        ) from error
