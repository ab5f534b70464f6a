#!/usr/bin/env bash
# Humanoid walks: it learns in coarse physics, goes on in RK4 with two steps instead of
# five, there with smaller σ, and in the end in its own physics. These are phases of one
# run (jax_es/presets/robots.py). If interrupted, run it again. Keeps what the tables
# need beside this file, in place of what is there. On one core:
#   taskset -c 0 bash results/humanoid.sh linear-without-inertia|linear|decision-transformer|varied SEED
# The first is the linear preset, which hides masses and inertias; the second reads them;
# the last goes on from the first's seed 1 in other bodies and on other floors.
set -euo pipefail
kind=${1:-} seed=${2:-0}
case $kind in
  linear-without-inertia) options=(--policy linear) ;;
  linear) options=(--policy linear --env.hide-observation) ;;
  decision-transformer) options=(--policy decision-transformer) ;;
  varied) options=(--policy linear --init runs/humanoid-linear-without-inertia-1
    --phases results/humanoid_varied.json) ;;
  *)
    echo "usage: bash results/humanoid.sh linear-without-inertia|linear|decision-transformer|varied SEED" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
kept=results/robots/humanoid-$kind/seed-$seed
[[ $kind != varied ]] || kept=results/varied/humanoid-linear-varied/seed-$seed
name=humanoid-$kind-$seed
resume=()
[[ ! -e runs/$name/config.json ]] || resume=(--resume)

"$python" -m jax_es.train humanoid "${options[@]}" --seed "$seed" \
  --name "$name" "${resume[@]}"
mkdir -p "$kept"
"$python" -m jax_es.evaluate "runs/$name" --episodes 100 --json >"$kept/evaluation.json"
rm -rf "$kept"/before-*
cp "runs/$name"/{config.json,metrics.jsonl} "$kept"
