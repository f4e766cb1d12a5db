"""What a private bandit will cost, before any reward is seen: regret, parameter error, and ε.

The package is not called `plan`: importing one of its modules would hide the function `dpb.plan`.
"""
