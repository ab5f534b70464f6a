"""Settings of the algorithm, its optimizer and its rollouts, checked when built.

Each component has its own frozen dataclass; networks keep theirs in ``models``, and
``train_config.py`` puts them together. A docstring under a field is its ``--help``.
"""

import dataclasses
import typing
from typing import Any, Literal, TypeAlias

from jax_es.checks import require

Shaping: TypeAlias = Literal["pair_rank", "centered_rank", "standardize"]

Precision: TypeAlias = Literal[
    "float32", "bfloat16", "float16", "float8_e4m3", "int8", "int4"
]
"""What weights can be rounded to; ``float32`` leaves them as they are."""


@dataclasses.dataclass(frozen=True)
class ESConfig:
    """Hyperparameters of OpenAI-ES. Defaults: Lorenc & Neruda, arXiv 2501.13883."""

    num_pairs: int = 20_000
    """Antithetic pairs a generation (N); 2N members are evaluated."""
    sigma: float = 0.02
    """Standard deviation of the perturbation (σ), in the unit of the weights."""
    learning_rate: float = 0.05
    """Step along the (momentum-averaged) natural-gradient estimate; --lr for short."""
    momentum: float = 0.9
    """β of m ← β m + (1 − β) g; read by optimizer momentum only."""
    weight_decay: float = 0.005
    """λ of the decoupled decay θ ← (1 − λ)(θ + step), once a generation."""
    optimizer: Literal["momentum", "sgd", "adam", "clipup"] = "momentum"
    """What turns the gradient estimate into a step; clipup (arXiv 2008.02387) steps by
    learning_rate whatever the gradient's length, and bounds its velocity."""
    max_speed: float | None = None
    """Bound of clipup's velocity, the length of a step; twice learning_rate if not
    given."""
    learning_rate_end: float | None = None
    """Learning rate that schedule leads to; constant if not given."""
    sigma_end: float | None = None
    """σ that schedule leads to; constant if not given."""
    schedule: Literal["linear", "cosine", "exponential"] = "exponential"
    """Way from learning_rate and sigma to learning_rate_end and sigma_end."""
    schedule_generations: int = 200
    """Generations until learning_rate_end and sigma_end are reached."""
    shaping: Shaping = "pair_rank"
    """Fitness shaping: pair_rank (ranks of F⁺ − F⁻ in [−1, 1], Lorenc & Neruda),
    centered_rank (ranks of all returns in [−½, ½], Salimans et al.) or standardize."""
    perturbation: Literal["full", "low-rank"] = "full"
    """Noise family: full gives each weight its own standard normal, low-rank makes a
    matrix' noise of two thin factors (EGGROLL, arXiv 2511.16652)."""
    rank: int = 1
    """Columns of the factors (r); read by perturbation low-rank only."""
    common_seeds: Literal["pair", "generation"] = "pair"
    """Which members meet the same environment seed: the two of a pair, or all of a
    generation (as the paper's code does)."""
    episodes_per_member: int = 1
    """Episodes whose mean fitness is a member's."""
    healthy_reward_weight: float = 1.0
    """Share of the reward for staying healthy that counts in the fitness; 0 leaves it
    out. Reported returns always hold all of it."""
    elite_fraction: float = 1.0
    """Share of the pairs, those with the best members, that make the update (ARS, arXiv
    1803.07055)."""
    interactions_per_generation: int | None = None
    """Environment steps that a generation's population should take: pairs are added,
    num_pairs at a time, as episodes become shorter; exactly num_pairs if not given."""
    max_num_pairs: int | None = None
    """Most pairs that interactions_per_generation leads to; 16 times num_pairs if not
    given."""

    def __post_init__(self) -> None:
        """Checks every field."""
        require(
            self.num_pairs >= 1,
            f"es.num_pairs must be at least 1, got {self.num_pairs}.",
        )
        require(
            self.num_pairs >= 2 or self.shaping != "pair_rank",
            f"es.num_pairs must be at least 2 with es.shaping pair_rank, got "
            f"{self.num_pairs}: a single difference has no rank. Use more pairs or "
            "--es.shaping centered_rank.",
        )
        require(
            0 < self.sigma < float("inf"),
            f"es.sigma must be positive and finite, got {self.sigma}; "
            "the paper uses 0.02.",
        )
        require(
            0 < self.learning_rate < float("inf"),
            "es.learning_rate must be positive and finite, got "
            f"{self.learning_rate}; the paper uses 0.05.",
        )
        require(
            0 <= self.momentum < 1,
            f"es.momentum must be in [0, 1), got {self.momentum}.",
        )
        require(
            0 <= self.weight_decay < 1,
            f"es.weight_decay must be in [0, 1), got {self.weight_decay}.",
        )
        choices = typing.get_type_hints(ESConfig)
        for name in (
            *("optimizer", "shaping", "perturbation", "common_seeds", "schedule"),
        ):
            known, value = typing.get_args(choices[name]), getattr(self, name)
            require(
                value in known,
                f"es.{name} must be one of {', '.join(known)}, got {value!r}.",
            )
        for name in ("rank", "episodes_per_member", "schedule_generations"):
            value = getattr(self, name)
            require(value >= 1, f"es.{name} must be at least 1, got {value}.")
        require(
            self.rank == 1 or self.perturbation == "low-rank",
            f"es.rank {self.rank} has no meaning with es.perturbation "
            f"{self.perturbation}; add --es.perturbation low-rank.",
        )
        self._check_steps()
        self._check_fitness()

    def _check_steps(self) -> None:
        for name in ("max_speed", "learning_rate_end", "sigma_end"):
            value = getattr(self, name)
            require(
                value is None or 0 < value < float("inf"),
                f"es.{name} must be positive and finite, got {value}.",
            )
        require(
            self.max_speed is None or self.optimizer == "clipup",
            f"es.max_speed {self.max_speed} has no meaning with es.optimizer "
            f"{self.optimizer}; add --es.optimizer clipup.",
        )

    def _check_fitness(self) -> None:
        require(
            -float("inf") < self.healthy_reward_weight < float("inf"),
            "es.healthy_reward_weight must be finite, got "
            f"{self.healthy_reward_weight}; 1 keeps the task's own reward.",
        )
        require(
            0 < self.elite_fraction <= 1,
            f"es.elite_fraction must be in (0, 1], got {self.elite_fraction}; 1 uses "
            "every pair.",
        )
        require(
            self.interactions_per_generation is None
            or self.interactions_per_generation >= 1,
            "es.interactions_per_generation must be at least 1, got "
            f"{self.interactions_per_generation}; leave it out for num_pairs always.",
        )
        require(
            self.max_num_pairs is None or self.interactions_per_generation is not None,
            f"es.max_num_pairs {self.max_num_pairs} has no meaning without "
            "es.interactions_per_generation; add it.",
        )
        require(
            self.max_num_pairs is None or self.max_num_pairs >= self.num_pairs,
            f"es.max_num_pairs must be at least es.num_pairs {self.num_pairs}, got "
            f"{self.max_num_pairs}.",
        )

    @property
    def most_pairs(self) -> int:
        """Pairs that a generation may have at most."""
        if self.interactions_per_generation is None:
            return self.num_pairs
        return self.max_num_pairs or 16 * self.num_pairs


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """The environment."""

    id: str = "Humanoid-v5"
    """Gymnasium id. MuJoCo's tasks run on mujoco.batch, Atari's (ALE/...) on ale-py's
    threads, others on Gymnasium's own vector environments."""
    max_episode_steps: int | None = None
    """Limit on an episode in environment steps; the environment's own if not given."""
    terminate_when_unhealthy: bool = True
    """Whether falling ends an episode; MuJoCo's walkers alone can do without."""
    game: str | None = None
    """An Atari game of ale-py's in any spelling (hero, MsPacman), instead of id."""
    sticky_actions: float = 0.0
    """Atari: probability that the last action is repeated instead (0.25 in Machado et
    al. 2018)."""
    reward_clipping: bool = False
    """Atari: pay the sign of the score's change only, in evaluations, too."""
    noop_max: int = 0
    """Atari: an episode begins with 1 to this many actions that do nothing."""
    terminate_on_life_loss: bool = False
    """Atari: end the episode with the first life instead of the last, in evaluations,
    too."""
    full_action_space: bool = False
    """Atari: all 18 actions instead of those that the game reads."""

    @property
    def options(self) -> dict[str, Any]:
        """What makes the same task, besides the id.

        An option at its default goes unsaid: most environments do not know it.
        """
        options: dict[str, Any] = {"max_episode_steps": self.max_episode_steps}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in ("id", "game") and value != field.default:
                options[field.name] = value
        return options

    def __post_init__(self) -> None:
        """Checks every field."""
        require(
            self.max_episode_steps is None or 1 <= self.max_episode_steps < 2**31,
            "env.max_episode_steps must be in [1, 2^31), got "
            f"{self.max_episode_steps}.",
        )
        require(
            0 <= self.sticky_actions < 1,
            f"env.sticky_actions must be in [0, 1), got {self.sticky_actions}; "
            "0.25 is usual.",
        )
        require(
            self.noop_max >= 0,
            f"env.noop_max must be at least 0, got {self.noop_max}.",
        )


