"""Settings of the trainings by gradients that SBX does; knows nothing of SBX."""

import dataclasses
import math
from typing import Annotated, Any, Literal

from jax_es.checks import (
    Count,
    NotNegative,
    NotNegativeFinite,
    Positive,
    Range,
    Share,
    Weight,
    check_fields,
    from_json,
    require,
)
from jax_es.config import LearningRate
from jax_es.runs.method import Method

READ_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("action_noise", "policy_delay"), ("td3",)),
    **dict.fromkeys(
        ("buffer_size", "learning_starts", "train_freq", "gradient_steps", "tau"),
        ("sac", "td3"),
    ),
    **dict.fromkeys(
        (
            *("n_steps", "n_epochs", "gae_lambda", "clip_range", "ent_coef"),
            *("vf_coef", "max_grad_norm", "log_std_init"),
        ),
        ("ppo",),
    ),
}
"""Settings that not all methods read, and which do."""


@dataclasses.dataclass(frozen=True)
class TeacherSettings:
    """Settings of SAC, TD3 and PPO.

    Defaults: Stable-Baselines3's and SBX's, but that PPO's batch there is 64.
    """

    algo: Literal["sac", "td3", "ppo"] = "sac"
    """Soft actor-critic (arXiv 1801.01290), twin delayed DDPG (arXiv 1802.09477) or
    proximal policy optimization (arXiv 1707.06347)."""
    steps: Count = 1_000_000
    """Environment steps to train for, counted from the start of the run."""
    evaluate_every: Count = 10_000
    """Environment steps between evaluations. Each is a checkpoint."""
    learning_rate: LearningRate = 3e-4
    """Adam's step, of actor, critics and temperature."""
    batch_size: Count = 256
    """Transitions in a gradient step."""
    buffer_size: Count = 1_000_000
    """SAC, TD3: transitions in the replay buffer, the latest ones."""
    learning_starts: NotNegative = 100
    """SAC, TD3: environment steps with uniformly random actions before the first
    update."""
    train_freq: Count = 8
    """SAC, TD3: environment steps between updates."""
    gradient_steps: Annotated[
        int, Range("at least 1, or -1", lambda n: n >= 1 or n == -1)
    ] = -1
    """SAC, TD3: gradient steps of an update; -1: as many as environment steps since the
    last."""
    gamma: Weight = 0.99
    """Discount of an environment step."""
    tau: Share = 0.005
    """SAC, TD3: share by which a gradient step moves the target networks."""
    critic_hidden_sizes: tuple[Count, ...] = (256, 256)
    """Width of each hidden layer of the critics, in units."""
    action_noise: NotNegativeFinite = 0.1
    """TD3: standard deviation of the exploration noise, of actions in [-1, 1]."""
    policy_delay: Count = 2
    """TD3: gradient steps of the critics for each of the actor."""
    n_steps: Count = 2048
    """PPO: environment steps that an update learns from. Those since the last update
    are lost where a run is stopped, and unused where it ends."""
    n_epochs: Count = 10
    """PPO: how often an update learns from each of them."""
    gae_lambda: Weight = 0.95
    """PPO: how far advantages look ahead (arXiv 1506.02438)."""
    clip_range: Positive = 0.2
    """PPO: how far an update may move the probability of an action, as a share."""
    ent_coef: NotNegativeFinite = 0.0
    """PPO: weight of the entropy of the actions."""
    vf_coef: NotNegativeFinite = 0.5
    """PPO: weight of the critic's error."""
    max_grad_norm: Positive = 0.5
    """PPO: bound of a gradient's norm."""
    log_std_init: Annotated[float, Range("in [-20, 2]", lambda x: -20 <= x <= 2)] = 0.0
    """PPO: logarithm of the actions' first standard deviation, in half ranges."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name, readers in READ_BY.items():
            option, value = f"--{name.replace('_', '-')}", getattr(self, name)
            require(
                self.algo in readers or value == getattr(TeacherSettings, name),
                f"{option} {value} has no meaning with --algo {self.algo}; leave it "
                f"out, or choose --algo {' or '.join(readers)}.",
            )
        require(
            self.algo != "ppo" or self.batch_size > 1,
            "batch_size must be at least 2 for --algo ppo, which compares the steps of "
            f"a batch, got {self.batch_size}.",
        )
        whole = math.ceil(self.n_steps / self.batch_size) * self.batch_size
        require(
            self.algo != "ppo" or self.n_steps == whole,
            f"n_steps must be a multiple of batch_size {self.batch_size}, got "
            f"{self.n_steps}; add --n-steps {whole}.",
        )
        first = "n_steps" if self.algo == "ppo" else "learning_starts"
        require(
            getattr(self, first) < self.steps,
            f"{first} must be below steps {self.steps}, or nothing is learned, got "
            f"{getattr(self, first)}.",
        )

    def method(self) -> Method:
        """Returns these settings as a run records them."""
        settings: dict[str, Any] = dataclasses.asdict(self)
        name = settings.pop("algo")
        settings["critic_hidden_sizes"] = list(self.critic_hidden_sizes)
        return Method(
            name, {k: v for k, v in settings.items() if name in READ_BY.get(k, (name,))}
        )


def settings_of(method: Method) -> TeacherSettings:
    """Reads what :meth:`TeacherSettings.method` made.

    Raises:
        ConfigError: if another version made it.
    """
    return from_json(TeacherSettings, {"algo": method.name, **method.settings})
