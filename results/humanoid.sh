#!/usr/bin/env bash
# Humanoid walks: it learns in coarse physics, goes on in RK4 with two steps instead of
# five, and there with ever smaller σ. 2.6 hours on one core with the linear policy, 1.7
# with the transformer; if interrupted, run it again. The curves of seed 0 decided when
# each part ends. Keeps what the tables need beside this file, in place of what is there,
# the runs before the last as before-1, …. On one core:
#   taskset -c 0 bash results/humanoid.sh linear|decision-transformer SEED
set -euo pipefail
kind=${1:-} seed=${2:-0}
case $kind in
  linear | decision-transformer) ;;
  *) echo "usage: bash results/humanoid.sh linear|decision-transformer SEED" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
kept=results/robots/humanoid-$kind/seed-$seed
runs=runs/humanoid-$kind-$seed
last=0

train() { # part, generations, options
  last=$1
  local command=("$python" -m jax_es.train humanoid-clipup --policy "$kind")
  command+=(--seed "$seed" --runs-dir "$runs" --name "$1" --num-generations "${@:2}")
  # None is the task's own integrator, RK4.
  (($1 == 1)) || command+=(--rollout.integrator None --rollout.num-substeps 2
    --init "$runs/$(($1 - 1))" --init-checkpoint last)
  [[ ! -e $runs/$1/config.json ]] || command+=(--resume)
  "${command[@]}"
}

if [[ $kind == linear ]]; then
  train 1 600
  train 2 30
  train 3 22 --es.sigma 0.01 --es.learning-rate 0.0005
  train 4 65 --es.sigma 0.006 --es.learning-rate 0.00018 --evaluation.num-episodes 40
else
  train 1 607
  train 2 23 --es.sigma 0.02 --es.learning-rate 0.1 --evaluation.num-episodes 20
fi
for ((part = 1; part < last; part++)); do
  mkdir -p "$kept/before-$part"
  cp "$runs/$part"/{config.json,metrics.jsonl} "$kept/before-$part"
done
"$python" -m jax_es.evaluate "$runs/$last" --episodes 100 --json >"$kept/evaluation.json"
cp "$runs/$last"/{config.json,metrics.jsonl} "$kept"
