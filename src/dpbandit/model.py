"""The released model, which `select` and propensities use, `export` writes, and a ranker holds.

It holds public numbers only, and needs only NumPy: a ranker loads neither SciPy nor OpenDP nor the
compiled core. It refuses by name anything it does not know.
"""

from __future__ import annotations

import math
import random
import struct
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbandit.encoder import Encoder
from dpbandit.errors import NormError, NotFiniteError, OptionError, SaveError, ShapeError
from dpbandit.frames import array_of
from dpbandit.policies import (
    BoundPolicy,
    Decision,
    Policy,
    Propensities,
    View,
    find_policy,
    tie_at,
)
from dpbandit.privacy.claim import Claim
from dpbandit.types import Matrix, Vector

# Of the record that `export` writes. Format 1 had a flag for each rule instead of a policy's name.
FORMAT = 2
# Contexts are normalised in floats: a tiny excess over a limit is rounding, and noise scales allow
# for it.
NORM_TOLERANCE = 1e-9

_LIMITS = {"max_norm", "l1_limit", "one_hot"}
_COMMON = {"dpbandit_model", "name", "dim", "round", "claim", "policy"} | _LIMITS
_FLAGS = {
    "plays_at_random": "uniform",
    "draws_from_posterior": "thompson",
    "bonus_about_mean": "centred-ucb",
}
_FORMAT_1 = (_COMMON - {"policy"}) | {"theta", "inverse_gram", "alpha", *_FLAGS}


@dataclass(frozen=True)
class Gate:
    """The requirements on a context: the engines' `admit`, with errors that say what is allowed."""

    dim: int
    max_norm: float = math.inf
    l1_limit: float | None = None
    one_hot: bool = False
    name: str = "this bandit"
    private: bool = False  # then no message says what is in a context

    def check(self, given: Matrix) -> None:
        """A named error if an array of contexts is not allowed."""
        if given.ndim != 2 or given.shape[0] == 0 or given.shape[1] != self.dim:
            raise ShapeError(
                f"contexts must have shape (arms, {self.dim}) with at least one arm, "
                f"not {given.shape}"
            )
        # Divided first, so that squares neither overflow nor vanish. NaN fails every comparison.
        scaled = given if self.max_norm == 1.0 else given / self.max_norm
        square = float(np.einsum("ij,ij->i", scaled, scaled).max())
        if not square <= (1 + NORM_TOLERANCE) ** 2:
            self._refuse(given, math.sqrt(square))
        if self.l1_limit is not None:
            total = float(np.abs(given).sum(axis=1).max())
            if total > self.l1_limit * (1 + NORM_TOLERANCE):
                raise NormError(
                    f"a context has L1 norm {total:.6g}, above {self.l1_limit:.6g}, the largest in "
                    "public_contexts that the noise was scaled for: give public_contexts that "
                    "cover all contexts, or none"
                )
        if self.one_hot and not (
            ((given == 0) | (given == 1)).all() and (given.sum(axis=1) == 1).all()
        ):
            raise ShapeError(
                f"{self.name} is for arms without features: a context must be one-hot, a single 1 "
                f"at its arm's place among {self.dim} and 0 elsewhere; for contexts with features "
                "use private-linucb or tree-gauss"
            )

    def _refuse(self, given: Matrix, longest: float) -> None:
        if not np.isfinite(given).all():
            raise NotFiniteError("a context holds NaN or infinity: contexts must be finite numbers")
        size = "" if self.private else f" {longest * self.max_norm:.6g},"
        raise NormError(
            f"a context has norm{size} above max_norm = {self.max_norm:g}: "
            "scale the contexts, or make the bandit with a larger max_norm"
        )


