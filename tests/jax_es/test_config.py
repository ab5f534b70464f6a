"""Configurations are checked when built, and survive JSON; presets are usable data."""

import dataclasses
import json
import multiprocessing
from types import SimpleNamespace
from typing import Literal, get_args, get_origin, get_type_hints

import gymnasium
import jax
import numpy as np
import pytest

from jax_es.checks import ConfigError
from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.imitation.cloning_settings import CloningConfig
from jax_es.models import (
    IMAGE_POLICIES,
    AfterstateConfig,
    DecisionTransformerConfig,
    LinearConfig,
    MLPConfig,
)
from jax_es.presets import (
    DEFAULT_PRESET,
    FINE_TUNED,
    PRESETS,
    RENAMED,
    TUNED,
    preset,
)
from jax_es.train_config import (
    JAX_PACKAGES,
    differences,
    from_dict,
    policy_kind,
    to_dict,
)
from jax_es.training import build as experiment
from jax_es.training.build import (
    POLICY_KINDS,
    TrainConfig,
    action_spec,
    make_env,
    make_policy,
    num_slots,
    slot_groups,
    with_machine,
)
from jax_es.training.parts import build


def test_an_impossible_value_names_field_value_and_bound():
    """Of every field's bounds, ``tests/trials/inputs.txt`` has a command line."""
    for kind, field, value in (
        (ESConfig, "sigma", float("nan")),
        (ESConfig, "num_pairs", 1),  # one pair has no rank
        (TrainConfig, "seed", 2**31),
    ):
        with pytest.raises(ConfigError, match=f"{field} must be .*got {value}"):
            kind(**{field: value})
    for value in [("x",), ("2", "1,3"), ("1:2:3",), ("",)]:
        with pytest.raises(ConfigError, match=r"hide_observation .*got"):
            EnvConfig(hide_observation=value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainConfig(env=None), "env must be EnvConfig, got None"),
        (lambda: TrainConfig(policy=5), "policy must be MLPConfig or .*got 5"),
        (lambda: TrainConfig(seed=np.int64(3)), "seed must be int, got"),
        (lambda: ESConfig(sigma="a"), "es.sigma must be float, got 'a'"),
        (lambda: ESConfig(num_pairs=None), "es.num_pairs must be int, got None"),
        (lambda: EnvConfig(wrappers=(5,)), "env.wrappers must be str"),
        (lambda: preset(5), "preset 5 is unknown"),
    ],
)
def test_a_value_of_another_type_is_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_every_choice_and_number_has_its_bounds():
    for kind in (ESConfig, EnvConfig, RolloutConfig, EvaluationConfig, CloningConfig):
        for name, hint in get_type_hints(kind, include_extras=True).items():
            parts = (hint, *get_args(hint))
            is_free = hint in (bool, str, str | None, tuple[str, ...])
            assert is_free or any(
                get_origin(part) is Literal or hasattr(part, "__metadata__")
                for part in parts
            ), name
    with pytest.raises(ConfigError, match="one of full, low-rank, got 'sparse'; the"):
        ESConfig(perturbation="sparse")  # pyright: ignore


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_json(name):
    for kind in (None, *POLICY_KINDS):
        config = preset(name, kind)
        restored = from_dict(json.loads(json.dumps(to_dict(config))))
        assert restored == config
        assert type(restored.policy) is type(config.policy)
        assert kind is None or type(config.policy) is POLICY_KINDS[kind]


def test_a_table_has_each_network_under_its_kind():
    for name, networks in TUNED.items():
        assert [policy_kind(each.policy) for each in networks.values()] == [*networks]
        # Those who read images see what others see flattened, and each network of the
        # same observation what is not hidden from it.
        own = {"wrappers": (), "hide_observation": ()}
        shared = dataclasses.replace(PRESETS[name].env, **own)
        for each in networks.values():
            assert dataclasses.replace(each.env, **own) == shared


def test_an_old_name_works_and_says_the_new_one():
    for old, new in RENAMED.items():
        with pytest.warns(FutureWarning, match=f"preset {old} is called {new} now"):
            assert preset(old) == preset(new)
    for old, new in FINE_TUNED.items():
        with pytest.raises(ConfigError, match=f"{old} is {new} with fine_tune now"):
            preset(old)


def test_an_unknown_preset_shows_the_closest_three():
    with pytest.raises(ConfigError) as error:
        preset("hoper")
    words = "preset 'hoper' is unknown; did you mean hopper, hopper-uni or hero?"
    assert str(error.value) == words


def test_a_run_from_before_the_rule_reads_constants():
    stored = to_dict(preset("humanoid"))
    assert from_dict(stored).rollout.hide_constants
    del stored["rollout"]["hide_constants"]
    assert not from_dict(stored).rollout.hide_constants


