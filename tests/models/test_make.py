import pytest

from models import (
    DecisionTransformerConfig,
    DecisionTransformerPolicy,
    DiscreteActions,
    LSTMConfig,
    LSTMPolicy,
    MLPConfig,
    MLPPolicy,
    make_policy,
)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (MLPConfig(hidden_sizes=(3,)), MLPPolicy),
        (LSTMConfig(width=3), LSTMPolicy),
        (DecisionTransformerConfig(width=4), DecisionTransformerPolicy),
    ],
)
def test_make_policy_keeps_its_arguments(config, expected):
    policy = make_policy(config, 5, DiscreteActions(2))
    assert policy == expected(config, 5, DiscreteActions(2))
    assert hash(policy) == hash(expected(config, 5, DiscreteActions(2)))


def test_make_policy_refuses_another_config():
    with pytest.raises(ValueError, match="got str: pass MLPConfig"):
        make_policy("mlp", 5, DiscreteActions(2))
