"""The engine that runs a bandit, and the meaning of its codes.

There are two with the same interface: the compiled core, and the reference in plain NumPy, which
runs where there is no core or where a design has a part that the core does not know. An engine
admits, clips, adds up and picks arms; it draws no real noise and knows no budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dpbandit import codes
from dpbandit.errors import (
    BudgetError,
    DpbanditError,
    HorizonError,
    NormError,
    NotFiniteError,
    OptionError,
    ShapeError,
)
from dpbandit.types import Matrix, Vector

if TYPE_CHECKING:
    from dpbandit.bandit import Bandit


# The core's instruction sets, in words.
INSTRUCTIONS = {
    "v2": "x86-64-v2 (SSE4.2)",
    "v3": "x86-64-v3 (AVX2)",
    "v4": "x86-64-v4 (AVX-512)",
    "generic": "this processor's own instructions",
}

_CONTEXT: dict[int, tuple[type[DpbanditError], str]] = {
    codes.NOT_AN_ARRAY: (ShapeError, "contexts must be an array of numbers"),
    codes.DIMENSION: (ShapeError, "a context has a different number of features than the bandit"),
    codes.NO_ARMS: (ShapeError, "contexts must hold at least one arm"),
    codes.NOT_FINITE: (NotFiniteError, "a context holds NaN or infinity"),
    codes.TOO_LONG: (NormError, "a context has a norm above max_norm"),
    codes.TOO_LONG_L1: (NormError, "a context has an L1 norm above that of public_contexts"),
    codes.NOT_ONE_HOT: (ShapeError, "a context must be one-hot"),
}
# The reward's value stays out of the message: it is private.
REWARD_WORDS = "a reward is NaN or infinite: rewards must be finite numbers"
FORKED_WORDS = (
    "this bandit was made in another process: a forked copy would spend the same budget a second "
    "time. Learn in one process, or make the bandit (or load it) after the fork"
)


class Engine(Protocol):
    """Runs the rounds of one bandit."""

    rounds: int
    decisions: int
    clipped: int
    outside: bool

    def select(self, contexts: Matrix, alpha: float = ...) -> int:
        """The arm to play, or a code."""

    def rank(self, contexts: Matrix, k: int, alpha: float = ...) -> list[int] | int:
        """The k best arms, best first, or a code."""

    growth: int  # by how much the last round's person counts more, where a learner counts

    def learn(
        self, x: Vector, reward: float, told: list[Any] | None = ..., counted: int = ..., /
    ) -> int:
        """LEARNED, DUE or a code. `told` gets how many rows were learned, 0 or 1, and `growth`.

        `counted` is what was counted of the person whose round it is: 0 of a stranger.
        """

    def learn_many(self, xs: Matrix, rs: Vector, told: list[Any] | None = ...) -> tuple[int, int]:
        """How many rows were learned before a release was due, and LEARNED, DUE or a code."""

    def admit(self, x: Vector, reward: float) -> int:
        """0, or the code with which a row would be refused."""

    def prepare(
        self, x: Vector, reward: float, in_public_set: bool = ..., counted: int = ...
    ) -> float:
        """Learn from one admitted row; the noise scale of what is pending, or NO_RELEASE."""

    def pending(self) -> Vector:
        """The clean numbers to release."""

    def pending_whole(self) -> list[int] | None:
        """The same in whole numbers of the grid, where they are."""

    def commit(self, noisy: Vector) -> None:
        """Take the noisy numbers and make the released parameter of them."""

    def starts(self) -> list[int]:
        """Pan-private: the levels of the nodes that begin with the coming round."""

    def begin(self, level: int, whole: list[int]) -> None:
        """Pan-private: noise into the node of this level."""

    def simulate(
        self,
        x: Vector,
        reward: float,
        in_public_set: bool,
        noise_key: int,
        start_key: int,
        counted: int = ...,
    ) -> float:
        """A whole round with seeded noise; its scale, or NO_RELEASE."""

    def start(self, noisy: Vector, scale: float) -> bool:
        """Learn from a log's noisy sum before round 1; False: this learner does not."""

    def conclude(self) -> bool:
        """The parameter anew after a log was put into the fields; False: this learner does not."""

    def theta(self) -> Vector:
        """The released parameter."""

    def model(self) -> dict[str, Any]:
        """What `select` looks at now."""

    def fields(self) -> dict[str, NDArray[Any]]:
        """Everything that changes, by name."""

    def load_fields(self, fields: dict[str, NDArray[Any]]) -> None:
        """Go on from these."""

    def snapshot(self) -> Any:
        """Everything that changes, to go back to."""

    def restore(self, snapshot: Any) -> None:
        """Go back."""

    def reset(self) -> None:
        """Forget everything."""

    def copy(self) -> Engine:
        """Another one in the same state."""

    def draft(self) -> Engine:
        """The same, to work on. Until `go_on` this one neither chooses nor learns: BUSY."""

    def go_on(self) -> None:
        """The draft was dropped, or this engine is no longer in use."""

    def trace(
        self,
        xs: Matrix,
        rs: Vector,
        in_public_set: NDArray[np.bool_],
        *,
        noise_key: int,
        start_key: int,
        noisy: Matrix | None = ...,
    ) -> tuple[Matrix, Matrix, Vector]:
        """Learn a stream from the start: noisy numbers, clean numbers and scales of all rounds."""

    def scores(
        self,
        xs: Matrix,
        rs: Vector,
        other_xs: Matrix,
        other_rs: Vector,
        in_public_set: NDArray[np.bool_],
        *,
        key: int,
        first: int,
        count: int,
    ) -> Vector:
        """log p(what was released | this stream) − log p(it | the other one), of many runs."""


