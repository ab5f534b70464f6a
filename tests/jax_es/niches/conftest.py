"""What the tests of niches share."""

import pytest

from jax_es.niches.run import build_parts
from tests.jax_es.niches.world import CONFIG, SETTINGS, SLOPES


@pytest.fixture(scope="module")
def slopes(tmp_path_factory):
    """The user's module, which can be imported."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "slopes.py").write_text(SLOPES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


@pytest.fixture
def parts(slopes):
    built = build_parts(CONFIG, SETTINGS)
    yield built
    built.close()
