"""Contexts and rewards private together (Shariff & Sheffet 2018): a tree over the Gram matrix of (context; reward).

Everybody is protected except from themselves: the arm shown to a person may depend on that person's own context, and on the
others only through noisy sums (joint differential privacy). What is published is the noisy Gram matrix and moments alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpbandit import theory
from dpbandit.bandits import gram, presets, rounds, wishart
from dpbandit.bandits.base import Vector
from dpbandit.bandits.linear import Charge, LinearBandit
from dpbandit.bandits.options import Options, positive
from dpbandit.budget import Claim, Ledger
from dpbandit.errors import BudgetError, OptionError
from dpbandit.noise import CODES, check_noise
from dpbandit.release import levels_for
from dpbandit.release import tree as trees

DESCRIPTION = "Gaussian or Wishart tree on the Gram matrix of contexts and rewards: contexts are private too"
REFERENCE = "Shariff & Sheffet 2018"
CLAIM = "joint, as GDP ((ε, δ) with noise='wishart'), proven"
OWN = ("reward_weight", "centre_rewards", "shift")

# w, the squared size of the reward's coordinate beside the context's. Noise on Σ x·r is (1 + w)/√w, that on Σ xxᵀ 1 + w: at 1 the former is
# least, and no more than a tree on moments alone needs. Measured: ½ is within noise of it, ¼ is worse.
REWARD_WEIGHT = 1.0
# In units of the bound on the noise: 1 makes the Gram matrix positive definite; 2, the paper's choice, keeps it that far from 0 as well
# and has less regret (docs/privacy.md).
SHIFT = 2.0

OWN_ARM = (
    "joint notion: a person's own arm may depend on that person's own context and is shown to that person alone; everyone "
    "else's arms and all released numbers are covered"
)
BOUNDED = "each context has norm at most {0:g} (checked); the offered arms enter through the played one alone"
TIMING = "the number and order of decisions and all timing are public and not protected"
OTHERS = "other people's contexts and rewards do not react to the changed ones except through what was released"
WISHART_ASSUMES = "δ is evaluated by quadrature, with a margin for its rounding"


class JointBandit(LinearBandit):
    """LinUCB on a noisy, shifted Gram matrix and noisy moments."""

    compiled = True
    contexts_are_private = True
    plan: gram.Plan
    learner: gram.Learner

    def __init__(
        self,
        name: str,
        options: Options,
        plan: gram.Plan,
        claim: Claim,
        ledger: Ledger,
        calibrations: dict[int, wishart.Calibration],
    ) -> None:
        self._calibrations = calibrations
        super().__init__(name, options, plan, claim, ledger)

    def new_learner(self) -> gram.Learner:
        return gram.new_learner(self.plan, self.options.horizon)

    def check_room(self) -> None:
        if (self.rounds + 1).bit_length() > len(self.learner.tree.sums):
            raise BudgetError(
                f"round {self.rounds + 1} would bring the total to one level more than the {self.plan.levels} that share the "
                "budget; make the bandit with a larger horizon, or horizon=None"
            )

    def price(self) -> Charge:
        if self.noise != "wishart":
            return super().price()
        t = self.rounds
        _index, level, levels = trees.place(t, self.plan.unknown_horizon, self.plan.levels)
        block = t.bit_length() - 1 if self.plan.unknown_horizon else 0
        if levels not in self._calibrations:
            return Charge(math.inf, f"tree level {level}", block)
        cost = self._calibrations[levels]
        # Level 0 comes first in every block: it carries what the first release costs beyond the others.
        return Charge(cost.each + (cost.first if level == 0 else 0.0), f"tree level {level}", block)

    def alphas(self, start: int, count: int) -> Vector:
        """The width of the bonus in rounds start, start + 1, …: fixed, or the paper's β_t for these regularisers.

        R·√(d·log(1 + tL²/ρ) + d·log(1/ζ)) + S·√ρ_max + γ, where the regulariser's eigenvalues lie in [ρ_min, ρ_max], the noise on the
        moments is at most γ·√ρ_min long, and ρ is the smallest ρ_min. With probability 1 − 2ζ it covers all rounds.
        """
        if self._fixed_alpha is not None:
            return np.full(count, self._fixed_alpha)
        plan, options = self.plan, self.options
        if plan.shift < 1:
            raise OptionError(f"alpha='theory' needs shift ≥ 1, not {plan.shift:g}: below it nothing bounds the noise")
        seen = [
            max(t - 1, 1) for t in range(start, start + count)
        ]  # an arm in round t is chosen by the release of t − 1
        low = np.array([gram.lowest(plan, t) for t in seen]) * plan.size
        high = np.array([gram.highest(plan, t) for t in seen]) * plan.size
        ends = options.ridge + (plan.shift - 1) * low, options.ridge + plan.shift * low + high
        smallest = options.ridge + (plan.shift - 1) * plan.size * gram.lowest(plan, 1)
        gamma = np.array([self._moments_noise(t) for t in seen]) / np.sqrt(ends[0])
        radius = theory.confidence_radius(
            np.arange(start, start + count, dtype=np.float64),
            dim=options.dim,
            ridge=smallest,
            max_norm=options.max_norm,
            theta_norm=0.0,
            zeta=options.zeta,
            reward_noise=options.reward_noise,
            noise=options.theta_norm * np.sqrt(ends[1]) + gamma,
        )
        return np.asarray(radius, dtype=np.float64)

    def _moments_noise(self, t: int) -> float:
        """A bound on the length of the noise on Σ x·r: Gaussian, or a Gaussian vector times the length of another one."""
        plan = self.plan
        total, tail, root = gram.amount(plan, t), gram.deviation(plan, t), math.sqrt(plan.dim)
        length = math.sqrt(total) * (root + tail)
        if self.noise == "wishart":
            length = (math.sqrt(total) + tail) * (root + tail) if total > 0 else 0.0
        else:
            length /= math.sqrt(2)
        return float(plan.size * length / plan.reward_weight)

    def _released(self) -> dict[str, Any]:
        return {
            "theta": self.learner.theta.tolist(),
            "inverse_gram": self.learner.inverse.tolist(),
            "alpha": float(self.alphas(self.rounds + 1, 1)[0]),
            "plays_at_random": False,
        }


def make(name: str, options: Options) -> JointBandit:
    noise = check_noise(options.noise or "gaussian", ("gaussian", "wishart"))
    presets.refuse_pan_private(options, name, "only sums of x·r have one here")
    if options.context_noise > 0:
        raise OptionError(f"{name} protects contexts itself: leave context_noise out")
    low, high = options.reward_range
    centre = (low + high) / 2 if options.take("centre_rewards", False) else 0.0
    furthest = max(abs(low - centre), abs(high - centre))
    share = positive("reward_weight", options.take("reward_weight", REWARD_WEIGHT))
    shift = options.take("shift", SHIFT)
    epsilon = options.need_epsilon()
    packed = gram.entries(options.dim)
    calibrations: dict[int, wishart.Calibration] = {}
    if noise == "gaussian":
        budget = presets.budget_per_reward(options, noise, coordinates=packed)
        multipliers, sensitivity = presets.shared_by_levels(budget, noise), math.sqrt(2) * (1 + _rounding(options))
        ledger = presets.ledger(noise, budget)
        mu = options.rewards_per_unit * budget if math.isfinite(budget) else None
    else:
        calibrations = _calibrate(options)
        multipliers, sensitivity, mu = np.zeros(levels_for(None) + 1), 1.0, None
        for levels, found in calibrations.items():
            multipliers[levels] = found.degrees + options.dim
        ledger = Ledger(limit=epsilon / options.rewards_per_unit, currency="epsilon")
    plan = gram.Plan(
        seat=rounds.GRAM,
        noise=CODES[noise],
        dim=options.dim,
        levels=levels_for(options.horizon),
        unknown_horizon=options.horizon is None,
        sensitivity=sensitivity,
        multipliers=multipliers,
        size=options.max_norm**2 * (1 + share) * (1 + (_rounding(options) if noise == "wishart" else 0.0)),
        reward_weight=math.sqrt(share) * options.max_norm / furthest,
        reward_centre=centre,
        ridge=options.ridge,
        max_norm=options.max_norm,
        shift=0.0 if shift == 0 else positive("shift", shift),
        log_rounds=math.log(gram.TAILS * (options.horizon or 1) / options.zeta),
        context_noise=0.0,
    )
    return JointBandit(name, options, plan, _claim(options, noise, mu), ledger, calibrations)


def _calibrate(options: Options) -> dict[int, wishart.Calibration]:
    """Degrees of freedom by the number of levels. A group of m has m·ε and m·e^{(m−1)ε}·δ, so each gets that much less."""
    epsilon, delta, m = options.need_epsilon(), options.need_delta(), options.rewards_per_unit
    if math.isinf(epsilon):
        return {}
    each = epsilon / m
    log_delta = math.log(delta) - math.log(m) - (m - 1) * each
    if log_delta < math.log(1e-280):
        raise OptionError(f"a group of {m} rewards leaves no δ for one at epsilon = {epsilon:g}: use noise='gaussian'")
    known = levels_for(options.horizon)
    wanted = [known] if options.horizon is not None else range(1, known + 1)
    return {levels: wishart.calibrate(epsilon=each, delta=math.exp(log_delta), levels=levels) for levels in wanted}


def _rounding(options: Options) -> float:
    """How much float rounding can add to a shift, relatively: squared norms are checked to 2e-9, and a sum over a node of n terms of
    size 1, added up pairwise, is off by at most n·log₂n·2⁻⁵³ on either side."""
    terms = float(options.horizon or 2**30)
    slack = 4e-9 + 4 * terms * max(math.log2(terms), 1.0) * 2.0**-53
    if slack > 1e-3:
        raise OptionError(
            f"horizon = {options.horizon} is too long for float sums: take horizon=None, or a shorter one"
        )
    return slack


def _claim(options: Options, noise: str, mu: float | None) -> Claim:
    infinite = math.isinf(options.need_epsilon())
    m = options.rewards_per_unit
    return Claim(
        unit="one context with its reward"
        if options.unit == "reward"
        else f"one user with at most {m} contexts and rewards",
        notion="none" if infinite else "joint",
        epsilon=options.need_epsilon(),
        delta=options.need_delta(),
        mu=mu,
        status="none" if infinite else "proven",
        noise="real" if options.seed is None else "simulation",
        assumptions=(
            presets.CLIPPED.format(options.reward_range, options.width),
            BOUNDED.format(options.max_norm),
            OWN_ARM,
            TIMING,
            OTHERS,
            *((WISHART_ASSUMES,) if noise == "wishart" else ()),
        ),
    )
