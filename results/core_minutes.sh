#!/usr/bin/env bash
# Evolution, evolution with a critic, and gradients, each with ten core-minutes: CPU
# seconds of all of a run's threads, compilation and evaluations included. Afterwards
# the best θ plays 20 other episodes. A run has one core:
#   results/core_minutes.sh CORE [TASK…]
# METHODS="linear ppo" takes other methods, and SEED=1 another seed. Finished runs are
# skipped, stopped ones begin again. What the table needs is copied beside this file.
# Table:
#   python results/tables.py
set -euo pipefail
core=${1:-0}
tasks=("${@:2}")
[[ $# -gt 1 ]] || tasks=(half-cheetah hopper walker2d swimmer)
seed=${SEED:-0}
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[core]}" "$python" -m)

run() {  # name program options
  local run=runs/core_minutes/$1/seed-$seed kept=results/core_minutes/$1/seed-$seed
  [[ ! -e $run/finished ]] || return 0
  rm -rf "$run"
  "${on_core[@]}" "jax_es.$2" "${@:3}" --seed "$seed" \
    --runs-dir "runs/core_minutes/$1" --name "seed-$seed" &
  # The kernel's own limit, ulimit -t, came minutes late on a shared core.
  while (($(ps -o cputimes= -p $!) < 600)); do sleep 1; done
  kill -9 $!
  wait $! || true
  mkdir -p "$kept"
  "${on_core[@]}" jax_es.evaluate "$run" --episodes 20 --json >"$kept/evaluation.json"
  cp "$run"/{config.json,metrics.jsonl} "$kept"
  touch "$run/finished"
}

# RL Baselines3 Zoo's settings of the tasks (hyperparams/ppo.yml, td3.yml, sac.yml at
# 22e3ff2); TD3's and SAC's gradient steps in blocks of eight, which costs less.
taught=(--steps 100000000 --evaluate-every 10000 --evaluation.num-episodes 3)
free=(--num-generations 100000000 --max-env-steps 100000000)
small=(--log-std-init -2 --n-steps 512)
narrow=(--policy.hidden-sizes 64 64 --policy.activation tanh --critic-hidden-sizes 64 64)

ppo() {  # task: the zoo's settings of PPO
  case $1 in
    half-cheetah) own=("${small[@]}" --batch-size 64 --gamma 0.98 --learning-rate 2.0633e-05
      --ent-coef 0.000401762 --clip-range 0.1 --n-epochs 20 --gae-lambda 0.92
      --max-grad-norm 0.8 --vf-coef 0.58096) ;;
    hopper) own=("${small[@]}" --batch-size 32 --gamma 0.999 --learning-rate 9.80828e-05
      --ent-coef 0.00229519 --n-epochs 5 --gae-lambda 0.99 --max-grad-norm 0.7
      --vf-coef 0.835671) ;;
    walker2d) own=(--n-steps 512 --batch-size 32 --learning-rate 5.05041e-05
      --ent-coef 0.000585045 --clip-range 0.1 --n-epochs 20 --max-grad-norm 1
      --vf-coef 0.871923 "${narrow[@]}") ;;
    # The zoo's four environments of 1,024 steps each are one of 4,096 here.
    swimmer) own=(--gamma 0.9999 --n-steps 4096 --batch-size 256 --learning-rate 6e-4
      --gae-lambda 0.98 "${narrow[@]}") ;;
  esac
  run "$1-ppo" teacher "$1" --algo ppo "${own[@]}" "${taught[@]}"
}

climbing() {  # task: docs/guides/guided.md
  own=(--policy mlp)
  case $1 in
    hopper) own+=(--es.healthy-reward-weight 0) ;;
    swimmer) own=(--policy linear --es.sigma 0.1 --es.kwargs.replay_ratio 0.25) ;;
  esac
  run "$1-cem-rl" train "$1" "${own[@]}" --strategy cem-rl --evaluation.num-episodes 1 \
    --es.kwargs.batch_size 100 "${free[@]}"
}

td3() {
  own=()
  [[ $1 != swimmer ]] || own=(--gamma 0.9999)
  run "$1-td3" teacher "$1" --algo td3 --learning-rate 0.001 --learning-starts 10000 \
    --policy.hidden-sizes 400 300 --critic-hidden-sizes 400 300 "${own[@]}" "${taught[@]}"
}

sac() {
  own=()
  [[ $1 != swimmer ]] || own=(--gamma 0.999)
  run "$1-sac" teacher "$1" --algo sac --learning-starts 10000 "${own[@]}" "${taught[@]}"
}

linear() { run "$1-linear" train "$1" --policy linear "${free[@]}"; }

transformer() { run "$1-decision-transformer" train "$1" "${free[@]}"; }

for method in ${METHODS:-ppo td3 linear climbing transformer sac}; do
  for task in "${tasks[@]}"; do "$method" "$task"; done
done
