"""Values with intervals, from a tally's sums and the one number in it that may be noisy.

All estimates are of one form. A row counts z = u + v·y with v = c·W·w and u = q_chosen + c·w·(e − q):
inverse propensity has q = 0, e = low, c = 1; doubly robust has the player's own q; self-normalised ones
have c = rows/Σw and e = low minus what makes Σ w·(reward − …) zero. The mean of z is the estimate, and
its spread the standard error. Where y is known in one sum alone, y² ≤ y and the largest 2u + v bound Σz².

Weights are 1 on average. What they lack was clipped, or so unlikely in the log that it never came, and
no spread of the other rows tells what it earns. It may be anything in the range: intervals hold that.

Four made-up rows, two at either end of the range, pull intervals to the middle (Agresti & Coull 1998 do
this for shares): where few clicks were seen, nobody is sure that there are none.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from dpbandit.errors import OptionError
from dpbandit.evaluate.tally import Public, Range, Seen
from dpbandit.privacy.accounting import scaled_erfc

ESTIMATORS = {
    "replay": "rejection: rows that an online run would have had",
    "ips": "inverse propensity scores",
    "snips": "self-normalised inverse propensity scores",
    "dr": "doubly robust, with the algorithm's own released parameter",
    "sndr": "self-normalised doubly robust",
}
EXTRA = 2  # made-up rows at either end
BY_CHANCE = 2.0  # standard deviations of the mean weight: less than that proves nothing


@dataclass(frozen=True)
class Estimate:
    """What an algorithm would have earned a round, with an interval.

    >>> print(Estimate("anytime", "snips", 0.5, 0.4, 0.6, 0.95, 0.05, 0.0, 900, 100, 100.0))
    anytime, snips: 0.5 [0.4, 0.6]; 100 of 900 rows matched
    """

    algorithm: str
    estimator: str
    value: float
    low: float
    high: float
    level: float
    sampling_error: float  # standard error from the rows
    noise: float  # standard deviation of the privacy noise in it
    rows: int
    matched: int
    effective: float  # matched rows of equal weight that would say as much

    def __str__(self) -> str:
        return (
            f"{self.algorithm}, {self.estimator}: {self.value:.4g} [{self.low:.4g}, "
            f"{self.high:.4g}]; {self.matched:,} of {self.rows:,} rows matched"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Spread:
    """Noise in Σ w·y: its standard deviation, and whether it is Laplace's."""

    deviation: float = 0.0
    laplace: bool = False


def estimates(
    label: str,
    public: Public,
    total: float,
    seen: Seen | None,
    *,
    rewards: Range,
    noise: Spread,
    level: float,
) -> list[Estimate]:
    """All that can be said, given Σ w·y, which may be noisy; and more where `seen` is there."""
    if public.matched == 0:
        return []
    found, lacking = [], _lacking(public)
    for name in ("ips", "snips", "dr", "sndr"):
        found.append(_one(label, name, public, total, seen, rewards, noise, level, lacking))
    by_name = {one.estimator: one for one in found}
    if public.low_w == public.high_w:  # all rows an online run would have had weigh the same
        replayed = replace(by_name["snips"], estimator="replay", rows=int(public.rows))
        return [replayed, *found]
    if seen is not None and seen.kept.matched:
        kept = seen.kept
        plain = Seen(w2y=seen.kept_y, w2yy=seen.kept_yy)
        one = _one(label, "snips", kept, seen.kept_y, plain, rewards, noise, level, lacking)
        replayed = replace(one, estimator="replay", rows=int(public.rows))
        return [replayed, *found]
    return found


def _one(
    label: str,
    name: str,
    public: Public,
    total: float,
    seen: Seen | None,
    rewards: Range,
    noise: Spread,
    level: float,
    lacking: float,
) -> Estimate:
    value, _, _ = _moments(name, public, total, seen, rewards)
    wide, extra, more = _widened(public, total, seen, rewards)
    centre, error, scale = _moments(name, wide, extra, more, rewards)
    half = _half_width(error, noise.deviation * scale, noise.laplace, level)
    low, high = _with_what_lacks(name, centre - half, centre + half, public, rewards, lacking)
    return Estimate(
        label,
        name,
        value,
        # Noise may bring the middle far outside the range; an end of it is then all that is left.
        min(max(low, rewards.low), rewards.high),
        max(min(high, rewards.high), rewards.low),
        level,
        error,
        noise.deviation * scale,
        int(public.rows),
        public.matched,
        public.weight**2 / public.weight2,
    )


def _lacking(p: Public) -> float:
    """What the mean weight lacks, if weights were clipped or it is more than chance.

    >>> _lacking(Public(rows=900.0, matched=290, weight=870.0, weight2=2610.0))
    0.0
    >>> _lacking(Public(rows=900.0, matched=225, weight=450.0, weight2=900.0))
    0.5
    """
    mean = p.weight / p.rows
    error = math.sqrt(max(p.weight2 / p.rows - mean * mean, 0.0) / p.rows)
    lacks = 1.0 - mean
    return max(lacks, 0.0) if p.clipped or lacks > BY_CHANCE * error else 0.0


