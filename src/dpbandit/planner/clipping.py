"""`dpb.clipping`: the effect of a range on rewards of which a few are large, such as money.

A narrow range clips the largest, which moves means; a wide one has proportionally more noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.algorithms.registry import construct
from dpbandit.errors import NotFiniteError, OptionError, ShapeError
from dpbandit.options import positive, whole
from dpbandit.privacy.claim import Claim
from dpbandit.privacy.unit import find_unit
from dpbandit.types import Vector

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# The algorithms whose noise can be stated for one arm. The number is the power of the range's width
# with which the rounds grow until a difference shows through the noise. In a running sum of n
# rewards noise hardly grows, so a mean's noise falls like 1/n. Noise on each reward adds up, so a
# mean's noise falls like 1/√n.
GROWTH = {"toeplitz": 1, "tree-gauss": 1, "local": 2}
# Shares of the sample that a candidate clips at an end.
TAILS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
DIGITS = 2  # of a candidate's ends
PUBLIC = (
    "the sample must be public or invented: choosing a range by people's raw rewards leaks privacy "
    "that no ledger counts and no claim covers"
)


@dataclass(frozen=True)
class Range:
    """One range, and the effect of clipping to it on an arm's mean reward at the horizon."""

    low: float
    high: float
    below: float  # share of rewards clipped at the lower end
    above: float
    bias: float  # how far clipping moves the mean of all rewards
    level: float  # the mean of clipped rewards
    deviation: float  # of clipped rewards, around their arm's mean
    arms_differ: float | None  # standard deviation of arms' means, clipped; None without names
    arm_biases: dict[str, float]
    moved: float  # the part that matters: of the mean or, with arms, of their differences
    spread: float  # standard deviation of the mean due to the clipped rewards' variance
    noise: float  # and due to privacy noise
    rounds: float  # until that noise is as small as the difference to detect
    order: tuple[str, ...]  # arms, the best mean of clipped rewards first

    @property
    def error(self) -> float:
        """Root mean square error from all three."""
        return math.hypot(self.moved, self.spread, self.noise)

    @property
    def words(self) -> str:
        """The range as one types it."""
        return f"({self.low:g}, {self.high:g})"


@dataclass(frozen=True)
class Clipping:
    """The effect of each range. `ranges` go from wide to narrow; `recommended` has the least error.

    `claim` is that of the algorithm whose noise is counted, `difference` the one to detect, and
    `order` the arms by their true mean in the sample.
    """

    ranges: tuple[Range, ...]
    asked: Range | None
    claim: Claim
    algorithm: str
    horizon: int
    arms: int
    difference: float
    order: tuple[str, ...]
    rewards: Vector

    @property
    def recommended(self) -> Range:
        """The range with the least error among the candidates."""
        return min(self.ranges, key=lambda one: one.error)

    @property
    def chosen(self) -> Range:
        """What a plan takes over: the range asked about, or else the recommended one."""
        return self.asked or self.recommended

    def headline(self) -> str:
        """The answer in words."""
        best, beside = self.recommended, self.asked or self.ranges[0]
        name = "the one asked about" if self.asked else "the whole sample's"
        width = (best.high - best.low) / (beside.high - beside.low)
        power = "²" if GROWTH[self.algorithm] == 2 else ""
        return (
            f"recommended: reward_range={best.words}. It clips {best.below:.2%} of rewards at the "
            f"lower end and {best.above:.2%} at the upper, which moves their mean by {best.bias:+.3g}. "
            f"Compared with {beside.words}, {name}, noise is × {width:.3g}. It is as small as a "
            f"difference of {self.difference:.3g} after {best.rounds:,.0f} rounds instead of "
            f"{beside.rounds:,.0f} (rounds grow like width{power}), and an arm's mean is off by "
            f"{best.error:.3g} instead of {beside.error:.3g}{self._swapped(best)}"
        )

    def _swapped(self, one: Range) -> str:
        if one.order == self.order:
            return "; the order of arms stays" if self.order else ""
        if one.order[0] == self.order[0]:
            return "; clipping changes the order of arms, not which is best"
        return (
            f"; clipping changes the best arm: {one.order[0]} instead of {self.order[0]}, whose mean "
            "comes from clipped rewards"
        )

    def assumptions(self) -> list[str]:
        """The assumptions behind the answer."""
        claim, what = self.claim, "the arms' differences" if self.order else "the mean"
        return [
            f"{len(self.rewards):,} rewards, {self.arms} arms without features, shown equally often for "
            f"{self.horizon:,} rounds",
            f"noise: of {self.algorithm}, {claim.status} at ε = {claim.epsilon:g}, δ = {claim.delta:g} "
            f"for {claim.unit}",
            f"off by: root of (how far clipping moves {what})² + variance of clipped rewards and of "
            "noise in an arm's mean at the horizon",
            PUBLIC,
        ]

    def lines(self) -> list[tuple[str, ...]]:
        """The table in words, one line per range."""
        found = []
        for one in (*([self.asked] if self.asked else []), *self.ranges):
            mark = " ←" if one is self.recommended else " (asked)" if one is self.asked else ""
            best = "–" if not self.order else one.order[0]
            numbers = (one.bias, one.spread, one.noise, one.error)
            ends = (one.words + mark, f"{one.below:.2%}", f"{one.above:.2%}")
            shown = (f"{number:.3g}" for number in numbers)
            found.append((*ends, *shown, f"{one.rounds:,.0f}", best))
        return found

    HEAD = (
        "range",
        "below",
        "above",
        "mean moves",
        "spread",
        "noise",
        "off by",
        "rounds",
        "best arm",
    )

    def __str__(self) -> str:
        rows = [self.HEAD, *self.lines()]
        wide = [max(len(row[column]) for row in rows) for column in range(len(self.HEAD))]
        table = [
            "  ".join([row[0].ljust(wide[0]), *map(str.rjust, row[1:], wide[1:])]) for row in rows
        ]
        return "\n".join([self.headline(), "", *table, "", *self.assumptions()])

    def to_dict(self) -> dict[str, Any]:
        """Everything but the sample, for JSON."""

        def plain(one: Range) -> dict[str, Any]:
            return asdict(one) | {"order": list(one.order), "error": one.error}

        claim = self.claim
        return {
            "recommended": plain(self.recommended),
            "asked": None if self.asked is None else plain(self.asked),
            "ranges": [plain(one) for one in self.ranges],
            "order": list(self.order),
            "difference": self.difference,
            "setting": {
                "horizon": self.horizon,
                "arms": self.arms,
                "algorithm": self.algorithm,
                "status": claim.status,
                "epsilon": claim.epsilon,
                "delta": claim.delta,
                "unit": claim.unit,
            },
            "assumptions": self.assumptions(),
        }

    def plot(self) -> Figure:
        """A picture: the error of an arm's mean for each range, and the rewards themselves."""
        from dpbandit.planner.picture import clipped

        return clipped(self)


