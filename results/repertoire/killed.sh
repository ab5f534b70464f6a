#!/usr/bin/env bash
# Kills an illumination with SIGKILL in the middle of generations, resumes it each time, and
# compares its archive with that of a run that nobody disturbed.
#   results/repertoire/killed.sh [GENERATION …]     after which it is killed (6 13 22)
set -euo pipefail
python=${PYTHON:-python}
options="hopper-uni --cells 100 --env.max-episode-steps 100 --num-generations 30
  --evaluation.num-episodes 2 --checkpoint-every 4 --rollout.num-devices 1 --rollout.num-threads 1"
deaths=("$@")
[[ $# -gt 0 ]] || deaths=(6 13 22)
metrics=runs/killed/metrics.jsonl

# shellcheck disable=SC2086 # several words
[[ -e runs/undisturbed ]] || "$python" -m jax_es.illuminate $options --name undisturbed
start=$options
for generation in "${deaths[@]}"; do
  # shellcheck disable=SC2086
  "$python" -m jax_es.illuminate $start --name killed 2>&1 &
  until [[ -e $metrics && $(wc -l <"$metrics") -ge $generation ]]; do sleep 0.2; done
  sleep 0.$RANDOM
  kill -KILL $!
  wait $! || echo "exit $?: $(wc -l <"$metrics") generations recorded, checkpoints" \
    "$(ls -m runs/killed/checkpoints/last)"
  start=--resume
done
"$python" -m jax_es.illuminate --resume --name killed
"$python" - <<'END'
import numpy as np

import jax_es

one, two = (jax_es.load_archive(f"runs/{name}") for name in ("undisturbed", "killed"))
for name, a, b in zip(one.elites._fields, one.elites, two.elites, strict=True):
    print(f"{name} {a.shape}: {'the same to the bit' if a.tobytes() == b.tobytes() else 'differs'}")
best = int(two.cells[two.fitness.argmax()])
print(two, two[best](np.zeros(11)), one[best](np.zeros(11)))
END
