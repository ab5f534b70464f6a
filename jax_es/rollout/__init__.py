"""Tasks → episode results: continuous batching over slots and devices."""
