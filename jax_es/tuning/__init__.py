"""Hyperparameter search by successive halving."""
