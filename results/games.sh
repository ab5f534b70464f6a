#!/usr/bin/env bash
# Games from memory, their presets as they are; afterwards each run's best θ plays 100
# other games, with sticky actions and without. A run has one core and ends after STEPS
# environment steps:
#   results/games.sh CORE STEPS [GAME …]        SEEDS="0 1 2" before it for other seeds
# (Those of Freeway, Frostbite and Space Invaders that the table has had no step cap, and
# Freeway's were evaluated by 4 games a generation.)
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
    name=games/$game-linear
    [[ $game != kangaroo ]] || name=games/kangaroo-ga  # kangaroo-linear is OpenAI-ES'
    run=runs/$name/seed-$seed
    one_run "$name" "$seed" "$game" --max-env-steps "$steps"
    flock -n 9 || continue  # another worker's
    [[ -e $run/finished && ! -e $run/without_sticky ]] || continue
    evaluated "$run" "results/$name/seed-$seed/without_sticky.json" --episodes 100 --env.sticky-actions 0
    touch "$run/without_sticky"
  done
done
