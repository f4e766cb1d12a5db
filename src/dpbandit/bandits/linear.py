"""Every bandit whose rounds are compiled: LinUCB's relatives, with the noise in whichever seat the plan says.

The arithmetic is in `steps` and the other families; here are the parts around it: who draws the noise, and who agrees to
it first.
"""

from __future__ import annotations

import math
import secrets
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeGuard, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit import numerics, scoring
from dpbandit.bandits import bonus, direct, rounds, steps
from dpbandit.bandits.address import gathered
from dpbandit.bandits.base import Bandit, Matrix, Vector
from dpbandit.bandits.direct import FLOAT, Direct
from dpbandit.bandits.options import Options
from dpbandit.budget import Claim, Ledger
from dpbandit.errors import BudgetError, NoiseError, NormError, PrivacyWarning
from dpbandit.noise import (
    CODES,
    GRID_BITS,
    PAN_PRIVATE_GRID_BITS,
    Real,
    Simulation,
    Source,
    real_source_exists,
)
from dpbandit.randomness import CONTEXTS, START, TIES, derive_key
from dpbandit.release import toeplitz
from dpbandit.release import tree as trees

DEFAULT_ALPHA = 0.3
Array = np.ndarray


class Charge(NamedTuple):
    """What a release costs the reward that has paid most, in the ledger's currency, and how to book it."""

    share: float
    what: str
    group: int = 0
    adds: bool = False  # the same rewards pay again with every release of this lane
    shift: float | None = None  # the furthest apart that neighbours can be in this release; None: what `share` implies