def test_a_run_from_before_named_our_environments_otherwise():
    """When ``jax_es.envs`` was ``envs``; the user's own modules stay as they are."""
    stored = to_dict(preset("tetris"))
    for old, new in (
        ("envs.tetris:Tetris-v0", "jax_es.envs.tetris:Tetris-v0"),
        ("envs:HalfCheetahNoBackFoot-v0", "jax_es.envs:HalfCheetahNoBackFoot-v0"),
        ("envs.mine:Walker-v0", "envs.mine:Walker-v0"),
    ):
        stored["env"] |= {"id": old, "kwargs": {"tasks": [old, 1]}}
        env = from_dict(json.loads(json.dumps(stored))).env
        assert (env.id, env.kwargs) == (new, {"tasks": [new, 1]})


@pytest.mark.parametrize("name", [n for n in PRESETS if PRESETS[n].env.id])
def test_a_preset_fits_its_environment(name):
    config = preset(name)
    if (package := config.env.id.partition(":")[0]) in JAX_PACKAGES:
        pytest.importorskip(package)
    env = make_env(config.env, 1, 1)
    own_limit = make_env(EnvConfig(config.env.id), 1, 1).max_episode_steps
    limit = env.max_episode_steps
    assert limit <= own_limit
    spaces = env.single_observation_space, env.single_action_space
    is_image = len(spaces[0].shape) == 3
    for kind, config_type in {None: type(config.policy), **POLICY_KINDS}.items():
        if issubclass(config_type, IMAGE_POLICIES) != is_image:
            continue
        if config_type is AfterstateConfig and config.env.id != "Tetris-v0":
            continue
        policy_config = preset(name, kind).policy
        # Steps past the table's end share a row, and look alike: no more than the
        # paper's longest games should. With a single row none is told apart.
        if not is_image and getattr(policy_config, "max_timestep", limit) > 1:
            assert getattr(policy_config, "max_timestep", limit) >= limit
        policy = make_policy(policy_config, *spaces)
        discrete = isinstance(spaces[1], gymnasium.spaces.Discrete)
        num_outputs = spaces[1].n if discrete else spaces[1].shape[0]
        num_bins = policy_config.action_bins or 1
        assert policy.actions.num_outputs == num_outputs * num_bins
    env.close()


def test_a_linear_policy_has_no_hidden_layers():
    with pytest.raises(ValueError, match="choose --policy mlp"):
        LinearConfig(hidden_sizes=(8,))


def test_every_mujoco_task_has_a_preset():
    ids = {preset(name).env.id for name in PRESETS}
    ids = {name for name in ids if not name.startswith("ALE/")}
    tasks = {name.removesuffix("-v5") for name in ids if name.endswith("-v5")}
    assert tasks == {
        *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "Walker2d"),
        *("InvertedDoublePendulum", "InvertedPendulum", "Pusher", "Reacher", "Swimmer"),
    }
    assert DEFAULT_PRESET == "quickstart"
    assert isinstance(preset("quickstart").policy, DecisionTransformerConfig)


@pytest.mark.parametrize(
    ("name", "num_pairs"),
    [("humanoid-mlp", 5_000), ("humanoid-dt", 20_000), ("humanoid-dt-half", 10_000)],
)
def test_the_humanoid_presets_are_the_papers(name, num_pairs):
    config = preset(name)
    assert config.env == EnvConfig("Humanoid-v5")
    assert config.es == ESConfig(
        num_pairs=num_pairs,
        sigma=0.02,
        learning_rate=0.05,
        momentum=0.9,
        weight_decay=0.005,
        optimizer="momentum",
        shaping="pair_rank",
        perturbation="full",
        episodes_per_member=1,
    )
    assert config.evaluation.num_episodes == 10
    assert config.num_generations == 200
    assert config.rollout.observation_statistics
    assert config.rollout.statistics_fraction == 0.01
    assert config.rollout.step_cap_factor == 2.0
    if name == "humanoid-mlp":
        assert config.policy == MLPConfig(hidden_sizes=(256, 256))
    else:
        assert config.policy == DecisionTransformerConfig(
            context_length=20,
            width=128,
            num_layers=3,
            num_heads=1,
            activation="relu",
            target_return=7000.0,
            reward_scale=1 / 1000,
            max_timestep=1000,
        )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("humanoid-mlp", {"es.perturbation": ("full", "low-rank")}),
        (
            "humanoid-dt",
            {
                "es.perturbation": ("full", "low-rank"),
                "policy.attention": ("window", "cache"),
                "rollout.slots_per_core": (64, 128),
            },
        ),
        (
            "hero-dt",
            {
                "es.perturbation": ("full", "low-rank"),
                "policy.attention": ("window", "cache"),
                "policy.reward_scale": (1.0, 0.001),
                "rollout.std_floor": (0.1, 25.5),
            },
        ),
    ],
)
def test_a_fast_twin_differs_in_how_it_is_computed_only(name, expected):
    assert differences(preset(name), preset(f"{name}-fast")) == expected
    assert preset(f"{name}-fast").es.rank == 1


def test_a_configuration_of_another_version_says_so():
    values = to_dict(preset("hopper-small"))
    with pytest.raises(ConfigError, match="ESConfig has no field mirrored"):
        from_dict({**values, "es": {**values["es"], "mirrored": True}})
    with pytest.raises(
        ConfigError, match=r"policy kind must be one of .* got 'perceptron'"
    ):
        from_dict({**values, "policy": {**values["policy"], "kind": "perceptron"}})


