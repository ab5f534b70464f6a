"""Niches: terrains and the policies that they are paired with, which grow together."""
