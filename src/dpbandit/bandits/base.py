"""What every bandit does alike: checks input before anything changes, clips rewards, counts users, says what it claims.

A subclass chooses arms and learns; it never sees a reward that was not checked and clipped here.
"""

from __future__ import annotations

import math
import os
import secrets
import threading
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.bandits.logged import ASSUMPTION, Log, People
from dpbandit.bandits.options import Options, whole
from dpbandit.budget import Claim, Ledger, Spent, epsilon_of
from dpbandit.errors import (
    BudgetError,
    HorizonError,
    NormError,
    NotFiniteError,
    OptionError,
    PropensityError,
    ShapeError,
)
from dpbandit.frames import entries
from dpbandit.frames import numbers as frame_numbers

if TYPE_CHECKING:
    from dpbandit.bandits.propensity import Propensities

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Contexts are normalised in floats: a hair above max_norm is rounding, and the noise scales allow for it.
NORM_TOLERANCE = 1e-9


class Bandit(ABC):
    """A contextual bandit. Make one with `dpb.make`; the methods below are all there is to know."""

    contexts_are_private = False  # then no message may say what is in one

    def __init__(self, name: str, options: Options, claim: Claim, ledger: Ledger, *, clips: bool) -> None:
        self.name = name
        self.options = options
        self.claim = claim
        self.ledger = ledger
        self.identity = secrets.token_hex(16)
        self.clipped = 0  # trusted side only: how many rewards were outside the range is itself private
        self.over_cap = 0
        self._clips = clips
        self._user_counts: dict[str, int] = {}
        self.log: Log | None = None  # what it was started from
        self._people = People.nobody()  # the log's users
        self._lock = threading.RLock()
        self._process = os.getpid()

    # ------------------------------------------------------------------ what users call

    @overload
    def select(self, contexts: ArrayLike, k: None = None) -> int: ...
    @overload
    def select(self, contexts: ArrayLike, k: int) -> NDArray[np.int64]: ...
    def select(self, contexts: ArrayLike, k: int | None = None) -> Any:
        """The arm to play: an index into the rows of `contexts` (k of them, best first, if k is given).

        >>> import dpbandit as dpb
        >>> bandit = dpb.make("linucb", dim=2, seed=0)
        >>> bandit.update([0.0, 1.0], 1.0)
        >>> bandit.select([[1.0, 0.0], [0.0, 1.0]])
        1
        """
        checked = self.check_contexts(contexts)
        if k is None:
            with self._lock:
                return int(self._choose(checked, 1)[0])
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= len(checked):
            raise OptionError(f"k must be a whole number from 1 to the {len(checked)} arms given, not {k!r}")
        with self._lock:
            return self._choose(checked, int(k))

    def update(self, contexts: ArrayLike, rewards: ArrayLike, *, user: Any = None) -> None:
        """Learn from one played context and its reward, or from a batch: shapes (n, d) and (n,).

        With unit=('user', m), `user` names whose reward it is (a list for a batch); a user's rewards beyond the m-th
        are counted and not learned from.

        >>> import dpbandit as dpb
        >>> bandit = dpb.make("tree-gauss", dim=2, epsilon=1.0, delta=1e-5, horizon=10, seed=0)
        >>> bandit.update([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0])
        >>> bandit.rounds
        2
        """
        xs = np.ascontiguousarray(_numbers(contexts, "contexts"), dtype=np.float64)
        rs = np.asarray(_numbers(rewards, "rewards"), dtype=np.float64)
        if xs.ndim == 1 and rs.ndim == 0:
            xs, rs = xs[None, :], rs[None]
        if xs.ndim != 2 or rs.ndim != 1 or len(xs) != len(rs):
            raise ShapeError(
                f"update takes a context of shape ({self.dim},) with one reward, or a batch of shapes (n, {self.dim}) and "
                f"(n,), not {np.shape(contexts)} and {np.shape(rewards)}"
            )
        if len(xs) == 0:
            return
        xs = self.check_contexts(xs)
        if not np.isfinite(rs).all():
            # The reward's value stays out of the message: it is private.
            raise NotFiniteError("a reward is NaN or infinite: rewards must be finite numbers")
        users = self._check_users(user, len(xs))
        with self._lock:
            self._check_process()
            admitted = self._admit(users) if users is not None else [True] * len(xs)
            self._check_horizon(sum(admitted))
            i = 0
            while i < len(xs):
                try:
                    done = self._update_many(xs[i:], rs[i:]) if users is None else 0
                    if done == 0:
                        self._update_one(xs[i], float(rs[i]), None if users is None else users[i], admitted[i])
                except BaseException as error:
                    if len(xs) > 1:
                        error.add_note(f"the first {i} of this batch of {len(xs)} were learned; none of the others was")
                    raise
                i += max(done, 1)

    def _update_many(self, xs: Matrix, rs: Vector) -> int:
        """Learn from as many of these checked rewards as go together without a release; returns how many."""
        return 0

    def _update_one(self, x: Vector, reward: float, user: str | None, admitted: bool) -> None:
        """One checked reward. What fails leaves no trace: the clean sums, the ledger and the counts are as before."""
        if not admitted:
            self.over_cap += 1
        else:
            clipped = self.clipped
            try:
                self._learn(x, self._clip(reward))
            except BaseException:
                self.clipped = clipped
                raise
        if user is not None:
            self._user_counts[user] = self._user_counts.get(user, 0) + 1

    @property
    def theta(self) -> Vector:
        """The released parameter, never the clean one.

        >>> import dpbandit as dpb
        >>> dpb.make("linucb", dim=2, seed=0).theta.tolist()
        [0.0, 0.0]
        """
        return self._theta().copy()

    @property
    def dim(self) -> int:
        """Features per context."""
        return self.options.dim

    @property
    @abstractmethod
    def rounds(self) -> int:
        """How many rewards have been learned from."""

    @property
    def spent(self) -> Spent:
        """What the worst-off reward (or user) has paid so far, in the claim's terms.

        >>> import dpbandit as dpb
        >>> bandit = dpb.make("private-linucb", dim=1, epsilon=2.0, horizon=3, seed=0)  # two levels share ε = 2
        >>> bandit.update([1.0], 0.5)
        >>> bandit.spent.epsilon
        1.0
        """
        claim, m = self.claim, self.options.rewards_per_unit
        if self.ledger.currency == "mu²":
            mu = m * math.sqrt(self.ledger.total)
            epsilon = epsilon_of(mu=mu, delta=claim.delta) if 0 < claim.delta < 1 else 0.0
            return Spent(epsilon, claim.delta, mu, claim)
        return Spent(m * self.ledger.total, claim.delta, None, claim)

    def receipt(self) -> dict[str, Any]:
        """What to keep elsewhere so that an old save is recognised: see `dpb.load(path, receipt=...)`.

        >>> import dpbandit as dpb
        >>> sorted(dpb.make("local", dim=1, epsilon=1.0, seed=0).receipt())
        ['fingerprint', 'identity', 'releases']
        """
        return {
            "identity": self.identity,
            "releases": self.ledger.releases,
            "fingerprint": self.ledger.fingerprint,
        }

    def save(self, path: str | Path) -> None:
        """Write everything, clean statistics and noise in use included: trusted side only (file mode 0600).

        >>> import dpbandit as dpb, tempfile, os
        >>> file = os.path.join(tempfile.mkdtemp(), "bandit.npz")
        >>> dpb.make("linucb", dim=2, seed=0).save(file)
        >>> oct(os.stat(file).st_mode & 0o777)
        '0o600'
        """
        from dpbandit.bandits.files import save

        with self._lock:
            save(self, path)

    def export(self, path: str | Path) -> None:
        """Write the released model only: what a ranker or a stranger may hold.

        >>> import dpbandit as dpb, tempfile, os
        >>> file = os.path.join(tempfile.mkdtemp(), "model.json")
        >>> dpb.make("linucb", dim=2, seed=0).export(file)
        >>> dpb.load(file).select([[1.0, 0.0], [0.0, 0.5]])
        0
        """
        from dpbandit.bandits.files import export

        with self._lock:
            export(self, path)

    def propensities(self, contexts: ArrayLike, *, draws: int = 1_000, seed: int | None = None) -> Propensities:
        """The probability with which `select` plays each row now, and its standard error: Thompson sampling and random play only.

        Computed from what was released: it costs no privacy, and changes nothing. One or two arms, and random play, are
        exact; more take `draws`, with a generator of their own (`seed`). UCB algorithms raise PropensityError.

        >>> import dpbandit as dpb
        >>> bandit = dpb.make("private-ts", dim=2, epsilon=1.0, horizon=10, seed=0)
        >>> bandit.propensities([[1.0, 0.0], [0.0, 1.0]]).probabilities.tolist()
        [0.5, 0.5]
        """
        from dpbandit.bandits.propensity import of_model

        checked = self.check_contexts(contexts)
        if self.options.context_noise > 0:
            raise PropensityError(
                "with context_noise the arms are scored by contexts drawn anew: no propensity is known"
            )
        with self._lock:
            released = self._released()
        return of_model(released, checked, name=self.name, draws=whole("draws", draws, least=1), seed=seed)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What it was made with, as scikit-learn has it: `dpb.make(**bandit.get_params())` makes a new one like it.

        >>> import dpbandit as dpb
        >>> dpb.make("linucb", dim=2, seed=0).get_params()["seed"]
        0
        """
        del deep  # scikit-learn's signature; nothing is nested
        return {"name": self.name, **self.options.given()}

    def __repr__(self) -> str:
        # ε and δ are for the claim to say
        given = self.options.given(changed=True, but=("epsilon", "delta"))
        words = ", ".join(f"{name}={_short(value)}" for name, value in given.items())
        return f"<{self.name}({words}): {self.rounds:,} rounds learned; {str(self.claim).splitlines()[0]}>"

    # ------------------------------------------------------------------ checks

    def check_contexts(self, contexts: ArrayLike) -> Matrix:
        """The contexts as an array, or a named error. Nothing changes."""
        given = np.ascontiguousarray(_numbers(contexts, "contexts"), dtype=np.float64)
        if given.ndim != 2 or given.shape[0] == 0 or given.shape[1] != self.dim:
            raise ShapeError(f"contexts must have shape (arms, {self.dim}) with at least one arm, not {given.shape}")
        if not np.isfinite(given).all():
            raise NotFiniteError("a context holds NaN or infinity: contexts must be finite numbers")
        scaled = given / self.options.max_norm  # so that squares neither overflow nor vanish
        with np.errstate(over="ignore"):
            longest = math.sqrt(float(np.einsum("ij,ij->i", scaled, scaled).max()))
        if longest > 1 + NORM_TOLERANCE:
            size = "" if self.contexts_are_private else f" {longest * self.options.max_norm:.6g},"
            raise NormError(
                f"a context has norm{size} above max_norm = {self.options.max_norm:g}: "
                "scale the contexts, or make the bandit with a larger max_norm"
            )
        # Numba would compile everything once more for arrays that cannot be written to.
        return given if given.flags.writeable else given.copy()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise BudgetError(
                "this bandit was made in another process: a forked copy would spend the same budget a second time. "
                "Learn in one process, or make the bandit (or load it) after the fork"
            )

    def _check_horizon(self, count: int) -> None:
        horizon = self.options.horizon
        if horizon is not None and self.rounds + count > horizon:
            raise HorizonError(
                f"this bandit was made for horizon = {horizon} and has learned {self.rounds} rewards; {count} more do not "
                "fit. It still ranks; to go on learning make one with a larger horizon, or horizon=None"
            )

    def _check_users(self, user: Any, count: int) -> list[str] | None:
        if self.options.unit == "reward":
            return None
        users = [user] * count if isinstance(user, (str, int, np.integer)) else entries(user)
        if not isinstance(users, (list, tuple, np.ndarray)) or len(users) != count:
            raise OptionError(
                f"the unit of privacy is {self.options.unit_in_words}: update needs user=..., one for each of {count}"
            )
        for name in users:
            # 17 and 17.0, or "u" and b"u", would be two users: one person could then exceed the cap.
            if isinstance(name, bool) or not isinstance(name, (str, int, np.integer)):
                raise OptionError(f"update needs user=... as text or whole numbers, not {type(name).__name__}")
        return [str(name) for name in users]

    def _admit(self, users: list[str]) -> list[bool]:
        """Which of these rewards are within their user's cap. Decisions are counted, not clicks, so this is public."""
        cap = self.options.rewards_per_unit
        counts: dict[str, int] = {}
        admitted = []
        for name in users:
            before = self._people.count(name) + self._user_counts.get(name, 0) + counts.get(name, 0)
            counts[name] = counts.get(name, 0) + 1
            admitted.append(before < cap)
        return admitted

    def remember(self, log: Log, people: People) -> None:
        """That it was started from this log, of these users: they have so much less of their cap left."""
        self.log, self._people = log, people
        if self.claim.status != "none":
            words = ASSUMPTION.format(log.learned)
            self.claim = replace(self.claim, assumptions=(*self.claim.assumptions, words))

    def _clip(self, reward: float) -> float:
        if not self._clips:
            return reward
        low, high = self.options.reward_range
        inside = min(max(reward, low), high)
        # A count of rewards in memory is not pan-private.
        self.clipped += inside != reward and not self.options.pan_private
        return inside

    def complete(self) -> None:  # noqa: B027 - most have nothing to do
        """Work out what files of earlier versions do not hold. Nothing, unless an algorithm says otherwise."""

    # ------------------------------------------------------------------ what an algorithm provides

    @abstractmethod
    def _choose(self, contexts: Matrix, k: int) -> NDArray[np.int64]:
        """The k best rows, best first."""

    @abstractmethod
    def _learn(self, x: Vector, reward: float) -> None:
        """Learn from one checked context and clipped reward."""

    @abstractmethod
    def _theta(self) -> Vector:
        """The released parameter."""

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """All changing arrays by name, for saving; loading writes into them."""

    @abstractmethod
    def _released(self) -> dict[str, Any]:
        """What `export` writes: public numbers only."""


def _short(value: Any) -> str:
    return f"<{' × '.join(map(str, value.shape))} array>" if isinstance(value, np.ndarray) else repr(value)


def _numbers(given: Any, what: str) -> Any:
    """An array of numbers, or a named error for anything else."""
    try:
        array = np.asarray(given)
    except ValueError:
        raise ShapeError(f"{what} must be a rectangular array of numbers") from None
    return array if array.dtype.kind in "fiub" else frame_numbers(given, what)
