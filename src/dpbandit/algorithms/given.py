"""What `dpb.make` takes, for type checkers: where options are handed on to it (`dpb.warm_start`).

The same as its signature; a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from numpy.typing import ArrayLike

from dpbandit.encoder import Encoder


class Given(TypedDict, total=False):
    """Options of `dpb.make`, any of them left out."""

    dim: int | None
    encoder: Encoder | None
    epsilon: float | None
    delta: float | None
    reward_range: tuple[float, float]
    horizon: int | None
    alpha: float | Literal["theory"] | None
    ridge: float
    max_norm: float
    public_contexts: ArrayLike | None
    noise: Literal["gaussian", "laplace", "laplace-l2", "wishart"] | None
    unit: (
        Literal["reward"] | tuple[Literal["user"], int] | tuple[Literal["spread", "person"], float]
    )
    seed: int | None
    pan_private: bool
    context_noise: float
    holdout: float
    theta_norm: float
    zeta: float
    reward_noise: float
    backend: Literal["core", "reference"] | None
    rewards: Literal["numbers", "clicks"]
    window: float | None
    private_features: Sequence[int] | Sequence[bool] | None
    knee: float | None
    ratio: float | None
    first_release: int | None
    reward_variance: float | None
    empirical_bayes: bool
    memories: Sequence[float] | float
    life: float | None
    explore: Literal["neglected", "everything"]
    policy: Literal["centred-ucb", "thompson", "sampled"] | None
    find_scale: bool | None
    local: Literal["blocks", "never"] | int
    shape: Literal["round", "ellipsoid", "instruments"]
    honaker: bool
    determinant_growth: float
    privacy_bonus: float | Literal["theory"]
    split_budget: bool
    reward_weight: float
    centre_rewards: bool
    shift: float
    clip_rewards: bool
    forget: float
    smallest_eigenvalue: float | None
    form: Literal["simplified", "full"]
    printed_index: bool
