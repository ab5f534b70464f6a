#!/usr/bin/env bash
# Tasks without a preset, with the settings that their spaces choose: three seeds each;
# afterwards each run's best θ plays 100 other episodes. A run has one core:
#   results/own_tasks.sh CORE [TASK …]
# Finished runs are skipped, stopped ones go on. What the tables need is copied beside
# this file. LunarLander and BipedalWalker need the extra box2d, MiniGrid and highway-env
# packages of these names. Table:
#   python results/tables.py
set -euo pipefail
core=${1:-0}
shift || true
tasks=("$@")
[[ $# -gt 0 ]] || tasks=(cartpole acrobot pendulum mountain-car-continuous reacher
  lunar-lander lunar-lander-discrete minigrid bipedal-walker highway)
. "$(dirname "$0")/one_core.sh"
evaluation=(--trust --episodes 100)

for task in "${tasks[@]}"; do
  case $task in
    cartpole) options=(CartPole-v1 --max-env-steps 500000) ;;
    acrobot) options=(Acrobot-v1 --max-env-steps 500000) ;;
    pendulum) options=(Pendulum-v1 --max-env-steps 500000) ;;
    mountain-car-continuous) options=(MountainCarContinuous-v0 --max-env-steps 500000) ;;
    reacher) options=(Reacher-v5 --max-env-steps 2000000) ;;
    lunar-lander) options=(LunarLanderContinuous-v3 --max-env-steps 2000000) ;;
    lunar-lander-discrete) options=(LunarLander-v3 --max-env-steps 2000000) ;;
    minigrid)
      options=(minigrid:MiniGrid-Empty-8x8-v0 --max-env-steps 2000000
        --env.wrappers minigrid.wrappers:ImgObsWrapper)
      ;;
    bipedal-walker) options=(BipedalWalker-v3 --max-env-steps 6000000) ;;
    highway) options=(highway_env:highway-v0 --max-env-steps 2000000) ;;
    *) echo "no task $task" >&2; exit 2 ;;
  esac
  for seed in 0 1 2; do
    one_run "own_tasks/$task" "$seed" --env.id "${options[@]}"
  done
done
