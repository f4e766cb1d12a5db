"""The public object: a bandit that selects, learns, states its claim, and keeps its ledger.

The path of a reward: `update` → `engine.learn` (admits, clips, adds). In a round without a release,
that is all. When a release is due, everything happens on a draft of the engine: `prepare` →
`ledger.after` (which may refuse) → `source.release` → `commit` → `ledger.sealed`. Then the new
engine, ledger and counts take effect in one step (`state`). A failure before that step leaves no
trace, and nothing after it can undo it.
"""

from __future__ import annotations

import math
import os
import secrets
import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit import codes, learning
from dpbandit import engine as engines
from dpbandit.design import Design, keys_for
from dpbandit.encoder import Encoder
from dpbandit.encoder.encode import READ
from dpbandit.errors import BudgetError, OptionError, PropensityError
from dpbandit.frames import contexts_in
from dpbandit.logs.record import ASSUMPTION, CONTEXTS_TOO, Log, People
from dpbandit.model import Gate, ReleasedModel
from dpbandit.options import Options
from dpbandit.policies import Decision, Propensities, View
from dpbandit.privacy.accounting import epsilon_of
from dpbandit.privacy.claim import Claim, Spent
from dpbandit.privacy.ledger import Ledger
from dpbandit.privacy.sources import Source
from dpbandit.reference.random import CONTEXTS, TIES
from dpbandit.state import State, Told, alone, come_true
from dpbandit.types import Matrix, Vector

Kind = TypeVar("Kind")

NO_COPIES = (
    "a copy of a bandit would draw new noise for the same rewards and spend their budget twice. To "
    "continue elsewhere: bandit.save(path), then dpb.load(path, receipt=bandit.receipt()) there, and "
    "let only one of them learn. For a new bandit like it: dpb.make(**bandit.get_params())"
)

FOR_USERS = (
    *("select", "decide", "update", "propensities"),
    *("theta", "rounds", "dim", "name", "memory", "encoder", "log"),
    *("claim", "spent", "ledger", "receipt", "clipped", "over_cap", "user_counts"),
    *("save", "export", "model", "get_params"),
)

# All bandits of this process. A forked child turns off the short way of those it inherited, so that
# a round without a release need not look whether it runs in another process.
_ALIVE: weakref.WeakSet[Bandit] = weakref.WeakSet()


def _in_a_forked_child() -> None:
    for bandit in list(_ALIVE):
        bandit.short_way = False
        bandit.lock = threading.RLock()  # a thread that held it is not in the child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_forked_child)


