#!/usr/bin/env bash
# (The kept runs of the second part were stopped at 2.6, 0.6 and 1.8 million steps.)
# Swimmer's transformers of results/robots.sh evolve on for obedience in two parts, three seeds;
# afterwards each one's best θ is asked for nine returns, 20 episodes each. A run has one core, so
# start as many workers as there are:
#   results/obedience.sh 0 & results/obedience.sh 1
# First argument: which of the available cores (0 without). Finished runs are skipped, stopped ones
# go on, and those that another worker trains are left to it. What the tables need is copied beside
# this file. Table, picture:
#   python results/tables.py
#   python -m jax_es.evaluate runs/obedience/swimmer-second --obedience 0 340 --picture FILE
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[${1:-0}]}" "$python" -m)
folder=runs/obedience

train() {  # name seed options…
  local name=$1 seed=$2 resume=()
  shift 2
  [[ ! -e $folder/$name/seed-$seed/finished ]] || return 0
  [[ ! -e $folder/$name/seed-$seed/config.json ]] || resume=(--resume)
  "${on_core[@]}" jax_es.train swimmer-clipup --seed "$seed" --es.objective commanded-return \
    --es.command-high 340 --es.num-pairs 16 --es.episodes-per-member 2 \
    --evaluation.num-episodes 9 --checkpoint-every 5 --runs-dir "$folder/$name" \
    --name "seed-$seed" "$@" "${resume[@]}"
  mkdir -p "results/obedience/$name/seed-$seed"
  cp "$folder/$name/seed-$seed"/{config.json,metrics.jsonl} "results/obedience/$name/seed-$seed"
  touch "$folder/$name/seed-$seed/finished"
}

measure() {  # run, highest command, the folder that keeps its measures
  mkdir -p "$3"
  [[ -s $3/obedience.json ]] ||
    "${on_core[@]}" jax_es.evaluate "$1" --obedience 0 "$2" --json >"$3/obedience.json"
}

mkdir -p "$folder"
for seed in 0 2 1; do
  exec 9>"$folder/.seed-$seed.worker"
  flock -n 9 || continue
  # With the whole weight at once θ, which returns more than all commands, may unlearn to swim.
  train swimmer-weighted "$seed" --init runs/robots/swimmer-decision-transformer \
    --es.obedience-weight 0.6 --es.obedience-weight-end 1 --es.schedule linear \
    --es.learning-rate 0.25 --es.learning-rate-end 0.05 --es.schedule-generations 20 \
    --max-env-steps 1200000
  train swimmer-second "$seed" --init "$folder/swimmer-weighted" --init-checkpoint last \
    --es.learning-rate 0.2 --es.learning-rate-end 0.05 --es.schedule-generations 14 \
    --max-env-steps 2600000
  measure runs/robots/swimmer-decision-transformer/seed-"$seed" 360 \
    "results/obedience/swimmer-plain/seed-$seed"
  measure "$folder/swimmer-second/seed-$seed" 340 "results/obedience/swimmer-second/seed-$seed"
done
