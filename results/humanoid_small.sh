#!/usr/bin/env bash
# The small transformer (12,833 weights) walks in other bodies: cloned from the linear
# policy that survives them, then evolved in drawn bodies in three parts. One core, 45
# minutes after 300 disturbed episodes of the teacher in other bodies were played:
#   bash results/humanoid_small.sh [SEED] [CORE]
# A stopped one goes on. What is kept is copied beside this file; θ is the last one.
# All seeds see the same episodes. Table:
#   python results/tables.py
set -euo pipefail
seed=${1:-0} core=${2:-0}
. "$(dirname "$0")/one_core.sh"
task=(humanoid --env.hide-observation 45:175 --rollout.num-substeps 2 --rollout.integrator None
  --evaluation.num-episodes 20)
evolution=("${task[@]}" --phases None --rollout.no-observation-statistics --es.healthy-reward-weight 1
  --es.interactions-per-generation 150000 --rollout.variation-range friction 0.7 1.3)
clone=humanoid_paper/small-varied

[[ -e datasets/humanoid-varied-dart-v0 ]] ||
  "${on_core[@]}" jax_es.collect results/policies/humanoid-linear-varied --episodes 300 \
    --dataset humanoid-varied-dart-v0 --action-noise 0.1 --record chosen \
    --variation-range mass 0.8 1.2 --variation-range friction 0.7 1.3 \
    --variation-range motors 0.9 1.05
evaluation=()
program=pretrain one_run "$clone" "$seed" "${task[@]}" --dataset humanoid-varied-dart-v0 \
  --learning-rate 0.001 --steps-per-epoch 1000 --warmup-steps 200 --dropout 0 --epochs 14
one_run "$clone-evolved" "$seed" "${evolution[@]}" --init "runs/$clone" \
  --es.sigma 0.002 --es.learning-rate 0.008 --num-generations 9 \
  --rollout.variation-range mass 0.8 1.2 --rollout.variation-range motors 0.9 1.05
one_run "$clone-evolved2" "$seed" "${evolution[@]}" --init "runs/$clone-evolved" \
  --es.sigma 0.001 --es.learning-rate 0.004 --num-generations 30 \
  --rollout.variation-range mass 0.9 1.1 --rollout.variation-range motors 0.9 1.05
evaluation=(--checkpoint last --episodes 100)
one_run varied/humanoid-transformer-varied "$seed" "${evolution[@]}" --init "runs/$clone-evolved2" \
  --init-checkpoint last --es.sigma 0.001 --es.learning-rate 0.004 --num-generations 11 \
  --rollout.variation-range mass 0.9 1.1 --rollout.variation-range motors 0.85 1.02
