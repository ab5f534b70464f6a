"""What a run leaves on disk: its record, metrics and checkpoints."""
