"""What README.md says is what is there: commands, code, names and numbers."""

import ast
import re
import shlex
import subprocess
from pathlib import Path

import gymnasium
import jax
import orbax.checkpoint as ocp
import pytest

import jax_es
from jax_es import teacher
from jax_es.config import EnvConfig, ESConfig, EvaluationConfig, RolloutConfig
from jax_es.es.noise import FullNoise
from jax_es.presets import PRESETS
from jax_es.runs.metrics import records_so_far
from jax_es.teacher import check_trainable
from jax_es.training.build import TrainConfig, make_noise, make_policy
from jax_es.training.loop import train_run
from models import DecisionTransformerConfig

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two generations of a tiny transformer on a real task."""
    path = tmp_path_factory.mktemp("runs") / "NAME"
    config = TrainConfig(
        env=EnvConfig("HalfCheetah-v5", max_episode_steps=5),
        policy=DecisionTransformerConfig(width=4, num_layers=1, context_length=2),
        es=ESConfig(num_pairs=2, sigma=0.1, learning_rate=0.1),
        rollout=RolloutConfig(num_slots=2, num_devices=1),
        evaluation=EvaluationConfig(num_episodes=2),
        num_generations=2,
    )
    train_run(config, path)
    return path


def code_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_code_runs(run):
    code, _ = code_blocks("python")
    names = {}
    exec(code.replace('"runs/NAME"', repr(str(run))), names)
    assert names["done"] and names["action"].shape == (6,)


def test_the_code_for_videos_wraps_the_environment(run, tmp_path):
    pytest.importorskip("moviepy")
    _, code = code_blocks("python")
    names = {"gymnasium": gymnasium, "policy": jax_es.load_policy(run)}
    exec(code.replace('"videos"', repr(str(tmp_path / "videos"))), names)
    env = names["env"]
    assert isinstance(env, gymnasium.wrappers.RecordVideo)
    assert env.spec.id == "HalfCheetah-v5" and env.render_mode == "rgb_array"
    env.unwrapped.close()  # nothing was rendered, which not every machine can
    assert (tmp_path / "videos").is_dir()


def test_the_commands_of_teachers_are_understood():
    lines = "\n".join(code_blocks("bash")).splitlines()
    program = "python -m jax_es.teacher "
    commands = [line for line in lines if line.startswith(program)]
    new = [c for c in commands if "--resume" not in c]
    assert len(new) > 3
    for command in new:
        options = shlex.split(command.removeprefix(program), comments=True)
        check_trainable(teacher.parse(options))


def test_the_sample_output_is_the_median_run():
    paths = (ROOT / "results" / "learning_curves").glob("quickstart-seed*")
    runs = [(records_so_far(path)[-1], path.name) for path in paths]
    runs.sort(key=lambda run: run[0].evaluation_return_mean)
    record, name = runs[len(runs) // 2]
    line, *rest = README[README.index("generation  100/100") :].splitlines()
    assert (
        f"evaluation {record.evaluation_return_mean:9.1f}  "
        f"mean {record.return_mean:9.1f}  max {record.return_max:9.1f}  "
    ) in line
    assert f"runs/{name}-…/" in rest[0]


def test_every_notebook_is_in_the_table():
    section = README[README.index("| notebook | question |") :].split("\n\n")[0]
    named = re.findall(
        r"^\| \[`(\w+)`\]\(notebooks/(\w+)\.ipynb\)", section, re.MULTILINE
    )
    stems = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert sorted(named) == [(stem, stem) for stem in stems]


def test_ci_runs_the_test_command():
    (command,) = [
        line
        for block in code_blocks("bash")
        for line in block.splitlines()
        if line.startswith("python3 -m venv") and line.endswith("pytest -n auto")
    ]
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert command in lines and "python -m pytest -n auto -m slow" in lines


def test_every_preset_is_in_the_table():
    section = README[README.index("| preset | what it is |") :].split("\n\n")[0]
    assert set(re.findall(r"`([a-z0-9-]+)`", section)) == set(PRESETS)


def test_the_module_map_names_the_folders_that_there_are():
    tree = README[README.index("## Module map") :].split("```")[1]
    folders = {path.parent.name for path in ROOT.glob("jax_es/*/__init__.py")}
    assert set(re.findall(r"^  (\w+)/", tree, re.MULTILINE)) == folders


def test_linked_files_exist():
    links = re.findall(r"\]\(((?!https?:)[^)#]+)\)", README)
    assert links and all((ROOT / link).exists() for link in links)


def test_a_low_rank_member_is_as_small_as_said():
    config = PRESETS["humanoid-dt-fast"]
    space = gymnasium.spaces.Box(-1, 1, (348,))
    policy = make_policy(config.policy, space, gymnasium.spaces.Box(-0.4, 0.4, (17,)))
    mean = jax.eval_shape(policy.init, jax.random.key(0))
    full, low_rank = (
        jax.eval_shape(noise.sample, jax.random.key(0), mean).size
        for noise in (FullNoise(), make_noise(config.es))
    )
    said = f"{low_rank / 1e3:.0f} thousand numbers instead of {full / 1e3:.0f} thousand"
    assert said in " ".join(README.split())


def test_no_machine_path_and_no_registry_is_committed():
    files = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "uv.lock" not in files
    hosts = "pypi" + ".org", "python" + "hosted"
    for name in files:
        if not name.endswith(".png"):
            text = (ROOT / name).read_text(errors="ignore")
            assert not any(host in text for host in hosts), name


def test_bare_orbax_reads_a_checkpoint_as_documented(run):
    source = (ROOT / "jax_es" / "runs" / "checkpoint.py").read_text()
    documentation = ast.get_docstring(ast.parse(source)) or ""
    listed = documentation[documentation.index("- ``es/mean``") :]
    names = re.findall(r"``((?:es/)?[a-z_]+)``", listed)
    step = run / "checkpoints" / "last" / "2" / "state"
    state = ocp.PyTreeCheckpointer().restore(step)
    expected = {"es", "observation_statistics", "step_cap", "total_env_steps"}
    assert set(state) == expected | {"best_evaluation_return"}
    assert set(state["es"]) == {"mean", "optimizer_state", "generation", "key"}
    assert set(state["observation_statistics"]) == {"count", "sum", "sum_of_squares"}
    for name in ("es/generation", "es/key", "observation_statistics", "step_cap"):
        assert name in names
    assert state["es"]["mean"]["head"]["kernel"].shape == (4, 6)
