#!/usr/bin/env bash
# Generations of 150 000 steps at mean lengths of 25 to 1 000, as they are today beside
# version ede474c (which gets the same rows by results/small_generations.patch), three runs
# of each in turn. Leave the machine alone meanwhile: 40 minutes on two cores. Keeps
# results/small_generations/VERSION-RUN.json; the table is in docs/results/speed.md.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
here=$PWD
old=$(mktemp -d)
git archive ede474c | tar x -C "$old"
patch -d "$old" -p1 --silent <results/small_generations.patch
rows=()
for network in humanoid-mlp-fast humanoid-mlp+linear humanoid-dt-fast; do
  for length in 25 100 300 1000; do
    rows+=("generation/$network/length-$length")
  done
done
mkdir -p results/small_generations
for run in 1 2 3; do
  for version in ede474c now; do
    tree=$here
    [[ $version == now ]] || tree=$old
    (cd "$tree" && PYTHONPATH=$tree "$python" -m jax_es.benchmark --only "${rows[@]}" \
      --json "$here/results/small_generations/$version-$run.json")
  done
done
