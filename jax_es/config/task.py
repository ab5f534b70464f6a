"""Settings of the environment, of how episodes are run, and of θ's own evaluation."""

import dataclasses
import math
from typing import Annotated, Any, Literal, TypeAlias

import tyro

from jax_es.checks import (
    Count,
    Fraction,
    NotNegative,
    Positive,
    Range,
    Share,
    Thousands,
    check_fields,
    is_descriptor,
    is_index,
)

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
    frame_skip: Count = 4
    """Atari: emulator frames that an action lasts, in evaluations, too."""
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
    tasks then run on Gymnasium's own environments, which are slower, unless they are
    variations of a robot's own."""
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
    counts. Without values: none of the preset's."""
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
        last = {entry[0]: tuple(entry) for entry in self.variation_range}
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
