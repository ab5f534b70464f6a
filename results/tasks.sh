#!/usr/bin/env bash
# Six tasks, two policies, three seeds, a million environment steps each: the presets as
# they are. All tasks with seed 0 come first, so that a part of the queue says something
# about each. A run has one core, so start as many workers as there are cores:
#   results/tasks.sh 0 & results/tasks.sh 1
# Argument: which of the available cores (0, the first one, without). Finished runs are
# skipped, stopped ones go on, and those that another worker trains are left to it. What
# the tables need of a finished run is copied beside this file. Tables and pictures:
#   python results/tables.py
#   python -m jax_es.plot results/tasks/* --x env-steps --output docs/pictures/tasks.png
#   python -m jax_es.plot results/tasks/* --x env-steps --figure aggregate \
#     --output docs/pictures/tasks_aggregate.png
set -euo pipefail
core=${1:-0}
. "$(dirname "$0")/one_core.sh"
evaluation=()

for seed in 0 1 2; do
  for task in inverted-pendulum {swimmer,half-cheetah,inverted-double-pendulum,hopper,walker2d}-small; do
    for policy in mlp decision-transformer; do
      one_run "tasks/${task%-small}-$policy" "$seed" "$task" --policy "$policy" \
        --num-generations 100000 --max-env-steps 1000000 --checkpoint-every 50
    done
  done
done
