#!/usr/bin/env bash
# Five strategies on two games from memory, at equal frames: half a million environment
# steps (two million frames) each, by the games' presets; the genetic algorithm has the
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
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[core]}" "$python" -m)
# Where the player is at the end: bytes of the console's memory.
declare -A place=([hero]="27 31 28" [kangaroo]="16 17")

for game in "${games[@]}"; do
  for strategy in openai-es ars sep-cma-es ga novelty; do
    case $strategy in
      ga) options=(--policy.no-sample-actions --es.num-pairs 16 --es.sigma 0.015 --es.kwargs.first_sigma 0.1
        --es.common-seeds generation --es.episodes-per-member 3 --rollout.no-observation-statistics) ;;
      novelty) read -ra bytes <<<"${place[$game]}" && options=(--env.descriptor "${bytes[@]}") ;;
      *) options=() ;;
    esac
    for seed in ${SEEDS:-0}; do
      folder=runs/games-strategies/$game-$strategy
      run=$folder/seed-$seed kept=results/games_strategies/$game-$strategy/seed-$seed
      [[ ! -e $run/finished ]] || continue
      resume=()
      [[ ! -e $run/config.json ]] || resume=(--resume)
      "${on_core[@]}" jax_es.train "$game" --strategy "$strategy" "${options[@]}" --seed "$seed" \
        --max-env-steps 500000 --runs-dir "$folder" --name "seed-$seed" "${resume[@]}"
      mkdir -p "$kept"
      "${on_core[@]}" jax_es.evaluate "$run" --episodes 100 --json >"$kept/evaluation.json"
      cp "$run"/{config.json,metrics.jsonl} "$kept"
      touch "$run/finished"
    done
  done
done
