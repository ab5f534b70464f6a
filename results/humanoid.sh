#!/usr/bin/env bash
# Humanoid walks: a linear policy learns in coarse physics, goes on in RK4 with two
# steps instead of five, and there with ever smaller σ. A transformer copies what it has
# learned after three parts of four, and goes on by evolution. Two and a half hours on one
# core. Keeps what the tables need beside this file, the runs before the last as
# before-1, ….
#   bash results/humanoid.sh linear|decision-transformer SEED
set -euo pipefail
kind=$1 seed=${2:-0}
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
kept=results/robots/humanoid-$kind/seed-$seed
runs=runs/humanoid-$seed
preset=(humanoid-clipup --seed "$seed" --runs-dir "$runs")
# None is the task's own integrator, RK4.
fine=(--rollout.integrator None --rollout.num-substeps 2)
train() { "$python" -m jax_es.train "${preset[@]}" "$@"; }
linear() { train --policy linear "$@"; }

if [[ ! -d $runs/3 ]]; then
  linear --name 1 --num-generations 600
  linear --name 2 --num-generations 30 \
    --init "$runs/1" --init-checkpoint last "${fine[@]}"
  linear --name 3 --num-generations 22 \
    --init "$runs/2" --init-checkpoint last "${fine[@]}" \
    --es.sigma 0.01 --es.learning-rate 0.0005
fi
before=(1 2 3)
if [[ $kind == linear ]]; then
  last=4
  linear --name $last --num-generations 65 \
    --init "$runs/3" --init-checkpoint last "${fine[@]}" \
    --es.sigma 0.006 --es.learning-rate 0.00018 --evaluation.num-episodes 40
else
  last=transformer before+=(clone)
  "$python" -m jax_es.collect "$runs/3" --dataset "humanoid-$seed-v0" --episodes 150
  "$python" -m jax_es.pretrain "${preset[@]}" --dataset "humanoid-$seed-v0" \
    --name clone --epochs 12 --steps-per-epoch 1000 --warmup-steps 200 --lr 0.001 \
    --dropout 0 --evaluation.num-episodes 20 "${fine[@]}"
  train --name $last --num-generations 50 --init "$runs/clone" "${fine[@]}" \
    --rollout.statistics-fraction 0 --es.sigma 0.001 --es.learning-rate 0.004 \
    --es.interactions-per-generation 150000 --evaluation.num-episodes 20
fi
for part in "${!before[@]}"; do
  to=$kept/before-$((part + 1))
  mkdir -p "$to"
  cp "$runs/${before[part]}"/{config.json,metrics.jsonl} "$to"
done
"$python" -m jax_es.evaluate "$runs/$last" --episodes 100 --json >"$kept/evaluation.json"
cp "$runs/$last"/{config.json,metrics.jsonl} "$kept"
