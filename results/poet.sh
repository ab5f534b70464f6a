#!/usr/bin/env bash
# POET on the terrain of BipedalWalker or of Walker2d (WORLD: bipedal-terrain or
# walker2d-terrain, which begins with a policy that walks on nearly flat ground), and the study
# of it: the foremost policy in 100 episodes of the hardest three solved terrains, and of
# BipedalWalker's hardcore; plain ES from scratch on these three, three seeds each with the
# steps that the niche's line had, those of the flat ground included. Of POET the last θ
# plays, of plain ES the best by its own evaluations, which favours it. One core for all:
#   results/poet.sh CORE [WORLD [STEPS [NAME [OPTIONS OF ALL RUNS …]]]]
# NAME is WORLD if not given; walker2d-terrain-blind --env.hide-observation 17:27 is one that
# does not see the ground. A stopped one goes on, and more STEPS continue POET's run. What is
# kept is copied beside this file.
set -euo pipefail
core=${1:-0} world=${2:-bipedal-terrain} steps=${3:-30000000}
name=${4:-$world}
shift $(($# < 4 ? $# : 4))
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[core]}" "$python")
run=runs/poet/$name flat=runs/poet/$name-flat kept=results/poet/$name

# Begins a run, or goes on with it, unless it is finished: its folder, and what begins it.
go_on() {
  local folder=$1 resume=()
  shift
  [[ ! -e $folder/finished ]] || return 0
  [[ ! -e $folder/config.json ]] || resume=(--resume)
  "${on_core[@]}" -m "$@" --runs-dir "$(dirname "$folder")" --name "$(basename "$folder")" \
    "${resume[@]}" </dev/null
}

init=()
if [[ $world == walker2d-terrain ]]; then
  go_on "$flat" jax_es.train "$world" "$@"
  touch "$flat/finished"
  mkdir -p "$kept/flat"
  cp "$flat"/{config.json,metrics.jsonl} "$kept/flat"
  init=(--init "$flat" --rollout.observation-statistics)
fi
go_on "$run" jax_es.poet "$world" --max-env-steps "$steps" "${init[@]}" "$@"
mkdir -p "$kept"
cp "$run"/{config.json,metrics.jsonl} "$kept"
for figure in niches annecs; do
  "${on_core[@]}" -m jax_es.plot "$run" --figure "$figure" --output "$kept/$figure.png"
done
rm -rf "$kept/policy"  # of fewer steps
"${on_core[@]}" -m jax_es.export "$run" "$kept/policy" --checkpoint last

# 100 episodes of a run's checkpoint in the terrain NAME=VALUE …, to standard output.
played() {
  local folder=$1 checkpoint=$2 varied=()
  for number in "${@:3}"; do
    varied+=(--variation "${number%=*}" "${number#*=}")
  done
  "${on_core[@]}" -m jax_es.evaluate "$folder" --checkpoint "$checkpoint" --json \
    --episodes "${EPISODES:-100}" "${varied[@]}" </dev/null
}

if [[ $world == bipedal-terrain ]]; then
  played "$run" last roughness=1 pit-gap-low=2 pit-gap-high=3 stump-height-low=1 \
    stump-height-high=2 stair-height-low=1 stair-height-high=1 whole-sizes=1 \
    >"$kept/hardcore.json"
fi

# A line for each terrain: niche, steps, NAME=VALUE …. Hard is what is many mutations away
# from flat ground. A generation's steps, children and transfers included, are shared by
# the niches that were active; a line has those from the begin until its niche was solved.
"$python" - "$run" "$flat" >"$kept/hardest.txt" <<'PYTHON'
import json
import sys
from pathlib import Path

import jax_es

run, flat = sys.argv[1:]
records, before = jax_es.read_metrics(run), 0
if Path(flat).exists():
    before = jax_es.read_metrics(flat)[-1].total_env_steps
settings = json.loads(Path(run, "config.json").read_text())["method"][1]
step = {name: size for name, size, *_ in settings["mutate"]}
solved = [n for n in jax_es.load_niches(run) if n.parent >= 0 and n.solved >= 0]


def mutations(niche):
    """Returns how many steps away it is."""
    return sum(
        value / step[name.removesuffix("-low").removesuffix("-high")]
        for name, value in niche.terrain.items()
    )


for niche in sorted(solved, key=mutations)[-3:]:
    line = sum(r.env_steps / r.num_niches for r in records[: niche.solved + 1])
    terrain = [f"{name}={value:.9g}" for name, value in niche.terrain.items()]
    print(niche.number, round(before + line), *terrain)
PYTHON
while read -r -a line; do
  niche=${line[0]} terrain=("${line[@]:2}") ground=()
  for number in "${terrain[@]}"; do
    number_name=${number%=*}
    ground+=("--env.kwargs.${number_name//-/_}" "${number#*=}")
  done
  played "$run" last "${terrain[@]}" >"$kept/on-$niche.json"
  played "$run" "niche-$niche" "${terrain[@]}" >"$kept/own-$niche.json"
  for seed in 0 1 2; do
    direct=$run-direct-$niche/seed-$seed here=$kept/direct-$niche/seed-$seed
    [[ ! -e $direct/finished ]] || continue
    go_on "$direct" jax_es.train "$world" --max-env-steps "${line[1]}" --seed "$seed" "$@" \
      "${ground[@]}"
    mkdir -p "$here"
    cp "$direct"/{config.json,metrics.jsonl} "$here"
    played "$direct" best >"$here/evaluation.json"
    touch "$direct/finished"
  done
done <"$kept/hardest.txt"
