"""A run's whole configuration: built, as plain values, and compared.

It imports nothing heavy, so that ``--help`` shows it without starting JAX.
"""

import dataclasses
import difflib
import os
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeAlias

import tyro

from jax_es import models
from jax_es.checks import (
    ConfigError,
    Count,
    Finite,
    NotNegative,
    as_tuple,
    check_fields,
    check_numbers,
    check_types,
    from_json,
    listed,
    option,
    require,
)
from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.old_names import of_today
from jax_es.phases import Phase, check_phases, read_phases, written

POLICY_KINDS: dict[str, type[models.AnyPolicyConfig]] = {
    "decision-transformer": models.DecisionTransformerConfig,
    "mlp": models.MLPConfig,
    "linear": models.LinearConfig,
    "afterstate": models.AfterstateConfig,
    "lstm": models.LSTMConfig,
    "cnn": models.CNNConfig,
    "image-decision-transformer": models.ImageDecisionTransformerConfig,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CustomPolicyConfig(models.PolicyConfig):
    """A network of the user's own (``--policy module:Name``)."""

    target: Annotated[str, tyro.conf.Suppress]
    """What builds it, as ``module:Name``."""
    options: Annotated[dict[str, Any], tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=dict
    )
    """Values for its own fields."""


PolicyConfig: TypeAlias = models.AnyPolicyConfig | CustomPolicyConfig
"""What ``--policy`` chooses."""

KWARGS = ("env.kwargs.", "es.kwargs.", "es.objective_kwargs.")
"""What fields begin with whose names are the environment's, the strategy's or the
objective's own."""

_PHASES_FILE = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="FILE",
    instance_from_str=read_phases,
    is_instance=lambda value: isinstance(value, tuple),
    str_from_instance=lambda phases: [written(phases)],
)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Everything that determines a run's numbers."""

    env: EnvConfig = dataclasses.field(default_factory=EnvConfig)
    """The environment."""
    policy: PolicyConfig = dataclasses.field(
        default_factory=models.DecisionTransformerConfig
    )
    """The network and how its outputs become actions."""
    es: ESConfig = dataclasses.field(default_factory=ESConfig)
    """The algorithm."""
    rollout: RolloutConfig = dataclasses.field(default_factory=RolloutConfig)
    """How episodes are run."""
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    """Evaluation of the mean policy."""
    num_generations: Count = 200
    """Generations to train for, counted from the start of the run."""
    max_env_steps: Count | None = None
    """Environment steps after which no further generation begins, evaluation included;
    no limit if not given."""
    stop_at_return: Finite | None = None
    """Mean evaluation return at which the run ends, after the first generation that
    reaches it; no limit if not given."""
    seed: NotNegative = 0
    """Seeds the weights, the noise and the environments."""
    checkpoint_every: Count = 1
    """Generations between checkpoints; a stop signal always writes one."""
    init: str | None = None
    """A run from whose θ this one starts, or a folder of runs seed-0, seed-1, …, of
    which the one with this run's seed is taken. If not given, the seed draws θ."""
    init_checkpoint: str = "best"
    """The checkpoint of init's run: best, last or a number; read with init only."""
    phases: Annotated[tuple[Phase, ...], _PHASES_FILE] = ()
    """Parts of the run with settings of their own, and when each ends: a JSON file, or
    its text; None for none."""

    def replace(self, changes: Mapping[str, Any]) -> "TrainConfig":
        """Returns the configuration with other values of some fields.

        Args:
            changes: by dotted name, as ``{"es.sigma": 0.05, "num_generations": 20}``. A
                part goes as a whole by its own name (``{"env": EnvConfig(...)}``), and
                ``env.kwargs.NAME`` is one argument of the environment.

        Raises:
            ConfigError: (a ``ValueError``) for a name that there is not, with the
                closest one, or a value that a field cannot have.

        Example:
            >>> TrainConfig().replace({"es.sigma": 0.05, "seed": 3}).es.sigma
            0.05
        """
        return replaced(self, changes)

    @property
    def tasks_of_long_episodes(self) -> int:
        """Episodes of a generation in which they last as long as they may."""
        limit = self.env.max_episode_steps or 1000  # most tasks' own
        limit = min(limit, self.rollout.step_cap or limit)
        num_members = 2 * self.es.pairs_after(limit)
        return num_members * self.es.episodes_per_member + self.evaluation.num_episodes

    def limits_reached(
        self, generations: int, env_steps: int, best_evaluation_return: float
    ) -> list[str]:
        """Says what ends a run that has come so far; nothing as long as it goes on.

        Example:
            >>> TrainConfig(max_env_steps=1000).limits_reached(200, 1024, 9.5)
            ['num_generations 200', 'max_env_steps 1,000']
        """
        ends = {
            "num_generations": generations,
            "max_env_steps": env_steps,
            "stop_at_return": best_evaluation_return,
        }
        limits = {name: getattr(self, name) for name in ends}
        return [
            f"{name} {limits[name]:,}"
            for name, value in ends.items()
            if limits[name] is not None and value >= limits[name]
        ]

    def __post_init__(self) -> None:
        """Checks the fields that belong to no component, and the integers of all."""
        if isinstance(self.init, str | os.PathLike):
            # However it was typed: a resume compares it.
            object.__setattr__(self, "init", os.path.normpath(self.init))
        check_fields(self)
        check_numbers(flat(self))
        require(
            self.init_checkpoint in ("best", "last")
            or self.init_checkpoint.isdecimal(),
            "init_checkpoint must be best, last or a number, got "
            f"{self.init_checkpoint!r}.",
        )
        require(
            self.init is not None or self.init_checkpoint == "best",
            f"init_checkpoint {self.init_checkpoint} has no meaning without a run to "
            "begin with; add --init RUN.",
        )
        objective, count = self.es.objective, self.evaluation.num_episodes
        require(
            not self.es.is_commanded or count > 1,
            f"evaluation.num_episodes must be at least 2 with es.objective {objective},"
            f" whose episodes ask for both ends of the range, got {count}; leave it "
            "out.",
        )
        if self.phases:
            check_phases(self)


