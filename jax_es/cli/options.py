"""What the programs share on the command line: how options are read."""

import ast
import contextlib
import dataclasses
import difflib
import json
import re
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import tyro
from tyro import _errors as tyro_errors

from jax_es.checks import (
    as_options,
    check_numbers,
    option,
    require,
)
from jax_es.cli.help import (
    HELP_ALL_OPTION,
    own_arguments,
    short_help,
    unread,
    wrapped,
)
from jax_es.config import EnvConfig
from jax_es.presets import PRESETS, with_objective, with_strategy
from jax_es.runs.find import path_to_resume
from jax_es.runs.folders import program_command
from jax_es.train_config import KWARGS, POLICY_KINDS, TrainConfig, flatten

T = TypeVar("T")


_fields: dict[str, str | None] = {}
"""The fields that are options of the program that runs, by dotted name; each with the
value that was not typed, followed by whose it is."""


_typed: set[str] = set()
"""The options on its command line, with hyphens."""

_ADDED_TO = ("rollout.variation_range", "es.sigma_factor")
"""Fields that hold what is typed besides what the preset has."""

_CHOSEN_BY = {
    "--strategy": "es.",
    "--es.strategy": "es.",
    "--objective": "es.",
    "--es.objective": "es.",
    "--fine-tune": "es.",
    "--lr": "es.learning_rate",
    "--policy": "policy.",
    "--env.game": "env.id",
}
"""Options that set fields of another name: what these begin with."""


class InputError(Exception):
    """Bad input that a program has found; its text is all that the user needs."""


@contextlib.contextmanager
def typed_options(argv: Sequence[str]) -> Iterator[None]:
    """A context that knows what was typed on a program's command line."""
    _fields.clear()
    _typed.clear()
    _typed.update(each.partition("=")[0].replace("_", "-") for each in argv)
    try:
        yield
    finally:
        _fields.clear()
        _typed.clear()


class CommandLine(NamedTuple):
    """A command line ``[PRESET] [--policy KIND] [OPTIONS]``, divided."""

    preset: str | None
    kind: str | None
    rest: list[str]
    """The options but ``--policy``, and those that were taken."""
    typed: frozenset[str] = frozenset()
    """All words, and the values in them."""

    @property
    def resumes(self) -> bool:
        """Whether something is resumed; help is shown without it."""
        return "--resume" in self.rest and not {"-h", "--help"} & {*self.rest}

    @property
    def resumes_as_stored(self) -> bool:
        """Whether the options' defaults are those of the run that is resumed."""
        return self.preset is None and self.resumes

    @property
    def path_to_resume(self) -> Path:
        """The folder that ``--runs-dir`` and ``--name`` mean."""
        options = [option.replace("--runs_dir", "--runs-dir") for option in self.rest]
        runs_dir = Path(take_option(options, "--runs-dir") or "runs")
        return path_to_resume(runs_dir, take_option(options, "--name"))

    def with_parts(self, config: TrainConfig) -> TrainConfig:
        """Takes ``--strategy`` and ``--objective NAME`` off, for other defaults."""
        config = with_strategy(config, self._take("strategy"))
        return with_objective(config, self._take("objective"))

    def _take(self, name: str) -> str | None:
        names = [take_option(self.rest, f"--{part}{name}") for part in ("", "es.")]
        return names[0] or names[1]

    def take_fine_tune(self) -> bool:
        """Takes ``--fine-tune`` off the options; returns whether it was there."""
        given = [word for word in self.rest if word in ("--fine-tune", "--fine_tune")]
        for word in given:
            self.rest.remove(word)
        return bool(given)

    def environment(self) -> EnvConfig | None:
        """Reads ``--env.…`` where they name a task and no preset does; None elsewhere.

        What cannot be read is left to :func:`parse_options`.
        """
        names = {word.partition("=")[0].replace("_", "-") for word in self.rest}
        if self.preset is not None or not names & {"--env.id", "--env.game"}:
            return None
        with contextlib.suppress(InputError):
            return take_environment(self.rest, EnvConfig(id=""))[0]
        return None


@dataclasses.dataclass(frozen=True)
class _Task:
    """The options of a command line that say which task it is."""

    env: EnvConfig


def take_environment(
    argv: Sequence[str], default: EnvConfig
) -> tuple[EnvConfig, list[str]]:
    """Reads ``--env.…`` off a command line.

    Args:
        argv: with other options, and words.
        default: what is not typed.

    Returns:
        The environment, and all else.

    Raises:
        InputError: for whatever tyro rejects of them.
    """
    asks = [word for word in argv if word in ("-h", "--help")]
    words = [word for word in argv if word not in asks]
    rest, task = _take_kwargs(words, _Task(default))

    def reject(event: tyro_errors.ParseErrorEvent) -> NoReturn:
        names = [option(name).removeprefix("--") for name in _names(task)]
        raise InputError(_reason(event, names))

    with tyro_errors.on_parse_error(reject):
        parsed, others = tyro.cli(
            _Task, args=rest, default=task, return_unknown_args=True
        )
    return parsed.env, [*others, *asks]


