"""From a configuration to a trained run: parts, one generation, the loop, seeds."""
