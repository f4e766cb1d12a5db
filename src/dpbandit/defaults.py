"""What is assumed where nothing is said: one set, for Python and for every command.

Nothing that is made for people has a default ε or δ: `dpb.make` asks for them. These are for questions
(plan, claim, verify, audit, run), where some number must stand.
"""

EPSILON = 1.0
DELTA = 1e-6
REWARD_RANGE = (-1.0, 1.0)  # of `make`, which warns where it was not given
DIM = 10
ARMS = 10
HORIZON = 10_000

# A check tries every round, or plays 200,000 runs: it is smaller, and finds the same mistakes sooner.
VERIFY_DIM, VERIFY_HORIZON = 5, 512
AUDIT_DIM, AUDIT_HORIZON = 1, 256

# Without a horizon nobody can say how many δ is shared by; this much is too large for any.
LARGE_DELTA = 1e-3
