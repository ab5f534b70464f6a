#!/usr/bin/env bash
# The small transformer (12,833 weights) walks in other bodies: cloned from the linear
# policy that survives them, then evolved in drawn bodies in three parts. One core, 45
# minutes after 300 disturbed episodes of the teacher in other bodies were played:
#   bash results/humanoid_small.sh [SEED]
# A stopped one goes on. What is kept is copied beside this file; θ is the last one.
# All seeds see the same episodes. Table:
#   python results/tables.py
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python} seed=${1:-0}
task=(--env.hide-observation 45:175 --rollout.num-substeps 2 --rollout.integrator None
  --evaluation.num-episodes 20)
evolution=(--phases None --rollout.no-observation-statistics --es.healthy-reward-weight 1
  --es.interactions-per-generation 150000 --rollout.variation-range friction 0.7 1.3)

part() { # folder, program, options
  local run=runs/$1/seed-$seed resume=()
  [[ ! -e $run/finished ]] || return 0
  [[ ! -e $run/config.json ]] || resume=(--resume)
  "$python" -m "jax_es.$2" humanoid "${task[@]}" --seed "$seed" --runs-dir "runs/$1" \
    --name "seed-$seed" "${@:3}" "${resume[@]}"
  touch "$run/finished"
}
[[ -e datasets/humanoid-varied-dart-v0 ]] ||
  "$python" -m jax_es.collect results/policies/humanoid-linear-varied --episodes 300 \
    --dataset humanoid-varied-dart-v0 --action-noise 0.1 --record chosen \
    --variation-range mass 0.8 1.2 --variation-range friction 0.7 1.3 \
    --variation-range motors 0.9 1.05
part small-varied pretrain --dataset humanoid-varied-dart-v0 --learning-rate 0.001 \
  --steps-per-epoch 1000 --warmup-steps 200 --dropout 0 --epochs 14
part small-varied-1 train "${evolution[@]}" --init runs/small-varied \
  --es.sigma 0.002 --es.learning-rate 0.008 --num-generations 9 \
  --rollout.variation-range mass 0.8 1.2 --rollout.variation-range motors 0.9 1.05
part small-varied-2 train "${evolution[@]}" --init runs/small-varied-1 \
  --es.sigma 0.001 --es.learning-rate 0.004 --num-generations 30 \
  --rollout.variation-range mass 0.9 1.1 --rollout.variation-range motors 0.9 1.05
part small-varied-3 train "${evolution[@]}" --init runs/small-varied-2 --init-checkpoint last \
  --es.sigma 0.001 --es.learning-rate 0.004 --num-generations 11 \
  --rollout.variation-range mass 0.9 1.1 --rollout.variation-range motors 0.85 1.02
run=runs/small-varied-3/seed-$seed kept=results/varied/humanoid-transformer-varied/seed-$seed
mkdir -p "$kept"
cp "$run"/{config.json,metrics.jsonl} "$kept"
"$python" -m jax_es.evaluate "$run" --checkpoint last --episodes 100 --json >"$kept/evaluation.json"
