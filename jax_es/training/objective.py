"""What counts in the fitness: an objective, a function of what episodes came to.

The return is one, and so is obedience to a commanded return; users bring their own
(:func:`objective`).

Under ``--es.objective commanded-return`` each episode is asked for a return c, its
*command*, and its fitness is

    (1 − w) R − w |R − c|

of the return R. Weight w = 1 is obedience alone; w = 0 is the return, hence ordinary
training. As c ≥ R gives R (up to a constant) for every w, the weight only decides about
more than was asked for: w < ½ still pays for it, and w > ½ charges for it.

The command is part of the task, never of θ. Upside-Down RL (arXiv 1912.02875) trains on
commands by gradients; of an evolved objective we know no publication.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from jax_es.checks import is_own
from jax_es.config import ESConfig
from jax_es.rollout.evaluator import NOTHING, EpisodeResults, Reported
from jax_es.rollout.streams import stream
from jax_es.rollout.tasks import Tasks
from jax_es.runs.records import return_statistics
from jax_es.training.custom import make_own_objective
from jax_es.types import PyTree

CONTROL_COST = "reward_ctrl"
"""Where environments report what acting costs, as a negative number."""

BEST_SHARE = 0.1
"""Share of a generation's episodes, those with the highest returns, that the range of
the next commands follows."""


class CommandState(NamedTuple):
    """What the next generation's commands depend on."""

    high: float
    """End of the range; at or below its begin while nothing is known of it."""
    least_error: float
    """Least ``Asked.error`` of θ on this range; NaN before its first evaluation, ∞
    while the range or returns were unknown."""


class Asked(NamedTuple):
    """What one generation's episodes are asked for, and how obedience counts."""

    low: float
    """The range of commands, in the environment's reward unit, as the next."""
    high: float
    weight: float
    """w, from 0 to 1."""

    @property
    def is_range(self) -> bool:
        """Whether there is one yet; until then returns count, and all ask for low."""
        return self.high > self.low

    def error(self, errors: np.ndarray) -> float:
        """Returns the mean |R − c| / (high − low); ∞ without a range or a return.

        Args:
            errors: ``[E]``, R − c.
        """
        if not (self.is_range and np.isfinite(errors).all()):
            return math.inf
        return float(np.abs(errors).mean()) / (self.high - self.low)

    def on_range(self, share: np.ndarray) -> np.ndarray:
        """Returns commands at shares of the range."""
        width = self.high - self.low if self.is_range else 0.0
        return (self.low + width * share).astype(np.float32)


def initial_commands(config: ESConfig) -> PyTree:
    """Returns the state before the first generation; ``()`` without commands."""
    if not config.is_commanded:
        return ()
    given = config.command_high
    return CommandState(config.command_low if given is None else given, math.nan)


def asked(config: ESConfig, commands: PyTree, generation: int) -> Asked | None:
    """Returns what a generation is asked for, known before it begins."""
    if not config.is_commanded:
        return None
    # Late: it loads optax, which no other line of this file needs.
    from jax_es.es.optimizers import schedule

    weight, end = config.obedience_weight, config.obedience_weight_end
    way = schedule(config, weight, end)
    if way is not None:
        weight = float(np.asarray(way(generation)))
    found = Asked(config.command_low, commands.high, weight)
    return found if found.is_range else Asked(config.command_low, commands.high, 0.0)


def next_commands(config: ESConfig, commands: PyTree, returns: np.ndarray) -> PyTree:
    """Returns the state after a generation.

    The range, if its end is not given, ends at mean + standard deviation of the best
    episodes, which is what Upside-Down RL explores with, or at the highest that this
    was: episodes that obey return no more than they are asked for, so that a range
    that followed them down would shrink to nothing.
    """
    if not config.is_commanded or config.command_high is not None:
        return commands
    returns = np.sort(returns[np.isfinite(returns)])
    best = returns[-max(1, round(BEST_SHARE * returns.size)) :]
    if not best.size:
        return commands
    high = float(best.mean() + best.std())
    if high <= commands.high:
        return commands
    # A share of a shorter range is no measure for this one.
    return CommandState(high, least_error=math.nan)


def population_commands(
    asked: Asked, seed: int, generation: int, groups: int, episodes: int
) -> np.ndarray:
    """Draws a generation's commands ``[groups, episodes]``, evenly over the range.

    The range has a stratum for each of them: those of a group of members, which share
    commands, lie in as many equal parts, and each part is spread over the groups.
    """
    rng = stream(seed, "commands", generation)
    within = np.broadcast_to(np.arange(groups)[:, None], (groups, episodes))
    within = rng.permuted(within, axis=0) + rng.random((groups, episodes))
    share = (np.arange(episodes) + within / groups) / episodes
    return asked.on_range(share)


def command_errors(tasks: Tasks, returns: np.ndarray) -> np.ndarray | None:
    """Returns R − c ``[E]`` of episodes; None if none was asked for a return."""
    return None if tasks.command is None else returns - np.float64(tasks.command)


