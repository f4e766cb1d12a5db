"""Measurements of this project's own work, for a clone: no wheel carries them.

`reproduction` runs and judges the paper's experiments, `leaderboard` says what privacy costs,
`speed` how long a decision takes; `frontier` and `plan_accuracy` write tables for the documents.
"""
