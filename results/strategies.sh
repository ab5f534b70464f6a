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
. "$(dirname "$0")/one_core.sh"
declare -A pairs=([1]=24 [5]=12 [30]=6)

for seed in 0 1 2; do
  for strategy in cma-es openai-es cem; do
    for episodes in 1 5 30; do
      one_run "strategies/$strategy-$episodes" "$seed" lunar-lander --strategy "$strategy" \
        --es.episodes-per-member "$episodes" --es.num-pairs "${pairs[$episodes]}" --max-env-steps 1000000
    done
  done
done
