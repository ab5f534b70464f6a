#!/usr/bin/env bash
# Three strategies on LunarLander with two neurons (18 numbers), whose fitness is the
# mean of 1, 5 or 30 episodes: a million environment steps each, three seeds. With more
# episodes there are fewer members, since a generation would take too many steps.
# Afterwards each run's best θ plays 100 other episodes. A run has one core:
#   results/strategies.sh CORE
# Finished runs are skipped, stopped ones go on. What the tables need is copied beside
# this file. Table:
#   python results/tables.py
set -euo pipefail
core=${1:-0}
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[core]}" "$python" -m)
declare -A pairs=([1]=24 [5]=12 [30]=6)

for seed in 0 1 2; do
  for strategy in cma-es openai-es cem; do
    for episodes in 1 5 30; do
      name=$strategy-$episodes
      folder=runs/strategies/$name
      run=$folder/seed-$seed kept=results/strategies/$name/seed-$seed
      [[ ! -e $run/finished ]] || continue
      resume=()
      [[ ! -e $run/config.json ]] || resume=(--resume)
      "${on_core[@]}" jax_es.train lunar-lander --strategy "$strategy" --seed "$seed" \
        --es.episodes-per-member "$episodes" --es.num-pairs "${pairs[$episodes]}" \
        --max-env-steps 1000000 --runs-dir "$folder" --name "seed-$seed" "${resume[@]}"
      mkdir -p "$kept"
      "${on_core[@]}" jax_es.evaluate "$run" --episodes 100 --json >"$kept/evaluation.json"
      cp "$run"/{config.json,metrics.jsonl} "$kept"
      touch "$run/finished"
    done
  done
done
