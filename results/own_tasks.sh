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
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[core]}" "$python" -m)

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
    run=runs/own_tasks/$task/seed-$seed kept=results/own_tasks/$task/seed-$seed
    [[ ! -e $run/finished ]] || continue
    start=(--env.id "${options[@]}" --seed "$seed")
    [[ ! -e $run/config.json ]] || start=(--resume)
    "${on_core[@]}" jax_es.train "${start[@]}" \
      --runs-dir "runs/own_tasks/$task" --name "seed-$seed"
    mkdir -p "$kept"
    "${on_core[@]}" jax_es.evaluate "$run" --trust --episodes 100 --json \
      >"$kept/evaluation.json"
    cp "$run"/{config.json,metrics.jsonl} "$kept"
    touch "$run/finished"
  done
done
