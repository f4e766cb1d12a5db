"""What editors and type checkers know of `dpb.make`: the names of our algorithms, and the options they take."""

from __future__ import annotations

from typing import Literal, Required, TypedDict

from numpy.typing import ArrayLike

Known = Literal[
    "random",
    "linucb",
    "private-linucb",
    "private-linucb-published",
    "dgs",
    "dgs-published",
    "dgs-figure",
    "local",
    "tree-gauss",
    "toeplitz",
    "anytime",
    "private-ts",
    "adac-oful",
    "private-ucb",
    "joint",
]


class Given(TypedDict, total=False):
    """Every option; those below the line belong to some algorithms only, and `make` says so."""

    dim: Required[int]
    epsilon: float | None
    delta: float | None
    reward_range: tuple[float, float]
    horizon: int | None
    alpha: float | Literal["theory"] | None
    ridge: float
    max_norm: float
    public_contexts: ArrayLike | None
    noise: Literal["gaussian", "laplace", "laplace-l2", "wishart"] | None
    unit: Literal["reward"] | tuple[Literal["user"], int]
    seed: int | None
    pan_private: bool
    context_noise: float
    theta_norm: float
    zeta: float
    reward_noise: float
    # ------------------------------------------------------------------
    shape: Literal["round", "instruments", "ellipsoid"]
    determinant_growth: float
    window: float
    knee: float | None
    ratio: float
    first_release: int | None
    reward_variance: float
    empirical_bayes: bool
    smallest_eigenvalue: float | None
    form: Literal["simplified", "full"]
    printed_index: bool
    reward_weight: float
    centre_rewards: bool
    shift: float
    clip_rewards: bool
    privacy_bonus: float | Literal["theory"]
    split_budget: bool
    honaker: bool
