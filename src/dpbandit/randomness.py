"""Seeded randomness for simulations, addressed by counter instead of drawn from a stream.

A draw is a pure function of (key, counter): noise for node 17 is the same whichever core computes it, in whatever
order, before or after a save. SplitMix64's finaliser (Steele, Lea & Flood 2014) applied to the counter and again to
its mixture with the key gives the bits; the normal quantile is Wichura's AS241 (1988).
It must never make noise that anyone outside a simulation sees: see `noise.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.lanes import (
    WIDTH,
    exponent,
    fma,
    four_of,
    fraction,
    if_less,
    lane_0,
    lane_1,
    lane_2,
    lane_3,
    like,
    load,
    lowest_bit,
    minus,
    negative,
    over,
    plus,
    root,
    splat,
    splat_four,
    store,
    times,
)

Vector = NDArray[np.float64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)

# Purposes get keys of their own, so that no draw is ever used twice.
NOISE, TIES, CONTEXTS, START = range(4)

# Further than this from ½, the normal quantile needs another formula: e⁻²⁵ is left.
NEAR = 0.5 - 1.3888e-11
CENTRAL = 0.425


def derive_key(seed: int, purpose: int) -> int:
    """A 64-bit key for one purpose under one seed.

    >>> derive_key(7, NOISE) == derive_key(7, NOISE), derive_key(7, NOISE) == derive_key(7, TIES)
    (True, False)
    """
    state = np.random.SeedSequence([seed & (2**64 - 1), purpose]).generate_state(1, np.uint64)
    return int(state[0])


@kernel
def _mix(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@kernel
def bits(key: np.uint64, counter: int) -> np.uint64:
    """64 random bits."""
    return _mix(np.uint64(key) ^ _mix((np.uint64(counter) + np.uint64(1)) * _GOLDEN))


@kernel
def uniform(key: np.uint64, counter: int) -> float:
    """A number strictly between 0 and 1: the centre of one of 2⁵² equal cells, so that 1 − u is exact too."""
    return (np.float64(bits(key, counter) >> np.uint64(12)) + 0.5) * 2.0**-52


@kernel(inline="late")
def log(x: Any) -> Any:
    """The natural logarithm of positive normal numbers, one or a vector, good to an ulp (Sun's fdlibm, 1993): the same
    bits on every machine, which no library promises."""
    k, f = exponent(x), minus(fraction(x), like(x, 1.0))
    s = over(f, plus(f, like(x, 2.0)))
    z = times(s, s)
    r = fma(z, like(x, 1.479819860511658591e-01), like(x, 1.531383769920937332e-01))
    r = fma(z, r, like(x, 1.818357216161805012e-01))
    r = fma(z, r, like(x, 2.222219843214978396e-01))
    r = fma(z, r, like(x, 2.857142874366239149e-01))
    r = fma(z, r, like(x, 3.999999999940941908e-01))
    r = times(z, fma(z, r, like(x, 6.666666666666735130e-01)))
    half = times(like(x, 0.5), times(f, f))
    low = fma(s, plus(half, r), times(k, like(x, 1.90821492927058770002e-10)))
    return minus(times(k, like(x, 6.93147180369123816490e-01)), minus(minus(half, low), f))  # k·ln 2 is exact


# The standard normal quantile in three parts, relative error about 1e-16 (Wichura 1988, AS241, PPND16). The first two take one
# number or a vector.


@kernel(inline="late")
def _middle(p: Any) -> Any:
    """For |p − ½| ≤ 0.425."""
    q = minus(p, like(p, 0.5))
    r = minus(like(p, 0.180625), times(q, q))
    top = fma(like(p, 2.5090809287301226727e3), r, like(p, 3.3430575583588128105e4))
    top = fma(top, r, like(p, 6.7265770927008700853e4))
    top = fma(top, r, like(p, 4.5921953931549871457e4))
    top = fma(top, r, like(p, 1.3731693765509461125e4))
    top = fma(top, r, like(p, 1.9715909503065514427e3))
    top = fma(top, r, like(p, 1.3314166789178437745e2))
    top = fma(top, r, like(p, 3.3871328727963666080))
    low = fma(like(p, 5.2264952788528545610e3), r, like(p, 2.8729085735721942674e4))
    low = fma(low, r, like(p, 3.9307895800092710610e4))
    low = fma(low, r, like(p, 2.1213794301586595867e4))
    low = fma(low, r, like(p, 5.3941960214247511077e3))
    low = fma(low, r, like(p, 6.8718700749205790830e2))
    low = fma(low, r, like(p, 4.2313330701600911252e1))
    low = fma(low, r, like(p, 1.0))
    return over(times(q, top), low)


@kernel(inline="late")
def _tail(p: Any) -> Any:
    """For what is further out, but not below e⁻²⁵ or above 1 − e⁻²⁵."""
    below = if_less(p, like(p, 0.5), p, minus(like(p, 1.0), p))
    r = root(negative(log(below)))
    r = minus(r, like(p, 1.6))
    top = fma(like(p, 7.74545014278341407640e-4), r, like(p, 2.27238449892691845833e-2))
    top = fma(top, r, like(p, 2.41780725177450611770e-1))
    top = fma(top, r, like(p, 1.27045825245236838258))
    top = fma(top, r, like(p, 3.64784832476320460504))
    top = fma(top, r, like(p, 5.76949722146069140550))
    top = fma(top, r, like(p, 4.63033784615654529590))
    top = fma(top, r, like(p, 1.42343711074968357734))
    low = fma(like(p, 1.05075007164441684324e-9), r, like(p, 5.47593808499534494600e-4))
    low = fma(low, r, like(p, 1.51986665636164571966e-2))
    low = fma(low, r, like(p, 1.48103976427480074590e-1))
    low = fma(low, r, like(p, 6.89767334985100004550e-1))
    low = fma(low, r, like(p, 1.67638483018380384940))
    low = fma(low, r, like(p, 2.05319162663775882187))
    low = fma(low, r, like(p, 1.0))
    size = over(top, low)
    return if_less(p, like(p, 0.5), negative(size), size)


@kernel
def _far(p: float) -> float:
    """For the rest: one draw in 3·10¹⁰."""
    r = math.sqrt(-log(min(p, 1.0 - p))) - 5.0
    top = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
    top = ((top * r + 1.24266094738807843860e-3) * r + 2.65321895265761230930e-2) * r + 2.96560571828504891230e-1
    top = ((top * r + 1.78482653991729133580) * r + 5.46378491116411436990) * r + 6.65790464350110377720
    low = 2.04426310338993978564e-15 * r + 1.42151175831644588870e-7
    low = ((low * r + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4) * r + 1.48753612908506148525e-2
    low = ((low * r + 1.36929880922735805310e-1) * r + 5.99832206555887937690e-1) * r + 1.0
    return -top / low if p < 0.5 else top / low


@kernel
def normal_quantile(p: float) -> float:
    """The standard normal quantile."""
    off = abs(p - 0.5)
    if off <= CENTRAL:
        return _middle(p)
    return _tail(p) if off <= NEAR else _far(p)


@kernel
def normal(key: np.uint64, counter: int) -> float:
    """A standard normal number."""
    return normal_quantile(uniform(key, counter))


@kernel
def add_normals(key: np.uint64, counter: int, scale: float, value: Vector, out: Vector) -> None:
    """out = value + scale·(normal numbers counter, counter + 1, …), bit for bit those of `normal`. Not in place."""
    d = value.shape[0]
    for first in range(0, d, 64):
        _add_normals(key, counter, scale, value, out, first, min(first + 64, d))


@kernel(inline="late")
def _add_normals(key: np.uint64, counter: int, scale: float, value: Vector, out: Vector, first: int, stop: int) -> None:
    """Entries from `first` to `stop`, at most 64: all as if from the middle, then those in the tails, four at a time."""
    one, none = np.uint64(1), np.uint64(0)
    tails = none
    far = False
    for i in range(first, stop):
        p = uniform(key, counter + i)
        out[i] = p
        off = abs(p - 0.5)
        tails |= np.uint64(off > CENTRAL) << np.uint64(i - first)
        far |= off > NEAR
    if far or stop - first < WIDTH:
        for i in range(first, stop):
            out[i] = fma(scale, normal_quantile(out[i]), value[i])
        return
    last = stop - WIDTH
    end = fma(
        splat(scale), _middle(load(out, last)), load(value, last)
    )  # overlaps what comes before, so it is taken first
    for i in range(first, last, WIDTH):
        store(out, i, fma(splat(scale), _middle(load(out, i)), load(value, i)))
    store(out, last, end)
    while tails != none:
        i = j = k = n = first + lowest_bit(tails)
        tails &= tails - one
        if tails != none:
            j = first + lowest_bit(tails)
            tails &= tails - one
        if tails != none:
            k = first + lowest_bit(tails)
            tails &= tails - one
        if tails != none:
            n = first + lowest_bit(tails)
            tails &= tails - one
        four = four_of(
            uniform(key, counter + i), uniform(key, counter + j), uniform(key, counter + k), uniform(key, counter + n)
        )
        four = fma(splat_four(scale), _tail(four), four_of(value[i], value[j], value[k], value[n]))
        out[i], out[j], out[k], out[n] = lane_0(four), lane_1(four), lane_2(four), lane_3(four)


@kernel(inline="late")
def laplace_quantile(p: Any) -> Any:
    """The quantile of the Laplace distribution of scale 1, of one number or a vector."""
    half, zero = like(p, 0.5), like(p, 0.0)
    size = log(times(like(p, 2.0), if_less(p, half, p, minus(like(p, 1.0), p))))
    return if_less(p, half, size, minus(zero, size))


@kernel
def laplace(key: np.uint64, counter: int) -> float:
    """A Laplace number of scale 1."""
    return laplace_quantile(uniform(key, counter))


@kernel
def add_laplaces(key: np.uint64, counter: int, scale: float, value: Vector, out: Vector) -> None:
    """out = value + scale·(Laplace numbers counter, counter + 1, …), bit for bit those of `laplace`. Not in place."""
    d = value.shape[0]
    if d < WIDTH:
        for i in range(d):
            out[i] = fma(scale, laplace(key, counter + i), value[i])
        return
    for i in range(d):
        out[i] = uniform(key, counter + i)
    last = d - WIDTH
    end = fma(splat(scale), laplace_quantile(load(out, last)), load(value, last))
    for i in range(0, last, WIDTH):
        store(out, i, fma(splat(scale), laplace_quantile(load(out, i)), load(value, i)))
    store(out, last, end)


@kernel
def knorm_laplace(key: np.uint64, index: int, out: Vector) -> None:
    """A vector with density proportional to exp(−‖z‖₂): uniform direction, Gamma(d, 1) radius.

    It uses the counters [2·index·d, 2·(index+1)·d): d for the direction, d for the radius.
    """
    d = out.shape[0]
    base = 2 * index * d
    square = 0.0
    radius = 0.0
    for i in range(d):
        out[i] = normal(key, base + i)
        square += out[i] * out[i]
        radius -= log(uniform(key, base + d + i))
    factor = radius / math.sqrt(square)
    for i in range(d):
        out[i] *= factor


@kernel
def gamma(key: np.uint64, counter: int, shape: float) -> float:
    """A Gamma(shape, 1) number for shape ≥ 1 (Marsaglia & Tsang 2000). It uses 128 counters from `counter` on.

    One try in twenty is rejected at worst, so that 64 tries never run out.
    """
    base = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * base)
    for attempt in range(64):
        z = normal(key, counter + 2 * attempt)
        v = (1.0 + c * z) ** 3
        if v > 0.0 and math.log(uniform(key, counter + 2 * attempt + 1)) < 0.5 * z * z + base * (1.0 - v + math.log(v)):
            return base * v
    return base


@kernel
def wishart(key: np.uint64, index: int, degrees: float, out: NDArray[np.float64]) -> None:
    """A Wishart matrix W_p(I, degrees), packed: its upper triangle row by row, √2 on what is off the diagonal.

    By Bartlett's decomposition W = T·Tᵀ, T lower triangular with χ on its diagonal and normals below it. The draw has a key of
    its own. No degrees, no noise; otherwise degrees ≥ p + 1.
    """
    out[:] = 0.0
    if degrees <= 0.0:
        return
    p = 0
    while (p + 1) * (p + 2) // 2 <= out.shape[0]:
        p += 1
    own = bits(key, index)
    # Tᵀ in the place of the result; then the rows of T·Tᵀ from the last one up, each of which needs the rows above it only.
    at = 0
    for i in range(p):
        out[at] = math.sqrt(2.0 * gamma(own, i * 128, 0.5 * (degrees - i)))
        at += 1
        for _ in range(i + 1, p):
            out[at] = normal(own, 128 * p + at)
            at += 1
    for i in range(p - 1, -1, -1):
        for j in range(p - 1, i - 1, -1):
            total = 0.0
            for k in range(i + 1):
                row = k * p - k * (k - 1) // 2 - k
                total += out[row + i] * out[row + j]
            out[i * p - i * (i - 1) // 2 - i + j] = total if i == j else math.sqrt(2.0) * total
