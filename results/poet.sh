#!/usr/bin/env bash
# POET on BipedalWalker's terrain, and the study of it: the foremost policy in 100
# hardcore episodes, and as many on the hardest three solved terrains; plain ES from
# scratch on these, three seeds each, with the steps that the niche's line had. One core
# for all:
#   results/poet.sh CORE [STEPS [EXTRA OPTIONS OF poet …]]
# A stopped one goes on, and more STEPS continue POET's run. What is kept is copied
# beside this file.
set -euo pipefail
core=${1:-0} steps=${2:-30000000}
shift $(($# < 2 ? $# : 2))
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[core]}" "$python" -m)
runs=runs/poet run=runs/poet/bipedal-terrain kept=results/poet/bipedal-terrain

resume=()
[[ ! -e $run/config.json ]] || resume=(--resume)
"${on_core[@]}" jax_es.poet bipedal-terrain --max-env-steps "$steps" "$@" \
  --runs-dir "$runs" --name bipedal-terrain "${resume[@]}"
mkdir -p "$kept"
cp "$run"/{config.json,metrics.jsonl} "$kept"
for figure in niches annecs; do
  "${on_core[@]}" jax_es.plot "$run" --figure "$figure" --output "$kept/$figure.png"
done
rm -rf "$kept/policy"  # of fewer steps
"${on_core[@]}" jax_es.export "$run" "$kept/policy" --checkpoint last
"${on_core[@]}" jax_es.evaluate "$run" --checkpoint last --json \
  --episodes "${EPISODES:-100}" --variation roughness 1 --variation pit-gap-low 2 \
  --variation pit-gap-high 3 --variation stump-height-low 1 \
  --variation stump-height-high 2 --variation stair-height-low 1 \
  --variation stair-height-high 1 --variation whole-sizes 1 >"$kept/hardcore.json"

# A line for each terrain: niche, steps, options. A generation's steps, children and
# transfers included, are shared by the niches that were active; a line has those from
# the begin until its niche was solved.
"$python" - "$run" >"$kept/hardest.txt" <<'PYTHON'
import sys

import jax_es

records = jax_es.read_metrics(sys.argv[1])
solved = [n for n in jax_es.load_niches(sys.argv[1]) if n.parent >= 0 and n.solved >= 0]
for niche in sorted(solved, key=lambda n: sum(n.terrain.values()))[-3:]:
    steps = sum(r.env_steps / r.num_niches for r in records[: niche.solved + 1])
    options = [
        f"--env.kwargs.{name.replace('-', '_')} {value:g}"
        for name, value in niche.terrain.items()
    ]
    print(niche.number, round(steps), *options)
PYTHON
while read -r niche line options; do
  variation=${options//--env.kwargs./--variation }
  # shellcheck disable=SC2086
  "${on_core[@]}" jax_es.evaluate "$run" --checkpoint last \
    --json --episodes "${EPISODES:-100}" ${variation//_/-} </dev/null >"$kept/on-$niche.json"
  for seed in 0 1 2; do
    direct=$runs/direct-$niche/seed-$seed here=results/poet/direct-$niche/seed-$seed
    [[ ! -e $direct/finished ]] || continue
    resume=()
    [[ ! -e $direct/config.json ]] || resume=(--resume)
    # shellcheck disable=SC2086
    "${on_core[@]}" jax_es.train bipedal-terrain $options --max-env-steps "$line" \
      --seed "$seed" --runs-dir "$runs/direct-$niche" --name "seed-$seed" "${resume[@]}" </dev/null
    mkdir -p "$here"
    "${on_core[@]}" jax_es.evaluate "$direct" --json --episodes "${EPISODES:-100}" </dev/null >"$here/evaluation.json"
    cp "$direct"/{config.json,metrics.jsonl} "$here"
    touch "$direct/finished"
  done
done <"$kept/hardest.txt"