def changed_environment(argv: Sequence[str], env: EnvConfig) -> EnvConfig:
    """Returns a run's environment with what was typed; another has its own defaults."""
    found, _ = take_environment(argv, env)
    if (found.id, found.game) != (env.id, env.game):
        env = dataclasses.replace(env, kwargs={}, max_episode_steps=None, descriptor=())
        found, _ = take_environment(argv, env)
    return found


def parse_beside_environment(arguments: type[T], argv: list[str], program: str) -> T:
    """Reads all options but ``--env.…``, which change a run that is read later."""
    _, words = take_environment(argv, EnvConfig())
    fields = [field.name for field in dataclasses.fields(EnvConfig)]
    env = [f"env.{name}" for name in fields if name != "kwargs"]
    return parse_options(arguments, words, program, taken=env)


def split_command_line(argv: list[str]) -> CommandLine:
    """Takes the preset and the policy off a command line."""
    rest = list(argv)
    preset = rest.pop(0) if rest and not rest[0].startswith("-") else None
    typed = frozenset([*argv, *(each.partition("=")[2] for each in argv)])
    return CommandLine(preset, take_option(rest, "--policy"), rest, typed)


def parse_options(
    arguments: type[T],
    argv: list[str],
    program: str,
    *,
    default: T | None = None,
    description: str | None = None,
    taken: Sequence[str] = (),
) -> T:
    """Reads options into a dataclass with tyro.

    Args:
        arguments: the dataclass. What is in a field that is a dataclass has no prefix.
        argv: the options.
        program: its name, as ``"train"``.
        default: the options' defaults, of a program that has a PRESET.
        description: of the program; the dataclass' own docstring if not given.
        taken: names of options that were taken off before.

    Raises:
        InputError: for whatever tyro rejects.
    """
    if default is not None:
        argv, default = _take_kwargs(argv, default)
    _note_fields(arguments if default is None else default)

    def reject(event: tyro_errors.ParseErrorEvent) -> NoReturn:
        fields = [*_names(arguments if default is None else default), *taken]
        # A network's own fields are typed without this part.
        names = [name.replace("policy.options.", "policy.") for name in fields]
        names = [name for name in names if name != "policy.target"]  # is --policy
        reason = _reason(event, [option(name).removeprefix("--") for name in names])
        raise InputError(f"{reason} (--help lists all options)")

    if description and {"-h", "--help"} & {*argv}:
        description = "\n\n".join([description, *own_arguments(default)])
    has_all = HELP_ALL_OPTION in _typed
    if description and not has_all:
        description += f"\n\n{HELP_ALL_OPTION} lists those of games and obedience, too."
    usage = " [PRESET] [--policy KIND]" if default else ""
    with tyro_errors.on_parse_error(reject), short_help(argv, unread(default), has_all):
        parsed = tyro.cli(
            arguments,
            args=argv,
            prog=f"{program_command(program)}{usage}",
            description=description and wrapped(description),
            default=tyro.MISSING_NONPROP if default is None else default,
            config=(tyro.conf.AvoidSubcommands,),
        )
    for part in (parsed, *vars(parsed).values()):
        if dataclasses.is_dataclass(part):
            check_numbers(vars(part))
    return parsed


def _take_kwargs(argv: list[str], default: T) -> tuple[list[str], T]:
    """Moves ``--env.kwargs.NAME VALUE``, whose names tyro cannot know, to the default.

    And so ``--rollout.variation-range`` without a value, to none of the preset's, since
    tyro adds to those what is typed. The default is a dataclass with fields ``env`` and
    ``es``, or ``config`` which has them; what belongs to a field that it lacks stays.
    """
    rest, outer = list(argv), typing.cast(Any, default)
    inner: Any = getattr(outer, "config", outer)
    for i, argument in enumerate(argv):
        name = argument.partition("=")[0]
        dotted = name.removeprefix("--").replace("-", "_")
        part, _, key = dotted.partition(".")
        is_option = argument.startswith("--")  # no value, as one of --search
        is_bare = argument == name and all(w[:2] == "--" for w in argv[i : i + 2])
        if is_bare and dotted in _ADDED_TO and hasattr(inner, part):
            rest.remove(argument)
            new = {part: dataclasses.replace(getattr(inner, part), **{key: ()})}
            inner = dataclasses.replace(inner, **new)
        if is_option and dotted.startswith(KWARGS) and hasattr(inner, part):
            value = _literal(take_option(rest, name))
            where, _, key = key.partition(".")
            old = getattr(inner, part)
            new = {
                part: dataclasses.replace(
                    old, **{where: {**getattr(old, where), key: value}}
                )
            }
            inner = dataclasses.replace(inner, **new)
    if hasattr(outer, "config"):
        return rest, dataclasses.replace(outer, config=inner)
    return rest, inner


