"""Settings of the trainings by gradients that SBX does; knows nothing of SBX."""

import dataclasses
import math
from typing import Any, Literal

from jax_es.checks import ConfigError, from_json, require
from jax_es.runs.method import Method

TD3_ONLY = ("action_noise", "policy_delay")
"""Settings that SAC does not read."""


@dataclasses.dataclass(frozen=True)
class TeacherSettings:
    """Settings of SAC and TD3. Defaults: Stable-Baselines3's and SBX's."""

    algo: Literal["sac", "td3"] = "sac"
    """Soft actor-critic (arXiv 1801.01290) or twin delayed DDPG (arXiv 1802.09477)."""
    steps: int = 1_000_000
    """Environment steps to train for, counted from the start of the run."""
    evaluate_every: int = 10_000
    """Environment steps between evaluations. Each is a checkpoint, and a new episode
    begins after it."""
    learning_rate: float = 3e-4
    """Adam's step, of actor, critics and temperature; --lr for short."""
    batch_size: int = 256
    """Transitions in a gradient step."""
    buffer_size: int = 1_000_000
    """Transitions in the replay buffer, the latest ones."""
    learning_starts: int = 100
    """Environment steps with uniformly random actions before the first update."""
    train_freq: int = 8
    """Environment steps between updates."""
    gradient_steps: int = -1
    """Gradient steps of an update; -1: as many as environment steps since the last."""
    gamma: float = 0.99
    """Discount of an environment step."""
    tau: float = 0.005
    """Share by which a gradient step moves the target networks."""
    critic_hidden_sizes: tuple[int, ...] = (256, 256)
    """Width of each hidden layer of the critics, in units."""
    action_noise: float = 0.1
    """TD3: standard deviation of the exploration noise, of actions in [-1, 1]."""
    policy_delay: int = 2
    """TD3: gradient steps of the critics for each of the actor."""

    def __post_init__(self) -> None:
        """Checks every field."""
        inf = math.inf
        rules = {
            "algo": (self.algo in ("sac", "td3"), "sac or td3"),
            "learning_starts": (
                0 <= self.learning_starts < max(self.steps, 1),
                f"at least 0 and below --steps {self.steps}, or nothing is learned",
            ),
            "gradient_steps": (
                self.gradient_steps >= 1 or self.gradient_steps == -1,
                "at least 1, or -1 for as many as environment steps",
            ),
            "learning_rate": (
                0 < self.learning_rate < inf,
                "positive and finite, 0.0003 for instance",
            ),
            "gamma": (0 <= self.gamma <= 1, "in [0, 1]"),
            "tau": (0 < self.tau <= 1, "in (0, 1]"),
            "critic_hidden_sizes": (
                all(size >= 1 for size in self.critic_hidden_sizes),
                "at least 1 each, 256 256 for instance",
            ),
            "action_noise": (
                0 <= self.action_noise < inf,
                "at least 0 and finite, 0.1 for instance",
            ),
        }
        for name in (
            *("steps", "evaluate_every", "batch_size", "buffer_size"),
            *("train_freq", "policy_delay"),
        ):
            rules = {name: (getattr(self, name) >= 1, "at least 1"), **rules}
        for name, (holds, rule) in rules.items():
            option, value = f"--{name.replace('_', '-')}", getattr(self, name)
            require(holds, f"{option} must be {rule}, got {value}.")
        for name in TD3_ONLY:
            option, value = f"--{name.replace('_', '-')}", getattr(self, name)
            require(
                self.algo == "td3" or value == getattr(TeacherSettings, name),
                f"{option} {value} has no meaning with --algo {self.algo}; leave it "
                "out, or choose --algo td3.",
            )

    def method(self) -> Method:
        """Returns these settings as a run records them."""
        settings: dict[str, Any] = dataclasses.asdict(self)
        name = settings.pop("algo")
        settings["critic_hidden_sizes"] = list(self.critic_hidden_sizes)
        unread = () if name == "td3" else TD3_ONLY
        return Method(name, {k: v for k, v in settings.items() if k not in unread})


def settings_of(method: Method) -> TeacherSettings:
    """Reads what :meth:`TeacherSettings.method` made.

    Raises:
        ConfigError: if another version made it.
    """
    try:
        return from_json(TeacherSettings, {"algo": method.name, **method.settings})
    except TypeError as error:
        raise ConfigError(
            f"--resume: the run was begun by another version of jax-es ({error}); "
            "start a new run with another --name."
        ) from error
