#!/usr/bin/env bash
# Humanoid's linear policy walks: it learns in coarse physics, goes on in RK4 with two
# steps instead of five, and there with ever smaller σ. Two and a half hours on one core.
# Keeps what the tables need beside this file, the runs before the last as before-1, ….
#   bash results/humanoid.sh linear SEED
set -euo pipefail
kind=$1 seed=${2:-0}
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
kept=results/robots/humanoid-$kind/seed-$seed
runs=runs/humanoid-$kind-$seed
train=("$python" -m jax_es.train humanoid-clipup --policy "$kind" --seed "$seed")
train+=(--runs-dir "$runs")
# None is the task's own integrator, RK4.
fine=(--rollout.integrator None --rollout.num-substeps 2 --init-checkpoint last)

"${train[@]}" --name 1 --num-generations 600
"${train[@]}" --name 2 --num-generations 30 --init "$runs/1" "${fine[@]}"
"${train[@]}" --name 3 --num-generations 22 --init "$runs/2" "${fine[@]}" \
  --es.sigma 0.01 --es.learning-rate 0.0005
"${train[@]}" --name 4 --num-generations 65 --init "$runs/3" "${fine[@]}" \
  --es.sigma 0.006 --es.learning-rate 0.00018 --evaluation.num-episodes 40
for part in 1 2 3; do
  mkdir -p "$kept/before-$part"
  cp "$runs/$part"/{config.json,metrics.jsonl} "$kept/before-$part"
done
"$python" -m jax_es.evaluate "$runs/4" --episodes 100 --json >"$kept/evaluation.json"
cp "$runs/4"/{config.json,metrics.jsonl} "$kept"
