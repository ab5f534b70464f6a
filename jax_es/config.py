"""Settings of the algorithm, its optimizer and its rollouts, checked when built.

Each component has its own frozen dataclass; networks keep theirs in ``models``, and
``train_config.py`` puts them together. A docstring under a field is its ``--help``.
"""

import dataclasses
import math
from typing import Annotated, Any, Literal, TypeAlias, get_args

import tyro

from jax_es.checks import (
    Count,
    Finite,
    Fraction,
    NotNegative,
    Positive,
    Range,
    Share,
    Thousands,
    Weight,
    check_fields,
    is_descriptor,
    is_index,
    is_own,
    require,
)

Shaping: TypeAlias = Literal["pair_rank", "centered_rank", "standardize"]

LearningRate: TypeAlias = Annotated[Positive, tyro.conf.arg(aliases=["--lr"])]

StrategyName: TypeAlias = Literal[
    "openai-es",
    "cma-es",
    "sep-cma-es",
    "rm-es",
    "ma-es",
    "snes",
    "xnes",
    "cr-fm-nes",
    "pgpe",
    "ars",
    "simple-es",
    "cem",
    "ga",
    "novelty",
    "guided",
    "cem-rl",
]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
OBJECTIVES = ("return", "commanded-return")
ESTIMATING: tuple[StrategyName, ...] = ("openai-es", "novelty", "guided")
"""Those that estimate a gradient from antithetic pairs, and hold no members."""

NamedStrategy: TypeAlias = Annotated[
    str,
    Range(
        f"one of {', '.join(STRATEGIES)}, or module:Name",
        lambda name: name in STRATEGIES or is_own(name),
    ),
]
NamedObjective: TypeAlias = Annotated[
    str,
    Range(
        f"one of {', '.join(OBJECTIVES)}, or module:Name",
        lambda name: name in OBJECTIVES or is_own(name),
    ),
]

Precision: TypeAlias = Literal[
    "float32", "bfloat16", "float16", "float8_e4m3", "int8", "int4"
]
"""What weights can be rounded to; ``float32`` leaves them as they are."""

