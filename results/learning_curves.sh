#!/usr/bin/env bash
# Longer runs, one after the other: 2 tasks × 2 policies × 3 seeds, and the quickstart
# with 5 seeds. Then the picture is made.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-runs/results}
for seed in 0 1 2; do
  for policy in decision-transformer mlp; do
    python -m jax_es.train half-cheetah-small --policy "$policy" --num-generations 30 \
      --seed "$seed" --runs-dir "$runs" --name "half-cheetah-$policy-seed$seed"
    python -m jax_es.train hopper-small --policy "$policy" --num-generations 60 \
      --seed "$seed" --runs-dir "$runs" --name "hopper-$policy-seed$seed"
  done
done
for seed in 0 1 2 3 4; do
  python -m jax_es.train --seed "$seed" --runs-dir "$runs" --name "quickstart-seed$seed"
done
python -m jax_es.plot "$runs"/* --x generations --output docs/pictures/learning_curves.png
