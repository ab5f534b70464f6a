"""Simulators behind one contract: vector environments whose ended episodes wait."""
