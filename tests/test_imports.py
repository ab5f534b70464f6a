"""Who may import whom, read from the source: no room reaches into another's."""

import ast
import importlib
import pkgutil
import pydoc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jax_es

REPOSITORY = Path(__file__).parents[1]
ROOMS = ("jax_es", "models", "envs")

# Besides the standard library and the room itself.
ALLOWED = {
    "models": {"jax", "flax", "numpy"},
    "envs": {"numpy", "gymnasium", "mujoco", "ale_py", "cv2"},
    "jax_es": {"jax", "optax", "numpy"},
}
# The only files of envs that may import JAX; the second the packages it names, too.
JAX_ENVS = "envs/jax_env.py", "envs/jax_packages.py"
# What only these files of jax_es know. Rooms are packages like any other: only the
# composition root, and the presets that fill its configuration in, see them.
HOMES = {
    "models": {
        *("training/build", "training/single_env", "training/custom_policy"),
        "training/function_fitness",
        *("presets/__init__", "presets/paper", "presets/robots", "presets/control"),
        *("presets/games", "presets/own", "train_config"),
    },
    "envs": {
        *("training/build", "training/single_env", "presets/__init__"),
        "rollout/devices",
        *("benchmark/measure", "benchmark/learning", "benchmark/jax_envs"),
        *(
            "runs/directory",
            "runs/machine",
            *("cli/program", "runs/trust"),
            *("training/custom", "training/custom_policy"),
        ),  # how failures are told apart, and cores
    },
    "gymnasium": {
        *("training/build", "training/single_env", "training/own_task"),
        *("training/load_policy", "training/trained_mean"),
        "evaluation/video",
    },
    "orbax": {"runs/checkpoint", "runs/state_arrays", "runs/exported"},
    "huggingface_hub": {"runs/exported"},
    "safetensors": {"runs/exported"},
    "evosax": {
        *("es/evosax_bridge", "es/repaired", "es/strategies"),
        "benchmark/jax_envs",
    },
    "tyro": {
        *("cli/help", "cli/options", "train", "evaluate", "pretrain", "plot", "report"),
        *("benchmark/program", "teacher", "collect", "tune", "export"),
        *("illuminate", "adapt", "poet", "niches/settings"),
        *("train_config", "config/es", "config/task"),
    },
    "rich": {"cli/progress"},
    "ray": {"distributed/session", "distributed/worker"},
    "psutil": {"distributed/folder"},
    "tensorboardX": {"runs/tracking"},
    "wandb": {"runs/tracking"},
    "matplotlib": {"analysis/drawing", "analysis/positions"},
    "jinja2": {"analysis/page"},
    "optuna": {"tuning/search_space"},
    "scipy": {
        *("analysis/aggregate", "evaluation/rank_test", "evaluation/obedience"),
        "es/novelty",
    },
    "ribs": {"illumination/archive"},
    "sklearn": {"illumination/trials"},
    "minari": {
        *("imitation/datasets", "imitation/demonstrations"),
        *("imitation/recording_env", "imitation/online"),
    },
    "h5py": {"imitation/datasets"},
    "sbx": {"imitation/sbx_teacher"},
    "stable_baselines3": {"imitation/sbx_teacher"},
    "imageio": {"evaluation/video"},
    "imageio_ffmpeg": {"evaluation/video"},
    "PIL": {"evaluation/video"},
}
# Folders of jax_es: each imports from those in the rows above it, and from its own.
# The files at the top come first (settings, types, presets) or last (programs).
SETTINGS = {
    *("types", "checks", "config", "phases", "train_config", "presets", "old_names"),
}
LEVELS = [
    {"settings"},
    {"es"},
    {"rollout", "runs"},
    {"distributed"},
    {"cli"},
    {"training"},
    {"evaluation", "imitation", "tuning"},
    {"illumination", "niches"},
    {"analysis"},
    {"programs", "benchmark"},
]
# Names by which a file would mention devices, and where they may stand.
DEVICE_NAMES = {"pmap", "shard_map", "Mesh", "NamedSharding", "PartitionSpec", "psum"}
DEVICE_FILE = "jax_es/rollout/devices.py"
# Files that import by a name, always of their own package.
LAZY = {
    *("jax_es/__init__.py", "jax_es/__main__.py", "models/__init__.py"),
    *("envs/__init__.py", "jax_es/old_names.py"),
    *("jax_es/runs/trust.py", "envs/make.py"),  # the user's own modules
    "envs/jax_packages.py",
}


