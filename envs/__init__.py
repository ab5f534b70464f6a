"""Simulators behind one contract: vector environments whose ended episodes wait.

Importing it registers our own tasks with Gymnasium: MuJoCo's
(:mod:`jax_es.envs.traps`, :mod:`jax_es.envs.damages`), and two walkers on other
terrain (:mod:`jax_es.envs.terrain`, :mod:`jax_es.envs.mujoco_terrain`).
"""

import importlib

import gymnasium

_HALF_CHEETAHS = ("ShortBack", "ShortFront", "NoBack", "NoFront")

for _module, _name, _steps in (
    *(("traps", "PointFlat", 40), ("traps", "PointTrap", 40)),
    *(("traps", "AntTrap", 1000), ("traps", "HumanoidTrap", 1000)),
    *(("damages", "AntShortLeg", 1000), ("damages", "AntNoFoot", 1000)),
    *(("damages", f"HalfCheetah{what}Foot", 1000) for what in _HALF_CHEETAHS),
    ("mujoco_terrain", "Walker2dTerrain", 1000),
):
    if f"{_name}-v0" not in gymnasium.registry:
        # By name: neither MuJoCo nor the task is imported before it is made.
        gymnasium.register(
            f"{_name}-v0",
            entry_point="jax_es.envs.robot_env:RobotEnv",
            max_episode_steps=_steps,
            kwargs={"task": f"jax_es.envs.{_module}:{_name}"},
        )

if "BipedalWalkerTerrain-v0" not in gymnasium.registry:
    gymnasium.register(
        "BipedalWalkerTerrain-v0",
        entry_point="jax_es.envs.terrain:TerrainWalker",
        max_episode_steps=2000,
    )

if __name__ != "jax_es.envs":  # from a clone, for one version more
    importlib.import_module("jax_es.old_names").be_called(__name__)