Ranges: TypeAlias = Annotated[
    tuple[tuple[str, float, float], ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(metavar="NAME LOW HIGH"),
    Range(
        "a name with two finite numbers, the lower one first",
        lambda each: all(-math.inf < low <= high < math.inf for _, low, high in each),
    ),
]


@dataclasses.dataclass(frozen=True)
class ESConfig:
    """Hyperparameters of the strategy. Defaults: Lorenc & Neruda, arXiv 2501.13883.

    Strategies other than :data:`ESTIMATING` read :data:`SHARED` and ``kwargs`` alone.
    """

    strategy: NamedStrategy = "openai-es"
    """What searches, of ours by name or module:Name; --strategy for short. All but
    openai-es, novelty and guided hold their members in memory (ga their parents), and
    read of these options num_pairs, sigma, common_seeds, episodes_per_member,
    healthy_reward_weight, control_cost_weight, objective with its own, and kwargs."""
    kwargs: Annotated[dict[str, Any], tyro.conf.Fixed] = dataclasses.field(
        default_factory=dict
    )
    """Hyperparameters that the strategy alone has, each as --es.kwargs.NAME VALUE."""
    num_pairs: Count = 20_000
    """Antithetic pairs a generation (N); 2N members are evaluated, pairs or not."""
    sigma: Positive = 0.02
    """Standard deviation of the perturbation (σ), in the unit of the weights; of the
    first generation, where the strategy adapts it."""
    learning_rate: LearningRate = 0.05
    """Step along the (momentum-averaged) natural-gradient estimate."""
    momentum: Fraction = 0.9
    """β of m ← β m + (1 − β) g; read by optimizer momentum only."""
    weight_decay: Fraction = 0.005
    """λ of the decoupled decay θ ← (1 − λ)(θ + step), once a generation."""
    weight_decay_anchor: Literal["zero", "start"] = "zero"
    """What the decay pulls to: zero, or start, the weights that training begins with
    (anchored weight decay, arXiv 2605.30148)."""
    optimizer: Literal["momentum", "sgd", "adam", "clipup"] = "momentum"
    """What turns the gradient estimate into a step; clipup (arXiv 2008.02387) steps by
    learning_rate whatever the gradient's length, and bounds its velocity."""
    max_speed: Positive | None = None
    """Bound of clipup's velocity, the length of a step; twice learning_rate if not
    given."""
    learning_rate_end: Positive | None = None
    """Learning rate that schedule leads to; constant if not given."""
    sigma_end: Positive | None = None
    """σ that schedule leads to; constant if not given."""
    schedule: Literal["linear", "cosine", "exponential"] = "exponential"
    """Way from learning_rate and sigma to learning_rate_end and sigma_end."""
    schedule_generations: Count = 200
    """Generations until learning_rate_end and sigma_end are reached."""
    shaping: Shaping = "pair_rank"
    """Fitness shaping: pair_rank (ranks of F⁺ − F⁻ in [−1, 1], Lorenc & Neruda),
    centered_rank (ranks of all returns in [−½, ½], Salimans et al.) or standardize."""
    perturbation: Literal["full", "low-rank"] = "full"
    """Noise family: full gives each weight its own standard normal, low-rank makes a
    matrix' noise of two thin factors (EGGROLL, arXiv 2511.16652)."""
    rank: Count = 1
    """Columns of the factors (r); read by perturbation low-rank only."""
    common_seeds: Literal["pair", "generation"] = "pair"
    """Which members meet the same environment seed: the two of a pair (members 2i and
    2i + 1 where there are no pairs), or all of a generation (as the paper's code)."""
    episodes_per_member: Count = 1
    """Episodes whose mean fitness is a member's."""
    healthy_reward_weight: Finite = 1.0
    """Share of the reward for staying healthy that counts in the fitness; 0 leaves it
    out. Reported returns always hold all of it."""
    control_cost_weight: Finite = 1.0
    """Share of the cost of acting (info reward_ctrl) that counts in the fitness: with
    less, a body learns to move before it learns to move cheaply. Reported returns
    always hold all of it."""
    objective: NamedObjective = "return"
    """What fitness is: an episode's return R, or commanded-return, where each episode
    is asked for a return c and its fitness is (1 − w) R − w |R − c|; the policy must
    read c. Or module:Name, a function of what episodes came to; --objective for
    short."""
    objective_kwargs: Annotated[dict[str, Any], tyro.conf.Fixed] = dataclasses.field(
        default_factory=dict
    )
    """Arguments of an objective of your own, each as --es.objective-kwargs.NAME
    VALUE."""
    command_low: Finite = 0.0
    """Lowest return that an episode is asked for; this and the next three are read by
    objective commanded-return only."""
    command_high: Finite | None = None
    """Highest return that an episode is asked for; if not given, mean + standard
    deviation of the best tenth of the last generation's episodes."""
    obedience_weight: Weight = 1.0
    """w, how much obedience counts: below 0.5 more than what was asked for still pays,
    above it costs."""
    obedience_weight_end: Weight | None = None
    """Obedience weight that schedule leads to; constant if not given."""
    elite_fraction: Share = 1.0
    """Share of the pairs, those with the best members, that make the update (ARS, arXiv
    1803.07055)."""
    interactions_per_generation: Count | None = None
    """Environment steps that a generation's population should take: pairs are added,
    num_pairs at a time, as episodes become shorter; exactly num_pairs if not given."""
    max_num_pairs: Count | None = None
    """Most pairs that interactions_per_generation leads to; 16 times num_pairs if not
    given."""

    def __post_init__(self) -> None:
        check_fields(self, "es.")
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if value == field.default:
                continue
            require(
                self.reads(name),
                f"es.{name} {value} has no meaning with es.strategy {self.strategy}; "
                f"leave it out ({field.default}), or choose --strategy openai-es.",
            )
            if name in _READ_WITH:
                option, needed = _READ_WITH[name]
                given = getattr(self, option)
                require(
                    given == needed,
                    f"es.{name} {value} has no meaning with es.{option} {given}; add "
                    f"es.{option} {needed}, or es.{name} {field.default}.",
                )
        for name in WEIGHTS:
            weight = getattr(self, name)
            require(
                not is_own(self.objective) or weight == 1,
                f"es.{name} {weight} has no meaning with es.objective {self.objective},"
                " which weighs rewards itself; leave it out (1.0).",
            )
        require(
            is_own(self.objective) or not self.objective_kwargs,
            f"es.objective_kwargs.{next(iter(self.objective_kwargs), '')} has no "
            f"meaning with es.objective {self.objective}; leave it out.",
        )
        require(
            self.strategy != "openai-es" or not self.kwargs,
            f"es.kwargs.{next(iter(self.kwargs), '')} has no meaning with es.strategy "
            "openai-es, whose hyperparameters are the other options of es.",
        )
        require(
            self.weight_decay_anchor == "zero" or self.weight_decay > 0,
            f"es.weight_decay_anchor {self.weight_decay_anchor} has no meaning with "
            "es.weight_decay 0; add es.weight_decay 0.005, or es.weight_decay_anchor "
            "zero.",
        )
        is_one_enough = self.strategy in ESTIMATING and self.shaping != "pair_rank"
        is_one_enough = is_one_enough or is_own(self.strategy)
        require(
            self.num_pairs >= 2 or is_one_enough,
            f"es.num_pairs must be at least 2 with es.strategy {self.strategy}"
            + (
                f" and es.shaping pair_rank, got {self.num_pairs}. Use more pairs or "
                "--es.shaping centered_rank."
                if self.strategy in ESTIMATING
                else f", got {self.num_pairs}. Use more pairs."
            ),
        )
        most = self.max_num_pairs
        require(
            most is None or self.interactions_per_generation is not None,
            f"es.max_num_pairs {most} has no meaning without "
            "es.interactions_per_generation; add es.max_num_pairs None, or give both.",
        )
        require(
            most is None or most >= self.num_pairs,
            f"es.max_num_pairs must be at least es.num_pairs {self.num_pairs}, got "
            f"{most}; add es.max_num_pairs None for 16 times as many.",
        )
        require(
            self.command_high is None or self.command_low < self.command_high,
            f"es.command_low must be below es.command_high {self.command_high}, got "
            f"{self.command_low}; leave es.command_high out for what the population "
            "can do.",
        )
        begin, end = self.obedience_weight, self.obedience_weight_end
        require(
            end is None or self.schedule == "linear" or (begin > 0 and end > 0),
            f"es.obedience_weight {begin} and es.obedience_weight_end {end} must be "
            f"positive with es.schedule {self.schedule}, which multiplies; add "
            "--es.schedule linear.",
        )

    def reads(self, name: str) -> bool:
        """Returns whether the strategy reads a field of this record."""
        is_scheduled = self.obedience_weight_end is not None
        return (
            self.strategy in ESTIMATING
            or name in ("strategy", "kwargs", *SHARED)
            or (name == "shaping" and self.strategy in ("pgpe", "ars"))
            or (name in ("schedule", "schedule_generations") and is_scheduled)
        )

    @property
    def is_commanded(self) -> bool:
        """Whether episodes are asked for returns."""
        return self.objective == "commanded-return"

    @property
    def most_pairs(self) -> int:
        """Pairs that a generation may have at most."""
        if self.interactions_per_generation is None:
            return self.num_pairs
        return self.max_num_pairs or 16 * self.num_pairs

    def pairs_after(self, mean_length: float) -> int:
        """Returns how many pairs follow on episodes of a mean length.

        With ``interactions_per_generation`` so many blocks of ``num_pairs`` that
        episodes of that length make at least as many steps.
        """
        if self.interactions_per_generation is None:
            return self.num_pairs
        block = 2 * self.num_pairs * self.episodes_per_member * mean_length
        most = self.most_pairs // self.num_pairs
        blocks = min(most, math.ceil(self.interactions_per_generation / block))
        return blocks * self.num_pairs


WEIGHTS = ("healthy_reward_weight", "control_cost_weight")
"""Fields of ``ESConfig`` that say how much of a part of the reward counts."""

COMMANDS = (
    *("command_low", "command_high"),
    *("obedience_weight", "obedience_weight_end"),
)
"""Fields of ``ESConfig`` that objective commanded-return reads."""

_READ_WITH = {
    **dict.fromkeys(COMMANDS, ("objective", "commanded-return")),
    "rank": ("perturbation", "low-rank"),
    "max_speed": ("optimizer", "clipup"),
}
"""Field of ``ESConfig`` → the option, and its value, without which nothing reads it."""

SHARED = (
    *("num_pairs", "sigma", "common_seeds"),
    *("episodes_per_member", *WEIGHTS, *COMMANDS),
    *("objective", "objective_kwargs"),
)
"""Fields of ``ESConfig`` that every strategy reads."""


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """The environment; --env.kwargs.NAME VALUE is an argument of its constructor."""

    id: str = "Humanoid-v5"
    """Gymnasium id. MuJoCo's tasks run on mujoco.batch, Atari's (ALE/...) on emulators
    of ours, others on Gymnasium's own vector environments."""
    max_episode_steps: Count | None = None
    """Limit on an episode in environment steps; the environment's own if not given."""
    terminate_when_unhealthy: bool = True
    """Whether falling ends an episode; only MuJoCo's walkers can be told
    that it does not."""
    game: str | None = None
    """An Atari game of ale-py's in any spelling (hero, MsPacman), instead of id."""
    sticky_actions: Fraction = 0.0
    """Atari: probability that the last action is repeated instead (0.25 in Machado et
    al. 2018)."""
    reward_clipping: bool = False
    """Atari: pay the sign of the score's change only, in evaluations, too."""
    noop_max: NotNegative = 0
    """Atari: an episode begins with 1 to this many actions that do nothing."""
    terminate_on_life_loss: bool = False
    """Atari: end the episode with the first life instead of the last, in evaluations,
    too."""
    full_action_space: bool = False
    """Atari: all 18 actions instead of those that the game reads."""
    observation: Literal["frames", "ram", "ram-change"] = "frames"
    """Atari: what policies see: frames, the console's memory (ram, 128 bytes), or it
    and its change since the last step (ram-change, 256 numbers)."""
    frame_size: Literal[84, 42] = 84
    """Atari: rows and columns of a frame."""
    frame_stack: Annotated[int, Range("from 1 to 4", lambda n: n in (1, 2, 3, 4))] = 4
    """Atari: frames that policies see at once, the latest last."""
    kwargs: Annotated[dict[str, Any], tyro.conf.Fixed] = dataclasses.field(
        default_factory=dict
    )
    """Arguments of the environment itself, each as --env.kwargs.NAME VALUE. MuJoCo's
    tasks then run on Gymnasium's own environments, which are slower."""
    wrappers: tuple[str, ...] = ()
    """Gymnasium wrappers without arguments, or functions that wrap, the innermost
    first: module:Name, as gymnasium.wrappers:FlattenObservation."""
    hide_observation: tuple[
        Annotated[str, Range("indices or slices, as 2 or 5:8", is_index)], ...
    ] = ()
    """Numbers of an observation vector in whose place the policy reads 0, by index or
    slice (2, -1, 5:8); the environment, and what is recorded of it, stay whole."""
    descriptor: Annotated[
        tuple[str, ...],
        Range("position, feet, gait, or indices, as 0 2", is_descriptor),
    ] = ()
    """What describes an episode, to what searches for novelty or fills an archive: of
    MuJoCo's walkers position (final x and y), feet (each foot's share of time on the
    ground) or gait (both); or by index, numbers of any task's last observation."""

    @property
    def options(self) -> dict[str, Any]:
        """What makes the same task, besides the id.

        Options at their defaults are not passed: most environments do not know them.
        """
        options: dict[str, Any] = {"max_episode_steps": self.max_episode_steps}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in _NO_OPTIONS and value != field.default:
                options[field.name] = value
        return options | self.kwargs

    @property
    def described_by(self) -> str | tuple[int, ...]:
        """``descriptor`` as :func:`jax_es.envs.make.make` takes it; ``()`` for none."""
        if self.descriptor and not self.descriptor[0].isdecimal():
            return self.descriptor[0]
        return tuple(map(int, self.descriptor))

    def __post_init__(self) -> None:
        check_fields(self, "env.")


_NO_OPTIONS = ("id", "game", "kwargs", "wrappers", "hide_observation", "descriptor")
"""Fields of ``EnvConfig`` that are no arguments of an environment."""

PROCESSES_PER_CORE = 8
"""Environments with a process of their own: each takes 0.2 s and some 20 MiB to start,
and steps that are worth it keep a core at work with a few of them."""


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """How episodes are run."""

    num_slots: Count | None = None
    """Episodes in flight at once (S), over all devices; slots_per_core for each if not
    given. Each holds one member's weights; results depend on it by rounding alone. A
    run keeps the number it began with. With --workers, of each worker."""
    slots_per_core: Count = 64
    """Slots for each device on a CPU, or for each core with an accelerator; somewhat
    more or fewer where these share episodes out evenly. Not read with num_slots."""
    num_threads: Thousands | None = None
    """Threads that step the environments; one per available core if not given. Of games
    it is the number of processes; with vectorization_mode async, how many step at the
    same time."""
    vectorization_mode: Literal["sync", "async"] | None = None
    """How environments other than MuJoCo's and games step: one
    after the other (sync, the default), or each slot's in a process of its own (async,
    for steps of more than about half a millisecond; at most 8 slots a core if num_slots
    is not given)."""
    num_substeps: Thousands | None = None
    """MuJoCo's tasks: train in coarse physics, with this many physics steps in an
    environment step; the task's own if not given. What reads a run, such as evaluate,
    acts in the task's own physics."""
    integrator: Literal["RK4", "Euler", "implicitfast"] | None = None
    """MuJoCo's tasks: train in coarse physics with this integrator; the task's own,
    mostly RK4, if not given. Euler and implicitfast take a quarter of its time a
    physics step, and make it easier to stay up."""
    variation_range: Ranges = ()
    """Each of the population's episodes draws NAME (mass, friction, gravity, motors,
    observation-noise or delay of MuJoCo's tasks; another environment's own) from LOW to
    HIGH, uniformly, the same for both of a pair. θ's own evaluation, and what reads a
    run, such as evaluate, vary nothing. Once for each name; of several the last
    counts."""
    num_devices: Count | None = None
    """XLA devices to spread the population over; one per available core on a CPU, or
    all local accelerators, if not given. A run keeps the number it began with."""
    shard_size: Count | None = None
    """Episodes that a worker of --workers takes at a time; chosen by the population's
    size if not given. Results depend on it by rounding alone, and never on the
    number of workers."""
    num_groups: Count | None = None
    """Groups of slots that take turns: while one's actions are computed, another's
    environments step. Two with an accelerator and one on a CPU if not given."""
    observation_statistics: bool = True
    """Normalise observations by running mean and standard deviation (the paper's
    "VBN")."""
    statistics_fraction: Share = 0.01
    """Share of the population's episodes that update the observation statistics."""
    std_floor: Positive = 0.1
    """Lower bound of the standard deviation that observations are divided by, in their
    own unit: of frames and of a console's memory 0 to 255, with ram-change 0 to 1."""
    observation_clip: Annotated[float, Range("positive", lambda x: x > 0)] | None = None
    """Bound of normalised observations, in standard deviations; none if not given."""
    hide_constants: bool = True
    """Policies read 0 for a number of the observation that has not varied so far, so
    that another body's masses do not meet weights that no reward has shaped; read if
    there are observation statistics. Runs from before it was a field act without."""
    step_cap_factor: (
        Annotated[float, Range("at least 1 and finite", lambda x: 1 <= x < math.inf)]
        | None
    ) = 2.0
    """An episode is cut at this many times the mean episode length of the previous
    generation; no cap with None. Evaluation episodes are never cut."""
    step_cap: Count | None = None
    """Most environment steps of an episode of the population, so that a long task is
    learned by its begin; the environment's own limit if not given. Evaluation episodes
    are never cut."""

    def __post_init__(self) -> None:
        check_fields(self, "rollout.")
        last = {entry[0]: entry for entry in self.variation_range}
        object.__setattr__(self, "variation_range", tuple(last.values()))

    @property
    def physics(self) -> dict[str, Any]:
        """What is coarse in the physics; empty in the task's own."""
        fields = {"num_substeps": self.num_substeps, "integrator": self.integrator}
        return {name: value for name, value in fields.items() if value is not None}

    def named_physics(self) -> str:
        """Returns what follows a task's name; empty in the task's own physics."""
        fields = ", ".join(f"{name} {value}" for name, value in self.physics.items())
        return f" in coarse physics ({fields})" if fields else ""

    def slots_on(self, num_cores: int, num_tasks: int = 0) -> int:
        """Returns S as configured, or as that many cores have room for.

        A few episodes a slot are dealt out evenly, up to half as many slots more: 74
        episodes of equal length, 64 at a time, would leave most slots idle for half of
        the time (HalfCheetah on one core: 5 %, with a transformer 15 % slower).

        Args:
            num_cores: how many.
            num_tasks: episodes of a generation of long ones; 0 if unknown.
        """
        if self.num_slots is not None:
            return self.num_slots
        if self.vectorization_mode == "async":
            return min(self.slots_per_core, PROCESSES_PER_CORE) * num_cores
        slots = self.slots_per_core * num_cores
        if not slots <= num_tasks < 4 * slots:
            return slots
        return math.ceil(num_tasks / round(num_tasks / slots))


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation of the mean policy in every generation."""

    num_episodes: Count = 10
    """Evaluation episodes of θ a generation; they run beside the population's."""

    def __post_init__(self) -> None:
        check_fields(self, "evaluation.")
