#!/usr/bin/env bash
# The robots' presets as they are, three networks, three seeds; afterwards each run's best θ
# plays 100 other episodes. A run has one core, so start as many workers as there are:
#   results/robots.sh 0 & results/robots.sh 1
# First argument: which of the available cores (0 without); the others: tasks (all
# without). Finished runs are skipped, stopped ones go on, and those that another worker
# trains are left to it. What the tables need is copied beside this file. Tables, picture:
#   python results/tables.py
#   python -m jax_es.plot results/robots/*/ --output docs/pictures/robots.png
set -euo pipefail
core=${1:-0}
shift || true
tasks=("$@")
[[ $# -gt 0 ]] || tasks=(swimmer inverted-double-pendulum hopper half-cheetah walker2d ant)
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[core]}" "$python" -m)

train() {  # task policy seed
  local name=$1-$2 seed=$3
  local folder=runs/robots/$name kept=results/robots/$name/seed-$seed run resume=()
  run=$folder/seed-$seed
  mkdir -p "$folder"
  exec 9>"$folder/.seed-$seed.worker"
  flock -n 9 || return 0
  [[ ! -e $run/finished ]] || return 0
  [[ ! -e $run/config.json ]] || resume=(--resume)
  "${on_core[@]}" jax_es.train "$1" --policy "$2" --seed "$seed" \
    --runs-dir "$folder" --name "seed-$seed" "${resume[@]}"
  mkdir -p "$kept"
  "${on_core[@]}" jax_es.evaluate "$run" --episodes 100 --json >"$kept/evaluation.json"
  cp "$run"/{config.json,metrics.jsonl} "$kept"
  touch "$run/finished"
}

for policy in decision-transformer linear mlp; do
  for task in "${tasks[@]}"; do
    for seed in 0 1 2; do
      train "$task" "$policy" "$seed"
    done
  done
done
