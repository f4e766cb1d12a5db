"""Where rewards come from. A world knows nothing of bandits or privacy.

A world has `dim`, `arms` (per round) and `episode(seed)`; an episode has `theta` (or None), `public_contexts` (or None) and
`block(count)`, the next rounds as arrays. The same seed gives the same episode, however it is cut into blocks.
"""

from dpbandit.worlds.arrays import Arrays
from dpbandit.worlds.bernoulli import Bernoulli
from dpbandit.worlds.block import Block, Episode, World
from dpbandit.worlds.data import DataMissing
from dpbandit.worlds.degenerate import Degenerate
from dpbandit.worlds.drifting import Drifting
from dpbandit.worlds.lastfm import LastFM
from dpbandit.worlds.open_bandit import OpenBandit, Replay, replay
from dpbandit.worlds.synthetic import Synthetic

__all__ = [
    "Arrays",
    "Bernoulli",
    "Block",
    "DataMissing",
    "Degenerate",
    "Drifting",
    "Episode",
    "LastFM",
    "OpenBandit",
    "Replay",
    "Synthetic",
    "World",
    "replay",
]