class Of(Generic[Kind]):
    """A named part of the bandit's state. Only code that makes or loads a bandit sets it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, bandit: Bandit, kind: type | None = None) -> Kind:
        found: Kind = getattr(bandit.state, self.name)
        return found

    def __set__(self, bandit: Bandit, value: Kind) -> None:
        come_true(bandit, bandit.state.but(**{self.name: value}), [])


class Bandit:
    """A contextual bandit. Make one with `dpb.make`."""

    engine = Of[engines.Engine]()
    ledger = Of[Ledger]()
    claim = Of[Claim]()
    over_cap = Of[int]()
    offered = Of[Matrix | None]()
    log = Of[Log | None]()
    people = Of[People]()

    def __init__(self, name: str, options: Options, design: Design) -> None:
        if options.protects.needs_instruments and not design.has_instruments:
            raise OptionError(
                f"{name} has no unit={options.unit!r}, because it has no proof for that unit: use "
                "'anytime', or unit=('user', m)"
            )
        self.name = name
        self.options = options
        self.design = design
        self.release = design.release
        self.noise = design.noise
        self.policy = design.policy
        self.source: Source = design.source(options)
        self.identity = secrets.token_hex(16)
        self.gate = Gate(
            dim=options.dim,
            max_norm=options.max_norm,
            l1_limit=design.l1_limit,
            one_hot=design.one_hot,
            name=name,
            private=design.contexts_are_private,
        )
        self.alpha: float | str = design.alpha if options.alpha is None else options.alpha
        self.fixed_alpha = design.fixed(self.alpha)
        if self.fixed_alpha is None:
            self.alphas(1, 1)  # raises now, not in round 1, if something is missing
        self.backend = engines.backend_for(options.backend, design.not_in_core)
        self.keys, self.spec, engine = self._engine(keys_for(options.seed))
        self.state = State(engine, design.ledger, design.claim, {})
        self.encoder: Encoder | None = None  # set where the bandit is made or loaded
        # Names of the log's columns it learned from: frames must then have them in this order.
        self.feature_names: tuple[str, ...] | None = None
        self.public_rows = {row.tobytes() for row in design.public_set}
        self.lock = threading.RLock()  # by way of `state.alone`
        self._process = os.getpid()
        self.counts_users = options.protects.needs_user
        # Whether `update` may go straight to the engine: see `open_short_way`.
        self.short_way = False
        plain = self.fixed_alpha is not None and options.context_noise == 0
        # A decision moves the whitener, and so must wait while an instrument is counted and learned.
        plain = plain and not options.protects.needs_instruments
        self._short_select = self.backend == "core" and plain
        self.open_short_way()
        _ALIVE.add(self)

    # -------------------------------------------------------------- what users call

    @overload
    def select(self, contexts: ArrayLike, k: None = None) -> int: ...
    @overload
    def select(self, contexts: ArrayLike, k: int) -> NDArray[np.int64]: ...
    def select(self, contexts: Any, k: int | None = None) -> Any:
        """Choose the arm to play: an index into the rows of `contexts`.

        Parameters
        ----------
        contexts : array of shape (arms, dim)
            One row per arm on offer now. Lists, and frames of pandas, polars or Arrow, work too.
        k : int, optional
            Number of arms to return, best first.

        Returns
        -------
        int, or array of k ints

        Raises
        ------
        ShapeError, NotFiniteError, NormError, OptionError
            If a context or k is not allowed. Nothing changes then.

        Examples
        --------
        >>> import dpbandit as dpb
        >>> bandit = dpb.make("linucb", dim=2, seed=0)
        >>> bandit.update([0.0, 1.0], 1.0)
        >>> bandit.select([[1.0, 0.0], [0.0, 1.0]])
        1
        """
        if k is None and self._short_select:
            arm = self.state.engine.select(contexts)
            if arm >= 0:
                return arm
        return self._select(contexts, k)

    def update(self, contexts: Any, rewards: Any, *, user: Any = None) -> None:
        """Learn from one played context and its reward, or from a batch of them.

        Parameters
        ----------
        contexts : array of shape (dim,), or (n, dim) for a batch
            The context of the arm that was played.
        rewards : float, or array of shape (n,) for a batch
            Its reward; clipped to `reward_range`.
        user : str or int, or a list of them for a batch
            Whose reward it is, unless unit='reward'. With ('user', m) a user's rewards beyond the
            m-th are counted but not learned from. With ('spread', m) that holds for rewards that
            would move the sums too far. With ('person', C) rewards count until they add up to C,
            and as 0 from then on.

        Raises
        ------
        ShapeError, NotFiniteError, NormError, OptionError
            If an argument is not allowed. Nothing changes then.
        HorizonError, BudgetError
            If the noise was not scaled for another reward, or if it is called from within another
            call of the same bandit.

        Notes
        -----
        A reward is learned wholly or not at all, whatever interrupts: sums, ledger and counts
        change in one step. Any other exception (such as Ctrl-C) carries a note that says whether
        this reward was learned, or how many of a batch were.

        Examples
        --------
        >>> import dpbandit as dpb
        >>> bandit = dpb.make("tree-gauss", dim=2, epsilon=1.0, delta=1e-5, horizon=10, seed=0)
        >>> bandit.update([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0])
        >>> bandit.rounds
        2
        """
        told: Told = []
        if user is not None and not self.counts_users:
            raise OptionError(
                "user=... was given, but the unit of privacy is one reward: a user's rewards would "
                "not be counted together. Make the bandit with unit=('user', m) or ('person', C), or "
                "omit user=..."
            )
        try:
            if self.short_way and not self.state.engine.learn(contexts, rewards, told):
                return  # LEARNED is 0
            learning.update(self, contexts, rewards, user, told)
        except BaseException as error:
            learning.say_how_many(self, error, told)
            raise

    @property
    def theta(self) -> Vector:
        """The released parameter, never the clean one.

        >>> import dpbandit as dpb
        >>> dpb.make("linucb", dim=2, seed=0).theta.tolist()
        [0.0, 0.0]
        """
        return np.array(self.state.engine.theta())

    @property
    def dim(self) -> int:
        """Number of features of a context."""
        return self.options.dim

    @property
    def rounds(self) -> int:
        """Number of rewards learned from."""
        return int(self.state.engine.rounds)

    @property
    def memory(self) -> float:
        """Rounds after which past information fades to about a third, in the acting hypothesis.

        It follows from releases, so it is public. Infinity if the bandit never forgets.
        """
        settings = self.design.settings
        memories = (math.inf, *settings.get("memories", ()))
        if settings.get("memory_alone") or not memories[1:]:
            return float(memories[-1])
        return float(memories[int(self.state.engine.fields()["acting"][0])])

    @property
    def clipped(self) -> int:
        """Number of rewards outside the range. Trusted side only: the count is private.

        With unit=('person', C) it stays 0: counting already brings those rewards into the range.
        """
        return int(self.state.engine.clipped)

    @property
    def user_counts(self) -> dict[str, int]:
        """How often each user was counted, with unit=('user', m) or ('spread', m): a copy.

        With unit=('person', C) it is empty, because those counts depend on rewards.
        """
        unit = self.options.protects
        if not unit.counts_are_public:
            return {}
        return {name: unit.number(count, self.dim + 1) for name, count in self.counters.items()}

    @property
    def counters(self) -> dict[str, Any]:
        """The count kept for each user: decisions, the directions of a spread user's contexts, or
        the sum of a person's rewards, in steps.

        Trusted side only: a person's count is private.
        """
        return self.state.user_counts

    @counters.setter
    def counters(self, counts: dict[str, Any]) -> None:
        come_true(self, self.state.but(counts=counts, counted=None), [])

    @property
    def spent(self) -> Spent:
        """The budget spent so far by the reward (or user) that paid most, in the claim's terms.

        >>> import dpbandit as dpb
        >>> bandit = dpb.make("private-linucb", dim=1, epsilon=2.0, horizon=3, seed=0)
        >>> bandit.update([1.0], 0.5)  # two levels share ε = 2
        >>> bandit.spent.epsilon
        1.0
        """
        return spent_of(self.claim, self.ledger, self.options.moves_per_unit)

    def receipt(self) -> dict[str, Any]:
        """A receipt to keep elsewhere, so that `dpb.load(path, receipt=...)` recognises an old
        save.

        >>> import dpbandit as dpb
        >>> sorted(dpb.make("local", dim=1, epsilon=1.0, seed=0).receipt())
        ['fingerprint', 'identity', 'releases']
        """
        ledger = self.ledger
        return {
            "identity": self.identity,
            "releases": ledger.releases,
            "fingerprint": ledger.fingerprint,
        }

    def save(self, path: str | Path) -> None:
        """Write everything, including clean statistics and noise in use: trusted side only.

        The file's mode is 0600. It is replaced whole or not at all.

        >>> import dpbandit as dpb, tempfile, os
        >>> file = os.path.join(tempfile.mkdtemp(), "bandit.npz")
        >>> dpb.make("linucb", dim=2, seed=0).save(file)
        >>> oct(os.stat(file).st_mode & 0o777)
        '0o600'
        """
        from dpbandit.saving import save

        save(self, path)

    def export(self, path: str | Path) -> None:
        """Write only the released model, which a ranker or a stranger may hold.

        >>> import dpbandit as dpb, tempfile, os
        >>> file = os.path.join(tempfile.mkdtemp(), "model.json")
        >>> dpb.make("linucb", dim=2, seed=0).export(file)
        >>> dpb.load(file).select([[1.0, 0.0], [0.0, 0.5]])
        0
        """
        from dpbandit.saving import export

        export(self, path)

    def model(self) -> ReleasedModel:
        """The current released model: public numbers only, and enough to rank."""
        found, rounds = alone(self, self._seen)
        alpha = self.fixed_alpha
        if alpha is None:
            alpha = float(self.alphas(rounds + 1, 1)[0])
        return ReleasedModel(
            name=self.name,
            rounds=rounds,
            claim=self.claim,
            policy=self.policy,
            view=View(np.array(found["theta"]), np.array(found["matrix"])),
            alpha=alpha,
            gate=self.gate,
            encoder=self.encoder,
            holdout=self.options.holdout,
        )

    def decide(self, contexts: ArrayLike, *, draws: int = 1_000) -> Decision:
        """The arm that `select` plays, with the probability that it had: log both.

        With it, `dpb.replay(log, …, propensity=…)` estimates what another algorithm would have earned.

        Parameters
        ----------
        contexts : array of shape (arms, dim)
            One row per arm.
        draws : int
            As in `propensities`.

        Raises
        ------
        PropensityError
            As in `propensities`.

        Examples
        --------
        >>> import dpbandit as dpb
        >>> bandit = dpb.make("linucb", dim=2, holdout=0.02, seed=0)
        >>> bandit.update([0.0, 1.0], 1.0)
        >>> arm, propensity, standard_error = bandit.decide([[1.0, 0.0], [0.0, 1.0]])
        >>> arm, round(propensity, 6), standard_error
        (1, 0.99, 0.0)
        """
        while True:
            model = self.model()
            found = self._chances(model, contexts, draws)
            arm = self.select(contexts)
            # Another thread may have learned in between: then it was another model's arm.
            if model.same_as(self.model()):
                break
        return Decision(arm, float(found.probabilities[arm]), float(found.standard_errors[arm]))

    def propensities(
        self, contexts: ArrayLike, *, draws: int = 1_000, seed: int | None = None
    ) -> Propensities:
        """The probability with which `select` plays each row now, and its standard error.

        Available where arms are sampled: policy='sampled', random play, Thompson sampling, and
        anything with a `holdout`. It uses released values only, so it costs no privacy, and it
        changes nothing. Exact, except for Thompson sampling with more than two arms.

        Parameters
        ----------
        contexts : array of shape (arms, dim)
            One row per arm.
        draws : int
            Number of draws, for Thompson sampling with more than two arms.
        seed : int, optional
            Seed of a separate generator for these draws.

        Raises
        ------
        PropensityError
            If the algorithm does not randomise, as UCB algorithms do not.

        Examples
        --------
        >>> import dpbandit as dpb
        >>> bandit = dpb.make("private-ts", dim=2, epsilon=1.0, horizon=10, seed=0)
        >>> bandit.propensities([[1.0, 0.0], [0.0, 1.0]]).probabilities.tolist()
        [0.5, 0.5]
        """
        return self._chances(self.model(), contexts, draws, seed)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options it was made with: `dpb.make(**bandit.get_params())` makes a new one like it.

        >>> import dpbandit as dpb
        >>> dpb.make("linucb", dim=2, seed=0).get_params()["seed"]
        0
        """
        del deep  # scikit-learn's signature; nothing is nested
        with_encoder = {} if self.encoder is None else {"encoder": self.encoder}
        return {"name": self.name, **self.options.given(), **with_encoder}

    def __repr__(self) -> str:
        # ε and δ are for the claim to say
        given = self.options.given(changed=True, but=("epsilon", "delta"))
        words = ", ".join(f"{name}={_short(value)}" for name, value in given.items())
        runs = ""
        if self.design.not_in_core:
            runs = f" on the reference engine (the core has no {self.design.not_in_core[0]});"
        claim = str(self.claim).splitlines()[0]
        return f"<{self.name}({words}):{runs} {self.rounds:,} rounds learned; {claim}>"

    # -------------------------------------------------------------- what audits and planners ask

    @property
    def l1_limit(self) -> float | None:
        """The largest allowed L1 norm of a context; None: any."""
        return self.design.l1_limit

    @property
    def one_hot(self) -> bool:
        """Whether contexts may only name arms."""
        return self.design.one_hot

    @property
    def contexts_are_private(self) -> bool:
        """Whether contexts are protected too."""
        return self.design.contexts_are_private

    @property
    def values_depend_on_releases(self) -> bool:
        """Whether a clean value depends on earlier releases, not on the rewards alone."""
        return self.design.values_depend_on_releases

    def check_contexts(self, contexts: ArrayLike) -> Matrix:
        """The contexts as an array, or a named error. Nothing changes."""
        given = contexts_in(contexts, self.feature_names, self.encoder)
        self.gate.check(given)
        return given

    def within(self, xs: Matrix) -> Matrix:
        """Contexts of allowed norms, changed to a form this bandit accepts: for trying it out."""
        if not self.design.one_hot:
            return xs
        named: Matrix = np.eye(self.dim)[np.argmax(xs, axis=1)]
        return named

    def alphas(self, start: int, count: int) -> Vector:
        """The width of the bonus in rounds start, start + 1, …: fixed, or what theory says."""
        theory = self.design.theory
        if self.fixed_alpha is not None or isinstance(theory, float):
            return np.full(count, self.fixed_alpha)
        return theory(np.arange(start, start + count, dtype=np.float64))

    def in_public_set(self, rows: Matrix) -> NDArray[np.bool_]:
        """For each row, whether it is one of the contexts that the noise was scaled for."""
        if not self.public_rows:
            return np.ones(len(rows), dtype=np.bool_)
        return np.array([row.tobytes() in self.public_rows for row in rows], dtype=np.bool_)

    def use_encoder(self, encoder: Encoder) -> None:
        """Records are encoded by this one from now on. If it was read from data, the claim says so."""
        self.encoder = encoder
        if self.claim.status != "none" and encoder.read:
            self.claim = replace(self.claim, assumptions=(*self.claim.assumptions, READ))

    def remember(self, log: Log, people: People) -> None:
        """Record that it was started from this log: its users have that much less of their cap
        left."""
        come_true(self, self.state.but(**self.remembered(log, people)), [])

    def remembered(self, log: Log, people: People) -> dict[str, Any]:
        """The same, as changes of the state."""
        claim = self.claim
        if claim.status != "none":
            words = CONTEXTS_TOO if self.contexts_are_private else ASSUMPTION
            words = words.format(log.learned)
            claim = replace(claim, assumptions=(*claim.assumptions, words))
        return {"log": log, "people": people, "claim": claim}

    # -------------------------------------------------------------- the long way

    def open_short_way(self) -> None:
        """Let `update` go straight to the engine where nothing else is needed.

        Only with the core, whose calls nothing interrupts. Not where users are counted, and not for
        the first reward without noise, which the ledger must charge.
        """
        in_the_clear = self.design.in_the_clear and self.ledger.releases == 0
        self.short_way = self.backend == "core" and not self.counts_users and not in_the_clear

    def use_keys(self, keys: Mapping[int, int]) -> None:
        """Start a new engine with these keys of ties, perturbed contexts and pan-private starts."""
        self.keys, self.spec, self.engine = self._engine(keys)

    def _engine(
        self, keys: Mapping[int, int]
    ) -> tuple[dict[int, int], dict[str, Any], engines.Engine]:
        spec = self.design.spec(
            self.options,
            alpha=math.nan if self.fixed_alpha is None else self.fixed_alpha,
            ties_key=keys[TIES],
            contexts_key=keys[CONTEXTS],
        )
        return dict(keys), spec, engines.new_engine(spec, self.backend)

    def offer_again(self, contexts: Matrix, fields: dict[str, NDArray[Any]]) -> None:
        """Make the engine remember how it perturbed the contexts offered last.

        The perturbation is a function of the decision's number, so repeat the last decision.
        """
        before = {**fields, "decisions": fields["decisions"] - 1}
        self.engine.load_fields(before)
        self.engine.rank(contexts, len(contexts), 0.0)
        self.engine.load_fields(fields)
        self.offered = contexts

    def check_horizon(self, count: int) -> None:
        """Raise if this many more rewards exceed the horizon."""
        horizon = self.options.horizon
        if horizon is not None and self.rounds + count > horizon:
            engines.refuse(self, codes.HORIZON, np.empty((0, self.dim)), count)

    def check_process(self) -> None:
        """Raise in a forked copy, which would spend the same budget a second time."""
        if os.getpid() != self._process:
            raise BudgetError(engines.FORKED_WORDS)

    def _select(self, contexts: Any, k: int | None) -> Any:
        given = contexts_in(contexts, self.feature_names, self.encoder)
        if k is not None and not _is_slate(k, given):
            self.gate.check(given)
            raise OptionError(
                f"k must be a whole number from 1 to the {len(given)} arms given, not {k!r}"
            )
        if self.options.context_noise > 0:
            found = alone(self, self._offer, given.copy(), k)
        else:
            found = alone(self, lambda: self._choose(self.state.engine, given, k))
        return found if k is None else np.array(found, dtype=np.int64)

    def _choose(self, engine: engines.Engine, given: Matrix, k: int | None) -> Any:
        alpha = math.nan
        if self.fixed_alpha is None:
            alpha = float(self.alphas(engine.rounds + 1, 1)[0])
        found: Any = engine.select(given, alpha) if k is None else engine.rank(given, int(k), alpha)
        if isinstance(found, int) and found < 0:
            engines.refuse(self, found, given)
        return found

    def _chances(
        self, model: ReleasedModel, contexts: ArrayLike, draws: int, seed: int | None = None
    ) -> Propensities:
        checked = self.check_contexts(contexts)
        if self.options.context_noise > 0:
            raise PropensityError(
                "with context_noise each score uses freshly perturbed contexts: no propensity is "
                "known"
            )
        return model.propensities(checked, draws=draws, seed=seed)

    def _offer(self, given: Matrix, k: int | None) -> Any:
        """Change the engine's perturbed contexts, and what a save keeps of them, in one step."""
        draft = self.state.engine.draft()
        try:
            found = self._choose(draft, given, k)
            come_true(self, self.state.but(engine=draft, offered=given), [])
        finally:
            self.state.engine.go_on()
        return found

    def _seen(self) -> tuple[dict[str, Any], int]:
        engine = self.state.engine.copy()  # other threads may be learning quietly
        return engine.model(), engine.rounds

    def __dir__(self) -> list[str]:
        """The names a user needs. The others are for audits, planners and the service."""
        return list(FOR_USERS)

    def __copy__(self) -> NoReturn:
        raise BudgetError(NO_COPIES)

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise BudgetError(NO_COPIES)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise BudgetError(NO_COPIES)