def _literal(text: str | None) -> Any:
    """Reads a number, True, None, a list or the like; other text is itself."""
    try:
        value = ast.literal_eval(str(text))
    except (ValueError, SyntaxError):
        return text
    return json.loads(json.dumps(value, default=str))  # as a run's record has it


def _names(arguments: Any) -> list[str]:
    """Returns the fields of a dataclass, or of one with values, by dotted name."""
    values: dict[str, Any] = vars(arguments)
    if isinstance(arguments, type):
        values = {field.name: field.default for field in dataclasses.fields(arguments)}
    names: list[str] = []
    for name, value in values.items():
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names += flatten(dataclasses.asdict(value))
        else:
            names.append(name)
    return names


def _reason(event: tyro_errors.ParseErrorEvent, known: list[str]) -> str:
    """Says why tyro rejects a command line whose options are ``known``."""
    argument = getattr(event, "argument", None)
    name = argument.display_name() if argument else ""
    match event:
        case tyro_errors.UnrecognizedArgs(tokens=tokens):
            names = [token.lstrip("-").replace("_", "-") for token in tokens]
            close = [c for n in names for c in difflib.get_close_matches(n, known)]
            hint = f"; perhaps you meant --{' or --'.join(close)}" if close else ""
            if tokens[0] in PRESETS:
                hint = f"; {tokens[0]} is a preset, which comes before the options"
            return f"Unrecognized options: {', '.join(tokens)}{hint}"
        case tyro_errors.MissingArgs(missing_arguments=missing):
            return f"Missing: {', '.join(m.arg.display_name() for m in missing)}"
        case tyro_errors.InstantiationFailure(message=message):
            prefix = f"Error parsing {name}: " if name else ""
            return prefix + " ".join(message.split()).partition(" Got errors")[0]
        case tyro_errors.InvalidChoice(value=value, choices=choices):
            expected = f"Expected one of {', '.join(choices)}."
            return f"invalid choice {value!r} for argument '{name}'. {expected}"
        case tyro_errors.BadValue(argument=bad):
            expected = f"Expected {bad.lowered.nargs} values."
            return f"Missing value for argument '{name}'. {expected}"
    return str(event)


def _note_fields(arguments: Any) -> None:
    """Notes which fields are options, and which values were not typed."""
    _fields.update(dict.fromkeys(_names(arguments)))
    if isinstance(arguments, type):
        return
    chosen = tuple(start for name, start in _CHOSEN_BY.items() if name in _typed)
    whose = "the run's" if "--resume" in _typed else "the preset's"
    for name, value in flatten(dataclasses.asdict(arguments)).items():
        field = name.removeprefix("config.")
        if not (is_typed(field) or field.startswith(chosen)):
            _fields[field] = f"{value} ({whose})"


def is_typed(field: str) -> bool:
    """Returns whether the command line sets a field, given by its dotted name."""
    short = field == "es.learning_rate" and "--lr" in _typed
    return short or option(field).replace("_", "-") in _typed


def as_typed(text: str) -> str:
    """Returns an error with its fields as options, and who chose the values."""
    policies = [
        f"policy.{name}" for kind in POLICY_KINDS.values() for name in vars(kind())
    ]
    own = flatten(dataclasses.asdict(TrainConfig()))
    text = as_options(text, [*_fields, *own, *policies])
    for name, chosen in _fields.items():
        if chosen is not None:
            value = re.escape(chosen.partition(" (")[0])
            where = rf"({option(name)} (?:must be [^;:]*?, got )?){value}(?![\w.]\w)"
            text = re.sub(where, lambda m, by=chosen: m[1] + by, text, count=1)
    of_preset = not (is_typed("phases") or is_typed("resume"))
    if of_preset and re.match(r"error: phase \d+: ", text):
        text = f"{text.rstrip('.')}; or leave the preset's phases out (--phases None)."
    return text


def take_option(arguments: list[str], option: str) -> str | None:
    """Removes ``option VALUE`` or ``option=VALUE``; returns VALUE, None if absent."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name != option:
            continue
        has_value = equals or index + 1 < len(arguments)
        require(bool(has_value), f"{option} needs a value (--help lists all options)")
        del arguments[index]
        return value if equals else arguments.pop(index)
    return None
