"""How work is divided among workers: by the configuration, never by their number.

The sizes decide how numbers are rounded.
"""

import dataclasses

from jax_es.checks import require
from jax_es.config import ESConfig
from jax_es.rollout.weighted_sum import PAIRS_PER_CALL
from jax_es.train_config import TrainConfig

SHARDS = 32
"""Shards of a generation, unless they would be very small or large: enough that
workers which differ by one shard end at nearly the same time."""

BLOCKS = 64
"""Blocks of a sum with full noise, alike."""


def shard_size(config: TrainConfig, num_tasks: int) -> int:
    """Returns how many tasks a shard has, if the configuration does not say.

    A shard ends with a few long episodes, while most slots are empty: one of four times
    as many episodes as slots wastes little by it.
    """
    slots = config.rollout.slots_on(1)
    return min(4 * slots, max(16, -(-num_tasks // SHARDS)))


def block_size(config: ESConfig) -> int:
    """Returns how many pairs a worker sums at a time.

    With low-rank noise a pair costs little, and the sum's size decides.
    """
    if config.perturbation == "low-rank":
        return 4 * PAIRS_PER_CALL
    return min(PAIRS_PER_CALL, max(PAIRS_PER_CALL // 4, -(-config.num_pairs // BLOCKS)))


def on_one_core(config: TrainConfig) -> TrainConfig:
    """Returns the configuration with a worker's one device and one thread."""
    rollout = dataclasses.replace(config.rollout, num_devices=1, num_threads=1)
    return dataclasses.replace(config, rollout=rollout)


def on_workers(config: TrainConfig, num_members: int | None = None) -> TrainConfig:
    """Fills in a worker's devices and slots, and the size of shards.

    ``num_members`` are a generation's; the strategy's if not given.
    """
    rollout = config.rollout
    require(
        rollout.num_devices in (None, 1),
        f"rollout.num_devices must be 1 with --workers, got {rollout.num_devices}: a "
        "worker has one device; leave it out.",
    )
    num_tasks = (num_members or 2 * config.es.num_pairs) * config.es.episodes_per_member
    rollout = dataclasses.replace(
        rollout,
        num_devices=1,
        num_slots=rollout.slots_on(1),
        shard_size=rollout.shard_size or shard_size(config, num_tasks),
    )
    return dataclasses.replace(config, rollout=rollout)
