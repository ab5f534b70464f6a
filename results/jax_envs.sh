#!/usr/bin/env bash
# Environments in JAX, three seeds each; afterwards each run's best θ plays 100 other
# episodes. A run has one core:
#   results/jax_envs.sh CORE [TASK …]
# SEEDS="0" takes other seeds. Finished runs are skipped, stopped ones go on. What the
# tables need is copied beside this file. Needs the extra jax-envs. Table:
#   python results/tables.py
set -euo pipefail
core=${1:-0}
shift || true
tasks=("$@")
[[ $# -gt 0 ]] || tasks=(cartpole breakout asterix freeway space-invaders
  cartpole-balance ant)
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[core]}" "$python" -m)

for task in "${tasks[@]}"; do
  case $task in
    cartpole) options=(--env.id gymnax:CartPole-v1 --max-env-steps 500000) ;;
    breakout) options=(--env.id gymnax:Breakout-MinAtar) ;;
    asterix) options=(--env.id gymnax:Asterix-MinAtar) ;;
    freeway) options=(--env.id gymnax:Freeway-MinAtar) ;;
    space-invaders) options=(--env.id gymnax:SpaceInvaders-MinAtar) ;;
    cartpole-balance)
      options=(--env.id playground:CartpoleBalance --rollout.step-cap 200
        --rollout.num-slots 17 --max-env-steps 3000000)
      ;;
    ant) options=(brax-ant) ;;
    *) echo "no task $task" >&2; exit 2 ;;
  esac
  for seed in ${SEEDS:-0 1 2}; do
    run=runs/jax_envs/$task/seed-$seed kept=results/jax_envs/$task/seed-$seed
    [[ ! -e $run/finished ]] || continue
    start=("${options[@]}" --seed "$seed")
    [[ ! -e $run/config.json ]] || start=(--resume)
    "${on_core[@]}" jax_es.train "${start[@]}" \
      --runs-dir "runs/jax_envs/$task" --name "seed-$seed"
    mkdir -p "$kept"
    "${on_core[@]}" jax_es.evaluate "$run" --episodes 100 --json \
      >"$kept/evaluation.json"
    cp "$run"/{config.json,metrics.jsonl} "$kept"
    touch "$run/finished"
  done
done
