"""``python -m jax_es.benchmark``: how fast this machine trains."""

from jax_es.benchmark.program import Arguments, main

__all__ = ["Arguments", "main"]
