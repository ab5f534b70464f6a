#!/usr/bin/env bash
# The stored policies under other masses, floors and motors than they learned with, 20
# episodes each. What was measured is skipped; delete it to measure again. A quarter of
# an hour on two cores. Table:
#   python results/tables.py
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
kept=results/robustness
mkdir -p "$kept"

measure() {  # policy, name, values…
  local file=$kept/$1-$2.json
  [[ -s $file ]] || { "$python" -m jax_es.evaluate "results/policies/$1" --episodes 20 \
    --variation "${@:2}" --json >"$file.part" && mv "$file.part" "$file"; }
}

for policy in results/policies/*/; do
  policy=$(basename "$policy")
  # Neither games nor Box2D have bodies of another mass.
  ! grep -Eq "ALE/|BipedalWalker" "results/policies/$policy/config.json" || continue
  measure "$policy" mass 0.95 1.05
  measure "$policy" friction 0.9 1.1
  measure "$policy" motors 0.9
done