@lru_cache(maxsize=1)
def _core() -> tuple[Any, str]:
    """The compiled module, or None and the reason."""
    try:
        return import_module("dpbandit._core"), ""
    except ImportError as error:
        return None, str(error)


def core_status() -> str:
    """The engine of this machine, in words; `doctor` prints it.

    >>> core_status().startswith(("the compiled core: ", "the reference in NumPy"))
    True
    """
    module, why = _core()
    if module is None:
        return f"the reference in NumPy, some 100 times slower: no compiled core ({why})"
    return f"the compiled core: {INSTRUCTIONS[module.arch()]}"


def has_core() -> bool:
    """Whether the compiled core is here."""
    return _core()[0] is not None


def backend_for(wanted: str | None, not_in_core: Sequence[str]) -> str:
    """The engine of a design: 'core' or 'reference'.

    Parameters
    ----------
    wanted : str or None
        The option `backend`; None: the core where possible.
    not_in_core : sequence of str
        The parts of the design that the core does not know, in words.

    Raises
    ------
    OptionError
        If the core is requested but cannot run the design, or is not installed.
    """
    if wanted == "core":
        if not_in_core:
            raise OptionError(
                f"backend='core' is not possible: the core has no {not_in_core[0]}; omit backend, and "
                "the reference runs it"
            )
        if not has_core():
            raise OptionError(
                f"backend='core' is not possible: there is no compiled core here ({_core()[1]}); "
                "omit backend, and the reference runs it"
            )
    if wanted is not None:
        return wanted
    return "core" if has_core() and not not_in_core else "reference"


def new_engine(spec: dict[str, Any], backend: str) -> Engine:
    """A new engine.

    Parameters
    ----------
    spec : dict
        The design in plain values; an engine refuses keys and names that it does not know.
    backend : {'core', 'reference'}
        Which one.
    """
    if backend == "core":
        return cast(Engine, _core()[0].Engine(spec))
    if backend == "reference":
        from dpbandit.reference.engine import Engine as Reference

        return cast(Engine, Reference(spec))
    raise OptionError(f"backend must be 'core' or 'reference', not {backend!r}")


def new_world(spec: dict[str, Any]) -> Any:
    """What draws the rounds of a simulated world: the core's, or the reference's."""
    if has_core():
        return _core()[0].World(spec)
    from dpbandit.reference.worlds import World

    return World(spec)


def refuse(bandit: Bandit, code: int, contexts: Matrix, count: int | None = None) -> NoReturn:
    """The named error that a negative code stands for. Nothing was changed when it was returned.

    `count` is how many more rewards were to be learned; default: one for each context.
    """
    rounds, horizon = bandit.rounds, bandit.options.horizon
    more = len(np.atleast_1d(contexts)) if count is None else count
    if code in _CONTEXT:
        bandit.gate.check(contexts)
        error, words = _CONTEXT[code]
        raise error(words)  # the gate in NumPy rounded a norm the other way
    if code == codes.REWARD_NOT_FINITE:
        raise NotFiniteError(REWARD_WORDS)
    if code == codes.HORIZON and horizon is None:
        raise HorizonError(
            f"this bandit has learned {rounds} rewards, and {more} more do not fit: without a "
            "horizon toeplitz covers 2**48 (the rounding of its floats is paid for up to there), a "
            "pan-private tree 2**57 - 1, and all others 2**62 - 1, where clocks end. It still ranks; "
            "to keep learning make a new one"
        )
    if code == codes.HORIZON:
        raise HorizonError(
            f"this bandit was made for horizon = {horizon} and has learned {rounds} "
            f"rewards; {more} more do not fit. It still ranks; to keep learning make one with a "
            "larger horizon, or horizon=None"
        )
    if code == codes.BUSY:
        raise BudgetError("a release of this bandit was begun but not finished")
    if code == codes.FORKED:
        raise BudgetError(FORKED_WORDS)
    raise RuntimeError(f"the engine said {code}, which is no code")