@dataclass(kw_only=True, slots=True, eq=False, repr=False)
class ReleasedModel:
    """A model that ranks and does not learn.

    Parameters
    ----------
    name : str
        The algorithm's name.
    rounds : int
        Number of rewards it learned from.
    claim : Claim
        The promise to the people behind those rewards.
    policy : Policy
        How arms are picked.
    view : View
        The numbers that the policy uses.
    alpha : float
        The width of the bonus.
    gate : Gate
        The requirements on a context.
    encoder : Encoder, optional
        The encoder of the bandit, if it had one.
    holdout : float, default 0
        The share of decisions that are uniformly random.
    """

    name: str
    rounds: int
    claim: Claim
    policy: Policy
    view: View
    alpha: float
    gate: Gate
    encoder: Encoder | None = None
    holdout: float = 0.0

    @property
    def round(self) -> int:
        """Number of rewards it learned from."""
        return self.rounds

    @property
    def dim(self) -> int:
        """Features per context."""
        return self.gate.dim

    @property
    def theta(self) -> Vector:
        """The released parameter."""
        return self.view.theta

    def select(self, contexts: ArrayLike) -> int:
        """The arm to play: an index into the rows of `contexts`. Ties are broken at random.

        Parameters
        ----------
        contexts : array of shape (arms, dim)
            Nested lists, and frames of pandas, polars or Arrow, work too.

        Raises
        ------
        ShapeError, NotFiniteError, NormError
            If a context is not allowed; the message says what is.
        """
        return self.choose(self.check(contexts))

    def propensities(
        self, contexts: ArrayLike, *, draws: int = 1_000, seed: int | None = None
    ) -> Propensities:
        """As `Bandit.propensities`, from the exported model."""
        from dpbandit.options import whole

        given = self.check(contexts)
        draws = whole("draws", draws, least=1)
        if self.holdout > 0 and isinstance(self.policy, BoundPolicy):
            found = self.policy.certain(self.view, given, self.alpha)
        else:
            found = self.policy.propensities(
                self.view, given, self.alpha, draws=draws, seed=seed, name=self.name
            )
        learned = 1.0 - self.holdout
        mixed = learned * found.probabilities + self.holdout / len(given)
        return Propensities(mixed, learned * found.standard_errors)

    def decide(self, contexts: ArrayLike, *, draws: int = 1_000) -> Decision:
        """As `Bandit.decide`, from what was exported."""
        given = self.check(contexts)
        found = self.propensities(given, draws=draws)
        arm = self.choose(given)
        return Decision(arm, float(found.probabilities[arm]), float(found.standard_errors[arm]))

    def same_as(self, other: ReleasedModel) -> bool:
        """Whether both play alike."""
        same = self.alpha == other.alpha and np.array_equal(self.view.theta, other.view.theta)
        return same and np.array_equal(self.view.matrix, other.view.matrix)

    def check(self, contexts: Any) -> Matrix:
        """The contexts as an array, or a named error."""
        given = _packed(contexts, self.gate.dim) if type(contexts) is list else None
        if given is None:
            given = array_of(contexts, "contexts")
        self.gate.check(given)
        return given

    def choose(self, given: Matrix) -> int:
        """The best arm among contexts that `check` returned."""
        scores = self._scores(given)
        best = int(scores.argmax())
        near = scores >= scores[best] - tie_at(float(scores[best]))
        if np.count_nonzero(near) > 1:
            return int(random.choice(near.nonzero()[0]))
        return best

    def pick(self, given: Matrix) -> tuple[int, float | None]:
        """The arm that `choose` draws, with its propensity where that is in closed form."""
        arm = self.choose(given)
        if not self.policy.exact:
            return arm, None
        return arm, float(self.propensities(given).probabilities[arm])

    def rank(self, given: Matrix, most: int) -> tuple[list[int], Vector]:
        """The best `most` arms among contexts that `check` returned, best first, and the scores of
        all arms. The first is drawn as `choose` draws it."""
        scores = self._scores(given)
        order = np.argsort(-scores, kind="stable").tolist()
        start = 0
        while start < min(most, len(order)):
            highest = float(scores[order[start]])
            end, bound = start + 1, highest - tie_at(highest)
            while end < len(order) and scores[order[end]] >= bound:
                end += 1
            equal = order[start:end]
            random.shuffle(equal)
            order[start:end] = equal
            start = end
        return order[:most], scores

    def _scores(self, given: Matrix) -> Vector:
        """Of all arms; the same where the choice is random."""
        if self.holdout > 0 and random.random() < self.holdout:
            return np.zeros(len(given))
        return self.policy.scores(self.view, given, self.alpha, random.getrandbits(64), 0)

    def to_record(self) -> dict[str, Any]:
        """The record that `export` writes: ready for JSON, and enough to rank anywhere."""
        gate = self.gate
        return {
            "dpbandit_model": FORMAT,
            "name": self.name,
            "dim": gate.dim,
            "round": self.round,
            "claim": self.claim.to_dict(),
            "policy": self.policy.name,
            "max_norm": gate.max_norm if math.isfinite(gate.max_norm) else None,
            "l1_limit": gate.l1_limit,
            "one_hot": gate.one_hot,
            **({"holdout": self.holdout} if self.holdout > 0 else {}),
            **({} if self.encoder is None else {"encoder": self.encoder.to_record()}),
            **self.policy.record(self.view, self.alpha),
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> ReleasedModel:
        """The model that a record describes, of this version's format or of 0.1's.

        Raises
        ------
        SaveError
            If the format, the policy or a field is unknown, or a field is missing.
        """
        found = record.get("dpbandit_model") if isinstance(record, dict) else None
        if found == 1:
            record = _of_format_1(record)
        elif found is None:
            raise SaveError("no released model: give a file that bandit.export wrote")
        elif found != FORMAT:
            raise SaveError(
                f"a model of format {found!r}: this version reads formats 1 and {FORMAT}; "
                "load it with the version of dpbandit that exported it"
            )
        try:
            return cls._read(record)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, SaveError):
                raise
            words = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise SaveError(f"not a readable released model: {words}") from error

    @classmethod
    def _read(cls, record: dict[str, Any]) -> ReleasedModel:
        try:
            policy = find_policy(record["policy"])
        except OptionError as error:
            raise SaveError(
                f"{error}; a newer version of dpbandit, or the module that adds the policy, can "
                "read it"
            ) from error
        view, alpha = policy.view_of(record)
        unknown = sorted(
            set(record) - _COMMON - {"encoder", "holdout"} - set(policy.record(view, alpha))
        )
        if unknown:
            raise SaveError(f"a released model with a field {unknown[0]!r} that is not known here")
        limit, claim = record["max_norm"], _claim(record["claim"])
        one_hot = record["one_hot"]
        holdout = float(record.get("holdout", 0.0))
        if not 0 <= holdout <= 1:
            raise ValueError(f"holdout is a share, not {holdout!r}")
        if not isinstance(one_hot, bool) or len(view.theta) != record["dim"]:
            raise ValueError("one_hot is no flag, or theta has not dim numbers")
        gate = Gate(
            dim=int(record["dim"]),
            max_norm=math.inf if limit is None else float(limit),
            l1_limit=None if record["l1_limit"] is None else float(record["l1_limit"]),
            one_hot=one_hot,
            name=str(record["name"]),
            private=claim.notion == "joint",
        )
        return cls(
            name=str(record["name"]),
            rounds=int(record["round"]),
            claim=claim,
            policy=policy,
            view=view,
            alpha=alpha,
            gate=gate,
            encoder=encoder_for(record["encoder"], gate.dim) if "encoder" in record else None,
            holdout=holdout,
        )

    def __repr__(self) -> str:
        claim = str(self.claim).splitlines()[0]
        words = f"dim {self.dim}, {self.policy.name}"
        return f"<released model of {self.name} after {self.round:,} rounds: {words}; {claim}>"