@pytest.mark.parametrize(
    ("slots", "groups", "tasks", "devices", "expected"),
    [
        (128, None, 1000, ("cpu", 2), (128,)),
        (128, None, 50, ("cpu", 4), (52,)),
        (5, None, 1000, ("cpu", 2), (6,)),
        (1, None, 1, ("cpu", 4), (4,)),
        # With an accelerator two groups take turns, unless told otherwise.
        (128, None, 1000, ("gpu", 2), (64, 64)),
        (128, 1, 1000, ("gpu", 2), (128,)),
        (5, 2, 1000, ("cpu", 1), (3, 3)),
        (10, 3, 6, ("cpu", 2), (2, 2, 2)),
        # No group without a slot for each device.
        (10, 3, 4, ("cpu", 2), (2, 2)),
        (128, None, 1, ("gpu", 1), (1,)),
    ],
)
def test_slots_are_no_more_than_tasks_and_divide(
    slots, groups, tasks, devices, expected
):
    platform, count = devices
    config = RolloutConfig(num_slots=slots, num_groups=groups)
    shown = SimpleNamespace(platform=platform, count=count)
    assert slot_groups(config, tasks, shown) == expected


@pytest.mark.parametrize(
    ("config", "devices", "expected"),
    [
        (RolloutConfig(), ("cpu", 2), 128),
        (RolloutConfig(), ("cpu", 16), 1024),
        (RolloutConfig(slots_per_core=32), ("cpu", 16), 512),
        (RolloutConfig(num_slots=128), ("cpu", 16), 128),
        # One accelerator needs as many environments as the twelve cores can step.
        (RolloutConfig(), ("gpu", 1), 768),
        (RolloutConfig(vectorization_mode="async"), ("cpu", 2), 16),
        (RolloutConfig(vectorization_mode="async", num_slots=40), ("cpu", 2), 40),
    ],
)
def test_slots_follow_the_cores_unless_given(config, devices, expected, monkeypatch):
    monkeypatch.setattr(experiment, "available_cores", lambda: 12)
    platform, count = devices
    shown = SimpleNamespace(platform=platform, count=count)
    assert num_slots(config, shown) == expected


@pytest.mark.parametrize(
    ("config", "cores", "tasks", "expected"),
    [
        (RolloutConfig(), 1, 74, 74),  # HalfCheetah: all at once
        (RolloutConfig(), 1, 106, 53),  # Ant: two rounds
        (RolloutConfig(), 1, 138, 69),
        (RolloutConfig(), 1, 42, 64),  # fewer than slots: as many as there are
        (RolloutConfig(), 1, 470, 64),  # many a slot: they end at different times
        (RolloutConfig(), 2, 138, 138),
        (RolloutConfig(num_slots=64), 1, 74, 64),
        (RolloutConfig(vectorization_mode="async"), 1, 10, 8),
    ],
)
def test_a_few_episodes_a_slot_are_dealt_out_evenly(config, cores, tasks, expected):
    assert config.slots_on(cores, tasks) == expected


def test_tasks_of_long_episodes_are_of_the_smallest_generation():
    assert preset("half-cheetah", "linear").tasks_of_long_episodes == 74
    ant = preset("ant")  # two blocks of 24 pairs make 60,000 steps
    assert ant.tasks_of_long_episodes == 106


def test_only_environments_without_threads_have_a_vectorization_mode():
    rollout = RolloutConfig(num_slots=2, num_devices=1, vectorization_mode="async")
    with pytest.raises(
        ConfigError, match=r"Hopper-v5 does not take rollout.vectorization_mode"
    ):
        make_env(EnvConfig("Hopper-v5"), 1, 1, rollout)
    config = TrainConfig(EnvConfig("CartPole-v1"), MLPConfig(), rollout=rollout)
    parts = build(config)
    assert len(multiprocessing.active_children()) == 2
    parts.close()
    assert not multiprocessing.active_children()


def test_a_run_remembers_how_many_devices_and_slots_there_are():
    config = with_machine(TrainConfig())
    assert config.rollout.num_devices == len(jax.local_devices())
    assert config.rollout.num_slots == 64 * len(jax.local_devices())
    given = RolloutConfig(num_devices=2, num_slots=6)
    two = dataclasses.replace(config, rollout=given)
    assert with_machine(two) == two


def box(shape, dtype=np.float32):
    return gymnasium.spaces.Box(-2, 3, shape, dtype)


@pytest.mark.parametrize(
    "space",
    [
        box((2, 2)),
        box((2,), np.int32),
        gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)]),
    ],
    ids=str,
)
def test_other_action_spaces_are_refused(space):
    with pytest.raises(ConfigError, match=r"is no vector of real.*env.wrappers module"):
        action_spec(space)


@pytest.mark.parametrize(
    "space", [box((84, 84)), box(()), gymnasium.spaces.Discrete(3)], ids=str
)
def test_observations_must_be_vectors(space):
    with pytest.raises(ConfigError, match="policy mlp takes observation vectors"):
        make_policy(MLPConfig(), space, box((2,)))
