"""What a log is boiled down to, how that enters a bandit, and what the bandit remembers of it."""