def encoder_for(record: Any, dim: int) -> Encoder:
    """The encoder in a file, which must have as many columns as the model."""
    encoder = Encoder.from_record(record)
    if encoder.dim != dim:
        raise SaveError(f"an encoder of {encoder.dim} columns beside a model of {dim}")
    return encoder.fixed()


def _of_format_1(record: dict[str, Any]) -> dict[str, Any]:
    """A record of 0.1 in today's words. Exports of 0.1 held no limits; its service's records did."""
    unknown = sorted(set(record) - _FORMAT_1)
    if unknown:
        raise SaveError(
            f"a released model of 0.1 with a field {unknown[0]!r} that 0.1 did not have"
        )
    flags = [policy for flag, policy in _FLAGS.items() if record.get(flag, False)]
    if len(flags) > 1:
        raise SaveError(f"a released model of 0.1 that plays by two rules: {' and '.join(flags)}")
    policy = flags[0] if flags else "ucb"
    limits = {"max_norm": None, "l1_limit": None, "one_hot": False}
    limits |= {name: record[name] for name in limits if name in record}
    kept: dict[str, Any] = {
        key: record[key] for key in ("name", "dim", "round", "claim") if key in record
    }
    numbers = {"theta": "theta", "matrix": "inverse_gram", "alpha": "alpha"}
    if policy != "uniform":
        kept |= {new: record[old] for new, old in numbers.items() if old in record}
    return {"dpbandit_model": FORMAT, **kept, **limits, "policy": policy}


def _claim(record: dict[str, Any]) -> Claim:
    given = dict(record)
    given["assumptions"] = tuple(given["assumptions"])
    given["epsilon"] = math.inf if given["epsilon"] is None else given["epsilon"]
    return Claim(**given)


def _packed(contexts: list[Any], dim: int) -> Matrix | None:
    """Nested lists of numbers as an array, the shortest way; None for anything else."""
    arms = len(contexts)
    try:
        for row in contexts:
            if len(row) != dim:
                if type(row) is list:
                    raise ShapeError(f"every context must have {dim} numbers; one has {len(row)}")
                return None
        packed = struct.pack(f"{arms * dim}d", *chain.from_iterable(contexts))
    except (TypeError, struct.error):
        return None
    return np.frombuffer(packed).reshape(arms, dim)
