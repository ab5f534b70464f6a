"""The version, importable without JAX."""

__version__ = "0.1.0"
