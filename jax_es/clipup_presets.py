"""The best settings found for MuJoCo's tasks: ClipUp, three networks a task.

What they share, and why:

- ClipUp steps by a fixed length along the estimate, whatever the scale of the fitness
  (Toklu et al. 2020, arXiv 2008.02387). Its speed is bounded by twice the step.
- The fitness leaves out what a task pays for staying healthy: with it, standing still
  is an optimum (Mania et al. 2018, arXiv 1803.07055). Returns hold all of it.
- A generation takes about as many steps whatever its episodes' length: many pairs while
  bodies fall at once, few when they walk (PGPE's adaptive population, same paper as
  ClipUp).
- Observations are divided by their standard deviation down to 0.01 and cut at ±10.
- Heads begin near 0, so that the first actions are small.
- The transformer is small (width 16, two blocks, 8 steps), keeps keys and values, and
  has one row of timesteps: rows that short episodes never reach would stay noise.
"""

from typing import Any

from jax_es.config import EnvConfig, ESConfig, RolloutConfig
from jax_es.train_config import TrainConfig
from models import AnyPolicyConfig, DecisionTransformerConfig, MLPConfig

LINEAR = MLPConfig(hidden_sizes=(), head_scale=0.0)
MLP = MLPConfig(hidden_sizes=(32, 32), head_scale=0.1)


def _transformer(target_return: float, reward_scale: float = 0.001):
    return DecisionTransformerConfig(
        attention="cache",
        context_length=8,
        width=16,
        num_layers=2,
        target_return=target_return,
        reward_scale=reward_scale,
        max_timestep=1,
        timestep_scale=0.02,
        head_scale=0.1,
    )


def _config(
    env_id: str, policy: AnyPolicyConfig, max_env_steps: int, **es: Any
) -> TrainConfig:
    return TrainConfig(
        env=EnvConfig(env_id),
        policy=policy,
        es=ESConfig(
            optimizer="clipup", shaping="centered_rank", weight_decay=0.0, **es
        ),
        rollout=RolloutConfig(
            statistics_fraction=0.1,
            std_floor=0.01,
            observation_clip=10.0,
            step_cap_factor=None,
        ),
        num_generations=100_000,
        max_env_steps=max_env_steps,
        checkpoint_every=10,
    )


def _task(
    env_id: str,
    transformer: DecisionTransformerConfig,
    max_env_steps: int,
    steps: dict[str, float],
    **es: Any,
) -> dict[str, TrainConfig]:
    """One configuration a network; ``steps`` are the networks' learning rates."""
    policies = {"linear": LINEAR, "mlp": MLP, "decision-transformer": transformer}
    return {
        kind: _config(env_id, policies[kind], max_env_steps, learning_rate=step, **es)
        for kind, step in steps.items()
    }
