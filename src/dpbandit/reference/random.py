"""Random numbers for simulations, of Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011).

A number is a function of (key, stream, index), so it is the same on every machine and in every
order. Logarithm, sine and cosine are polynomials whose operations are rounded one by one: the
compiled core has the same bits. Nothing here may protect anybody: real noise comes from
`privacy.opendp`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbandit.types import Vector

Words = NDArray[np.uint64]

# Purposes have keys of their own, so that no number is used twice.
NOISE, TIES, CONTEXTS, START, WORLD = range(5)

# Streams of one key that must not meet: radii beside directions, a Wishart matrix's off-diagonals,
# a policy's own draws; ties are addressed by the decision alone.
RADII, OFF_DIAGONALS, OWN_LOTS, HOLDOUT = 1 << 62, 1 << 60, 1 << 61, 1 << 60
ATTEMPTS = 64  # of a gamma number: one in twenty is rejected at worst

_ALL = (1 << 64) - 1
_LOW = np.uint64(0xFFFFFFFF)
_GOLDEN = 0x9E3779B97F4A7C15
_ONE, _MANTISSA = 0x3FF0000000000000, 0xFFF0000000000000  # the bits of 1.0; sign and exponent


def derive_key(seed: int, purpose: int) -> int:
    """A key of 64 bits for one purpose under one seed.

    >>> derive_key(7, NOISE) == derive_key(7, TIES)
    False
    """
    return _mix(_mix((seed + _GOLDEN) & _ALL) ^ _mix((purpose * _GOLDEN + 1) & _ALL))


def _mix(z: int) -> int:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014)."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _ALL
    return z ^ (z >> 31)


def philox(key: int, stream: ArrayLike, index: ArrayLike) -> tuple[Words, Words, Words, Words]:
    """Four words of 32 bits for each index, or for each pair of a stream and an index.

    >>> [f"{int(word[0]):08x}" for word in philox(0, 0, [0])]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    counters, streams = np.broadcast_arrays(
        np.asarray(index, dtype=np.uint64), np.asarray(stream, dtype=np.uint64)
    )
    a, b = counters & _LOW, counters >> np.uint64(32)
    c, d = streams & _LOW, streams >> np.uint64(32)
    k0, k1 = key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p, q = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b = (q >> np.uint64(32)) ^ b ^ np.uint64(k0), q & _LOW
        c, d = (p >> np.uint64(32)) ^ d ^ np.uint64(k1), p & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def lots(key: int, stream: int, index: ArrayLike) -> Words:
    """64 random bits for each index."""
    a, b, _c, _d = philox(key, stream, index)
    return (a << np.uint64(32)) ^ b


def lot(key: int, stream: int, index: int) -> int:
    """64 random bits."""
    return int(lots(key, stream, [index])[0])


def _uniform(high: Words, low: Words) -> Vector:
    """Strictly between 0 and 1: the centre of one of 2⁵² cells, so that 1 − u is exact too."""
    cells = (high << np.uint64(20)) ^ (low >> np.uint64(12))
    return cells.astype(np.float64) * 2.0**-52 + 2.0**-53


