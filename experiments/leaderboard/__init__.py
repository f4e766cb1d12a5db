"""The leaderboard: what privacy costs each algorithm, in worlds × budgets × horizons, beside LinUCB
on the same seeds.
"""
