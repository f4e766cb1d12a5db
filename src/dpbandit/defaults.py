"""One set of defaults, for Python and for every command.

Bandits for people have no default ε or δ: `dpb.make` requires them. These defaults are for
questions (plan, claim, verify, audit, run).
"""

EPSILON = 1.0
DELTA = 1e-6
REWARD_RANGE = (-1.0, 1.0)  # of `make`, which warns where it was not given
DIM = 10
ARMS = 10
HORIZON = 10_000

# A check tries every round, or plays 200,000 runs; small problems show the same mistakes sooner.
VERIFY_DIM, VERIFY_HORIZON = 5, 512
AUDIT_DIM, AUDIT_HORIZON = 1, 256

# Without a horizon the number of rewards is unknown; this δ is too large for any number.
LARGE_DELTA = 1e-3
