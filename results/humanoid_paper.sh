#!/usr/bin/env bash
# The paper's transformer (644,881 weights) walks: cloned from a linear policy that
# evolution made, with noise on its weights, then evolved. One core, two hours:
#   bash results/humanoid_paper.sh [SEED] [GENERATIONS] [varied]
# With the last word in other bodies and on other floors, from the policy that survives
# them. A stopped one goes on. What is kept is copied beside this file. All seeds see the
# same episodes of the teacher.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python} seed=${1:-0} kept=results/humanoid_paper
network=(--policy.context-length 20 --policy.width 128 --policy.num-layers 3
  --env.hide-observation 45:175 --rollout.num-substeps 2 --rollout.integrator None)
case ${3:-} in
  "") teacher=humanoid-linear-without-inertia prefix=paper data=humanoid ranges=() ;;
  varied) teacher=humanoid-linear-varied prefix=varied data=humanoid-varied
    ranges=(variation-range mass 0.8 1.2 variation-range friction 0.7 1.3
      variation-range motors 0.9 1.05) ;;
  *)
    echo "usage: bash results/humanoid_paper.sh [SEED] [GENERATIONS] [varied]" >&2
    exit 2
    ;;
esac

clone() { # folder, dataset, learning rate, warm-up, epochs, options
  local run=runs/$1/seed-$seed resume=()
  [[ ! -e $run/config.json ]] || resume=(--resume)
  "$python" -m jax_es.pretrain humanoid "${network[@]}" --seed "$seed" --runs-dir "runs/$1" --name "seed-$seed" \
    --dataset "$2" --learning-rate "$3" --warmup-steps "$4" --epochs "$5" --steps-per-epoch 250 --batch-size 32 \
    --dropout 0 --weight-noise 0.005 --evaluation.num-episodes 10 "${@:6}" "${resume[@]}"
  mkdir -p "$kept/$1-$seed"
  cp "$run"/{config.json,cloning.jsonl,metrics.jsonl} "$kept/$1-$seed"
}
[[ -e datasets/$data-clean-v0 ]] ||
  "$python" -m jax_es.collect "results/policies/$teacher" --dataset "$data-clean-v0" --episodes 150
[[ -e datasets/$data-dart-v0 ]] ||
  "$python" -m jax_es.collect "results/policies/$teacher" --dataset "$data-dart-v0" --episodes 300 \
    --action-noise 0.1 --record chosen "${ranges[@]/#variation/--variation}"
clone $prefix-clean "$data-clean-v0" 0.0005 200 8
clone $prefix-dart "$data-dart-v0" 0.0005 100 7 --init "runs/$prefix-clean" --init-checkpoint last
clone $prefix-dart-slow "$data-dart-v0" 0.0001 1 2 --init "runs/$prefix-dart" --init-checkpoint last
resume=()
[[ ! -e runs/$prefix-evolved/seed-$seed/config.json ]] || resume=(--resume)
"$python" -m jax_es.train humanoid --phases None "${network[@]}" --seed "$seed" \
  --runs-dir "runs/$prefix-evolved" --name "seed-$seed" --init "runs/$prefix-dart-slow" \
  --init-checkpoint last --rollout.no-observation-statistics \
  --es.perturbation low-rank --es.sigma 0.005 --es.learning-rate 0.1 \
  --es.healthy-reward-weight 1 --evaluation.num-episodes 10 \
  --num-generations "${2:-23}" "${ranges[@]/#variation/--rollout.variation}" "${resume[@]}"
for run in "$prefix-dart-slow" "$prefix-evolved"; do
  to=$kept/$run-$seed
  [[ $run != varied-evolved ]] || to=results/varied/humanoid-paper-transformer/seed-$seed
  mkdir -p "$to"
  cp "runs/$run/seed-$seed"/{config.json,metrics.jsonl} "$to"
  "$python" -m jax_es.evaluate "runs/$run/seed-$seed" --checkpoint last --episodes 100 --json \
    >"$to/evaluation.json"
done
