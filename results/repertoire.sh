#!/usr/bin/env bash
# The runs of results/repertoire: archives of Ant's and HalfCheetah's gaits (the latter is
# what notebooks/repertoire.ipynb fills, too, and recovers from damage with), and Hopper's, filled
# by our emitter and by pyribs' own. On one core of an AMD EPYC, four to nine other trainings
# beside. What SIGKILL does to such a run: results/repertoire/killed.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

ONE="--rollout.num-devices 1 --rollout.num-threads 1 --evaluation.num-episodes 2 --checkpoint-every 5"
HOPPER="hopper-uni $ONE --cells 100"
python -m jax_es.illuminate ant-uni $ONE --env.max-episode-steps 100 \
  --num-generations 400 --max-env-steps 1300000 --name ant
python -m jax_es.illuminate half-cheetah-uni --policy linear --env.max-episode-steps 100 \
  --initial-sigma 0.2 --sigma-iso 0.03 --batch-size 512 --es.episodes-per-member 2 \
  --num-generations 150 --rollout.num-slots 512 --rollout.num-devices 1 \
  --rollout.num-threads 1 --name cheetah
python -m jax_es.illuminate $HOPPER --num-generations 40 --name hopper
for kind in iso+line cma-me; do
  python results/repertoire/ribs_emitters.py $kind runs/hopper-ribs-$kind 40 $HOPPER
done
for run in ant cheetah hopper hopper-ribs-iso+line hopper-ribs-cma-me; do
  mkdir -p "results/repertoire/$run"
  cp "runs/$run/metrics.jsonl" "results/repertoire/$run"
done
cp runs/ant/config.json results/repertoire/ant
cp runs/cheetah/config.json results/repertoire/cheetah
cp runs/hopper/config.json results/repertoire/hopper
