#!/usr/bin/env bash
# The runs behind the README's Atari table: Freeway, whole games of two minutes, 3 seeds,
# one after the other; then each final policy and random play in the same 20 games.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
"$python" -m jax_es.train atari-cnn --env.game freeway --es.num-pairs 24 \
  --es.learning-rate 0.02 --evaluation.num-episodes 4 --num-generations 12 \
  --seeds 3 --runs-dir runs/atari --name freeway-cnn
for seed in 0 1 2; do
  kept=results/atari/freeway-cnn/seed-$seed
  mkdir -p "$kept"
  cp runs/atari/freeway-cnn/seed-$seed/{config.json,metrics.jsonl} "$kept"
done
"$python" -m jax_es.evaluate runs/atari/freeway-cnn --checkpoint last --episodes 20 \
  --random-actions --json > results/atari/freeway-cnn.json
"$python" results/tables.py
