"""OpenAI-ES in JAX: Decision Transformers and smaller policies on Gymnasium tasks.

The public names; a name is imported when it is first used, so that importing the
package starts neither JAX nor a simulator.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from jax_es.checks import ConfigError
    from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
    from jax_es.distributed.session import open_workers
    from jax_es.es.gradient import es_gradient
    from jax_es.es.noise import FullNoise, LowRankNoise, Noise
    from jax_es.es.openai_es import ESInfo, ESState, OpenAIES, openai_es
    from jax_es.es.population import MaterializedPopulation, Population
    from jax_es.es.strategies import named_strategy, strategy
    from jax_es.es.strategy import Behaviour, Strategy
    from jax_es.illumination.repertoire import Repertoire, load_archive
    from jax_es.illumination.run import illuminate_run, illuminate_seeds
    from jax_es.illumination.settings import ArchiveConfig
    from jax_es.imitation.clone_run import pretrain_run
    from jax_es.imitation.cloning_settings import CloningConfig
    from jax_es.niches.niche import Niche
    from jax_es.niches.run import poet_run, poet_seeds
    from jax_es.niches.saved import SavedNiche, load_niches
    from jax_es.niches.settings import PoetConfig
    from jax_es.phases import Phase
    from jax_es.presets import PRESETS, preset
    from jax_es.rollout.devices import (
        Devices,
        configure_cpu_devices,
        use_compilation_cache,
    )
    from jax_es.rollout.engine import Rollout
    from jax_es.rollout.evaluator import EpisodeResults
    from jax_es.rollout.tasks import Tasks
    from jax_es.runs.find import find_runs
    from jax_es.runs.metrics import read_metrics
    from jax_es.runs.records import GenerationRecord
    from jax_es.runs.tracking import Callback, WandB
    from jax_es.train_config import TrainConfig
    from jax_es.training.custom_policy import custom_policy
    from jax_es.training.evolve import evolve
    from jax_es.training.load_policy import LoadedPolicy, load_policy
    from jax_es.training.objective import objective
    from jax_es.training.own_task import preset_for
    from jax_es.training.result import TrainingResult
    from jax_es.training.seeds import train_seeds
    from jax_es.training.train_policy import train_policy, train_run
    from jax_es.types import Policy

_NAMES = {
    "checks": "ConfigError",
    "config": "ESConfig EnvConfig EvaluationConfig RolloutConfig",
    "distributed.session": "open_workers",
    "es.gradient": "es_gradient",
    "es.noise": "FullNoise LowRankNoise Noise",
    "es.openai_es": "ESInfo ESState OpenAIES openai_es",
    "es.population": "MaterializedPopulation Population",
    "es.strategies": "named_strategy strategy",
    "es.strategy": "Behaviour Strategy",
    "illumination.repertoire": "Repertoire load_archive",
    "illumination.run": "illuminate_run illuminate_seeds",
    "illumination.settings": "ArchiveConfig",
    "imitation.clone_run": "pretrain_run",
    "imitation.cloning_settings": "CloningConfig",
    "niches.niche": "Niche",
    "niches.run": "poet_run poet_seeds",
    "niches.saved": "SavedNiche load_niches",
    "niches.settings": "PoetConfig",
    "phases": "Phase",
    "presets": "PRESETS preset",
    "rollout.devices": "Devices configure_cpu_devices use_compilation_cache",
    "rollout.engine": "Rollout",
    "rollout.evaluator": "EpisodeResults",
    "rollout.tasks": "Tasks",
    "runs.find": "find_runs",
    "runs.metrics": "read_metrics",
    "runs.records": "GenerationRecord",
    "runs.tracking": "Callback WandB",
    "train_config": "TrainConfig",
    "training.custom_policy": "custom_policy",
    "training.evolve": "evolve",
    "training.load_policy": "LoadedPolicy load_policy",
    "training.objective": "objective",
    "training.own_task": "preset_for",
    "training.result": "TrainingResult",
    "training.seeds": "train_seeds",
    "training.train_policy": "train_policy train_run",
    "types": "Policy",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
"""Public name → the module that it is imported from."""

# Settings.
__all__ = ["PRESETS", "ArchiveConfig", "CloningConfig", "ESConfig", "EnvConfig"]
__all__ += ["EvaluationConfig", "Phase", "RolloutConfig", "TrainConfig", "preset"]
__all__ += ["PoetConfig", "preset_for"]
# Runs: what trains them, and what reads them.
__all__ += ["configure_cpu_devices", "illuminate_run", "illuminate_seeds"]
__all__ += ["objective", "open_workers", "pretrain_run", "use_compilation_cache"]
__all__ += ["Callback", "WandB", "custom_policy", "train_policy", "train_seeds"]
__all__ += ["GenerationRecord", "TrainingResult", "evolve", "train_run"]
__all__ += ["LoadedPolicy", "Repertoire", "find_runs", "load_archive", "load_policy"]
__all__ += ["ConfigError", "__version__", "read_metrics"]
__all__ += ["Niche", "SavedNiche", "load_niches", "poet_run", "poet_seeds"]
# Parts: strategies, noise, rollouts.
__all__ += ["Behaviour", "MaterializedPopulation", "Policy", "Population", "Strategy"]
__all__ += ["ESInfo", "ESState", "FullNoise", "LowRankNoise", "Noise", "OpenAIES"]
__all__ += ["Devices", "EpisodeResults", "Rollout", "Tasks"]
__all__ += ["es_gradient", "named_strategy", "openai_es", "strategy"]


def __getattr__(name: str) -> Any:
    """Imports a public name on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'jax_es' has no attribute {name!r}")
    return getattr(importlib.import_module(f"jax_es.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """Lists the public names, as ``help(jax_es)`` shows them."""
    return sorted(__all__)
