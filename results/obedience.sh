#!/usr/bin/env bash
# Policies trained to return what they are asked for, and what is beside them in the table; each
# one's best θ is asked for nine returns, 20 episodes each. A run has one core, so start as many
# workers as there are:
#   results/obedience.sh 0 & results/obedience.sh 1
# First argument: which of the available cores (0 without). Finished runs are skipped, stopped ones
# go on, and those that another worker trains are left to it. What the tables need is copied beside
# this file. Table, picture:
#   python results/tables.py
#   python -m jax_es.evaluate runs/obedience/half-cheetah --obedience 0 1000 --picture FILE
set -euo pipefail
core=${1:-0}
. "$(dirname "$0")/one_core.sh"
evaluation=()
folder=runs/obedience kept=results/obedience
export MINARI_DATASETS_PATH=$PWD/datasets

train() {  # name seed preset options…
  one_run "obedience/$1" "$2" "${@:3}" --es.num-pairs 16 --es.episodes-per-member 2 \
    --evaluation.num-episodes 9
}

measure() {  # run, highest command, the folder that keeps its measures
  mkdir -p "$3"
  [[ -s $3/obedience.json ]] ||
    "${on_core[@]}" jax_es.evaluate "$1" --obedience 0 "$2" --json >"$3/obedience.json"
}

short=(half-cheetah --env.max-episode-steps 200 --checkpoint-every 10)
whole=(half-cheetah --checkpoint-every 5)
obey=(--es.objective commanded-return)
weighted=(--es.obedience-weight 0.6 --es.obedience-weight-end 1 --es.schedule linear)
slower=(--es.learning-rate-end 0.05 --es.schedule linear --es.schedule-generations 20)
film=(--policy.film --policy.reward-scale 0.005)
mlp=(--policy mlp --policy.target-return 300 --policy.reward-scale 0.02)

half_cheetah() {  # seed
  # From nothing, in episodes of 200 steps; then in whole ones.
  train half-cheetah-short "$1" "${short[@]}" "${obey[@]}" "${film[@]}" --es.command-high 300 \
    --max-env-steps 800000
  train half-cheetah "$1" "${whole[@]}" "${obey[@]}" "${film[@]}" --es.command-high 1000 \
    --init "$folder/half-cheetah-short" "${slower[@]}" --max-env-steps 1500000
  measure "$folder/half-cheetah/seed-$1" 1000 "$kept/half-cheetah/seed-$1"
  measure "$folder/half-cheetah-short/seed-$1" 300 "$kept/half-cheetah-short/seed-$1"
  # Beyond the commands that it was trained on.
  [[ $1 != 0 ]] || measure "$folder/half-cheetah/seed-0" 2000 "$kept/half-cheetah-beyond/seed-0"
}

cloned() {  # The plain run at three moments of its training is the dataset of mixed quality.
  local steps run=$folder/half-cheetah-short-plain/seed-0 clone=$folder/half-cheetah-short-clone
  local ids=()
  for steps in 200000 400000 800000; do
    ids+=("cheetah/steps-$steps-v0")
    [[ ! -e datasets/${ids[-1]} ]] || continue
    rm -f "$run/finished"
    train half-cheetah-short-plain 0 "${short[@]}" "${film[@]}" --policy.target-return 300 \
      --max-env-steps "$steps"
    "${on_core[@]}" jax_es.collect "$run" --checkpoint last --episodes 50 --dataset "${ids[-1]}"
  done
  [[ -e datasets/cheetah/mixed-v0 ]] || minari combine "${ids[@]}" --dataset-id cheetah/mixed-v0
  [[ -e $clone/seed-0/checkpoints ]] || "${on_core[@]}" jax_es.pretrain half-cheetah \
    --env.max-episode-steps 200 "${film[@]}" --policy.target-return 300 \
    --rollout.observation-statistics --evaluation.num-episodes 9 --dataset cheetah/mixed-v0 \
    --learning-rate 0.001 --warmup-steps 100 --steps-per-epoch 1000 --epochs 1 \
    --runs-dir "$clone" --name seed-0
  train half-cheetah-short-cloned 0 "${short[@]}" "${obey[@]}" "${film[@]}" \
    --policy.target-return 300 --es.command-high 300 --init "$clone" --max-env-steps 800000
}

