"""Integer codes that both engines return, so that an ordinary round creates no object."""

from __future__ import annotations

# What `learn` says: the reward was learned; or a release is due and nothing was changed.
LEARNED, DUE = 0, 1
# What both engines refuse, by code.
NOT_AN_ARRAY, DIMENSION, NO_ARMS, NOT_FINITE, TOO_LONG, TOO_LONG_L1, NOT_ONE_HOT = range(-1, -8, -1)
REWARD_NOT_FINITE, HORIZON, BUSY, FORKED = -8, -9, -10, -11
# What `prepare` says instead of a noise scale in a round without a release.
NO_RELEASE = -1.0
