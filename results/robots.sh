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
. "$(dirname "$0")/one_core.sh"

for policy in decision-transformer linear mlp; do
  for task in "${tasks[@]}"; do
    for seed in 0 1 2; do
      one_run "robots/$task-$policy" "$seed" "$task" --policy "$policy"
    done
  done
done
