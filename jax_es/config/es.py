"""Settings of the strategy, its optimizer and its objective."""

import dataclasses
import math
from typing import Annotated, Any, Literal, TypeAlias, get_args

import tyro

from jax_es.checks import (
    Count,
    Finite,
    Fraction,
    Positive,
    Range,
    Share,
    Weight,
    check_fields,
    is_own,
    listed,
    require,
)

Shaping: TypeAlias = Literal["pair_rank", "centered_rank", "standardize"]

SigmaFactors: TypeAlias = Annotated[
    tuple[tuple[str, float], ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(metavar="NAME FACTOR"),
    Range(
        "a name with a finite number of at least 0",
        lambda each: all(0 <= factor < math.inf for _, factor in each),
    ),
]

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
    sigma_factor: SigmaFactors = ()
    """The weights whose names begin with NAME have FACTOR times sigma, and so much of
    the estimate; with 0 they do not move. Names are paths in the network, as
    blocks_0/key/kernel (blocks_1/ is one block, blocks_1 also blocks_10). Of several
    that fit the longest counts. Not with guided. Once for each name; without values,
    none of the preset's."""
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
        # A JSON file has lists.
        factors = tuple(dict(self.sigma_factor).items())
        object.__setattr__(self, "sigma_factor", factors)
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if value == field.default:
                continue
            usual = "" if field.default == () else f" ({field.default})"
            require(
                self.reads(name),
                f"es.{name} {listed(value)} has no meaning with es.strategy "
                f"{self.strategy}; leave it out{usual}, or choose --strategy "
                "openai-es.",
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

    def __hash__(self) -> int:
        """What programs compiled for a configuration are found by."""
        return hash((self.optimizer, self.learning_rate, self.momentum))

    def reads(self, name: str) -> bool:
        """Returns whether the strategy reads a field of this record."""
        is_scheduled = self.obedience_weight_end is not None
        if name == "sigma_factor":  # guided's noise has one σ along its direction
            return self.strategy in ("openai-es", "novelty")
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
