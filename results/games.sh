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
. "$(dirname "$0")/one_core.sh"

for game in "${games[@]}"; do
  for seed in ${SEEDS:-0 1 2}; do
    run=games/$game-linear/seed-$seed
    one_run "games/$game-linear" "$seed" "$game" --max-env-steps "$steps"
    [[ -e runs/$run/finished && ! -s runs/$run/without_sticky.json ]] || continue
    "${on_core[@]}" jax_es.evaluate "runs/$run" --episodes 100 --env.sticky-actions 0 --json \
      >"runs/$run/without_sticky.json"
    cp "runs/$run/without_sticky.json" "results/$run"
  done
done
