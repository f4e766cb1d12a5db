"""The engine in plain NumPy: what the compiled core must do, in the shortest right words.

An engine admits, clips, adds up and picks arms. It draws no real noise and knows no budget. Its
parts come from the spec by name; a part that it does not know is refused by name. A release or a
policy that only Python has works here too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpbandit import codes
from dpbandit.learners.arms import ArmsLearner
from dpbandit.learners.batches import BatchesLearner
from dpbandit.learners.filter import FilterLearner
from dpbandit.learners.joint import JointLearner
from dpbandit.learners.learner import Clock, Learner, NoLearner, Pending
from dpbandit.learners.moments import NoisyMoments
from dpbandit.learners.own import NoisyIncrements, NoisyOwn
from dpbandit.learners.pair import PairLearner
from dpbandit.learners.ridge import InTheClear, NoisyRewards
from dpbandit.policies import View, find_policy, tie_at
from dpbandit.privacy.grid import to_floats, to_whole
from dpbandit.privacy.noise import Noise, find_noise
from dpbandit.reference import loops
from dpbandit.reference.fields import Fields
from dpbandit.reference.gate import Gate
from dpbandit.reference.random import HOLDOUT, lots, normals, uniforms
from dpbandit.reference.spec import check
from dpbandit.release.base import MAX_LEVELS
from dpbandit.release.toeplitz import MOST_ROUNDS as TOEPLITZ_ROUNDS
from dpbandit.types import Matrix, Vector

# Perturbations of contexts that were not selected last have numbers of their own.
UNSEEN = 1 << 40

LEARNERS: dict[str, type[Learner]] = {
    "none": NoLearner,
    "filter": FilterLearner,
    "joint": JointLearner,
    "pair": PairLearner,
    "arms": ArmsLearner,
    "batches": BatchesLearner,
}
# Where the noise of a ridge regression sits.
SITES: dict[str, type[Learner]] = {
    "nothing": InTheClear,
    "reward": NoisyRewards,
    "moments": NoisyMoments,
    "own": NoisyOwn,
    "increment": NoisyIncrements,
}


class Engine:
    """One bandit's rounds, from public choices in plain values: `reference.spec` has the keys."""

    def __init__(self, spec: dict[str, Any]) -> None:
        check(spec, LEARNERS, SITES)
        self.spec = dict(spec)
        self._gate = Gate(spec)
        self._policy, self._noise = find_policy(spec["policy"]), find_noise(spec["noise"])
        self._clock = Clock()
        kind = SITES[spec["site"]] if spec["learner"] == "ridge" else LEARNERS[spec["learner"]]
        self._learner = kind(self.spec, self._clock)
        self._pending: Pending | None = None
        self._held = False
        self._perturbed: dict[bytes, Vector] = {}  # contexts as `select` scored them
        self._fresh = self.snapshot()

    # ------------------------------------------------------------------ choosing

    def select(self, contexts: Matrix, alpha: float = math.nan) -> int:
        """The arm to play, or a code."""
        found = self.rank(contexts, 1, alpha)
        return found if isinstance(found, int) else found[0]

    def check(self, contexts: Matrix) -> int:
        """0, or the code with which a slate would be refused."""
        return self._admit_slate(contexts)

    def rank(self, contexts: Matrix, k: int, alpha: float = math.nan) -> list[int] | int:
        """The k best arms, best first, or a code."""
        code = self._admit_slate(contexts)
        if code != codes.LEARNED:
            return code
        decision = self._clock.decisions
        offered = self._as_scored(contexts, decision)
        arms = self._choose(offered, alpha, min(k, len(contexts)))
        if self.spec["context_noise"] > 0.0:
            # Those alone: an arm with the same context may have been moved elsewhere.
            self._perturbed = {contexts[arm].tobytes(): offered[arm].copy() for arm in arms}
        return arms

    def _choose(self, offered: Matrix, alpha: float, k: int) -> list[int]:
        decision, key = self._clock.decisions, int(self.spec["ties_key"])
        self._learner.look(offered, decision)
        self._clock.decisions = decision + 1
        scores = self.scores_of(offered, alpha, decision)
        arms: list[int] = []
        for _ in range(k):
            arms.append(pick(scores, key, decision))
            scores[arms[-1]] = -math.inf
        return arms

    def scores_of(self, contexts: Matrix, alpha: float, decision: int) -> Vector:
        """The policy's scores; the same for all where the lot alone decides."""
        key = int(self.spec["ties_key"])
        if uniforms(key, decision | HOLDOUT, 1)[0] < self.spec["holdout"]:
            return np.zeros(len(contexts))
        width = float(self.spec["alpha"]) if math.isnan(alpha) else alpha
        view = View(self._learner.theta, self._learner.matrix(width))
        return self._policy.scores(view, contexts, width, key, decision)

    def _as_scored(self, contexts: Matrix, decision: int) -> Matrix:
        """Contexts with noise of their own where asked for (Wang, Zhao & Wang 2022, Corollary 1).

        They are brought back to norm `max_norm`: otherwise the noise on sums, scaled for that
        norm, would not cover them.
        """
        sigma, most = float(self.spec["context_noise"]), float(self.spec["max_norm"])
        if sigma == 0.0:
            return contexts
        noise = normals(int(self.spec["contexts_key"]), decision, contexts.size)
        moved: Matrix = contexts + sigma * noise.reshape(contexts.shape)
        lengths = np.linalg.norm(moved, axis=1, keepdims=True)
        moved *= np.minimum(1.0, most / np.maximum(lengths, 1e-300))
        return moved

    def _as_seen(self, x: Vector) -> Vector:
        """The context as `select` scored it; perturbed anew if it was not selected last."""
        if self.spec["context_noise"] == 0.0:
            return x
        if x.tobytes() in self._perturbed:
            return self._perturbed[x.tobytes()]
        alone: Vector = self._as_scored(x[None, :], UNSEEN + self._clock.rounds)[0]
        return alone

    # ------------------------------------------------------------------ learning

    def admit(self, x: Vector, reward: float) -> int:
        """0, or the code with which this row would be refused."""
        row = x[None, :] if _is_array(x, 1) else x
        return self._admit_rows(row, np.array([reward], dtype=np.float64))

    def _admit_slate(self, contexts: Any) -> int:
        if self._held:
            return codes.BUSY
        if not _is_array(contexts, 2):
            return codes.NOT_AN_ARRAY
        if len(contexts) == 0:
            return codes.NO_ARMS
        return self._gate.admit(contexts)

    def _admit_rows(self, xs: Any, rs: Any) -> int:
        if not _is_array(xs, 2) or not _is_array(rs, 1):
            return codes.NOT_AN_ARRAY
        if len(xs) != len(rs):
            return codes.DIMENSION
        code = self._gate.admit(xs) or self._gate.admit_rewards(rs)
        if code != codes.LEARNED:
            return code
        if self._pending is not None or self._held:
            return codes.BUSY
        return codes.HORIZON if self._clock.rounds + len(rs) > self.most_rounds else codes.LEARNED

    @property
    def most_rounds(self) -> int:
        """How many rewards may be learned."""
        if self.spec["horizon"] > 0:
            return int(self.spec["horizon"])
        # Rounding in Toeplitz buffers is paid for up to here.
        if self.spec.get("release") == "toeplitz":
            return TOEPLITZ_ROUNDS
        # Numbers of simulated starts are 64 to a round.
        starts = self.spec.get("release") == "pan-private"
        return (1 << (57 if starts else MAX_LEVELS)) - 1  # the next one would need a level more

    def learn(
        self, x: Vector, reward: float, told: list[Any] | None = None, counted: int | None = None
    ) -> int:
        """0: learned; 1: a release is due and nothing was changed; or a code."""
        code = self.admit(x, reward)
        if code == codes.LEARNED:
            code = self._learn_quietly(x, reward, counted or 0)
        if code == codes.LEARNED and told is not None:
            told += [1] if counted is None else [1, self.growth]
        return code

    def _learn_quietly(self, x: Vector, reward: float, counted: int = 0) -> int:
        seen = self._as_seen(x)
        if not self._learner.quiet(seen):
            return codes.DUE
        before = self.snapshot()
        try:
            self._prepare(seen, reward, in_public_set=True, counted=counted)
        except BaseException:  # Ctrl-C, say: half an item is no item
            self.restore(before)
            raise
        return codes.LEARNED

    def learn_many(self, xs: Matrix, rs: Vector, told: list[Any] | None = None) -> tuple[int, int]:
        """Admit all rows, then learn: how many until a release was due, and 0, 1 or a code."""
        code = self._admit_rows(xs, rs)
        if code != codes.LEARNED:
            return 0, code
        for n in range(len(rs)):
            if self._learn_quietly(xs[n], float(rs[n])) == codes.DUE:
                return n, codes.DUE
            if told is not None:
                told.append(1)
        return len(rs), codes.LEARNED

    def prepare(
        self, x: Vector, reward: float, in_public_set: bool = True, counted: int = 0
    ) -> float:
        """Learn from one admitted row. The noise scale of what is pending then, or NO_RELEASE."""
        if self._pending is not None:
            raise ValueError("a release is pending: commit it first")
        return self._prepare(self._as_seen(x), reward, in_public_set, counted)

    @property
    def growth(self) -> int:
        """By how much the last round's person counts more; 0 where the learner does not count."""
        return self._learner.counts

    def _prepare(self, x: Vector, reward: float, in_public_set: bool, counted: int = 0) -> float:
        clipped = self._gate.clip(float(reward))
        # A count of rewards in memory is not pan-private.
        self._clock.clipped += clipped != reward and self.spec.get("release") != "pan-private"
        if not in_public_set and not self._clock.outside:
            self._clock.outside = 1
            self._learner.leave_public_set()
        self._clock.rounds += 1
        self._learner.counted, self._learner.counts = counted, 0
        self._pending = self._learner.prepare(x, clipped)
        return codes.NO_RELEASE if self._pending is None else self._pending.scale

    @property
    def noise_now(self) -> Noise:
        """The noise of what is pending."""
        named = self._waiting().noise
        return find_noise(named) if named else self._noise

    def pending(self) -> Vector:
        """The clean numbers to release, as doubles."""
        numbers = self._waiting().numbers
        return to_floats(numbers) if numbers.dtype == object else numbers.copy()

    def pending_whole(self) -> list[int] | None:
        """The same in whole numbers of the grid; None where they are not whole."""
        numbers = self._waiting().numbers
        return numbers.tolist() if numbers.dtype == object else None

    def _waiting(self) -> Pending:
        if self._pending is None:
            raise ValueError("nothing is pending")
        return self._pending

    def commit(self, noisy: Vector) -> None:
        """Take the pending numbers with noise, and make the released parameter of them."""
        if np.shape(noisy) != np.shape(self._waiting().numbers):
            raise ValueError(
                f"{np.shape(self._waiting().numbers)} numbers are pending, not {np.shape(noisy)}"
            )
        self._pending = None
        # From here on nothing may fail: an error that the noise decides would tell of it.
        with np.errstate(all="ignore"):
            self._learner.commit(np.asarray(noisy, dtype=np.float64))

    def starts(self) -> list[int]:
        """Pan-private: the levels of the nodes that begin with the coming round."""
        sums = self._learner.pan_private
        return [] if sums is None else sums.starts(self._clock.rounds + 1)

    def begin(self, level: int, whole: list[int]) -> None:
        """Pan-private: noise into the node of this level, in whole numbers of the grid."""
        if self._learner.pan_private is None:
            raise ValueError("only the pan-private release has nodes that begin with noise")
        self._learner.pan_private.begin(level, np.array(whole, dtype=object))

    def begin_simulated(self, start_key: int) -> None:
        """Pan-private: seeded noise into all of them."""
        t, zeros = self._clock.rounds + 1, np.zeros(int(self.spec["dim"]))
        for level in self.starts():
            scale = self._learner.scale(self._learner.place(t).levels)
            start = self._noise.simulate(start_key, t * 64 + level, scale, zeros)
            self.begin(level, to_whole(start).tolist())

    def simulate(
        self,
        x: Vector,
        reward: float,
        in_public_set: bool,
        noise_key: int,
        start_key: int,
        counted: int = 0,
    ) -> float:
        """A whole round with seeded noise; its scale, or NO_RELEASE."""
        if self._pending is not None:
            raise ValueError("a release is pending: commit it first")
        seen = self._as_seen(x)
        return self._simulate(seen, reward, in_public_set, noise_key, start_key, counted)

    def _simulate(
        self,
        x: Vector,
        reward: float,
        in_public_set: bool,
        noise_key: int,
        start_key: int,
        counted: int = 0,
    ) -> float:
        self.begin_simulated(start_key)
        scale = self._prepare(x, reward, in_public_set, counted)
        if scale != codes.NO_RELEASE:
            noise = self.noise_now
            self.commit(noise.simulate(noise_key, self._clock.rounds, scale, self.pending()))
        return scale

    # ------------------------------------------------------------------ what it shows and keeps

    def start(self, noisy: Vector, scale: float) -> bool:
        """Learn from a log's noisy sum before round 1; False where this learner has no such sum."""
        return self._learner.start(np.asarray(noisy, dtype=np.float64), scale)

    def conclude(self) -> bool:
        """Make θ of what a log left in the fields; False where this learner takes nothing so."""
        return self._learner.conclude()

    def theta(self) -> Vector:
        """The released parameter."""
        return self._learner.theta.copy()

    def model(self) -> dict[str, Any]:
        """What `select` looks at now: released and public numbers only."""
        matrix = self._learner.matrix(float(self.spec["alpha"]))
        return {"theta": self.theta(), "matrix": np.array(matrix)}

    @property
    def rounds(self) -> int:
        """Rewards learned."""
        return self._clock.rounds

    @property
    def decisions(self) -> int:
        """Decisions made."""
        return self._clock.decisions

    @property
    def clipped(self) -> int:
        """Rewards outside their range; private."""
        return self._clock.clipped

    @property
    def outside(self) -> bool:
        """Whether a context was not in the public set."""
        return bool(self._clock.outside)

    def fields(self) -> Fields:
        """Live views of everything that changes, by name."""
        return {**self._clock.numbers, **self._learner.fields()}

    def load_fields(self, fields: Fields) -> None:
        """Go on from these."""
        own = self.fields()
        if set(own) != set(fields):
            raise ValueError(
                f"other fields than this engine's: {', '.join(sorted(set(own) ^ set(fields)))}"
            )
        for name, field in own.items():
            field[...] = fields[name]
        self._pending = None
        self._learner.loaded()

    def snapshot(self) -> Any:
        """Everything that changes, to go back to."""
        kept = {name: field.copy() for name, field in self.fields().items()}
        return kept, self._pending, dict(self._perturbed)

    def restore(self, snapshot: Any) -> None:
        """Go back."""
        kept, self._pending, perturbed = snapshot
        self._perturbed = dict(perturbed)
        for name, field in self.fields().items():
            field[...] = kept[name]

    def reset(self) -> None:
        """Forget everything."""
        self.restore(self._fresh)

    def copy(self) -> Engine:
        """Another one in the same state."""
        made = type(self)(self.spec)
        made.restore(self.snapshot())
        return made

    def draft(self) -> Engine:
        """The same, to work on. Until `go_on` this one neither chooses nor learns."""
        made = self.copy()
        self._held = True
        return made

    def go_on(self) -> None:
        """The draft was dropped, or this engine is no longer in use."""
        self._held = False

    # ------------------------------------------------------------------ loops

    play = loops.play
    trace = loops.trace
    scores = loops.scores


def _is_array(given: Any, dimensions: int) -> bool:
    right = isinstance(given, np.ndarray) and given.dtype == np.float64 and given.ndim == dimensions
    return right and given.flags.c_contiguous


def pick(scores: Vector, key: int, decision: int) -> int:
    """The highest score; among ties one by lot, a function of (key, decision, arm) alone."""
    best = float(scores.max())
    tied = np.flatnonzero(scores >= best - tie_at(best))
    if len(tied) <= 1:
        return int(tied[0]) if len(tied) else 0
    return int(tied[np.argmax(lots(key, decision, tied))])
