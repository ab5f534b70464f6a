# Sourced by scripts of results, whose runs have one core each; `core` says which, of
# those that this process may use.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python}
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
on_core=(taskset -c "${cores[$core]}" "$python" -m)
# What learns, and options of `evaluate` for a finished run's best θ; without any it is not evaluated.
program=train evaluation=(--episodes 100)

# Keeps what `evaluate` says of a run in a file, once it has said all of it: evaluated
# RUN FILE, and options
evaluated() {
  "${on_core[@]}" jax_es.evaluate "$1" "${@:3}" --json >"$2.part"
  mv "$2.part" "$2"
}

# Trains runs/NAME/seed-SEED, lets its best θ play other episodes, and copies what the
# tables need to results/NAME/seed-SEED. A finished run is skipped, as is one that another
# worker trains, and a stopped one goes on: one_run NAME SEED, and the words after
# `python -m jax_es.$program`
one_run() {
  local run=runs/$1/seed-$2 kept=results/$1/seed-$2 resume=()
  mkdir -p "runs/$1"
  exec 9>"runs/$1/.seed-$2.worker"
  flock -n 9 || return 0
  [[ ! -e $run/finished ]] || return 0
  [[ ! -e $run/config.json ]] || resume=(--resume)
  "${on_core[@]}" "jax_es.$program" "${@:3}" --seed "$2" --runs-dir "runs/$1" --name "seed-$2" "${resume[@]}"
  mkdir -p "$kept"
  [[ ${#evaluation[@]} == 0 ]] ||
    evaluated "$run" "$kept/evaluation.json" "${evaluation[@]}"
  cp "$run"/{config.json,metrics.jsonl} "$kept"
  [[ ! -e $run/cloning.jsonl ]] || cp "$run/cloning.jsonl" "$kept"
  touch "$run/finished"
}