PROCESSES_PER_CORE = 8
"""Environments with a process of their own: each takes 0.2 s and some 20 MiB to start,
and steps that are worth it keep a core at work with a few of them."""


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """How episodes are run."""

    num_slots: int | None = None
    """Episodes in flight at once (S), over all devices; slots_per_core for each if not
    given. Each holds one member's weights; results depend on it by rounding alone. A
    run keeps the number it began with."""
    slots_per_core: int = 64
    """Slots for each device on a CPU, for each core with an accelerator; read if
    num_slots is not given."""
    num_threads: int | None = None
    """Threads that step the environments; one per available core if not given. Games
    have one for each eight slots at least. With vectorization_mode async, how many
    processes step at the same time."""
    vectorization_mode: Literal["sync", "async"] | None = None
    """How environments step that have no threads, neither MuJoCo's nor games: one after
    the other (sync, the default), or each slot's in a process of its own (async, for
    steps of more than about half a millisecond; at most 8 slots a core if num_slots is
    not given)."""
    num_devices: int | None = None
    """XLA devices to spread the population over; on a CPU one per available core if
    not given, with an accelerator all local ones. A run keeps the number it began
    with."""
    num_groups: int | None = None
    """Groups of slots that take turns: while one's actions are computed, another's
    environments step. Two with an accelerator and one on a CPU if not given."""
    observation_statistics: bool = True
    """Normalise observations by running mean and standard deviation (the paper's
    "VBN")."""
    statistics_fraction: float = 0.01
    """Share of the population's episodes that update the observation statistics."""
    std_floor: float = 0.1
    """Lower bound of the standard deviation that observations are divided by, in their
    own unit: of frames in grey levels, 0 to 255."""
    observation_clip: float | None = None
    """Bound of normalised observations, in standard deviations; none if not given."""
    step_cap_factor: float | None = 2.0
    """An episode is cut at this many times the mean episode length of the previous
    generation; no cap with None. Evaluation episodes are never cut."""

    def __post_init__(self) -> None:
        """Checks every field."""
        for name in (
            "num_slots", "slots_per_core", "num_threads", "num_devices", "num_groups"
        ):  # fmt: skip
            value = getattr(self, name)
            require(
                value is None or value >= 1,
                f"rollout.{name} must be at least 1, got {value}; "
                "leave it out to use the whole machine.",
            )
        require(
            # More than any machine's cores, fewer than a process may have threads.
            (self.num_threads or 1) <= 4096,
            f"rollout.num_threads must be at most 4096, got {self.num_threads}; leave "
            "it out to use all cores.",
        )
        require(
            self.vectorization_mode in (None, "sync", "async"),
            "rollout.vectorization_mode must be sync or async, got "
            f"{self.vectorization_mode!r}.",
        )
        require(
            0 < self.statistics_fraction <= 1,
            "rollout.statistics_fraction must be in (0, 1], got "
            f"{self.statistics_fraction}; switch statistics off with "
            "--rollout.no-observation-statistics.",
        )
        require(
            0 < self.std_floor < float("inf"),
            f"rollout.std_floor must be positive and finite, got {self.std_floor}.",
        )
        require(
            self.observation_clip is None or self.observation_clip > 0,
            f"rollout.observation_clip must be positive, got {self.observation_clip}; "
            "leave it out for no bound.",
        )
        require(
            self.step_cap_factor is None or 1 <= self.step_cap_factor < float("inf"),
            "rollout.step_cap_factor must be at least 1 and finite, got "
            f"{self.step_cap_factor}; below 1 every generation would shorten the next "
            "one's episodes, and None means no cap.",
        )

    def slots_on(self, num_cores: int) -> int:
        """Returns S as configured, or as that many cores have room for."""
        per_core = self.slots_per_core
        if self.vectorization_mode == "async":
            per_core = min(per_core, PROCESSES_PER_CORE)
        return self.num_slots or per_core * num_cores


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation of the mean policy in every generation."""

    num_episodes: int = 10
    """Evaluation episodes of θ a generation; they run beside the population's."""

    def __post_init__(self) -> None:
        """Checks every field."""
        require(
            self.num_episodes >= 1,
            f"evaluation.num_episodes must be at least 1, got {self.num_episodes}.",
        )


