"""What `python -m jax_es.benchmark` measures."""
