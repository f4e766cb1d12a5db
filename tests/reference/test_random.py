"""Random numbers of simulations. Statistical tests have fixed seeds; each says how often it would
fail by chance.
"""

import math

import numpy as np
import pytest
from scipy import stats

from dpbandit.reference import random

# Kolmogorov and Smirnov's test at this level: one true generator in 10⁶ fails.
LEVEL = 1e-6


@pytest.mark.parametrize(
    ("key", "stream", "index", "words"),
    [
        (0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (2**64 - 1, 2**64 - 1, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        # Digits of π: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
        (
            0x299F31D0A4093822,
            0x0370734413198A2E,
            0x85A308D3243F6A88,
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_has_its_authors_test_vectors(key, stream, index, words) -> None:
    found = random.philox(key, stream, [index])
    assert " ".join(f"{int(word[0]):08x}" for word in found) == words


def test_a_number_depends_on_its_address_alone() -> None:
    for draw in (random.uniforms, random.normals, random.laplaces):
        assert (draw(3, 4, 100)[:7] == draw(3, 4, 7)).all()
        assert (draw(3, 4, 7) != draw(3, 5, 7)).all()
        assert (draw(3, 4, 7) != draw(4, 4, 7)).all()
    assert random.lot(1, 2, 3) == int(random.lots(1, 2, [0, 3])[1])


def test_keys_differ_by_seed_and_purpose_and_take_any_seed() -> None:
    keys = {random.derive_key(seed, purpose) for seed in range(-50, 50) for purpose in range(5)}
    assert len(keys) == 500
    assert random.derive_key(-1, 0) == random.derive_key(2**64 - 1, 0)
    assert all(0 <= key < 2**64 for key in keys)


def test_a_key_by_hand() -> None:
    def mix(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    golden = 0x9E3779B97F4A7C15
    assert mix(golden) == 0xE220A8397B1DCDAF  # SplitMix64's first number of seed 0
    wanted = mix(mix(7 + golden) ^ mix((2 * golden + 1) % 2**64))
    assert random.derive_key(7, random.CONTEXTS) == wanted


def test_polynomials_are_good_to_a_few_ulps() -> None:
    x = np.exp(np.linspace(-36.5, 36.5, 200_001))
    assert (np.abs(random.log(x) - np.log(x)) <= 2 * np.spacing(np.abs(np.log(x)))).all()
    u = (np.arange(100_000) + 0.5) / 100_000
    sine, cosine = random.circle(u)
    assert np.abs(sine - np.sin(2 * np.pi * u)).max() < 2e-15
    assert np.abs(cosine - np.cos(2 * np.pi * u)).max() < 2e-15
    assert np.abs(sine**2 + cosine**2 - 1).max() < 1e-15


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (random.uniforms, stats.uniform),
        (random.normals, stats.norm),
        (random.laplaces, stats.laplace),
    ],
)
def test_numbers_follow_their_law(draw, law) -> None:
    """Each false alarm: 10⁻⁶."""
    long = draw(1, 2, 200_000)
    assert stats.kstest(long, law.cdf).pvalue > LEVEL
    # Numbers of the same place in many short streams, as noise uses them.
    short = np.array([draw(5, stream, 3) for stream in range(1_500)])
    for column in short.T:
        assert stats.kstest(column, law.cdf).pvalue > LEVEL


def test_neighbours_are_not_correlated() -> None:
    """False alarm: 3 · 10⁻⁶ (66 correlations at 5.5 standard deviations, 4 · 10⁻⁸ each)."""
    rows = np.array([random.normals(9, stream, 8) for stream in range(4_000)])
    joined = np.corrcoef(np.hstack([rows[:-1, :4], rows[1:, :4], rows[:-1, 4:]]).T)
    off = joined[~np.eye(12, dtype=bool)]
    assert np.abs(off).max() < 5.5 / math.sqrt(4_000)


def test_uniforms_are_strictly_inside_and_so_is_what_is_left() -> None:
    u = random.uniforms(0, 0, 100_000)
    assert u.min() > 0
    assert u.max() < 1
    assert ((1 - u) + u == 1).all()


@pytest.mark.parametrize("dim", [1, 3, 10])
def test_knorm_noise_has_a_gamma_radius_and_no_direction(dim: int) -> None:
    """Each false alarm: 10⁻⁶."""
    drawn = np.array([random.knorm(2, index, dim) for index in range(1_500)])
    radius = np.linalg.norm(drawn, axis=1)
    assert stats.kstest(radius, stats.gamma(dim).cdf).pvalue > LEVEL
    if dim > 1:
        first = drawn[:, 0] / radius
        assert (
            stats.kstest((1 + first) / 2, stats.beta((dim - 1) / 2, (dim - 1) / 2).cdf).pvalue
            > LEVEL
        )


@pytest.mark.parametrize("shape", [1.0, 2.5, 40.0])
def test_gamma_numbers_follow_their_law(shape: float) -> None:
    """False alarm: 10⁻⁶."""
    drawn = [random.gamma(6, number, shape) for number in range(1_000)]
    assert stats.kstest(drawn, stats.gamma(shape).cdf).pvalue > LEVEL


def test_wishart_matrices_have_their_mean_and_chi_square_quadratic_forms() -> None:
    """Each false alarm: 10⁻⁶."""
    p, degrees = 3, 9.0
    rows, columns = np.triu_indices(p)
    packed = np.array([random.wishart(4, index, degrees, 6) for index in range(1_000)])
    matrices = np.zeros((len(packed), p, p))
    matrices[:, rows, columns] = packed / np.where(rows == columns, 1.0, math.sqrt(2.0))
    matrices = matrices + np.triu(matrices, 1).transpose(0, 2, 1)
    for v in (np.array([1.0, 0, 0]), np.array([0, 0, 1.0]), np.array([1.0, -2, 2]) / 3):
        forms = np.einsum("i,nij,j->n", v, matrices, v)
        assert stats.kstest(forms, stats.chi2(degrees).cdf).pvalue > LEVEL
    assert np.linalg.eigvalsh(matrices).min() > 0
    assert not random.wishart(4, 1, 0.0, 6).any()


def test_laplace_quantiles_by_hand() -> None:
    u, drawn = random.uniforms(8, 8, 50), random.laplaces(8, 8, 50)
    wanted = np.where(u < 0.5, np.log(2 * u), -np.log(2 * (1 - u)))
    assert np.allclose(drawn, wanted, rtol=1e-15, atol=1e-15)


def test_normals_by_hand() -> None:
    """Entry 8b + l is size·sin, entry 8b + 4 + l is size·cos, of index 4b + l."""
    drawn = random.normals(8, 9, 16)
    words = [int(word[0]) for word in random.philox(8, 9, [6])]
    high = ((words[0] << 20) ^ (words[1] >> 12)) * 2.0**-52 + 2.0**-53
    angle = ((words[2] << 20) ^ (words[3] >> 12)) * 2.0**-52 + 2.0**-53
    size = math.sqrt(-2 * math.log(high))
    assert math.isclose(drawn[8 + 2], size * math.sin(2 * math.pi * angle), rel_tol=1e-13)
    assert math.isclose(drawn[8 + 4 + 2], size * math.cos(2 * math.pi * angle), rel_tol=1e-13)
