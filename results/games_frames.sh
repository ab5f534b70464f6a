#!/usr/bin/env bash
# Games from frames: an image Decision Transformer learns to play as the linear policy
# does that evolution trained on the console's memory (results/policies/GAME-linear).
# One core, ten minutes after 150 games of the teacher were played:
#   bash results/games_frames.sh GAME [SEED] [EPOCHS] [paper]
# The small transformer sees one frame of 42×42 a step and remembers ten steps; with the
# last word it is the paper's own network (84×84, four frames, 30 steps; 40 games, some
# 40 minutes). All seeds see the same games. A stopped one goes on. What is kept is copied
# beside this file. Table:
#   python results/tables.py
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python} game=${1:-} seed=${2:-0} epochs=${3:-4} size=${4:-small}
declare -A asked=([hero]=7400 [kangaroo]=1600 [zaxxon]=2000 [space-invaders]=400 [frostbite]=160)
declare -A sampled=([hero]=sample [zaxxon]=sample)
rules=(--env.game "$game" --env.sticky-actions 0.25 --env.noop-max 30)
case $size in
  small)
    preset=hero-dt-fast episodes=150 batch=32 name=image-transformer
    seen=(--env.observation frames --env.frame-size 42 --env.frame-stack 1)
    network=(--policy.width 64 --policy.num-layers 2 --policy.num-heads 4
      --policy.context-length 10 --policy.max-timestep 10)
    ;;
  paper)
    preset=hero-dt episodes=40 batch=8 name=paper-transformer
    seen=(--env.observation frames --env.frame-size 84 --env.frame-stack 4)
    network=(--policy.reward-scale 0.001)
    ;;
esac
if [[ -z ${asked[${game:-none}]:-} || -z ${network:-} ]]; then
  echo "usage: bash results/games_frames.sh GAME (${!asked[*]}) [SEED] [EPOCHS] [paper]" >&2
  exit 2
fi
data=$game-$size-v0 runs=runs/frames/$game-$name kept=results/games_frames/$game-$name/seed-$seed
[[ -e datasets/$data ]] ||
  "$python" -m jax_es.collect "results/policies/$game-linear" --dataset "$data" --episodes "$episodes" "${seen[@]}"
resume=()
[[ ! -e $runs/seed-$seed/config.json ]] || resume=(--resume)
"$python" -m jax_es.pretrain "$preset" "${rules[@]}" "${seen[@]}" "${network[@]}" \
  --policy.target-return "${asked[$game]}" --target-returns "${asked[$game]}" --policy."${sampled[$game]:-no-sample}"-actions \
  --dataset "$data" --learning-rate 0.001 --warmup-steps 100 --epochs "$epochs" \
  --steps-per-epoch 250 --batch-size "$batch" --dropout 0 --evaluation.num-episodes 8 --seed "$seed" \
  --runs-dir "$runs" --name "seed-$seed" "${resume[@]}"
mkdir -p "$kept"
cp "$runs/seed-$seed"/{config.json,cloning.jsonl,metrics.jsonl} "$kept"
"$python" -m jax_es.evaluate "$runs/seed-$seed" --episodes 100 --json >"$kept/evaluation.json"
