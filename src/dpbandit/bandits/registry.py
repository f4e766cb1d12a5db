"""The names of all algorithms, ours and those a user registers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, overload

from dpbandit.bandits import (
    adac_oful,
    anytime,
    dgs,
    joint,
    linucb,
    local,
    private_linucb,
    private_ts,
    private_ucb,
    random,
    toeplitz,
    tree_gauss,
)
from dpbandit.bandits.options import Options, build
from dpbandit.budget import Claim
from dpbandit.errors import OptionError, PrivacyWarning, UnknownAlgorithmError, nearest

if TYPE_CHECKING:
    from dpbandit.bandits.base import Bandit
    from dpbandit.bandits.hints import Given, Known


@dataclass(frozen=True)
class Algorithm:
    """One line of `dpb.algorithms()`."""

    description: str
    claim: str
    reference: str
    factory: Callable[..., Any]
    own_options: tuple[str, ...] = ()
    registered_by_user: bool = False
    one_hot: bool = False  # contexts may only name arms


def entry(module: Any) -> Algorithm:
    """The line for an algorithm that has a file of its own."""
    return Algorithm(
        module.DESCRIPTION,
        module.CLAIM,
        module.REFERENCE,
        module.make,
        module.OWN,
        one_hot=getattr(module, "ONE_HOT", False),
    )


def twin(module: Any, word: str) -> Algorithm:
    """A second algorithm of the same file, whose names begin with `word`."""
    description, claim, reference = (
        getattr(module, f"{word}_{part}") for part in ("DESCRIPTION", "CLAIM", "REFERENCE")
    )
    return Algorithm(
        description, claim, reference, getattr(module, f"make_{word.lower()}"), getattr(module, f"{word}_OWN", ())
    )


# One line for each algorithm.
ALGORITHMS: dict[str, Algorithm] = {
    "random": entry(random),
    "linucb": entry(linucb),
    "private-linucb": entry(private_linucb),
    "private-linucb-published": twin(private_linucb, "PUBLISHED"),
    "dgs": entry(dgs),
    "dgs-published": twin(dgs, "PUBLISHED"),
    "dgs-figure": twin(dgs, "FIGURE"),
    "local": entry(local),
    "tree-gauss": entry(tree_gauss),
    "toeplitz": entry(toeplitz),
    "anytime": entry(anytime),
    "private-ts": entry(private_ts),
    "adac-oful": entry(adac_oful),
    "private-ucb": entry(private_ucb),
    "joint": entry(joint),
}


def algorithms() -> dict[str, Algorithm]:
    """All algorithms: name → description, claim, reference.

    >>> import dpbandit as dpb
    >>> dpb.algorithms()["tree-gauss"].claim
    'GDP, proven'
    """
    return dict(ALGORITHMS)


def find(name: str) -> Algorithm:
    """The algorithm of that name, or an error with the nearest one."""
    try:
        return ALGORITHMS[name]
    except (KeyError, TypeError):
        raise UnknownAlgorithmError(f"no algorithm is called {name!r}: {nearest(name, ALGORITHMS)}") from None


@overload
def make(name: Known, **options: Unpack[Given]) -> Bandit: ...
@overload
def make(name: str, **options: Any) -> Any: ...
def make(name: str, **options: Any) -> Any:
    """A new bandit. Without a seed it draws real noise; with one it is a reproducible simulation.

    >>> import dpbandit as dpb
    >>> bandit = dpb.make("dgs", dim=3, epsilon=2.0, delta=1e-5, reward_range=(0, 1), horizon=1_000, seed=7)
    >>> print(bandit.claim.status, bandit.claim.noise)
    proven simulation
    """
    bandit = construct(name, options)
    warn_of_large_delta(getattr(bandit, "claim", None), options.get("horizon"))
    return bandit


def know(entries: Mapping[str, Algorithm]) -> None:
    """Take over entries of another process; those that are here already stay the same."""
    for name, algorithm in entries.items():
        if ALGORITHMS.get(name) is not algorithm:
            ALGORITHMS[name] = algorithm


def construct(name: str, options: dict[str, Any]) -> Any:
    """`make` without its warnings, for callers that make many."""
    algorithm = find(name)
    if algorithm.registered_by_user:
        return algorithm.factory(**options)
    return algorithm.factory(name, build(options, algorithm.own_options, name))


def warn_of_large_delta(claim: Claim | None, horizon: int | None) -> None:
    """(ε, δ) with δ ≥ 1/T allows a mechanism that publishes one of T rewards in the clear."""
    if claim is not None and horizon and claim.delta > 1 / horizon:
        warnings.warn(
            f"delta = {claim.delta:g} is above 1/horizon = {1 / horizon:g}: fine to reproduce a paper, too large to protect "
            "people (publishing one reward at random in the clear would satisfy it)",
            PrivacyWarning,
            stacklevel=3,
        )


def register(
    name: str,
    factory: Callable[..., Any],
    *,
    description: str = "registered by the user",
    claim: str = "none stated",
    reference: str = "",
    replace: bool = False,
) -> None:
    """Add your own algorithm: `factory(**options)` returns an object with select(contexts) and update(context, reward).

    It then runs in `dpb.run` and on the command line beside ours. `theta` and `claim` are used where they exist.

    >>> import dpbandit as dpb
    >>> class First:
    ...     def __init__(self, **options): pass
    ...     def select(self, contexts): return 0
    ...     def update(self, context, reward): pass
    >>> dpb.register("first-arm", First, description="always the first arm", replace=True)
    >>> dpb.make("first-arm", dim=2).select([[0.0, 1.0]])
    0
    """
    if not callable(factory):
        raise OptionError(f"register needs a factory that can be called with options, not {factory!r}")
    if name in ALGORITHMS and not (replace and ALGORITHMS[name].registered_by_user):
        raise OptionError(f"an algorithm called {name!r} exists: choose another name")
    ALGORITHMS[name] = Algorithm(description, claim, reference, factory, (), True)


__all__ = ["Algorithm", "Options", "algorithms", "find", "make", "register"]