Objective: TypeAlias = Callable[[EpisodeResults], ArrayLike]
"""``episodes → [E]``, the fitness of each episode; larger is better."""


def objective(
    sums: Sequence[str] = (), last: Sequence[str] = ()
) -> Callable[[Callable[..., ArrayLike]], Callable[..., ArrayLike]]:
    """Says of an objective of your own which numbers of ``info`` it reads.

    An objective is a function of episodes (:class:`jax_es.EpisodeResults`: ``returns``,
    ``lengths``, ``healthy_rewards``, ``descriptors``, ``failed``) that returns the
    fitness of each, ``[E]``, larger being better; a member's is the mean over its
    episodes. One that reads no more needs no decorator. Its further arguments have
    defaults, and are ``--es.objective-kwargs.NAME``.

    Args:
        sums: names of numbers in the environment's ``info`` that are summed over an
            episode: ``episodes.sums["reward_ctrl"]``. Of a step that reports none, 0
            counts.
        last: names whose last number in an episode is kept:
            ``episodes.last["x_position"]``, NaN if there was none.

    Example::

        @jax_es.objective(sums=["reward_ctrl"], last=["x_position"])
        def distance_less_energy(episodes, weight=1.0):
            energy = -episodes.sums["reward_ctrl"]
            return episodes.last["x_position"] - weight * energy
    """

    def mark(function: Callable[..., ArrayLike]) -> Callable[..., ArrayLike]:
        marked: Any = function
        marked.reported = Reported(tuple(sums), tuple(last))
        return function

    return mark


class Return(NamedTuple):
    """The return, less what its healthy reward and its control cost do not count."""

    healthy_weight: float = 1.0
    control_weight: float = 1.0

    @property
    def reported(self) -> Reported:
        """What it reads of the environment's ``info``."""
        return Reported(sums=() if self.control_weight == 1 else (CONTROL_COST,))

    def __call__(self, episodes: EpisodeResults) -> np.ndarray:
        """Returns R − (1 − h) H − (1 − c) C of each episode, ``[E]``."""
        with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN, and ranked worst like it
            omitted = (1.0 - self.healthy_weight) * episodes.healthy_rewards
            for name in self.reported.sums:
                omitted += (1.0 - self.control_weight) * episodes.sums[name]
            return episodes.returns - omitted


class CommandedReturn(NamedTuple):
    """(1 − w) times that, less w |R − c|, where a return c is asked for."""

    counted: Return
    weight: float
    """w."""

    def __call__(self, episodes: EpisodeResults) -> np.ndarray:
        """Returns each episode's fitness ``[E]``; ``episodes`` hold their commands."""
        terms = self.counted(episodes)
        with np.errstate(invalid="ignore"):
            errors = episodes.returns - np.float64(episodes.commands)
            return (1.0 - self.weight) * terms - self.weight * np.abs(errors)


def make_objective(config: ESConfig, asked: Asked | None = None) -> Objective:
    """Returns what a generation counts.

    Args:
        config: names it.
        asked: for which returns episodes are asked, if they are.
    """
    if is_own(config.objective):
        return make_own_objective(config)
    counted = Return(config.healthy_reward_weight, config.control_cost_weight)
    return counted if asked is None else CommandedReturn(counted, asked.weight)


def reported_for(config: ESConfig) -> Reported:
    """Returns what the configuration's objective reads of environments' ``info``."""
    return getattr(make_objective(config), "reported", NOTHING)


def fitness(
    results: EpisodeResults, member: np.ndarray, objective: Objective
) -> np.ndarray:
    """Returns the members' fitness ``[P]``: the mean over each one's episodes.

    Args:
        results: of the population's tasks.
        member: ``[E]``, whose episode each is.
        objective: from :func:`make_objective`.
    """
    with np.errstate(invalid="ignore"):
        return per_member(np.asarray(objective(results), np.float64), member)


def per_member(values: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Returns the mean of each member's episodes, ``[P]``, of values ``[E]``."""
    return np.bincount(member, weights=values) / np.bincount(member)


def score(returns: np.ndarray) -> float:
    """Returns the mean return; one that is not finite is below every other."""
    finite = np.isfinite(returns).all()
    return float(np.mean(returns)) if finite else -math.inf


def record_fields(
    asked: Asked | None,
    commands: PyTree,
    evaluated: float,
    told: np.ndarray | None = None,
) -> dict[str, Any]:
    """Returns a record's fields about commands, from errors of θ and the population.

    ``commands`` is the state after the generation; ``told`` is R − c of the
    population's episodes ``[E]``, if there were any.
    """
    if asked is None:
        return {}
    errors = return_statistics([] if told is None else told)
    return {
        "command_low": asked.low,
        "command_high": asked.high,
        "obedience_weight": asked.weight,
        "command_error_mean": errors.mean,
        "command_error_std": errors.std,
        "evaluation_command_error": evaluated,
        "least_command_error": commands.least_error,
    }
