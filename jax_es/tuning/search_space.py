"""What a hyperparameter search may choose: lines of text → Optuna's distributions.

A line is ``es.sigma=0.01:0.1:log`` or ``policy.width=32,64,128``. Choices stay the
texts that they were given as, since Optuna's database holds numbers and texts only.
"""

import contextlib
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from jax_es.checks import ConfigError, is_of_type, optional, require
from jax_es.config import ESTIMATING
from jax_es.presets import unknown
from jax_es.train_config import KWARGS, CustomPolicyConfig, TrainConfig, flat

FORMS = "FIELD=LOW:HIGH, FIELD=LOW:HIGH:log or FIELD=A,B,C"

Distribution = Any


def load_optuna() -> Any:
    """Imports Optuna; from now on it says no more than its warnings.

    Raises:
        ConfigError: if it is not installed.
    """
    with optional("a search needs Optuna", "tune"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def default_search(config: TrainConfig) -> tuple[str, ...]:
    """Returns what is searched if nothing else is said: around the preset's values."""
    from jax_es.training.build import make_env  # late: it loads the simulators

    own: dict[str, Any] = flat(config)
    rate, sigma = own["es.learning_rate"], own["es.sigma"]
    is_estimating = config.es.strategy in ESTIMATING
    size = "es.interactions_per_generation"
    size = size if own[size] else "es.num_pairs"
    choices = {
        size: [max(2, own[size] * k // 2) for k in (1, 2, 4, 8)],
        **({"es.weight_decay": [0.0, 0.001, 0.005]} if is_estimating else {}),
    }
    env = make_env(config.env, 1, 1)
    if getattr(env, "pays_healthy_reward", False):
        choices["es.healthy_reward_weight"] = [0.0, 0.5, 1.0]
    env.close()
    if "policy.context_length" in own:  # a transformer
        width, heads = own["policy.width"], own["policy.num_heads"]
        length = own["policy.context_length"]
        choices |= {
            "policy.width": [heads * max(1, width // heads // 2), width, 2 * width],
            "policy.num_layers": [1, 2, 3],
            "policy.context_length": [max(1, length // 2), length, 2 * length],
            "policy.timestep_scale": [0.02, 0.2],
            "policy.head_scale": [0.0, 0.1, 1.0],
        }
    steps = [f"es.learning_rate={rate / 5:g}:{rate * 5:g}:log"]
    return (
        *(steps if is_estimating else []),
        f"es.sigma={sigma / 4:g}:{sigma * 4:g}:log",
        *(
            f"{field}={','.join(map(str, sorted({*values, own[field]})))}"
            for field, values in choices.items()
        ),
    )


def field_of(line: str) -> str:
    """Returns the field that a line is about, spelt as in the configuration."""
    return line.partition("=")[0].replace("-", "_")


def _group(field: str) -> str:
    return field.partition(".")[0]


def space(config: TrainConfig, search: Iterable[str]) -> dict[str, Distribution]:
    """Reads the lines of a search.

    Returns:
        Distributions by field: of numbers for a range, of texts for choices.

    Raises:
        ConfigError: for an unknown field, or values that it cannot have.
    """
    return {field_of(line): _distribution(config, line) for line in search}


def _distribution(config: TrainConfig, line: str) -> Distribution:
    distributions = load_optuna().distributions
    field, values = field_of(line), line.partition("=")[2]
    require(values != "", f"--search must be {FORMS}, got {line!r}.")
    fixed = ("policy.kind", "es.strategy")
    known = [name for name in flat(config) if "." in name and name not in fixed]
    if field not in known and not field.startswith(KWARGS):
        siblings = [n for n in known if _group(n) == _group(field)]
        shown = siblings or dict.fromkeys(f"{_group(n)}.*" for n in known)
        raise ConfigError(f"--search {line}: {unknown('field', field, shown)}")
    kind = _type(config, field)
    low, *rest = values.split(":")
    try:
        if not rest:
            choices = values.split(",")
            for text in choices:
                configured(config, {field: text})
            return distributions.CategoricalDistribution(choices)
        high, *log = rest
        require(is_of_type(1, kind), f"{field} is no number; list what to choose from.")
        require(log in ([], ["log"]), f"a range must be {FORMS}.")
        bounds = _value(low, kind), _value(high, kind)
        for value in bounds:
            configured(config, {field: value})
        if is_of_type(0.5, kind):
            return distributions.FloatDistribution(*bounds, log=bool(log))
        return distributions.IntDistribution(*bounds, log=bool(log))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"--search {line}: {error}") from error


def configured(config: TrainConfig, params: Mapping[str, Any]) -> TrainConfig:
    """Returns a trial's configuration.

    Raises:
        ValueError: if the values do not fit together.
    """
    return config.replace(
        {
            name: _value(value, _type(config, name))
            if isinstance(value, str)
            else value
            for name, value in params.items()
        }
    )


def unchanged(
    config: TrainConfig, searched: Mapping[str, Distribution]
) -> dict[str, Any] | None:
    """Returns the values that change nothing; None if the search lacks one of them."""
    own = {name: flat(config).get(name) for name in searched}
    for name, value in own.items():
        each, kind = searched[name], _type(config, name)
        if hasattr(each, "choices"):
            same = [text for text in each.choices if _value(text, kind) == value]
            own[name] = same[0] if same else None
        elif value is None or not each.low <= value <= each.high:
            own[name] = None
    return None if None in own.values() else own


def _type(config: TrainConfig, name: str) -> Any:
    """Returns the type of a field, by its dotted name; kwargs are numbers."""
    if name.startswith(KWARGS):
        return int | float
    component, field = name.split(".")
    if isinstance(config.policy, CustomPolicyConfig) and component == "policy":
        value = config.policy.options[field]
        return tuple[int, ...] if isinstance(value, tuple) else type(value)
    return typing.get_type_hints(type(getattr(config, component)))[field]


def _value(text: str, kind: Any) -> Any:
    """Reads a field's value; ``64x64`` is a tuple, as of widths.

    Raises:
        ConfigError: if a field of this type cannot have it.
    """
    found: list[Any] = [{"true": True, "false": False, "none": None}.get(text, text)]
    with contextlib.suppress(ValueError):
        if kind == int | float:
            found.append(int(text))
    with contextlib.suppress(ValueError):
        found.append(float(text) if is_of_type(0.5, kind) else int(text))
    with contextlib.suppress(ValueError):
        found.append(tuple(int(each) for each in text.split("x")))
    for value in found:
        if is_of_type(value, kind):
            return value
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    raise ConfigError(f"{text!r} is not {name.replace('typing.', '')}.")