def clipping(
    rewards: Any,
    *,
    epsilon: float,
    delta: float,
    horizon: int = 10_000,
    arm: Sequence[Any] | None = None,
    arms: int | None = None,
    reward_range: tuple[float, float] | None = None,
    difference: float | None = None,
    algorithm: str = "toeplitz",
    unit: Any = "reward",
) -> Clipping:
    """Show the effect of clipping on a public or invented sample of rewards, and recommend a range.

    The sample must not come from the people you protect: looking at their raw rewards leaks privacy
    that no ledger counts and no claim covers.

    Parameters
    ----------
    rewards : array of shape (n,)
        The sample.
    epsilon, delta : float
        The budget.
    horizon : int, default 10_000
        Rounds.
    arm : sequence of n names, optional
        The arm of each reward. Then the differences between arms count.
    arms : int, optional
        Number of arms that share the rounds. Default: those named in `arm`, or 1.
    reward_range : (float, float), optional
        Your own range, to compare with the candidates.
    difference : float, optional
        The difference to detect. Default: that of the best two arms or, without arms, a tenth of
        the mean.
    algorithm : {'toeplitz', 'tree-gauss', 'local'}, default 'toeplitz'
        The algorithm whose noise is counted.
    unit : 'reward' or ('user', m)
        Who is protected, as in `make`.

    Returns
    -------
    Clipping
        Print it, or ask for `recommended`, `ranges`, `plot()`.

    Raises
    ------
    OptionError, ShapeError, NotFiniteError
        If an argument is not allowed.

    Examples
    --------
    >>> import dpbandit as dpb
    >>> invented = np.random.default_rng(0).lognormal(1.0, 1.5, size=20_000)
    >>> found = dpb.clipping(invented, epsilon=1.0, delta=1e-6, horizon=10_000, arms=10)
    >>> found.recommended.high < found.ranges[0].high / 5
    True
    """
    sample, names, codes = _checked(rewards, arm)
    if algorithm not in GROWTH:
        raise OptionError(f"clipping counts the noise of {', '.join(GROWTH)}, not of {algorithm!r}")
    if find_unit(unit).moves(1.0) != find_unit(unit).moves(2.0):
        raise OptionError(
            f"unit={unit!r} caps the sum of people's rewards: its noise is the same for every range, "
            "so no narrower one wins. Ask with unit='reward' or ('user', m)"
        )
    horizon = whole("horizon", horizon, least=1)
    arms = whole("arms", max(1, len(names)) if arms is None else arms, least=max(1, len(names)))
    means = _means(sample, codes, len(names))
    if difference is None:
        best = np.sort(means)[::-1]
        difference = best[0] - best[1] if len(names) > 1 else abs(sample.mean()) / 10
        if difference == 0.0:
            raise OptionError(
                "the sample's means do not differ from one another, or are 0: give difference"
            )
    difference = positive("difference", float(difference))
    asked_for = {"epsilon": epsilon, "delta": delta, "horizon": horizon, "unit": unit, "dim": arms}
    made = construct(algorithm, asked_for | {"seed": 0, "reward_range": (0.0, 1.0)})
    if made.claim.status != "proven" or not math.isfinite(made.claim.epsilon):
        raise OptionError("epsilon must be finite: without noise no range needs to be narrow")
    each = horizon / arms  # rewards of one arm
    shown = float(np.sqrt(made.design.release.variance(np.array([horizon]), arms)[0]))
    one_wide = shown / each ** (1 / GROWTH[algorithm])  # in a mean, where the range is one wide

    def look(low: float, high: float) -> Range:
        cut = np.clip(sample, low, high)
        after = _means(cut, codes, len(names))
        biases = after - means
        # A bias common to all arms changes no choice.
        moved = biases.std() if len(names) > 1 else abs(float(cut.mean() - sample.mean()))
        noise = one_wide * (high - low)
        within = cut - (after[codes] if len(names) else cut.mean())
        return Range(
            low=low,
            high=high,
            below=float((sample < low).mean()),
            above=float((sample > high).mean()),
            bias=float(cut.mean() - sample.mean()),
            level=float(cut.mean()),
            deviation=float(np.sqrt((within**2).mean())),
            arms_differ=float(after.std()) if len(names) > 1 else None,
            arm_biases=dict(zip(names, biases.tolist(), strict=True)) if names else {},
            moved=float(moved),
            spread=float(np.sqrt((within**2).mean() / each)),
            noise=noise,
            rounds=horizon * (noise / difference) ** GROWTH[algorithm],
            order=_order(after, names),
        )

    asked = None if reward_range is None else look(*_two_ends(reward_range))
    found = tuple(look(low, high) for low, high in candidates(sample, look))
    return Clipping(
        found, asked, made.claim, algorithm, horizon, arms, difference, _order(means, names), sample
    )


