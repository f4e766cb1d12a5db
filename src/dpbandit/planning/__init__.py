"""What a private bandit will cost, before any reward is seen: predicted regret and parameter error, and the ε one can afford."""
