#!/usr/bin/env bash
# Five strategies on two games from memory, at equal frames: half a million environment
# steps (two million frames) each, by Hero's preset; the genetic algorithm has the
# settings of the presets that use it. Afterwards each run's best θ plays 100 other
# games. A run has one core:
#   results/games_strategies.sh CORE [GAME …]        SEEDS="0 1 2" before it for more seeds
# Finished runs are skipped, stopped ones go on. What the tables need is copied beside
# this file. Table:
#   python results/tables.py
set -euo pipefail
core=${1:-0}
shift $(($# < 1 ? $# : 1))
games=("$@")
[[ $# -gt 0 ]] || games=(hero kangaroo)
. "$(dirname "$0")/one_core.sh"
# Where the player is at the end: bytes of the console's memory.
declare -A place=([hero]="27 31 28" [kangaroo]="16 17")

for game in "${games[@]}"; do
  for strategy in openai-es ars sep-cma-es ga novelty; do
    options=(hero --env.game "$game" --strategy "$strategy" --max-env-steps 500000)
    # Drawn actions stay at random play on Kangaroo, and let the elite change by chance.
    [[ $game == hero && $strategy != ga ]] || options+=(--policy.no-sample-actions)
    case $strategy in
      ga) options+=(--es.num-pairs 16 --es.sigma 0.015 --es.kwargs.first_sigma 0.1
        --es.common-seeds generation --es.episodes-per-member 3 --rollout.no-observation-statistics) ;;
      novelty) read -ra bytes <<<"${place[$game]}" && options+=(--env.descriptor "${bytes[@]}") ;;
    esac
    for seed in ${SEEDS:-0}; do
      one_run "games_strategies/$game-$strategy" "$seed" "${options[@]}"
    done
  done
done
