"""What the programs share on the command line: options, signals, progress."""
