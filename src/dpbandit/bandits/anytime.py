"""The anytime bandit: no horizon, no log T, and the lowest price of privacy here.

Every reward enters one sum, at norm 1, through a whitened instrument; the sum is released at times that grow
geometrically, and each release spends a share of what every reward has left (`release.anytime`). What is summed is the
residual against the released prediction, which needs a narrower range than the reward. A Kalman filter combines all
releases (`posterior`), with a prior that contexts alone suggest (`outlook`), and arms are picked by upper confidence bounds.
It assumes a constant θ and a mean reward that is linear in the context; where that fails it is still private.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpbandit import factors
from dpbandit.bandits import anytime_steps, presets, rounds
from dpbandit.bandits.base import Vector
from dpbandit.bandits.linear import Charge, LinearBandit
from dpbandit.bandits.options import Options, positive, whole
from dpbandit.errors import OptionError
from dpbandit.noise import CODES, GRID_BITS, check_noise
from dpbandit.release import anytime as releases

DESCRIPTION = (
    "instrument sums released for ever, Kalman filter, upper confidence bounds: the lowest price of privacy here"
)
REFERENCE = "this project (docs/privacy.md)"
CLAIM = "GDP, proven"
OWN = ("window", "knee", "ratio", "first_release", "reward_variance", "empirical_bayes")

# Where they come from, and what other values gave: docs/frontier.md.
WINDOW = 0.375  # of the reward's range, to either side of the prediction
KNEE = 45.0  # rounds per dimension and unit of noise
RATIO = 1.025


class AnytimeBandit(LinearBandit):
    """A bandit whose releases never end."""

    compiled = True
    plan: anytime_steps.Plan
    learner: anytime_steps.Learner
    values_depend_on_releases = True  # residuals are taken against the released prediction

    def new_learner(self) -> anytime_steps.Learner:
        return anytime_steps.new_learner(self.plan, self.options.public_contexts)

    def complete(self) -> None:
        """The whitener follows from its factor."""
        factors.invert_lower(self.learner.outlook.factor, self.learner.outlook.whitener)

    def check_room(self) -> None:
        """There is always room."""

    def _has_quiet_rounds(self) -> bool:
        return True

    def price(self) -> Charge:
        """What the pending release costs the rewards that were in the first one: they have paid most."""
        t, plan = self.rounds, self.plan
        later = releases.next_time(t, plan.ratio)
        left = ((plan.knee + plan.first) / (plan.knee + t)) ** releases.POWER
        q = releases.shown(releases.kept(t, later, plan.knee))
        share = self.ledger.limit
        shift = q * math.sqrt(share) * plan.scale if math.isfinite(share) else 1.0
        return Charge(share * left * q * q, "releases", adds=True, shift=shift)

    def alphas(self, start: int, count: int) -> Vector:
        if self._fixed_alpha is None:
            # The posterior holds all uncertainty, the noise's too: with this radius it covers every x at once.
            radius = math.sqrt(self.dim) + math.sqrt(2 * math.log(1 / self.options.zeta))
            return np.full(count, radius)
        return np.full(count, self._fixed_alpha)

    def _released(self) -> dict[str, Any]:
        return {
            "theta": self.learner.theta.tolist(),
            "inverse_gram": self.learner.spread.tolist(),
            "alpha": float(self.alphas(self.rounds + 1, 1)[0]),
            "plays_at_random": False,
            "bonus_about_mean": True,
        }


def make(name: str, options: Options) -> AnytimeBandit:
    noise = check_noise(options.noise or "gaussian", ("gaussian",))
    presets.refuse_pan_private(options, name, "its sum is clean in memory between releases")
    budget = presets.budget_per_reward(options, noise, coordinates=options.dim + 1)
    low, high = options.reward_range
    share = positive("window", options.take("window", WINDOW))
    if share > 0.5:
        raise OptionError(f"window must be at most 0.5 of the reward's range, which is no window at all, not {share!r}")
    knee = options.take("knee", None)
    # Noise against signal: about so many rounds pass before a direction is known to within the range of rewards.
    knee = positive("knee", knee) if knee is not None else KNEE * options.dim * 2 * share / min(budget, 1e3)
    knee = min(knee, 1e9)  # beyond, a release would show less of an item than floats can tell
    ratio = positive("ratio", options.take("ratio", RATIO))
    if not 1 < ratio <= 10:
        raise OptionError(f"ratio must lie above 1, and at most 10, not {ratio!r}")
    first = options.take("first_release", None)
    first = max(1, math.ceil(knee / 20)) if first is None else whole("first_release", first, least=1)
    variance = positive("reward_variance", options.take("reward_variance", options.width**2 / 16))
    scale = 0.0 if math.isinf(budget) else _slack(options, budget) / budget
    plan = anytime_steps.Plan(
        seat=rounds.MOMENTS,
        noise=CODES[noise],
        dim=options.dim,
        context_noise=options.context_noise,
        max_norm=options.max_norm,
        scale=scale,
        low=low,
        high=high,
        window=share * options.width,
        knee=knee,
        ratio=ratio,
        first=first,
        reward_variance=variance,
        empirical_bayes=bool(options.take("empirical_bayes", False)),
    )
    claim = presets.claim(options, noise, budget, "proven", ())
    return AnytimeBandit(name, options, plan, claim, presets.ledger(noise, budget))


def _slack(options: Options, budget: float) -> float:
    """What float rounding and, with real noise, the grid of a thousand releases can add to an item."""
    slack = 1 + presets.rounding(options)
    if options.seed is None:
        slack += math.sqrt(1e4 * options.dim) * 2.0**-GRID_BITS / budget
    return slack
