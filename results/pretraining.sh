#!/usr/bin/env bash
# A TD3 teacher on Hopper (and SAC beside it), three clones of it, and evolution that goes
# on from them, with the paper's settings, its contrasts and from scratch: the runs of
# notebooks/pretraining.ipynb, which shows them. One after the other on one core each; what
# the table needs is copied beside this file. About an hour on 2 cores.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
runs=runs/pretraining-workstation

teacher=(--steps 100000 --evaluate-every 5000 --seed 0 --runs-dir "$runs")
"$python" -m jax_es.teacher hopper-small --algo td3 --learning-starts 5000 --train-freq 1 \
  "${teacher[@]}" --name td3
"$python" -m jax_es.teacher hopper-small --algo sac --train-freq 1 "${teacher[@]}" --name sac
"$python" -m jax_es.teacher hopper-small --algo td3 --policy decision-transformer \
  --policy.target-return 1000 --steps 20000 --evaluate-every 1000 \
  --learning-starts 2000 --gradient-steps 2 --seed 0 --runs-dir "$runs" --name td3-dt
"$python" -m jax_es.collect "$runs/td3" --dataset hopper-td3-v0 --episodes 200 \
  --root "$runs/datasets"
for seed in 0 1 2; do
  "$python" -m jax_es.pretrain hopper-small --dataset "$runs/datasets/hopper-td3-v0" \
    --policy.target-return 1000 --target-returns 500 1500 3000 --learning-rate 0.001 \
    --warmup-steps 500 --steps-per-epoch 1000 --epochs 5 --seed "$seed" \
    --runs-dir "$runs/clone" --name "seed-$seed"
done
evolve() {  # name options…
  "$python" -m jax_es.train hopper-small --max-env-steps 500000 "${@:2}" --seeds 3 \
    --policy.target-return 1000 --num-generations 100000 --checkpoint-every 10 \
    --runs-dir "$runs" --name "$1"
}
cloned=(--init "$runs/clone")
gentle=(--fine-tune "${cloned[@]}")
evolve es-from-clone "${gentle[@]}"
evolve es-from-clone-standard "${cloned[@]}" --rollout.no-observation-statistics
evolve es-from-clone-statistics "${gentle[@]}" --rollout.observation-statistics
evolve es-from-clone-no-decay "${gentle[@]}" --es.weight-decay 0
evolve es-from-clone-256-pairs "${gentle[@]}" --es.num-pairs 256 --max-env-steps 1500000
evolve es-from-scratch
for run in "$runs"/{td3,td3-dt,sac,clone/seed-*,es-*/seed-*}; do
  kept=results/pretraining/${run#"$runs"/}
  mkdir -p "$kept"
  cp "$run"/{config.json,metrics.jsonl} "$kept"
done
"$python" results/tables.py
"$python" -m jax_es.plot \
  results/pretraining/{sac,td3,td3-dt,es-from-scratch,es-from-clone,es-from-clone-256-pairs} \
  --x env-steps --output docs/pictures/pretraining.png
