"""Where rewards come from. A world knows nothing of bandits or privacy.

A world has `dim`, `arms` (per round) and `episode(seed)`; an episode has `theta` (or None), `public_contexts` (or None) and
`block(count)`, the next rounds as arrays. The same seed gives the same episode, however it is cut into blocks.
"""

from dpbandit.worlds.arms import Bernoulli as Bernoulli
from dpbandit.worlds.arms import Gaussian as Gaussian
from dpbandit.worlds.arrays import Arrays as Arrays
from dpbandit.worlds.block import Block as Block
from dpbandit.worlds.block import Episode as Episode
from dpbandit.worlds.block import World as World
from dpbandit.worlds.clicks import Clicks as Clicks
from dpbandit.worlds.clicks import Logistic as Logistic
from dpbandit.worlds.data import DataMissing as DataMissing
from dpbandit.worlds.degenerate import Degenerate as Degenerate
from dpbandit.worlds.drifting import Drifting as Drifting
from dpbandit.worlds.labelled import Labelled as Labelled
from dpbandit.worlds.lastfm import LastFM as LastFM
from dpbandit.worlds.movielens import MovieLens as MovieLens
from dpbandit.worlds.moving import Moving as Moving
from dpbandit.worlds.open_bandit import OpenBandit as OpenBandit
from dpbandit.worlds.open_bandit import Replay as Replay
from dpbandit.worlds.open_bandit import replay as replay
from dpbandit.worlds.synthetic import Synthetic as Synthetic
from dpbandit.worlds.tails import Tails as Tails
