"""Networks have as many parameters as the papers say."""

import jax
import pytest

from jax_es.models import (
    BoxActions,
    CNNConfig,
    DecisionTransformerConfig,
    DiscreteActions,
    ImageDecisionTransformerConfig,
    MLPConfig,
    make_policy,
)

HUMANOID = 376, BoxActions((-0.4,) * 17, (0.4,) * 17)
ATARI = (4, 84, 84), DiscreteActions(18)


@pytest.mark.parametrize(
    ("config", "task", "expected"),
    [
        # Salimans et al. have no biases.
        (MLPConfig(), HUMANOID, 166_144 + (256 + 256 + 17)),
        # The paper also perturbs heads that predict the state and the return, and a
        # token embedding; none of them ever acts, so we leave them out.
        (DecisionTransformerConfig(), HUMANOID, 825_098 - (48_504 + 129 + 128)),
        # Three kernels, virtual batch normalisation instead of biases, and the head.
        (
            CNNConfig(),
            ATARI,
            (8 * 8 * 4 * 16 + 4 * 4 * 16 * 32 + 9 * 9 * 32 * 256)
            + 2 * (16 + 32 + 256)
            + (256 * 18 + 18),
        ),
        # The paper counts what its code had before these were added: the encoder, and
        # the embeddings of returns and of actions. The code has a token table besides,
        # as large as the last, which nothing reads and we leave out.
        (
            ImageDecisionTransformerConfig(),
            ATARI,
            2_486_272 + (479_520 + 256 + 2_304) - 2_304,
        ),
        # A cache has no place in a window.
        (
            ImageDecisionTransformerConfig(attention="cache"),
            ATARI,
            2_966_048 - 91 * 128,
        ),
    ],
    ids=["mlp", "transformer", "cnn", "images", "images-cache"],
)
def test_numbers_of_parameters(config, task, expected):
    policy = make_policy(config, *task)
    params = jax.eval_shape(policy.init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == expected