def candidates(sample: Vector, look: Any) -> list[tuple[float, float]]:
    """For each share clipped at the upper end, the best lower end; from wide to narrow."""
    lows = {_rounded(float(low), down=True) for low in np.quantile(sample, TAILS)}
    highs = {_rounded(float(high), down=False) for high in np.quantile(sample, 1 - np.array(TAILS))}
    found = []
    for high in sorted(highs, reverse=True):
        fit = [look(low, high) for low in sorted(lows) if low < high]
        if fit:
            best = min(fit, key=lambda one: one.error)
            found.append((best.low, best.high))
    return found


def _rounded(value: float, *, down: bool) -> float:
    """An end that is easy to type, no narrower than the value."""
    if value == 0.0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - DIGITS + 1)
    whole_steps = math.floor(value / step) if down else math.ceil(value / step)
    return float(f"{whole_steps * step:.{DIGITS}g}")


def _two_ends(given: tuple[float, float]) -> tuple[float, float]:
    """Two numbers, the lower first, or an error."""
    try:
        low, high = (float(end) for end in given)
    except (TypeError, ValueError):
        raise OptionError(f"reward_range must be (low, high), not {given!r}") from None
    if not -math.inf < low < high < math.inf:
        raise OptionError(f"reward_range must be (low, high) with low < high, not {given!r}")
    return low, high


def _checked(rewards: Any, arm: Any) -> tuple[Vector, tuple[str, ...], NDArray[np.intp]]:
    try:
        sample = np.asarray(rewards, dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError("rewards must be an array of numbers of shape (n,)") from None
    if sample.ndim != 1 or len(sample) < 2:
        raise ShapeError(f"rewards must have shape (n,) with n ≥ 2, not {sample.shape}")
    if not np.isfinite(sample).all():
        raise NotFiniteError("rewards must be finite numbers, without NaN or infinity")
    if sample.min() == sample.max():
        raise OptionError(f"all rewards of the sample are {sample[0]:g}: there is nothing to clip")
    if arm is None:
        return sample, (), np.zeros(len(sample), dtype=np.intp)
    if len(arm) != len(sample):
        raise ShapeError(f"arm must name one arm for each of {len(sample)} rewards, not {len(arm)}")
    names, codes = np.unique([str(name) for name in arm], return_inverse=True)
    return sample, tuple(names.tolist()), codes


def _means(rewards: Vector, codes: NDArray[np.intp], arms: int) -> Vector:
    """The mean of each arm; none if arms have no names."""
    return np.bincount(codes, rewards, arms)[:arms] / np.bincount(codes, minlength=arms)[:arms]


def _order(means: Vector, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(names[i] for i in np.argsort(-means, kind="stable"))
