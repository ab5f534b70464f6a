#!/usr/bin/env bash
# Games from memory, their presets as they are; afterwards each run's best θ plays 100
# other games, with sticky actions and without. A run has one core and ends after STEPS
# environment steps:
#   results/games.sh CORE STEPS [GAME …]        SEEDS="0 1 2" before it for other seeds
# (Freeway's, Frostbite's and Space Invaders' of the table had no step cap. Freeway's and
# Zaxxon's were stopped by hand, and Freeway's was evaluated by 4 games a generation.)
# Finished runs are skipped, stopped ones go on. What the tables need is copied beside
# this file. Table:
#   python results/tables.py
set -euo pipefail
core=${1:-0} steps=${2:-3000000}
shift $(($# < 2 ? $# : 2))
games=("$@")
[[ $# -gt 0 ]] || games=(freeway kangaroo frostbite zaxxon space-invaders hero)
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[core]}" "$python" -m)

train() {
  local preset=$1 seed=$2
  local run=runs/games/$preset-linear/seed-$seed kept=results/games/$preset-linear/seed-$seed
  [[ ! -e $run/finished ]] || return 0
  local resume=()
  [[ ! -e $run/config.json ]] || resume=(--resume)
  "${on_core[@]}" jax_es.train "$preset" --seed "$seed" --max-env-steps "$steps" \
    --runs-dir "runs/games/$preset-linear" --name "seed-$seed" "${resume[@]}"
  mkdir -p "$kept"
  "${on_core[@]}" jax_es.evaluate "$run" --episodes 100 --json >"$kept/evaluation.json"
  "${on_core[@]}" jax_es.evaluate "$run" --episodes 100 --env.sticky-actions 0 --json \
    >"$kept/without_sticky.json"
  cp "$run"/{config.json,metrics.jsonl} "$kept"
  touch "$run/finished"
}

for game in "${games[@]}"; do
  for seed in ${SEEDS:-0 1 2}; do
    train "$game" "$seed"
  done
done
