#!/usr/bin/env bash
# Members that climb a critic (CEM-RL), three seeds, a million environment steps;
# afterwards the best θ plays 20 other episodes. A run has one core, 8 minutes of it:
#   results/guided.sh CORE
# Finished runs are skipped, stopped ones go on. What the table needs is copied beside
# this file. Table:
#   python results/tables.py
set -euo pipefail
core=${1:-0}
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[core]}" "$python" -m)

train() {  # task policy seed options
  local name=$1-$2-cem-rl seed=$3
  local folder=runs/guided/$name kept=results/guided/$name/seed-$seed run resume=()
  run=$folder/seed-$seed
  [[ ! -e $run/finished ]] || return 0
  [[ ! -e $run/config.json ]] || resume=(--resume)
  "${on_core[@]}" jax_es.train "$1" --policy "$2" --strategy cem-rl --seed "$seed" \
    --evaluation.num-episodes 1 --max-env-steps 1000000 \
    --es.kwargs.batch_size 100 \
    "${@:4}" --runs-dir "$folder" --name "seed-$seed" "${resume[@]}"
  mkdir -p "$kept"
  "${on_core[@]}" jax_es.evaluate "$run" --episodes 20 --json >"$kept/evaluation.json"
  cp "$run"/{config.json,metrics.jsonl} "$kept"
  touch "$run/finished"
}

for seed in 0 1 2; do
  train half-cheetah mlp "$seed"
  train hopper mlp "$seed" --es.healthy-reward-weight 0
  train walker2d mlp "$seed"
  train swimmer linear "$seed" --es.sigma 0.1 --es.kwargs.replay_ratio 0.25
done
