"""Learning from recorded episodes: datasets, behaviour cloning, teachers."""
