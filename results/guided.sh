#!/usr/bin/env bash
# Members that climb a critic (CEM-RL), three seeds, a million environment steps;
# afterwards the best θ plays 20 other episodes. A run has one core, 8 minutes of it:
#   results/guided.sh CORE
# Finished runs are skipped, stopped ones go on. What the table needs is copied beside
# this file. Table:
#   python results/tables.py
set -euo pipefail
core=${1:-0}
. "$(dirname "$0")/one_core.sh"
evaluation=(--episodes 20)

train() {  # task policy seed options
  one_run "guided/$1-$2-cem-rl" "$3" "$1" --policy "$2" --strategy cem-rl \
    --evaluation.num-episodes 1 --max-env-steps 1000000 --es.kwargs.batch_size 100 "${@:4}"
}

for seed in 0 1 2; do
  train half-cheetah mlp "$seed"
  train hopper mlp "$seed" --es.healthy-reward-weight 0
  train walker2d mlp "$seed"
  train swimmer linear "$seed" --es.sigma 0.1 --es.kwargs.replay_ratio 0.25
done
