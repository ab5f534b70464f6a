"""Settings of the trainings by gradients that SBX does; knows nothing of SBX."""

import dataclasses
from typing import Annotated, Any, Literal

from jax_es.checks import (
    Count,
    NotNegative,
    NotNegativeFinite,
    Range,
    Share,
    check_fields,
    from_json,
    require,
)
from jax_es.config import LearningRate
from jax_es.runs.method import Method

TD3_ONLY = ("action_noise", "policy_delay")
"""Settings that SAC does not read."""


@dataclasses.dataclass(frozen=True)
class TeacherSettings:
    """Settings of SAC and TD3. Defaults: Stable-Baselines3's and SBX's."""

    algo: Literal["sac", "td3"] = "sac"
    """Soft actor-critic (arXiv 1801.01290) or twin delayed DDPG (arXiv 1802.09477)."""
    steps: Count = 1_000_000
    """Environment steps to train for, counted from the start of the run."""
    evaluate_every: Count = 10_000
    """Environment steps between evaluations. Each is a checkpoint."""
    learning_rate: LearningRate = 3e-4
    """Adam's step, of actor, critics and temperature."""
    batch_size: Count = 256
    """Transitions in a gradient step."""
    buffer_size: Count = 1_000_000
    """Transitions in the replay buffer, the latest ones."""
    learning_starts: NotNegative = 100
    """Environment steps with uniformly random actions before the first update."""
    train_freq: Count = 8
    """Environment steps between updates."""
    gradient_steps: Annotated[
        int, Range("at least 1, or -1", lambda n: n >= 1 or n == -1)
    ] = -1
    """Gradient steps of an update; -1: as many as environment steps since the last."""
    gamma: Annotated[float, Range("in [0, 1]", lambda x: 0 <= x <= 1)] = 0.99
    """Discount of an environment step."""
    tau: Share = 0.005
    """Share by which a gradient step moves the target networks."""
    critic_hidden_sizes: tuple[Count, ...] = (256, 256)
    """Width of each hidden layer of the critics, in units."""
    action_noise: NotNegativeFinite = 0.1
    """TD3: standard deviation of the exploration noise, of actions in [-1, 1]."""
    policy_delay: Count = 2
    """TD3: gradient steps of the critics for each of the actor."""

    def __post_init__(self) -> None:
        check_fields(self)
        require(
            self.learning_starts < self.steps,
            f"learning_starts must be below steps {self.steps}, or nothing is learned, "
            f"got {self.learning_starts}.",
        )
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
    return from_json(TeacherSettings, {"algo": method.name, **method.settings})