def violations(path: str, source: str) -> Iterator[str]:
    """Yields what a file ``room/…/name.py`` may not import or mention."""
    room, _, name = path.removesuffix(".py").partition("/")
    for node in ast.walk(ast.parse(source)):
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            packages = {package_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield f"{where} imports relatively"
                continue
            packages = {
                package_of(f"{node.module}.{alias.name}") for alias in node.names
            }
        else:
            packages = set()
        for package in packages - sys.stdlib_module_names - ALLOWED[room] - {room}:
            if path in JAX_ENVS and package == "jax":
                continue
            if not (room == "jax_es" and name in HOMES.get(package, ())):
                yield f"{where} imports {package}"
        # A package's own names are imported when they are first used.
        lazy = path in LAZY
        if not lazy and mentioned(node) & {"import_module", "__import__"}:
            yield f"{where} imports by a name that this test cannot read"
        if path != DEVICE_FILE:
            for device_name in mentioned(node) & DEVICE_NAMES:
                yield f"{where} mentions {device_name}"
    if room == "jax_es" and name != "__init__":
        here, folder = level_of(name)
        for module in modules_of_jax_es(source):
            there, other = level_of(module)
            if other != folder and there >= here:
                yield f"{path} imports jax_es/{module}"


def package_of(module: str) -> str:
    """Returns the package of a module, ``models`` of ``jax_es.models.mlp``."""
    first, second, *_ = f"{module}.".split(".")
    return second if first == "jax_es" and second in ROOMS[1:] else first


def level_of(name: str) -> tuple[int, str]:
    """Returns the level and folder of a module of jax_es, as ``rollout/slots``."""
    folder, inside, _ = name.partition("/")
    if folder in SETTINGS:
        folder = "settings"
    elif not inside:
        folder = "programs"
    return next(i for i, level in enumerate(LEVELS) if folder in level), folder


def modules_of_jax_es(source: str) -> Iterator[str]:
    """Yields the modules of jax_es that a file imports, named as ``rollout/slots``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if package_of(alias.name) == "jax_es" and "." in alias.name:
                    yield alias.name.removeprefix("jax_es.").replace(".", "/")
        if isinstance(node, ast.ImportFrom) and node.module:
            room, _, module = node.module.partition(".")
            names = [
                f"{module}/{alias.name}".strip("/")
                for alias in node.names
                if (REPOSITORY / room / module / f"{alias.name}.py").exists()
            ]
            if package_of(node.module) == "jax_es" and (module or names):
                yield from names or [module.replace(".", "/")]


def mentioned(node: ast.AST) -> set[str]:
    """Returns the identifiers that one node of the syntax tree stands for."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {part for alias in names for part in alias.name.split(".")}
    return set()


def sources() -> list[str]:
    files = (path for room in ROOMS for path in (REPOSITORY / room).rglob("*.py"))
    return sorted(path.relative_to(REPOSITORY).as_posix() for path in files)


def test_files_import_only_what_their_room_may():
    found = sources()
    assert len(found) > 150
    assert not [
        complaint
        for path in found
        for complaint in violations(path, (REPOSITORY / path).read_text())
    ]


def test_public_names_are_found_where_they_are_said_to_be():
    for name in jax_es.__all__:
        assert getattr(jax_es, name) is not None
    assert sorted(jax_es.__all__) == sorted({*jax_es._HOME, "__version__"})


def test_a_public_name_is_no_module():
    """Or importing the module would put it where the name was."""
    modules = {module.name for module in pkgutil.iter_modules(jax_es.__path__)}
    assert not modules & set(jax_es.__all__)
    importlib.import_module("jax_es.es.openai_es")
    assert callable(jax_es.openai_es)


def test_dir_and_help_show_the_public_names():
    assert dir(jax_es) == sorted(jax_es.__all__)
    text = pydoc.plain(pydoc.render_doc(jax_es))
    for name in jax_es._HOME:
        assert name in text
    assert "Builds OpenAI-ES." in text


def test_importing_the_package_starts_nothing():
    program = "import jax_es, sys; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert "jax_es" in loaded.stdout.split()
    assert not {"jax", "flax", "gymnasium", "mujoco"} & set(loaded.stdout.split())


def test_no_module_but_those_of_evosax_starts_jax():
    """Or nobody could set its devices any more, and a process could not be forked.

    evosax computes while it is imported.
    """
    loading = {*HOMES["evosax"], "es/cem"}
    names = [path.removesuffix(".py") for path in sources()]
    modules = [
        f"jax_es.{name.removeprefix('jax_es/').replace('/', '.')}"
        for name in names
        if name.removeprefix("jax_es/") not in loading and "__" not in name
    ]
    program = (
        "import importlib, sys\n"
        "from jax._src import xla_bridge\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    assert not xla_bridge.backends_are_initialized(), f'{name} starts JAX'\n"
    )
    command = [sys.executable, "-c", program, *modules]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("models/mlp.py", "from jax_es.envs.make import make", "imports envs"),
        ("jax_es/rollout/engine.py", "import jax_es.models.mlp", "imports models"),
        ("jax_es/rollout/engine.py", "from jax_es import models", "imports models"),
        ("jax_es/train.py", "def f():\n  import evosax", ":2 imports evosax"),
        ("jax_es/es/noise.py", "from .types import PyTree", "imports relatively"),
        ("jax_es/es/noise.py", "import_module('envs')", "cannot read"),
        ("jax_es/rollout/engine.py", "f = jax.pmap(g)", "mentions pmap"),
        ("jax_es/es/cem.py", "import jax_es.rollout.slots", "jax_es/rollout/slots"),
    ],
)
def test_a_breach_is_seen(path, source, complaint):
    found = list(violations(path, source))
    assert found
    assert complaint in found[0]
