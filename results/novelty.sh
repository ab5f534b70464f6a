#!/usr/bin/env bash
# ES, NS-ES, NSR-ES and NSRA-ES on the point's trap, ES and NS-ES on the plane without
# walls, three seeds each. notebooks/novelty.ipynb shows these runs, and would train them
# if they were not there. Finished ones are skipped, stopped ones go on. Kept beside this
# file: configurations, metrics, and where the θs ended (x, y in metres, one a row).
#   results/novelty.sh [point-trap-ns …]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
runs=runs/novelty-workstation
names=("$@")
[[ $# -gt 0 ]] || names=(point-trap-{es,ns,nsr,half,nsra,longhalf,longnsra} point-flat-{es,ns})

declare -A options=(
  [es]="--es.kwargs.fitness_weight 1.0 --es.kwargs.parents 1"
  [ns]="--es.kwargs.fitness_weight 0.0"
  # At the published half, fitness and novelty cancel for whoever leaves the trap.
  [nsr]="--es.kwargs.fitness_weight 0.25"
  [half]="--es.kwargs.fitness_weight 0.5"
  # So short a run has no time for the published patience of 50.
  [nsra]="--es.kwargs.fitness_weight adaptive --es.kwargs.patience 1"
  # All as published (k = 10, M = 5, ½ or from 1 on by steps of 0.05 after 50 generations),
  # with time for it: the adaptive weight needs a thousand generations to fall to 0.
  [longhalf]="--es.kwargs.fitness_weight 0.5 --num-generations 600"
  [longnsra]="--es.kwargs.fitness_weight adaptive --num-generations 1500"
)

for name in "${names[@]}"; do
  resume=()
  [[ ! -e $runs/$name/experiment.json ]] || resume=(--resume)
  # shellcheck disable=SC2086 # several words
  "$python" -m jax_es.train "${name%-*}" --strategy novelty ${options[${name##*-}]} \
    --seeds 3 --runs-dir "$runs" --name "$name" "${resume[@]}"
  for seed in 0 1 2; do
    run=$runs/$name/seed-$seed kept=results/novelty/$name/seed-$seed
    mkdir -p "$kept"
    cp "$run/config.json" "$kept"
    # Of long runs every tenth generation.
    every=1
    [[ $name != *-long* ]] || every=10
    awk -v every=$every 'NR % every == 1 % every' "$run/metrics.jsonl" >"$kept/metrics.jsonl"
    "$python" -c 'import sys, numpy; from jax_es.analysis.positions import archive
numpy.savetxt(sys.argv[2], archive(sys.argv[1]), "%.3f", ",")' "$run" "$kept/positions.csv"
  done
done

"$python" - <<'END' # the guide's picture
import numpy

from jax_es.envs.traps import CUL_DE_SAC
from jax_es.analysis.positions import positions

titles = {"es": "ES", "ns": "NS-ES", "nsr": "NSR-ES, w = 1/4", "longnsra": "NSRA-ES, 1500 generations"}
panels = {
    title: numpy.loadtxt(f"results/novelty/point-trap-{name}/seed-0/positions.csv", delimiter=",")
    for name, title in titles.items()
}
positions(panels, CUL_DE_SAC, 4).savefig("docs/pictures/novelty.png")
END
