#!/usr/bin/env bash
# Six tasks, two policies, three seeds, a million environment steps each: the presets as
# they are. All tasks with seed 0 come first, so that a part of the queue says something
# about each. A run has one core, so start as many workers as there are cores:
#   results/tasks.sh 0 & results/tasks.sh 1
# Argument: which of the available cores (0, the first one, without). Finished runs are
# skipped, stopped ones go on, and those that another worker trains are left to it. What
# the tables need of a finished run is copied beside this file. Tables and pictures:
#   python results/tables.py
#   python -m jax_es.plot results/tasks/* --x env-steps --output docs/pictures/tasks.png
#   python -m jax_es.plot results/tasks/* --x env-steps --figure aggregate \
#     --output docs/pictures/tasks_aggregate.png
set -euo pipefail
core=${1:-0}
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')

train() {  # task policy seed
  local name=${1%-small}-$2 seed=$3
  local folder=runs/tasks/$name kept=results/tasks/$name/seed-$seed run resume=()
  run=$folder/seed-$seed
  mkdir -p "$folder"
  exec 9>"$folder/.seed-$seed.worker"
  flock -n 9 || return 0
  [[ ! -e $run/finished ]] || return 0
  [[ ! -e $run/config.json ]] || resume=(--resume)
  taskset -c "${cores[core]}" "$python" -m jax_es.train "$1" --policy "$2" \
    --num-generations 100000 --max-env-steps 1000000 --seed "$seed" \
    --checkpoint-every 50 --runs-dir "$folder" --name "seed-$seed" "${resume[@]}"
  mkdir -p "$kept"
  cp "$run"/{config.json,metrics.jsonl} "$kept"
  touch "$run/finished"
}

for seed in 0 1 2; do
  for task in inverted-pendulum {swimmer,half-cheetah,inverted-double-pendulum,hopper,walker2d}-small; do
    for policy in mlp decision-transformer; do
      train "$task" "$policy" "$seed"
    done
  done
done
