"""Faults of a user's environment, or other code, told apart from faults of ours.

An environment may raise, end the process, or return something invalid. Each of these
becomes one exception that names the environment and what it did, whichever way it is
stepped.
"""

import contextlib
import textwrap
import traceback
import warnings
from collections.abc import Collection, Iterator
from typing import Any

import gymnasium
import numpy as np


class EnvironmentFailure(Exception):
    """An environment did what no environment may; names it and says what it did.

    So does other code of the user's that raises: a network, a module that is imported.
    ``__cause__`` is what was raised, if something was.

    Attributes:
        report: the traceback of the cause, which does not survive between processes;
            empty without a cause.
    """

    report = ""


class CheckedEnv(gymnasium.Wrapper):
    """Passes everything on, and checks what comes back.

    Args:
        env: the user's.
        env_id: what failures call it.

    Raises:
        EnvironmentFailure: in ``reset`` and ``step``, if the environment raises there,
            calls ``sys.exit``, or returns an observation that its space cannot hold,
            a reward that is no number, or an end that is neither True nor False.
    """

    def __init__(self, env: gymnasium.Env, env_id: str) -> None:
        super().__init__(env)
        self._env_id = env_id

    @property
    def spec(self) -> Any:
        """The environment's own: nothing is changed here."""
        return self.env.spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        with blamed(f"environment {self._env_id}", "in reset"):
            observation, info = self.env.reset(seed=seed, options=options)
        self._check_observation("reset", observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a step."""
        with blamed(f"environment {self._env_id}", "in step"):
            observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated.__class__ is not bool or truncated.__class__ is not bool:
            terminated = self._flag("terminated", terminated)
            truncated = self._flag("truncated", truncated)
        self._check_observation("step", observation)
        if not isinstance(reward, float):
            value = np.asarray(reward)
            if value.shape != () or value.dtype.kind not in "biuf":
                raise self._returned("step", f"the reward {reward!r}", "a number")
        return observation, float(reward), terminated, truncated, info

    def close(self) -> None:
        """Closes the environment; what goes wrong here costs no number."""
        try:
            self.env.close()
        except (Exception, SystemExit) as error:
            failed = failure(f"environment {self._env_id}", "in close", error)
            warnings.warn(str(failed), stacklevel=2)

    def _check_observation(self, call: str, observation: Any) -> None:
        space: Any = self.env.observation_space
        if not isinstance(space, gymnasium.spaces.Box):
            return
        try:
            value = np.asarray(observation)
        except ValueError:  # a list of lists of different lengths
            value = np.array(None)
        if value.shape != space.shape or not np.can_cast(
            value.dtype, space.dtype, "same_kind"
        ):
            got = f"an observation {value.dtype}{list(value.shape)}"
            raise self._returned(call, got, f"{space.dtype}{list(space.shape)}")

    def _flag(self, name: str, value: Any) -> bool:
        flag = np.asarray(value)
        if flag.size != 1 or flag.dtype.kind not in "biuf":
            raise self._returned("step", f"{name} {value!r}", "True or False")
        return bool(flag.item())

    def _returned(self, call: str, got: str, expected: str) -> EnvironmentFailure:
        return EnvironmentFailure(
            f"environment {self._env_id} returned {got} from {call}, expected "
            f"{expected}"
        )


def failure(who: str, when: str, error: Exception | SystemExit) -> EnvironmentFailure:
    """Returns what to raise instead of what ``who`` raised, code of the user's."""
    if isinstance(error, EnvironmentFailure):
        return error
    try:
        did = f"raised {type(error).__name__} {when}: {error}"
    except Exception:  # the error is of the user's own, too
        did = f"raised {type(error).__name__} {when}"
    if isinstance(error, SystemExit):
        did = f"called sys.exit({error.code!r}) {when}"
    text = textwrap.shorten(f"{who} {did}", 300).rstrip(": ")
    failed = EnvironmentFailure(text)
    failed.report = "".join(traceback.format_exception(error))
    return failed


@contextlib.contextmanager
def blamed(
    who: str, when: str, passes: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Blames the user's code for what it raises inside, such as ``"in step"``.

    Raises:
        EnvironmentFailure: instead of it, unless it is one of ``passes``.
    """
    try:
        yield
    except passes:
        raise
    except (Exception, SystemExit) as error:
        raise failure(who, when, error) from error


@contextlib.contextmanager
def being_made(env_id: str, options: Collection[str]) -> Iterator[None]:
    """Blames an environment for what it raises while it is imported and built.

    What the user can mend in a command line passes: an unknown id, a missing package,
    one of ``options`` that the environment does not take.

    Raises:
        EnvironmentFailure: for everything else.
    """
    try:
        yield
    except (ImportError, gymnasium.error.Error):
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, TypeError) and any(
            f"'{x}'" in str(error) for x in options
        ):
            raise
        raise failure(f"environment {env_id}", "when it was made", error) from error
