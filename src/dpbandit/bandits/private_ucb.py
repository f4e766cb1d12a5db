"""Private UCB for arms without features (Mishra & Thakurta 2015): a noisy tree of rewards for each arm.

An arm's index is its noisy mean, the usual bonus for having been pulled seldom, and a term for the privacy noise in the
mean. The paper splits ε over the arms; a reward is in one arm's tree only, so here every tree has the whole of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbandit.bandits import arms, presets, rounds
from dpbandit.bandits.base import Matrix, Vector
from dpbandit.bandits.linear import Charge, LinearBandit
from dpbandit.bandits.options import Options, positive
from dpbandit.budget import Claim, Ledger
from dpbandit.errors import BudgetError, OptionError, ShapeError
from dpbandit.noise import CODES, check_noise
from dpbandit.release import levels_for
from dpbandit.release import tree as trees

DESCRIPTION = "UCB for arms without features (one-hot contexts), a Laplace tree for each arm"
REFERENCE = "Mishra & Thakurta 2015"
CLAIM = "pure ε (GDP with noise='gaussian'), proven"
OWN = ("privacy_bonus", "split_budget")
ONE_HOT = True  # contexts may only name arms

# Both chosen on Bernoulli worlds of 10 arms, T = 10⁴ and 10⁵ (docs/privacy.md): UCB's own √(2 log t/n) explores more than it
# needs to; with much less of the privacy term the best arm is lost in some runs.
DEFAULT_ALPHA = 0.3
DEFAULT_PRIVACY_BONUS = 0.75


class ArmsBandit(LinearBandit):
    """A bandit whose contexts are the rows of the identity: each names an arm."""

    compiled = True
    one_hot = True
    plan: arms.Plan
    learner: arms.Learner

    def __init__(self, name: str, options: Options, plan: arms.Plan, claim: Claim, ledger: Ledger) -> None:
        super().__init__(name, options, plan, claim, ledger)
        self.alpha = DEFAULT_ALPHA if options.alpha is None else options.alpha
        self._fixed_alpha = self._width()

    def _width(self) -> float:
        alpha = DEFAULT_ALPHA if self.options.alpha is None else self.options.alpha
        return 1.0 if alpha == "theory" else float(alpha)

    def new_learner(self) -> arms.Learner:
        return arms.new_learner(self.plan)

    def check_contexts(self, contexts: ArrayLike) -> Matrix:
        checked = super().check_contexts(contexts)
        if not (((checked == 0.0) | (checked == 1.0)).all() and (checked.sum(axis=1) == 1.0).all()):
            raise ShapeError(
                f"{self.name} is for arms without features: a context must be one-hot, a single 1 at its arm's place among "
                f"{self.dim} and 0 elsewhere; for contexts with features use private-linucb or tree-gauss"
            )
        return checked

    _checks_in_short = check_contexts

    def within(self, xs: Matrix) -> Matrix:
        named: Matrix = np.eye(self.dim)[np.argmax(xs, axis=1)]
        return named

    def alphas(self, start: int, count: int) -> Vector:
        return np.full(count, self._width())

    def check_room(self) -> None:
        if not self.plan.unknown_horizon and int(self.learner.pulls.max() + 1).bit_length() > self.plan.levels:
            raise BudgetError(
                f"round {self.rounds + 1} could bring an arm's tree to one level more than the {self.plan.levels} that share "
                "the budget; make the bandit with a larger horizon, or horizon=None"
            )

    def price(self) -> Charge:
        arm = int(self.learner.clock[3])
        pull = int(self.learner.pulls[arm])
        _index, level, levels = trees.place(pull, self.plan.unknown_horizon, self.plan.levels)
        block = pull.bit_length() - 1 if self.plan.unknown_horizon else 0
        # A reward is in one block of one arm's tree: that is its group.
        return Charge(self._share(levels), f"arm {arm}, tree level {level}", arm * (trees.MAX_LEVELS + 1) + block)

    def _released(self) -> dict[str, Any]:
        """Means and bonuses as of the coming round. For one-hot contexts √(xᵀBx) is a diagonal entry's root: any bonus."""
        width = self._width()
        bonuses = [arms.bonus(self.learner, self.plan, arm, width) for arm in range(self.dim)]
        return {
            "theta": self.learner.theta.tolist(),
            "inverse_gram": np.diag(np.square(bonuses)).tolist(),
            "alpha": 1.0,
            "plays_at_random": False,
        }


def make(name: str, options: Options) -> ArmsBandit:
    """`alpha` scales √(2 log t/n), in units of the rewards' width. `privacy_bonus` scales the term for
    the privacy noise in the mean, its tail at probability 1/t; 0 drops it, 'theory' is the paper's. alpha='theory' is the
    paper's whole index. `split_budget=True` gives each tree ε/K, as published.
    """
    noise = check_noise(options.noise or "laplace", ("laplace", "gaussian"))
    presets.refuse_pan_private(options, name, "an arm's tree keeps clean sums")
    if options.context_noise > 0:
        raise OptionError(f"{name} has no context_noise: a perturbed context names no arm")
    if options.max_norm < 1:
        raise OptionError(f"{name} needs max_norm ≥ 1, the norm of a one-hot context, not {options.max_norm:g}")
    term = _privacy_bonus(options)
    budget = presets.budget_per_reward(options, noise)
    multipliers = presets.shared_by_levels(budget, noise)
    if _flag(options, "split_budget"):
        multipliers = multipliers * (options.dim if noise == "laplace" else math.sqrt(options.dim))
    plan = arms.Plan(
        seat=rounds.MOMENTS,
        noise=CODES[noise],
        dim=options.dim,
        levels=levels_for(options.horizon),
        unknown_horizon=options.horizon is None,
        horizon=float(options.horizon or 0),
        width=options.width,
        sensitivity=options.width * (1 + presets.rounding(options)),
        multipliers=multipliers,
        published_term=term == "theory",
        privacy_bonus=0.0 if term == "theory" else float(term),
        failure=options.zeta,
        max_norm=options.max_norm,
        context_noise=0.0,
    )
    claim = presets.claim(options, noise, budget, "proven", ("contexts name arms and nothing else (checked)",))
    return ArmsBandit(name, options, plan, claim, presets.ledger(noise, budget))


def _privacy_bonus(options: Options) -> float | str:
    given = options.take("privacy_bonus", None)
    if given is None:
        return "theory" if options.alpha == "theory" else DEFAULT_PRIVACY_BONUS
    if isinstance(given, str):
        if given != "theory":
            raise OptionError(f"privacy_bonus must be a number of at least 0, or 'theory', not {given!r}")
        return given
    return 0.0 if given == 0 and not isinstance(given, bool) else positive("privacy_bonus", given)


def _flag(options: Options, name: str) -> bool:
    given = options.take(name, False)
    if not isinstance(given, (bool, np.bool_)):
        raise OptionError(f"{name} must be True or False, not {given!r}")
    return bool(given)
