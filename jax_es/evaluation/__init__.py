"""Episodes of trained policies: conditions, statistics, quantization, video."""