@dataclasses.dataclass(frozen=True)
class CloningConfig:
    """Settings of behaviour cloning. Defaults: Lorenc & Neruda, arXiv 2501.13883."""

    steps_per_epoch: int = 10_000
    """Steps of gradient descent before each evaluation."""
    epochs: int = 10
    """Epochs to train for, counted from the start of the run."""
    batch_size: int = 128
    """Windows in a step of gradient descent."""
    learning_rate: float = 1e-4
    """Learning rate of AdamW after the warm-up; --lr for short."""
    warmup_steps: int = 10_000
    """Steps over which the learning rate rises linearly from 0; 0 for none."""
    weight_decay: float = 1e-4
    """λ of AdamW's decoupled decay θ ← θ − learning rate · λ θ."""
    gradient_clip: float = 0.25
    """Largest Euclidean norm of a gradient; longer ones are shortened to it."""
    dropout: float = 0.1
    """Share of activations that is dropped in training, and never when acting; read by
    transformers only."""
    holdout: float = 0.05
    """Share of the episodes that is not learnt from (at least one, unless 0), but
    measures the loss on what was never seen."""

    def __post_init__(self) -> None:
        """Checks every field."""
        for name in ("steps_per_epoch", "epochs", "batch_size"):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1, got {value}.")
        for name in ("learning_rate", "gradient_clip"):
            value = getattr(self, name)
            require(
                0 < value < float("inf"),
                f"{name} must be positive and finite, got {value}; "
                f"{getattr(CloningConfig, name)} is usual.",
            )
        require(
            self.warmup_steps >= 0,
            f"warmup_steps must be at least 0, got {self.warmup_steps}.",
        )
        require(
            0 <= self.weight_decay < float("inf"),
            "weight_decay must be at least 0 and finite, got "
            f"{self.weight_decay}; 0.0001 is usual.",
        )
        for name in ("dropout", "holdout"):
            value = getattr(self, name)
            require(
                0 <= value < 1, f"{name} must be in [0, 1), got {value}; 0 is none."
            )
