#!/usr/bin/env bash
# Kills an illumination with SIGKILL again and again, resumes it, and compares its archive
# with that of a run that nobody disturbed.
#   results/repertoire/killed.sh [SECONDS …]     each a life's length (default: 14 9 11)
set -euo pipefail
python=${PYTHON:-python}
options="hopper-uni --cells 100 --env.max-episode-steps 100 --num-generations 30
  --evaluation.num-episodes 2 --checkpoint-every 4 --rollout.num-devices 1 --rollout.num-threads 1"
lives=("$@")
[[ $# -gt 0 ]] || lives=(14 9 11)

# shellcheck disable=SC2086 # several words
"$python" -m jax_es.illuminate $options --name undisturbed
start=$options
for seconds in "${lives[@]}"; do
  # shellcheck disable=SC2086
  timeout -s KILL "$seconds" "$python" -m jax_es.illuminate $start --name killed || echo "exit $?"
  wc -l runs/killed/metrics.jsonl
  ls runs/killed/checkpoints
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
