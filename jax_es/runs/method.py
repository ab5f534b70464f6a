"""How runs are trained: by strategies, and by gradients beside them."""

import reprlib
from typing import Any, NamedTuple

from jax_es.checks import ConfigError, is_own
from jax_es.config import STRATEGIES
from jax_es.train_config import TrainConfig, flat

READ_BY_GRADIENTS = ("env", "policy", "evaluation", "rollout", "seed")
"""Parts of the configuration that training by gradients reads."""

CLONING = "cloning"

MAP_ELITES = "map-elites"

POET = "poet"

TITLES = {
    **{name: name.upper() for name in STRATEGIES},
    **{"openai-es": "OpenAI-ES", "sep-cma-es": "sep-CMA-ES", "rm-es": "Rm-ES"},
    **{"xnes": "xNES", "simple-es": "simple ES", "novelty": "novelty search"},
    **{"guided": "guided ES", "cem-rl": "CEM-RL"},
    **{"sac": "SAC", "td3": "TD3", "ppo": "PPO", "cloning": "cloning"},
    **{MAP_ELITES: "MAP-Elites", POET: "POET"},
}
"""What methods are called."""

TEACHER = "jax_es.teacher"

PROGRAMS = {
    **dict.fromkeys(STRATEGIES, "jax_es.train"),
    **dict.fromkeys(("sac", "td3", "ppo"), TEACHER),
    "cloning": "jax_es.pretrain",
    MAP_ELITES: "jax_es.illuminate",
    POET: "jax_es.poet",
}
"""What trains by each method."""

FREE_SETTINGS = ("steps",)
"""Settings that say only how long a run is, as ``num_generations`` does."""


class Method(NamedTuple):
    """How a run was trained.

    A strategy reads the whole configuration and has no settings. MAP-Elites and POET
    read it all, too, and have settings; other methods read :data:`READ_BY_GRADIENTS` of
    it.
    """

    name: str
    """``"sac"``, ``"td3"``, ``"ppo"``, ``"cloning"``, ``"map-elites"``, ``"poet"``,
    or a strategy's, one of the user's own by ``module:Name``."""
    settings: dict[str, Any]
    """What it needs besides, as JSON values by the names of its program's options, with
    underscores: ``learning_rate`` is ``--learning-rate``."""

    @classmethod
    def from_record(cls, values: Any) -> "Method":
        """Reads what a run recorded, or raises ``ConfigError``."""
        match values:
            case [str(name), dict(settings)] if name in PROGRAMS or is_own(name):
                return cls(name, settings)
        raise ConfigError(
            f"method must be one of {', '.join(PROGRAMS)} and its settings, got "
            f"{reprlib.repr(values)}"
        )

    @property
    def title(self) -> str:
        """What people call it."""
        return TITLES.get(self.name, self.name)

    @property
    def program(self) -> str:
        """The module that trains by it."""
        return PROGRAMS.get(self.name, "jax_es.train")

    @property
    def is_evolution(self) -> bool:
        """Whether it has generations and a population."""
        return self.name in STRATEGIES or is_own(self.name)

    @property
    def has_seeds(self) -> bool:
        """Whether its program trains several seeds as an experiment.

        Such a program reads the whole configuration.
        """
        return self.is_evolution or self.name in (MAP_ELITES, POET)

    def reads(self, field: str) -> bool:
        """Returns whether a field of the configuration, by dotted name, matters."""
        return self.has_seeds or field.split(".")[0] in READ_BY_GRADIENTS

    def values(self, config: TrainConfig) -> dict[str, object]:
        """Returns what decides a run, by name: fields, and its own settings."""
        fields = {name: v for name, v in flat(config).items() if self.reads(name)}
        return {"method": self.name, **fields, **self.settings}


OPENAI_ES = Method("openai-es", {})
