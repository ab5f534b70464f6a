#!/usr/bin/env bash
# The paper's transformer (644,881 weights) walks: cloned from the linear policy that
# evolution made, with noise on its weights, then evolved. One core, two hours:
#   bash results/humanoid_paper.sh [SEED] [GENERATIONS]
# A stopped one goes on. What is kept is copied beside this file. All seeds see the same
# episodes of the teacher.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python} teacher=results/policies/humanoid-linear-without-inertia
seed=${1:-0} kept=results/humanoid_paper
network=(--policy.context-length 20 --policy.width 128 --policy.num-layers 3
  --env.hide-observation 45:175 --rollout.num-substeps 2 --rollout.integrator None)

clone() { # name without the seed, dataset, learning rate, warm-up, epochs, options
  local name=$1-$seed resume=()
  [[ ! -e runs/$name/config.json ]] || resume=(--resume)
  "$python" -m jax_es.pretrain humanoid "${network[@]}" --seed "$seed" --name "$name" --dataset "$2" \
    --learning-rate "$3" --warmup-steps "$4" --epochs "$5" --steps-per-epoch 250 --batch-size 32 --dropout 0 \
    --weight-noise 0.005 --evaluation.num-episodes 10 "${@:6}" "${resume[@]}"
  mkdir -p "$kept/$name"
  cp "runs/$name"/{config.json,cloning.jsonl,metrics.jsonl} "$kept/$name"
}
[[ -e datasets/humanoid-clean-v0 ]] ||
  "$python" -m jax_es.collect "$teacher" --dataset humanoid-clean-v0 --episodes 150
[[ -e datasets/humanoid-dart-v0 ]] ||
  "$python" -m jax_es.collect "$teacher" --dataset humanoid-dart-v0 --episodes 300 \
    --action-noise 0.1 --record chosen
clone paper-clean humanoid-clean-v0 0.0005 200 8
clone paper-dart humanoid-dart-v0 0.0005 100 7 --init "runs/paper-clean-$seed" --init-checkpoint last
clone paper-dart-slow humanoid-dart-v0 0.0001 1 2 --init "runs/paper-dart-$seed" --init-checkpoint last
resume=()
[[ ! -e runs/paper-evolved-$seed/config.json ]] || resume=(--resume)
"$python" -m jax_es.train humanoid --phases None "${network[@]}" --seed "$seed" --name "paper-evolved-$seed" \
  --init "runs/paper-dart-slow-$seed" --init-checkpoint last --rollout.no-observation-statistics \
  --es.perturbation low-rank --es.sigma 0.005 --es.learning-rate 0.1 \
  --es.healthy-reward-weight 1 --evaluation.num-episodes 10 \
  --num-generations "${2:-23}" "${resume[@]}"
for run in "paper-dart-slow-$seed" "paper-evolved-$seed"; do
  mkdir -p "$kept/$run"
  cp "runs/$run"/{config.json,metrics.jsonl} "$kept/$run"
  "$python" -m jax_es.evaluate "runs/$run" --checkpoint last --episodes 100 --json \
    >"$kept/$run/evaluation.json"
done
