#!/usr/bin/env bash
# The presets of small tasks as they are, three seeds; afterwards each run's best θ plays
# 100 other episodes. A run has one core: results/control.sh CORE [PRESET …]
# Finished runs are skipped, stopped ones go on. What the tables need is copied beside
# this file. Table:
#   python results/tables.py
set -euo pipefail
core=${1:-0}
shift || true
presets=("$@")
[[ $# -gt 0 ]] || presets=(cartpole acrobot mountain-car-continuous lunar-lander tetris
  lunar-lander-discrete pendulum pendulum-hidden-velocity bipedal-walker
  bipedal-walker-linear)
. "$(dirname "$0")/one_core.sh"

for preset in "${presets[@]}"; do
  options=("$preset")
  [[ $preset != bipedal-walker-linear ]] || options=(bipedal-walker --policy linear)
  for seed in 0 1 2; do
    one_run "control/$preset" "$seed" "${options[@]}"
  done
done
