"""The version, importable without JAX."""

__version__ = "0.2.0"