def replaced(config: TrainConfig, changes: Mapping[str, Any]) -> TrainConfig:
    """Returns a configuration with changed fields; see :meth:`TrainConfig.replace`."""
    for name in changes:
        _check_name(config, name)
    if strategy := changes.get("es.strategy"):
        from jax_es.presets import with_strategy  # late: it imports this file

        config = with_strategy(config, strategy)
    parts: dict[str, Any] = {}
    fields: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        if isinstance(value, list):
            value = as_tuple(value)
        elif getattr(value, "shape", None) == ():  # a number of NumPy's, of a sweep
            value = value.item()
        part, dot, field = name.partition(".")
        if dot:
            fields.setdefault(part, {})[field] = value
        else:
            parts[part] = value
    for part, values in fields.items():
        parts[part] = _with_fields(part, parts.get(part, getattr(config, part)), values)
    return dataclasses.replace(config, **parts)


def _check_name(config: TrainConfig, name: str) -> None:
    """Checks that there is a field of this dotted name."""
    known = [*flat(config), *(field.name for field in dataclasses.fields(config))]
    known.remove("policy.kind")  # another network has other fields: replace "policy"
    if name in known or f"{name}.".startswith(KWARGS):
        return
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    part = name.partition(".")[0]
    siblings = [each for each in known if each.startswith(f"{part}.")]
    hint = f"perhaps you meant {close[0]}" if close else "leave it out"
    if siblings and not close:
        hint = f"{part} has {', '.join(siblings)}"
    raise ConfigError(f"the configuration has no field {name}; {hint}.")


def _with_fields(part: str, config: Any, values: dict[str, Any]) -> Any:
    """Returns a part of the configuration with other values of some fields."""
    hints = typing.get_type_hints(type(config))
    given: dict[str, Any] = {}
    for name, value in values.items():
        where, dot, argument = name.partition(".")
        if isinstance(config, CustomPolicyConfig) and name not in hints:
            where, dot, argument = "options", ".", name
        if dot:  # arguments of an environment, a strategy, a network, an objective
            before = given.get(where, getattr(config, where))
            given[where] = {**before, argument: value}
        else:
            given[name] = value
    try:
        if part == "policy":  # models check values, not their types
            check_types(given, **{name: hints[name] for name in given})
        return dataclasses.replace(config, **given)
    except TypeError as error:
        raise ConfigError(f"{part}.{error}; choose another.") from error
    except ConfigError:
        raise
    except ValueError as error:  # of models
        raise ConfigError(str(error)) from error


def in_own_physics(config: TrainConfig) -> TrainConfig:
    """Returns a configuration without the coarse physics that it may train in."""
    rollout = dataclasses.replace(config.rollout, num_substeps=None, integrator=None)
    return dataclasses.replace(config, rollout=rollout)


def policy_kind(config: PolicyConfig) -> str:
    """Returns the name by which a policy is chosen on the command line."""
    if isinstance(config, CustomPolicyConfig):
        return config.target
    return next(name for name, kind in POLICY_KINDS.items() if type(config) is kind)