class LinearBandit(Bandit):
    """LinUCB and its private relatives: presets differ in `plan`, `claim` and `ledger` alone.

    A family with a plan of its own subclasses this, says `compiled = True` and overrides `new_learner` and `price`.
    """

    compiled = True
    # Whether a clean value to release depends on what was released before, not on the rewards alone.
    values_depend_on_releases = False
    one_hot = False  # whether contexts may only name arms
    plan: Any
    learner: Any
    # The short way to compiled code: None until it is needed (again), False where there is none.
    _direct: Direct | Literal[False] | None = None

    def __init__(
        self,
        name: str,
        options: Options,
        plan: Any,
        claim: Claim,
        ledger: Ledger,
        *,
        clips: bool = True,
        l1_limit: float | None = None,
    ) -> None:
        super().__init__(name, options, claim, ledger, clips=clips)
        self.plan = plan
        self._release = getattr(plan, "release", steps.TREE)
        self.learner, self._block = gathered(self.new_learner())
        self._gathered = self.learner
        self._noisy = np.empty_like(self.learner.pending)
        self._work = scoring.new_work(options.dim)
        self.noise = {code: word for word, code in CODES.items()}[plan.noise]
        self.alpha = DEFAULT_ALPHA if options.alpha is None else options.alpha
        self.l1_limit = l1_limit
        self._fixed_alpha = None if self.alpha == "theory" else float(self.alpha)
        if self._fixed_alpha is None:
            self.alphas(1, 1)  # says now, not in round 1, when something is missing
        self._known = {row.tobytes() for row in getattr(plan, "arms", ())}
        self._perturbed: dict[bytes, Vector] = {}
        self._draw_keys(options.seed)

    def new_learner(self) -> Any:
        """A learner of this family that has seen nothing."""
        return steps.new_learner(self.plan, self.options.horizon)

    def _draw_keys(self, seed: int | None) -> None:
        private = self.plan.seat >= rounds.REWARD
        if seed is None:
            if private and not real_source_exists(self.noise):
                raise NoiseError(
                    f"there is no exact sampler for {self.noise!r} noise: give a seed for a simulation, or use 'laplace' "
                    "or 'gaussian'"
                )
            # Ties and perturbed contexts are no secret and protect nobody: any unpredictable key will do.
            self.keys = {TIES: secrets.randbits(64), CONTEXTS: secrets.randbits(64), START: 0}
            self.source: Source = Real(PAN_PRIVATE_GRID_BITS if self.options.pan_private else GRID_BITS)
        else:
            self.keys = {purpose: derive_key(seed, purpose) for purpose in (TIES, CONTEXTS, START)}
            self.source = Simulation(seed)

    @property
    def rounds(self) -> int:
        return int(self.learner.clock[0])

    def _theta(self) -> Vector:
        theta: Vector = self.learner.theta
        return theta

    # ------------------------------------------------------------------ the short way

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name not in _COUNTS:
            self.__dict__["_direct"] = None

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self.__dict__["_direct"] = None

    def _way(self) -> Direct | Literal[False]:
        way = self._direct
        return self._short_way() if way is None else way

    def _short_way(self) -> Direct | Literal[False]:
        way = direct.open_way(self, _OURS) if is_compiled(self) else False
        self.__dict__["_direct"] = way
        return way

    def _has_quiet_rounds(self) -> bool:
        """Whether there are rounds without a release. In the clear, the first one charges the ledger and is not quiet."""
        if self.plan.seat == rounds.NOTHING:
            return self.ledger.releases > 0
        return self.plan.seat == rounds.RANDOM or self._release == steps.EPISODES

    # `with` takes twice as long as `acquire` and `release`: below, a tenth of a round.

    @overload
    def select(self, contexts: ArrayLike, k: None = None) -> int: ...
    @overload
    def select(self, contexts: ArrayLike, k: int) -> NDArray[np.int64]: ...
    def select(self, contexts: ArrayLike, k: int | None = None) -> Any:
        if k is None and type(contexts) is Array and contexts.dtype is FLOAT and contexts.ndim == 2:
            lock = self._lock
            lock.acquire()
            try:
                way = self._direct
                if way is None:
                    way = self._short_way()
                if way:
                    alpha = self._fixed_alpha
                    if alpha is None:
                        alpha = float(self.alphas(self.rounds + 1, 1)[0])
                    arm = way.choose(way.address, contexts, alpha)
                    if arm >= 0:
                        return arm
                    if arm == direct.NO_ROOM and len(contexts) <= direct.MOST_ROOM:
                        way.make_room(len(contexts))
            finally:
                lock.release()
        return super().select(contexts, k)

    def update(self, contexts: ArrayLike, rewards: ArrayLike, *, user: Any = None) -> None:
        if type(contexts) is Array and isinstance(rewards, float) and contexts.dtype is FLOAT and contexts.ndim == 1:
            lock = self._lock
            lock.acquire()
            try:
                way = self._direct
                if way and way.alone:
                    done = way.learn_one(way.address, contexts, rewards)
                    if done > 0:
                        if done > 1:
                            self.clipped += 1
                        return
                    if done == 0:
                        self._check_process()
                        # with a NumPy float the count of clipped rewards would become NumPy's too, which `save` cannot write
                        self._update_one(contexts.copy(), float(rewards), None, True)
                        return
            finally:
                lock.release()
        super().update(contexts, rewards, user=user)

    def _update_many(self, xs: Matrix, rs: Vector) -> int:
        way = self._way()
        if not way or not way.batches:
            return 0
        if len(rs) == 1:
            done = max(way.learn_one(way.address, xs[0], float(rs[0])), 0)
            if done > 1:
                self.clipped += 1
            return min(done, 1)
        rs = np.ascontiguousarray(rs[: direct.LOT])
        done = max(way.learn(way.address, xs[: len(rs)].reshape(-1), rs), 0)
        self.clipped += done >> direct.CLIPPED
        return done & ((1 << direct.CLIPPED) - 1)

    # ------------------------------------------------------------------ choosing

    def check_contexts(self, contexts: Any) -> Matrix:
        checked = super().check_contexts(contexts)
        if self.l1_limit is not None:
            longest = float(np.abs(checked).sum(axis=1).max())
            if longest > self.l1_limit * (1 + 1e-9):
                raise NormError(
                    f"a context has L1 norm {longest:.6g}, above {self.l1_limit:.6g}, the largest in public_contexts that "
                    "the noise was scaled for: give public_contexts that cover all contexts, or none"
                )
        return checked

    _checks_in_short = check_contexts  # what `direct` does as well; a family with other checks has other words for it

    def within(self, xs: Matrix) -> Matrix:
        """The contexts, of allowed norms, moved to where this bandit takes them: for trying it on streams of any kind."""
        return xs

    def _choose(self, contexts: Matrix, k: int) -> NDArray[np.int64]:
        offered, shown = contexts, np.arange(len(contexts))
        if self.plan.context_noise > 0:
            offered = np.empty_like(contexts)
            index = int(self.learner.clock[1])
            steps.perturb(
                contexts, shown, self.plan.context_noise, self.plan.max_norm, self._key(CONTEXTS), index, offered
            )
        alpha = self._fixed_alpha
        if alpha is None:
            alpha = float(self.alphas(self.rounds + 1, 1)[0])
        scores = np.empty(len(contexts))
        first = int(
            rounds.choose_one(self.learner, self.plan, offered, shown, alpha, self._work, scores, self._key(TIES))
        )
        chosen = [first]
        while len(chosen) < k:
            scores[chosen[-1]] = -np.inf
            chosen.append(int(numerics.pick(scores, self._key(TIES), int(self.learner.clock[1]) - 1)))
        if self.plan.context_noise > 0:
            self._perturbed = {contexts[arm].tobytes(): offered[arm].copy() for arm in chosen}
        return np.array(chosen, dtype=np.int64)

    def alphas(self, start: int, count: int) -> Vector:
        """The width of the bonus in rounds start, start + 1, …: fixed, or Lemma 2's α_t."""
        if self._fixed_alpha is not None:
            return np.full(count, self._fixed_alpha)
        return bonus.theoretical(self.options, self.plan, np.arange(start, start + count, dtype=np.float64))

    # ------------------------------------------------------------------ learning

    def _learn(self, x: Vector, reward: float) -> None:
        if self.plan.context_noise > 0:
            x = self._as_seen(x)
        known = not self._known or x.tobytes() in self._known
        if not known and self.learner.clock[2] == 0:
            warnings.warn(
                "a context that is not among public_contexts (bit for bit): from now on the noise covers the whole ball, "
                "which is more; leave public_contexts out if not all contexts are known",
                PrivacyWarning,
                stacklevel=5,  # the caller of `update`
            )
        if self.plan.seat < rounds.REWARD:
            self._learn_in_the_clear(x, reward, known)
            return
        self.check_room()
        go_back = self._snapshot()
        booked: list[Callable[[], None]] = []
        try:
            if isinstance(self.source, Simulation):
                self._learn_simulated(x, reward, known, booked)
            else:
                self._learn_from_source(x, reward, known, booked)
            if booked:
                self.ledger.seal(self.learner.theta.tobytes())
        except BaseException:
            # Nobody has seen this round's noise. Without this, trying again would count the reward twice.
            go_back()
            for undo in booked:
                undo()
            raise

    def _snapshot(self) -> Callable[[], None]:
        """Copy everything that changes; returns how to go back to it."""
        ours = self.learner is self._gathered and getattr(self._arrays, "__func__", None) is LinearBandit._arrays
        arrays = [self._block] if ours else list(self._arrays().values())
        before = [array.copy() for array in arrays]

        def go_back() -> None:
            for array, old in zip(arrays, before, strict=True):
                array[...] = old

        return go_back

    def _learn_simulated(self, x: Vector, reward: float, known: bool, booked: list[Callable[[], None]]) -> None:
        key = np.uint64(getattr(self.source, "key"))  # noqa: B009 - the protocol has none
        way = self._way()
        if way:
            scale = way.simulate(way.address, x, reward, known, key, self._key(START))
        else:
            scale = rounds.learn_one(self.learner, self.plan, x, reward, known, key, self._key(START), self._noisy)
        if scale != rounds.NO_RELEASE:
            booked.append(self._ask(self.price()))

    def _learn_from_source(self, x: Vector, reward: float, known: bool, booked: list[Callable[[], None]]) -> None:
        """The same round with noise from any source: the ledger is asked before noise is drawn."""
        if self.options.pan_private:
            self._begin_nodes()
        way = self._way()
        if way:
            scale = way.prepare(way.address, x, reward, known)
        else:
            scale = float(rounds.prepare_one(self.learner, self.plan, x, reward, known))
        if scale == rounds.NO_RELEASE:
            return
        charge = self.price()
        booked.append(self._ask(charge))
        shift = self._shift(scale, charge.share) if charge.shift is None else charge.shift
        noisy = self.source.release(self.noise, self.learner.pending, scale=scale, shift=shift, index=self.rounds)
        if way:
            self._noisy[:] = noisy
            way.commit(way.address)
        else:
            rounds.commit_one(self.learner, self.plan, noisy)

    def _learn_in_the_clear(self, x: Vector, reward: float, known: bool) -> None:
        if self.plan.seat == rounds.NOTHING and self.ledger.releases == 0:
            self.ledger.charge(math.inf, when=1, what="rewards in the clear")
            self._direct = None  # from now on there are rounds without a charge
        if known and self._update_many(x[None, :], np.array([reward])):
            return
        rounds.learn_one(self.learner, self.plan, x, reward, known, np.uint64(0), np.uint64(0), self._noisy)

    def known_rows(self, pool: Matrix) -> NDArray[np.bool_]:
        """For each row of a pool of contexts, whether it is one of those known in advance."""
        if not self._known:
            return np.ones(len(pool), dtype=np.bool_)
        return np.array([row.tobytes() in self._known for row in pool], dtype=np.bool_)

    def _begin_nodes(self) -> None:
        """Pan-private form: noise into every node that begins with the coming round."""
        t = self.rounds + 1
        _index, _level, levels = trees.place(t, self.plan.unknown_horizon, self.plan.levels)
        scale = float(self.plan.multipliers[levels]) * self.plan.sensitivity
        for level in range(levels):
            if trees.starts(t, self.plan.unknown_horizon, level):
                shift, zero = self._shift(scale, self._share(levels)), np.zeros(self.dim)
                # Not a release: it stays in memory. A negative index keeps it apart from the node's own.
                begun = self.source.release(self.noise, zero, scale=scale, shift=shift, index=-(t * 64 + level))
                self.learner.tree.sums[level] = begun

    def _shift(self, scale: float, share: float) -> float:
        """How far apart neighbours can be, for a release of this scale that costs `share`."""
        if math.isinf(share):
            return 1.0  # no noise, no claim
        return scale * (math.sqrt(share) if self.noise == "gaussian" else share)

    def check_room(self) -> None:
        """An error if the coming round does not fit into the arrays: kernels do not look where they write."""
        seats = (rounds.MOMENTS, rounds.OWN, rounds.INCREMENT)
        uses_tree = self.plan.seat in seats and self._release in (steps.TREE, steps.HONAKER)
        if uses_tree and (self.rounds + 1).bit_length() > len(self.learner.tree.sums):
            raise BudgetError(
                f"round {self.rounds + 1} would bring the total to one level more than the {self.plan.levels} that share the "
                "budget; make the bandit with a larger horizon, or horizon=None"
            )

    def _ask(self, charge: Charge) -> Callable[[], None]:
        """Ask the ledger; returns how to take it back."""
        return self.ledger.charge(
            charge.share, when=self.rounds, what=charge.what, group=charge.group, adds=charge.adds
        )

    def price(self) -> Charge:
        """What the release that is pending costs. Public: no reward decides it."""
        t = self.rounds
        if self.plan.seat == rounds.REWARD:
            return Charge(self._share(1), "the reward itself")
        if self._release == steps.EPISODES:
            return Charge(self._share(1), "the reward's episode")
        if self._release == steps.HONAKER:
            return Charge(self._share(self.plan.levels) * self.plan.levels, "all levels, set aside")
        if self._release == steps.TOEPLITZ:
            # The first reward has paid most: c_k² of the whole for the k-th release after its own.
            state = self.learner.toeplitz
            decay = float(state.weights @ (1 - state.rates) ** (t - 2)) if t > 1 else 1.0
            newest = self._share(1) / toeplitz.column_norm(self.options.horizon) ** 2
            scale = float(self.plan.sensitivity * self.plan.multipliers[1])
            return Charge(newest * decay**2, "encoded sums", adds=True, shift=self._shift(scale, newest))
        _index, level, levels = trees.place(t, self.plan.unknown_horizon, self.plan.levels)
        block = t.bit_length() - 1 if self.plan.unknown_horizon else 0
        return Charge(self._share(levels), f"tree level {level}", block)

    def _share(self, levels: int) -> float:
        multiplier = float(self.plan.multipliers[levels])
        if multiplier == 0.0:
            return math.inf
        return 1 / multiplier**2 if self.noise == "gaussian" else 1 / multiplier

    def _as_seen(self, x: Vector) -> Vector:
        """The perturbed context that `select` scored, or a fresh perturbation for one that was not selected last."""
        seen = self._perturbed.get(x.tobytes())
        if seen is None:
            seen = np.empty((1, len(x)))
            index = (1 << 40) + self.rounds
            steps.perturb(
                x[None, :],
                np.zeros(1, dtype=np.int64),
                self.plan.context_noise,
                self.plan.max_norm,
                self._key(CONTEXTS),
                index,
                seen,
            )
            seen = seen[0]
        return seen

    def _key(self, purpose: int) -> np.uint64:
        return np.uint64(self.keys[purpose])

    # ------------------------------------------------------------------ saving

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return dict(_named_arrays("", self.learner))

    def _released(self) -> dict[str, Any]:
        alpha = self._fixed_alpha if self._fixed_alpha is not None else float(self.alphas(self.rounds + 1, 1)[0])
        episodes = self._release == steps.EPISODES
        return {
            "theta": self.learner.theta.tolist(),
            "inverse_gram": (self.learner.anchor if episodes else self.learner.ridge.inverse).tolist(),
            "alpha": alpha,
            "plays_at_random": self.plan.seat == rounds.RANDOM,
            "draws_from_posterior": self.plan.rule == steps.THOMPSON,
        }


def _named_arrays(name: str, part: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """All arrays in nested named tuples, by the path to them."""
    if isinstance(part, np.ndarray):
        yield name, part
        return
    for field in part._fields:
        yield from _named_arrays(f"{name}_{field}" if name else field, getattr(part, field))


def is_compiled(bandit: Any) -> TypeGuard[LinearBandit]:
    """Whether compiled loops may run this bandit: a user's subclass may choose or learn in a way of its own."""
    return bool(vars(type(bandit)).get("compiled", False))


# What counts and does not decide anything.
_COUNTS = frozenset(("clipped", "over_cap", "_user_counts", "_perturbed"))
_OURS = {name: getattr(LinearBandit, name) for name in direct.PASSED_BY}