def uniforms(key: int, stream: int, count: int) -> Vector:
    """Numbers between 0 and 1, two of each index."""
    a, b, c, d = philox(key, stream, np.arange((count + 1) // 2))
    pairs: Vector = np.stack([_uniform(a, b), _uniform(c, d)], axis=1)
    return pairs.ravel()[:count]


def normals(key: int, stream: int, count: int) -> Vector:
    """Standard normal numbers, by Box and Muller's way (1958), eight of four indices."""
    blocks = (count + 7) // 8
    a, b, c, d = philox(key, stream, np.arange(4 * blocks))
    size = np.sqrt(-2.0 * log(_uniform(a, b)))
    sine, cosine = circle(_uniform(c, d))
    eights = np.stack([(size * sine).reshape(blocks, 4), (size * cosine).reshape(blocks, 4)], 1)
    numbers: Vector = eights.reshape(8 * blocks)[:count]
    return numbers


def laplaces(key: int, stream: int, count: int) -> Vector:
    """Laplace numbers of scale 1, by their quantiles."""
    p = uniforms(key, stream, count)
    size = log(2.0 * np.where(p < 0.5, p, 1.0 - p))
    return np.where(p < 0.5, size, -size)


def knorm(key: int, stream: int, count: int) -> Vector:
    """A vector of density ∝ exp(−‖z‖₂): a direction, and a radius that is Gamma(count, 1)."""
    direction = normals(key, stream, count)
    radius = -_added_up(log(uniforms(key, stream | RADII, count)))
    return direction * (radius / math.sqrt(_added_up(direction * direction)))


def gamma(key: int, number: int, shape: float) -> float:
    """Gamma number `number` of this key, for shape ≥ 1 (Marsaglia & Tsang 2000)."""
    base = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * base)
    for attempt in range(ATTEMPTS):
        stream = number * ATTEMPTS + attempt
        z = float(normals(key, stream, 1)[0])
        one = 1.0 + c * z
        v = one * one * one
        if v <= 0.0:
            continue
        log_u, log_v = log([float(uniforms(key, stream | RADII, 1)[0]), v])
        if log_u < 0.5 * z * z + base * (1.0 - v + log_v):
            return base * v
    return base


def wishart(key: int, stream: int, degrees: float, entries: int) -> Vector:
    """A Wishart matrix W_p(I, degrees), packed: the upper triangle by rows, √2 off the diagonal.

    By Bartlett's decomposition T·Tᵀ, T lower triangular with χ on its diagonal and normals below
    it. No degrees, no noise.
    """
    if degrees <= 0.0:
        return np.zeros(entries)
    p = (math.isqrt(8 * entries + 1) - 1) // 2
    own = lot(key, stream, 0)
    upper = np.zeros((p, p))  # Tᵀ
    upper[np.triu_indices(p, 1)] = normals(own, OFF_DIAGONALS, p * (p - 1) // 2)
    for i in range(p):
        upper[i, i] = math.sqrt(2.0 * gamma(own, i, 0.5 * (degrees - i)))
    product = upper.T @ upper
    packed = product[np.triu_indices(p)]
    off = np.concatenate([[1.0] + [math.sqrt(2.0)] * (p - 1 - i) for i in range(p)])
    return np.asarray(packed * off)


def _added_up(terms: Vector) -> float:
    """One after the other: NumPy's own sum has an order of its own."""
    total = 0.0
    for term in terms:
        total += float(term)
    return total


# -------------------------------------------------------------- polynomials (Sun's fdlibm, 1993)


def log(x: ArrayLike) -> Vector:
    """The natural logarithm of positive normal numbers, to an ulp."""
    bits = np.asarray(x, dtype=np.float64).view(np.uint64)
    shifted = bits + np.uint64(_ONE - 0x3FE6A09E667F3BCD)
    k = (shifted >> np.uint64(52)).astype(np.float64) - 1023.0
    power = (shifted & np.uint64(_MANTISSA)) - np.uint64(_ONE)
    f = (bits - power).view(np.float64) - 1.0
    s = f / (f + 2.0)
    z = s * s
    r = z * 1.479819860511658591e-01 + 1.531383769920937332e-01
    r = z * r + 1.818357216161805012e-01
    r = z * r + 2.222219843214978396e-01
    r = z * r + 2.857142874366239149e-01
    r = z * r + 3.999999999940941908e-01
    r = z * (z * r + 6.666666666666735130e-01)
    half = 0.5 * (f * f)
    low = s * (half + r) + k * 1.90821492927058770002e-10
    result: Vector = k * 6.93147180369123816490e-01 - ((half - low) - f)
    return result


def circle(u: Vector) -> tuple[Vector, Vector]:
    """Sine and cosine of 2πu for 0 < u < 1."""
    shifted = u * 4.0 + 1.5 * 2.0**52  # rounds 4u to a whole number, in the lowest bits
    quarter = shifted.view(np.uint64)
    x = (u - (shifted - 1.5 * 2.0**52) * 0.25) * 6.283185307179586476925
    z = x * x
    s = z * 1.58969099521155010221e-10 + -2.50507602534068634195e-08
    s = z * s + 2.75573137070700676789e-06
    s = z * s + -1.98412698298579493134e-04
    s = z * s + 8.33333333332248946124e-03
    s = z * s + -1.66666666666666324348e-01
    s = (x * z) * s + x
    c = z * -1.13596475577881948265e-11 + 2.08757232129817482790e-09
    c = z * c + -2.75573143513906633035e-07
    c = z * c + 2.48015872894767294178e-05
    c = z * c + -1.38888888888741095749e-03
    c = z * c + 4.16666666666666019037e-02
    c = (z * z) * c + (z * -0.5 + 1.0)
    odd = quarter & np.uint64(1) == 1
    sine, cosine = np.where(odd, c, s), np.where(odd, s, c)
    sine = np.where(quarter & np.uint64(2) == 2, -sine, sine)
    return sine, np.where((quarter + np.uint64(1)) & np.uint64(2) == 2, -cosine, cosine)
