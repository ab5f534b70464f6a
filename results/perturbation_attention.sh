#!/usr/bin/env bash
# Does speed cost learning? Noise families and attention modes at equal environment
# steps: 3 tasks, 5 variants (4 of Swimmer), 3 seeds. One core a run, so run as many as there are cores:
#   results/perturbation_attention.sh 0 2 & results/perturbation_attention.sh 1 2
# Arguments: this worker's number and the number of workers (0 1 without).
set -euo pipefail
worker=${1:-0} workers=${2:-1} count=0
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')

train() {  # task variant options…
  local task=$1 variant=$2 preset seed
  shift 2
  case $task in
    half-cheetah-200) preset=(quickstart) ;;
    swimmer-200) preset=(swimmer-small --env.max-episode-steps 200 --policy.target-return 72) ;;
    *) preset=("$task-small") ;;
  esac
  for seed in 0 1 2; do
    if ((count++ % workers == worker)); then
      local run="$task-$variant-seed$seed"
      if [[ ! -e runs/perturbation_attention/$run/finished ]]; then
        rm -rf "runs/perturbation_attention/$run"
        taskset -c "${cores[worker % ${#cores[@]}]}" "$python" -m jax_es.train "${preset[@]}" --name "$run" \
          --runs-dir runs/perturbation_attention \
          --seed "$seed" --num-generations 100000 --max-env-steps 1000000 \
          --checkpoint-every 1000000 "$@"
        touch "runs/perturbation_attention/$run/finished"
      fi
    fi
  done
}

for task in half-cheetah-200 swimmer-200 hopper; do
  train $task window-full
  train $task window-rank1 --es.perturbation low-rank --es.rank 1
  train $task window-rank4 --es.perturbation low-rank --es.rank 4
  train $task cache-full --policy.attention cache
  [[ $task == swimmer-200 ]] ||
    train $task cache-rank1 --policy.attention cache --es.perturbation low-rank
done