def _with_what_lacks(
    name: str, low: float, high: float, p: Public, rewards: Range, lacking: float
) -> tuple[float, float]:
    """An interval with whatever rewards there may be where weights are lacking."""
    if name == "ips":  # which counts `low` there
        return low, high + lacking * rewards.width
    if name == "dr":  # which counts q
        down, up = max(p.high_q - rewards.low, 0.0), max(rewards.high - p.low_q, 0.0)
        return low - lacking * down, high + lacking * up
    rest = 1.0 - lacking
    return rest * low + lacking * rewards.low, rest * high + lacking * rewards.high


def _moments(
    name: str, p: Public, total: float, seen: Seen | None, rewards: Range
) -> tuple[float, float, float]:
    """The estimate, its standard error, and how far it moves when Σ w·y moves by 1."""
    low, width = rewards.low, rewards.width
    if name not in ("ips", "snips", "dr", "sndr"):
        raise OptionError(f"no estimator is called {name!r}: {', '.join(ESTIMATORS)}")
    robust, normal = name in ("dr", "sndr"), name in ("snips", "sndr")
    wq, chosen = (p.wq, p.chosen) if robust else (0.0, 0.0)
    c = p.rows / p.weight if normal else 1.0
    paid = low * p.weight + width * total - wq  # Σ w·(reward − q)
    value = (chosen + c * paid) / p.rows
    b = paid / p.weight if normal else 0.0
    square = _square(p, total, seen, width, c=c, e=low - b, robust=robust)
    mean = value - (c * b * p.weight) / p.rows
    variance = max(square / p.rows - mean * mean, 0.0)
    return value, math.sqrt(variance / p.rows), c * width / p.rows


def _square(
    p: Public,
    total: float,
    seen: Seen | None,
    width: float,
    *,
    c: float,
    e: float,
    robust: bool,
) -> float:
    """Σ (u + v·y)², or a bound on it where only Σ w·y is known."""
    chosen2, wq, wqq, w2q, w2qq = (p.chosen2, p.wq, p.wqq, p.w2q, p.w2qq) if robust else (0.0,) * 5
    u2 = chosen2 + 2 * c * (e * wq - wqq) + c * c * (e * e * p.weight2 - 2 * e * w2q + w2qq)
    if seen is not None:
        wyq, w2yq = (seen.wyq, seen.w2yq) if robust else (0.0, 0.0)
        uv = c * width * (wyq + c * (e * seen.w2y - w2yq))
        return u2 + 2 * uv + (c * width) ** 2 * seen.w2yy
    corners = [
        2 * q + 2 * c * w * (e - q) + c * width * w
        for w in (p.low_w, p.high_w)
        for q in ((p.low_q, p.high_q) if robust else (0.0,))
    ]
    return u2 + c * width * max(total, 0.0) * max(corners)


def _widened(
    public: Public, total: float, seen: Seen | None, rewards: Range
) -> tuple[Public, float, Seen | None]:
    """The sums with made-up rows, of the weight and the q that matched rows have on average."""
    p = replace(public)
    w, q = p.weight2 / p.weight, p.wq / p.weight
    for _ in range(2 * EXTRA):
        p.add(w, q)
    total += EXTRA * w
    if seen is None:
        return p, total, None
    more = EXTRA * w * w
    s = replace(
        seen,
        wyq=seen.wyq + EXTRA * w * q,
        w2y=seen.w2y + more,
        w2yq=seen.w2yq + more * q,
        w2yy=seen.w2yy + more,
    )
    return p, total, s


def _half_width(error: float, noise: float, laplace: bool, level: float) -> float:
    """How far to either side a normal error and the noise together stay with this probability."""
    if not (laplace and noise > 0):
        high = 20.0 * math.hypot(error, noise)
        return _where(
            lambda h: math.erfc(h / (math.hypot(error, noise) or 1.0) / math.sqrt(2)),
            1 - level,
            high,
        )
    return _where(
        lambda h: _outside(h, error, noise / math.sqrt(2)), 1 - level, 40.0 * (error + noise)
    )


def _outside(h: float, s: float, b: float) -> float:
    """P(|N(0, s²) + Laplace(b)| > h).

    >>> round(_outside(1.0, 0.0, 1.0), 6), round(_outside(1.96, 1.0, 1e-9), 3)
    (0.367879, 0.05)
    """
    if s < 1e-6 * b:
        return math.exp(-h / b)
    x, k = h / s, s / b

    # e^{k²/2 ∓ kx}·Φ(−(k ∓ x)), written so that nothing overflows
    def part(sign: float) -> float:
        z = (k - sign * x) / math.sqrt(2)
        if z >= 0:
            return 0.5 * scaled_erfc(z) * math.exp(-x * x / 2)
        return math.exp(k * k / 2 - sign * k * x) * (1 - 0.5 * math.erfc(-z))

    return math.erfc(x / math.sqrt(2)) + part(1.0) - part(-1.0)


def _where(falls: Any, target: float, high: float) -> float:
    low = 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if falls(middle) > target else (low, middle)
    return high
