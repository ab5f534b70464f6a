"""Simulators behind one contract: vector environments whose ended episodes wait.

Importing it registers our own MuJoCo tasks (:mod:`envs.traps`) with Gymnasium.
"""

import gymnasium

for _name, _steps in (
    *(("PointFlat", 40), ("PointTrap", 40)),
    *(("AntTrap", 1000), ("HumanoidTrap", 1000)),
):
    if f"{_name}-v0" not in gymnasium.registry:
        # By name: neither MuJoCo nor the task is imported before it is made.
        gymnasium.register(
            f"{_name}-v0",
            entry_point="envs.robot_env:RobotEnv",
            max_episode_steps=_steps,
            kwargs={"task": f"envs.traps:{_name}"},
        )
