"""What a bandit remembers of a log it was started from."""