contrasts() {  # seed 0 alone
  local name
  cloned
  train half-cheetah-short-from-plain 0 "${short[@]}" "${obey[@]}" "${film[@]}" \
    --policy.target-return 300 --es.command-high 300 --init "$folder/half-cheetah-short-plain" \
    "${weighted[@]}" --es.schedule-generations 25 --max-env-steps 800000
  # Two units of the return-to-go without FiLM, and an MLP.
  train half-cheetah-short-token 0 "${short[@]}" "${obey[@]}" --policy.reward-scale 0.005 \
    --es.command-high 300 --max-env-steps 800000
  train half-cheetah-short-token-louder 0 "${short[@]}" "${obey[@]}" --policy.reward-scale 0.02 \
    --es.command-high 300 --max-env-steps 800000
  train half-cheetah-short-mlp 0 "${short[@]}" "${mlp[@]}" "${obey[@]}" --es.command-high 300 \
    --max-env-steps 1280000
  for name in plain from-plain clone cloned token token-louder mlp; do
    name=half-cheetah-short-$name
    measure "$folder/$name/seed-0" 300 "$kept/$name/seed-0"
  done
  train half-cheetah-mlp 0 "${whole[@]}" "${mlp[@]}" "${obey[@]}" --es.command-high 1000 \
    --es.learning-rate 0.2 --init "$folder/half-cheetah-short-mlp" "${slower[@]}" \
    --max-env-steps 1300000
  train half-cheetah-plain 0 "${whole[@]}" "${film[@]}" --policy.target-return 1000 \
    --init "$folder/half-cheetah-short-plain" --max-env-steps 900000
  for name in half-cheetah-mlp half-cheetah-plain; do
    measure "$folder/$name/seed-0" 1000 "$kept/$name/seed-0"
  done
}

swimmer() {  # seed: on from the preset's first two million steps
  local swimmer=(swimmer --checkpoint-every 5 "${obey[@]}" --es.command-high 340)
  one_run obedience/swimmer-first "$1" swimmer --max-env-steps 2000000
  # With the whole weight at once θ, which returns more than all commands, may unlearn to swim.
  train swimmer-weighted "$1" "${swimmer[@]}" --init "$folder/swimmer-first" \
    "${weighted[@]}" --es.learning-rate 0.25 --es.learning-rate-end 0.05 \
    --es.schedule-generations 20 --max-env-steps 1200000
  # The kept runs of seeds 0, 1 and 2 were stopped at 2.6, 0.6 and 1.8 million steps.
  train swimmer-second "$1" "${swimmer[@]}" --init "$folder/swimmer-weighted" \
    --init-checkpoint last --es.learning-rate 0.2 --es.learning-rate-end 0.05 \
    --es.schedule-generations 14 --max-env-steps 2600000
  measure "$folder/swimmer-first/seed-$1" 360 "$kept/swimmer-plain/seed-$1"
  measure "$folder/swimmer-second/seed-$1" 340 "$kept/swimmer-second/seed-$1"
}

hopper() {  # seed: plain training alone
  one_run obedience/hopper-first "$1" hopper --max-env-steps 4000000
  measure "$folder/hopper-first/seed-$1" 3000 "$kept/hopper-plain/seed-$1"
}

mkdir -p "$folder"
for job in half_cheetah\ {0,1,2} contrasts swimmer\ {0,2,1} hopper\ {0,1,2}; do
  exec 8>"$folder/.${job/ /-}.worker"
  ! flock -n 8 || $job
done
