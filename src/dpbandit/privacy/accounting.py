"""The currencies of privacy and their conversion.

Gaussian releases are paid in μ² (Gaussian differential privacy, Dong, Roth & Su 2022), the others
in pure ε. Every conversion rounds in the safe direction: a budget never comes out larger, a cost
never smaller, than the exact value."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from numbers import Real

from dpbandit.errors import OptionError

# Relative slack given away on every conversion: far above the solver's error, far below anything
# that matters.
SAFE = 1e-10
# Φ(−39) is below the smallest δ that a float can hold.
FURTHEST = 39.0


def delta_of(*, epsilon: float, mu: float) -> float:
    """The smallest δ for which μ-GDP implies (ε, δ)-DP: Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

    >>> round(delta_of(epsilon=2.0, mu=1.36620), 5)
    0.1
    """
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    y = epsilon / mu - mu / 2
    return _delta_at(y, epsilon)


def _delta_at(y: float, epsilon: float) -> float:
    # With y = ε/μ − μ/2 the second argument's square is y² + 2ε, so
    # e^ε Φ(−√(y² + 2ε)) = ½ erfcx(√(y²/2 + ε)) e^{−y²/2}: nothing overflows, however large ε is.
    first = 0.5 * math.erfc(y / math.sqrt(2))
    tail = 0.5 * scaled_erfc(math.sqrt(y * y / 2 + epsilon)) * math.exp(-y * y / 2)
    # The two terms nearly cancel when ε is small: add what rounding may have taken off either.
    # Each is good to about 1e-15, and to y²·2⁻⁵³ more for the rounding of y itself.
    return max(first - tail, 0.0) + (4 + y * y) * 1e-15 * first


def scaled_erfc(x: float) -> float:
    """exp(x²)·erfc(x) for x ≥ 0, good to 2e-15: Laplace's continued fraction beyond 2.

    SciPy has it too; importing that takes longer than all else that a bandit does before round 1.

    >>> scaled_erfc(0.0), round(scaled_erfc(1e8) * 1e8 * math.sqrt(math.pi), 12)
    (1.0, 1.0)
    """
    if x < 2.0:
        return math.exp(x * x) * math.erfc(x)
    fraction = x
    for k in range(FRACTION_TERMS, 0, -1):
        fraction = x + 0.5 * k / fraction
    return 1.0 / (fraction * math.sqrt(math.pi))


# The fraction's error falls like exp(−2x√(2n)): below 1e-19 from x = 2 on.
FRACTION_TERMS = 60


def _where_it_falls_to(function: Callable[[float], float], target: float, low: float) -> float:
    """The end of a bisection on [low, FURTHEST] where a falling function is at most the target."""
    high = FURTHEST
    while high - low > 1e-15 * max(1.0, abs(high)):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if function(middle) > target else (low, middle)
    return high


def mu_of(*, epsilon: float, delta: float) -> float:
    """The largest μ for which μ-GDP implies (ε, δ)-DP, rounded down.

    >>> [round(mu_of(epsilon=e, delta=d), 6) for e, d in [(2, 0.1), (2, 1e-5), (1, 1e-6)]]
    [1.366204, 0.501552, 0.236704]
    """
    return _mu_of(check_epsilon(epsilon), check_delta(delta))


@lru_cache(maxsize=1024)
def _mu_of(epsilon: float, delta: float) -> float:
    if math.isinf(epsilon):
        return math.inf
    # δ falls as y = ε/μ − μ/2 grows; μ = √(y² + 2ε) − y.
    y = _where_it_falls_to(lambda y: _delta_at(y, epsilon), delta, -FURTHEST)
    root = math.sqrt(y * y + 2 * epsilon)
    exact = 2 * epsilon / (root + y) if y > 0 else root - y
    for safe in (SAFE, 1e-8, 1e-6, 1e-4, 1e-2):  # the first is enough unless ε and δ are tiny
        mu = exact * (1 - safe)
        if delta_of(epsilon=epsilon, mu=mu) <= delta:
            return mu
    raise OptionError(f"no μ found for ε = {epsilon!r}, δ = {delta!r}: use less extreme values")


def epsilon_of(*, mu: float, delta: float) -> float:
    """The smallest ε for which μ-GDP implies (ε, δ)-DP, rounded up.

    >>> round(epsilon_of(mu=0.501552, delta=1e-5), 4)
    2.0
    """
    return _epsilon_of(float(mu), check_delta(delta))


@lru_cache(maxsize=1024)
def _epsilon_of(mu: float, delta: float) -> float:
    if mu == 0.0 or delta_of(epsilon=0.0, mu=mu) <= delta:
        return 0.0
    if math.isinf(mu):
        return math.inf
    # ε = μ(y + μ/2), and δ falls as y grows.
    low = max(-mu / 2, -FURTHEST)
    y = _where_it_falls_to(lambda y: _delta_at(y, max(mu * (y + mu / 2), 0.0)), delta, low)
    return mu * (y + mu / 2) * (1 + SAFE) + 1e-12


def rho_of(*, mu: float) -> float:
    """The zCDP parameter that μ-GDP implies: μ²/2. The converse holds for Gaussian mechanisms only.

    >>> round(rho_of(mu=1.0), 6)
    0.5
    """
    return mu * mu / 2 * (1 + SAFE)


def mu_of_rho(*, rho: float) -> float:
    """The μ of a Gaussian mechanism that is ρ-zCDP, rounded down.

    >>> round(mu_of_rho(rho=0.5), 6)
    1.0
    """
    return math.sqrt(2 * rho) * (1 - SAFE)


def epsilon_of_rho(*, rho: float, delta: float) -> float:
    """An ε for which ρ-zCDP implies (ε, δ)-DP, for any mechanism, rounded up.

    Minimises ρα + log(1/(αδ))/(α − 1) + log(1 − 1/α) over the Rényi order α (Canonne, Kamath &
    Steinke 2020, Proposition 12): a little better than ρ + 2√(ρ log(1/δ)).

    >>> round(epsilon_of_rho(rho=0.5, delta=1e-3), 3)
    3.537
    """
    check_delta(delta)
    if rho <= 0:
        return 0.0

    def bound(a: float) -> float:  # a = α − 1 > 0
        return rho * (a + 1) - math.log((a + 1) * delta) / a + math.log(a / (a + 1))

    # Unimodal in log a. A golden section needs no derivative; any a is valid, so it errs safely.
    low, high = math.log(1e-6), math.log(1e9)
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if bound(math.exp(left)) < bound(math.exp(right)):
            high = right
        else:
            low = left
    return max(bound(math.exp((low + high) / 2)), 0.0) * (1 + SAFE)


def check_epsilon(epsilon: float) -> float:
    """ε as a float, or an error that says what is allowed."""
    if not isinstance(epsilon, Real) or isinstance(epsilon, bool) or not epsilon > 0:
        raise OptionError(f"epsilon must be a number above 0 (math.inf for none), not {epsilon!r}")
    return float(epsilon)


def check_delta(delta: float) -> float:
    """δ as a float, or an error that says what is allowed."""
    if not isinstance(delta, Real) or isinstance(delta, bool) or not 0 < delta < 1:
        raise OptionError(f"delta must lie strictly between 0 and 1, not {delta!r}")
    return float(delta)
