#!/usr/bin/env bash
# The presets of small tasks as they are, three seeds; afterwards each run's best θ plays
# 100 other episodes. A run has one core: results/control.sh CORE [PRESET …]
# Finished runs are skipped, stopped ones go on. What the tables need is copied beside
# this file. Table:
#   python results/tables.py
set -euo pipefail
core=${1:-0}
shift || true
presets=("$@")
[[ $# -gt 0 ]] || presets=(cartpole acrobot mountain-car-continuous lunar-lander tetris
  lunar-lander-discrete pendulum pendulum-hidden-velocity bipedal-walker
  bipedal-walker-linear)
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[core]}" "$python" -m)

for preset in "${presets[@]}"; do
  options=("$preset")
  [[ $preset != bipedal-walker-linear ]] || options=(bipedal-walker --policy linear)
  for seed in 0 1 2; do
    run=runs/control/$preset/seed-$seed kept=results/control/$preset/seed-$seed
    [[ ! -e $run/finished ]] || continue
    resume=()
    [[ ! -e $run/config.json ]] || resume=(--resume)
    "${on_core[@]}" jax_es.train "${options[@]}" --seed "$seed" \
      --runs-dir "runs/control/$preset" --name "seed-$seed" "${resume[@]}"
    mkdir -p "$kept"
    "${on_core[@]}" jax_es.evaluate "$run" --episodes 100 --json >"$kept/evaluation.json"
    cp "$run"/{config.json,metrics.jsonl} "$kept"
    touch "$run/finished"
  done
done