JAX_PACKAGES = ("gymnax", "brax", "playground")
"""Packages of environments in JAX: ``brax:ant`` imports nothing of the user's own."""


FLATTEN = "gymnasium.wrappers:FlattenObservation"
"""The wrapper that own presets add where a policy reads vectors."""


def imported(config: TrainConfig) -> list[str]:
    """Returns what a configuration imports of the user's own, as ``module:Name``.

    An environment may import what its arguments name: ours of a robot does.
    """
    env, es = config.env, config.es
    id_ = "" if env.id.partition(":")[0] in JAX_PACKAGES else env.id
    parts = (id_, policy_kind(config.policy), es.strategy, es.objective)
    named = (*parts, *_texts(env.kwargs))
    wrappers = [each for each in env.wrappers if each != FLATTEN]
    return [*wrappers, *(target for target in named if ":" in target)]


def _texts(value: Any) -> Iterator[str]:
    """Yields the texts in a JSON value."""
    match value:
        case str():
            yield value
        case dict():
            yield from _texts([*value.values()])
        case list() | tuple():
            for each in value:
                yield from _texts(each)


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Returns a configuration as plain JSON values; :func:`from_dict` reads it."""
    values = dataclasses.asdict(config)
    policy = values["policy"]
    if isinstance(config.policy, CustomPolicyConfig):
        policy |= policy.pop("options")  # as the command line names them
        del policy["target"]
    values["policy"] = {"kind": policy_kind(config.policy), **policy}
    return values


def from_dict(values: dict[str, Any]) -> TrainConfig:
    """Builds a configuration from :func:`to_dict`'s values, as :func:`from_json`."""
    values = dict(values)
    env = values.get("env", {})
    if any(text.startswith("envs") for text in _texts(env)):
        values["env"] = of_today(env)
    policy = dict(values.pop("policy", {}))
    kind = policy.pop("kind", None)
    if isinstance(kind, str) and ":" in kind:
        config: PolicyConfig = _custom(kind, policy)
    elif kind in POLICY_KINDS:
        config = from_json(POLICY_KINDS[kind], policy)
    else:
        raise ConfigError(
            f"policy kind must be one of {', '.join(POLICY_KINDS)}, got {kind!r}."
        )
    # Runs from before these were fields: their policies read constants, and had a floor
    # of 0.1 under pixels in [0, 1].
    before: dict[str, Any] = {"hide_constants": False}
    if isinstance(config, models.IMAGE_POLICIES):
        before["std_floor"] = 25.5
    values["rollout"] = before | values.get("rollout", {})
    return from_json(TrainConfig, {**values, "policy": config})


def _custom(target: str, policy: dict[str, Any]) -> CustomPolicyConfig:
    """Builds the configuration of a user's own network; imports nothing."""
    shared = {field.name for field in dataclasses.fields(models.PolicyConfig)}
    options = {name: policy.pop(name) for name in [*policy] if name not in shared}
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    values = {"target": target, "options": options, **policy}
    return from_json(CustomPolicyConfig, values)


def differences(
    stored: TrainConfig, given: TrainConfig
) -> dict[str, tuple[object, object]]:
    """Returns the fields in which two configurations differ, by dotted name."""
    return differing(flat(stored), flat(given))


def differing(
    first: dict[str, object], second: dict[str, object]
) -> dict[str, tuple[object, object]]:
    """Returns the names whose values differ, with both; None where there is none.

    Example:
        >>> differing({"a": 0, "b": 1, "c": 2}, {"a": 0, "b": 3, "d": 4})
        {'b': (1, 3), 'c': (2, None), 'd': (None, 4)}
    """
    names = list(dict.fromkeys([*first, *second]))
    pairs = {name: (first.get(name), second.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def require_same(
    what: str, changed: dict[str, tuple[object, object]], remedy: str
) -> None:
    """Raises ``ConfigError`` if a resume changes anything: name → (was, now)."""
    # JAX's settings are variables of the environment.
    words = {name: name if name.isupper() else option(name) for name in changed}
    found = "; ".join(
        f"{words[name]} was {listed(was)!r}, now {listed(now)!r}"
        for name, (was, now) in changed.items()
    )
    require(
        not changed,
        f"--resume would change {what}: {found}. Leave these as they were, or "
        f"{remedy}.",
    )


def flat(config: TrainConfig) -> dict[str, object]:
    """Returns a configuration's values by dotted name, as ``"es.sigma"``."""
    return flatten(to_dict(config))


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, object]:
    """Returns the values of nested dictionaries by dotted name."""
    flat: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
