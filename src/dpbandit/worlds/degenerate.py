"""Contexts without diversity: low rank, and one direction that matters but is rarely offered. Not in the paper; a held-out test.

The paper's Lemma 1 and its regret bound need contexts that vary in every direction; here most directions hardly vary.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpbandit.worlds.drawn import DrawnEpisode, DrawnWorld

# θ*'s lengths in the common, the rare and the faint directions; (2, 2, 1)/3 has norm 1.
COMMON, RARE, FAINT = 2.0, 2.0, 1.0


class Degenerate(DrawnWorld):
    """Contexts that lie almost in `rank` of `dim` directions, but for a share `rare` of rounds, where one more matters.

    Every seed draws orthonormal directions, uniformly: `rank` common ones, a rare one, and the rest, faint. An arm has
    coordinates U(0, 1) in the common directions, U(0, 1) in the rare one if it is a rare arm, and N(0, `faint`²) everywhere
    else; it is divided by its norm. θ* has coordinates U(0, 1) in the common and, apart, in the faint directions, scaled so
    that its lengths in common, rare and faint directions are as 2 : 2 : 1 and its norm is 1.

    The pool's last `rare_arms` arms are rare: a share `rare` of them all, but enough of both kinds to fill a round. A round
    shows rare arms with probability `rare` and common arms otherwise, in either case distinct and uniform. So a bandit that
    never learns the rare direction does well in most rounds and no better than random play in those few. The pool is public.

    >>> episode = Degenerate().episode(seed=0)
    >>> pool = episode.public_contexts
    >>> np.linalg.eigvalsh(pool.T @ pool / len(pool)).round(4).tolist()
    [0.0001, 0.0001, 0.0002, 0.0002, 0.0002, 0.0002, 0.0044, 0.0917, 0.1014, 0.8015]
    """

    own = ("rank", "faint", "rare")

    def __init__(
        self,
        arms: int = 1000,
        dim: int = 10,
        shown: int = 10,
        reward_noise: float = 0.5,
        *,
        rank: int = 3,
        faint: float = 0.01,
        rare: float = 0.02,
    ) -> None:
        super().__init__(arms, dim, shown, reward_noise)
        if not 1 <= shown <= arms // 2:
            raise ValueError(
                f"Degenerate needs 1 ≤ shown ≤ arms/2 (enough arms of both kinds to fill a round), not shown={shown}, "
                f"arms={arms}"
            )
        if not 1 <= rank < dim:
            raise ValueError(
                f"Degenerate needs 1 ≤ rank < dim (one direction is left for the rare one), not rank={rank}, dim={dim}"
            )
        if not 0 <= faint <= 1:
            raise ValueError(
                f"faint must lie between 0 (contexts of exactly low rank) and 1, not {faint!r}"
            )
        if not 0 <= rare <= 1:
            raise ValueError(f"rare must be a share of rounds, between 0 and 1, not {rare!r}")
        self.rank, self.faint, self.rare = rank, faint, rare
        self.rare_arms = min(max(shown, round(rare * arms)), arms - shown)

    def episode(self, seed: int) -> DegenerateEpisode:
        """A fresh start from this seed."""
        return DegenerateEpisode(self, seed)


class DegenerateEpisode(DrawnEpisode):
    """One seed's run. The rows of `directions` are the common ones, the rare one, the faint ones."""

    def __init__(self, world: Degenerate, seed: int) -> None:
        setup = np.random.default_rng([seed, 0])
        rank, arms = world.rank, world.pool_size
        inside = setup.normal(0.0, world.faint, size=(arms, world.dim))
        inside[:, :rank] = setup.uniform(size=(arms, rank))
        inside[-world.rare_arms :, rank] = setup.uniform(size=world.rare_arms)
        inside /= np.linalg.norm(inside, axis=1, keepdims=True)
        theta = setup.uniform(size=world.dim)
        parts = (slice(rank), slice(rank, rank + 1), slice(rank + 1, None))
        for part, length in zip(parts, (COMMON, RARE, FAINT), strict=True):
            if len(theta[part]):
                theta[part] *= length / np.linalg.norm(theta[part])
        theta /= np.linalg.norm(theta)
        self.directions = _directions(setup.normal(size=(world.dim, world.dim)))
        super().__init__(
            "degenerate",
            seed,
            pool=inside @ self.directions,
            theta=theta @ self.directions,
            arms=world.arms,
            reward_noise=world.reward_noise,
            rare=world.rare,
            rare_arms=world.rare_arms,
        )


def _directions(gaussian: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal rows, uniform over all such matrices: QR of Gaussians, with R's diagonal made positive (Mezzadri 2007)."""
    q, r = np.linalg.qr(gaussian)
    return np.ascontiguousarray((q * np.where(np.diag(r) < 0, -1.0, 1.0)).T)
