#!/usr/bin/env bash
# The paper's feed-forward network (256 × 256, 159,505 weights) walks: cloned from the
# linear policy that survives other bodies, which evolution made, with noise on its
# weights. One core, four minutes after 300 disturbed episodes of the teacher in other
# bodies were played (those of results/humanoid_paper.sh … varied):
#   bash results/humanoid_mlp.sh [SEED]
# What is kept is copied beside this file. Table:
#   python results/tables.py
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python} seed=${1:-0}
run=runs/humanoid-mlp/seed-$seed kept=results/varied/humanoid-mlp-varied/seed-$seed
[[ -e datasets/humanoid-varied-dart-v0 ]] ||
  "$python" -m jax_es.collect results/policies/humanoid-linear-varied --episodes 300 \
    --dataset humanoid-varied-dart-v0 --action-noise 0.1 --record chosen \
    --variation-range mass 0.8 1.2 --variation-range friction 0.7 1.3 \
    --variation-range motors 0.9 1.05
resume=()
[[ ! -e $run/config.json ]] || resume=(--resume)
"$python" -m jax_es.pretrain humanoid --policy mlp --policy.hidden-sizes 256 256 --seed "$seed" \
  --runs-dir runs/humanoid-mlp --name "seed-$seed" --dataset humanoid-varied-dart-v0 \
  --env.hide-observation 45:175 --rollout.num-substeps 2 --rollout.integrator None \
  --learning-rate 0.001 --warmup-steps 200 --epochs 10 --steps-per-epoch 2000 --batch-size 512 \
  --dropout 0 --weight-noise 0.005 --evaluation.num-episodes 20 "${resume[@]}"
mkdir -p "$kept"
cp "$run"/{config.json,cloning.jsonl,metrics.jsonl} "$kept"
"$python" -m jax_es.evaluate "$run" --episodes 100 --json >"$kept/evaluation.json"
