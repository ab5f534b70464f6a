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
. "$(dirname "$0")/one_core.sh"

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
    one_run "jax_envs/$task" "$seed" "${options[@]}"
  done
done