def spent_of(claim: Claim, ledger: Ledger, moves: float) -> Spent:
    """One reward's total in a claim's terms, for a unit that moves `moves` times as far."""
    if ledger.currency == "mu²":
        mu = moves * math.sqrt(ledger.total)
        if claim.mu is not None and mu <= claim.mu * (1 + 1e-12):
            mu = min(mu, claim.mu)  # the root's rounding is not spent
        epsilon = epsilon_of(mu=mu, delta=claim.delta) if 0 < claim.delta < 1 else 0.0
        if claim.notion == "parallel":
            # Some rewards pay pure ε instead: μ only stands for the pair (ε, δ), and all of it is
            # ε.
            whole = ledger.total >= ledger.limit * (1 - 1e-9)
            return Spent(claim.epsilon if whole else epsilon, claim.delta, None, claim)
        return Spent(epsilon, claim.delta, mu, claim)
    if ledger.currency == "epsilon":
        return Spent(moves * ledger.total, claim.delta, None, claim)
    raise BudgetError(f"no currency is called {ledger.currency!r}")


def _is_slate(k: Any, given: Matrix) -> bool:
    number = isinstance(k, (int, np.integer)) and not isinstance(k, bool)
    return number and given.ndim == 2 and 1 <= k <= len(given)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{' × '.join(map(str, value.shape))} array>"
    return repr(value)
