"""Nothing may fail once noise is drawn: not a factor, not an inverse, whatever the noise is."""

import ast
from pathlib import Path

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import learners
from dpbandit.algorithms import registry
from dpbandit.auditor.draw import names_of_proven
from dpbandit.reference import algebra

RNG = np.random.default_rng(0)
HALF = RNG.normal(size=(5, 5))
BAD = {
    "nothing": np.zeros((3, 3)),
    "singular": np.ones((4, 4)),
    "indefinite": np.diag([1.0, -1.0, 2.0]),
    "near the ends of floats": np.diag([1e-310, 1e308, 1.0]),
    "infinite": np.full((3, 3), np.inf),
    "no numbers": np.full((3, 3), np.nan),
}
FAILS = {"cholesky", "inv", "solve", "eigh", "eigvalsh", "eig", "svd", "pinv", "lstsq"}


def test_ordinary_matrices_have_ordinary_factors():
    m = HALF @ HALF.T + np.eye(5)
    lower = algebra.factor(m)
    np.testing.assert_allclose(lower @ lower.T, m, rtol=1e-12)
    np.testing.assert_allclose(algebra._with_pivots(m), lower, rtol=1e-12)
    np.testing.assert_allclose(algebra.inverse(m) @ m, np.eye(5), atol=1e-12)
    nearly = np.outer(HALF[0], HALF[0]) + 1e-11 * np.eye(5)
    assert (algebra.inverse(nearly) == algebra.inverse(nearly).T).all()
    np.testing.assert_allclose(algebra.inverse_if_positive(m), algebra.inverse(m))
    np.testing.assert_allclose(algebra.solved(m, HALF), np.linalg.solve(m, HALF))
    np.testing.assert_allclose(algebra.below(lower, HALF), np.linalg.solve(lower, HALF))
    np.testing.assert_allclose(algebra.inverse_of_lower(lower), np.linalg.inv(lower))
    values, vectors = algebra.eigen(m)
    np.testing.assert_allclose(vectors * values @ vectors.T, m, rtol=1e-9)


@pytest.mark.parametrize("kind", BAD)
def test_no_matrix_fails(kind):
    m = BAD[kind]
    ones = np.ones(len(m))
    for found in (algebra.factor(m), algebra.inverse(m), *algebra.eigen(m)):
        assert len(found) == len(m)
    assert algebra.solved(m, ones).shape == algebra.below(np.tril(m), ones).shape == ones.shape
    assert algebra.inverse_of_lower(np.tril(m)).shape == m.shape


def test_what_is_not_positive_has_no_inverse_that_is():
    assert algebra.inverse_if_positive(BAD["indefinite"]) is None
    assert algebra.inverse_if_positive(BAD["nothing"]) is None


def test_learners_factor_nothing_in_another_way():
    for file in Path(learners.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "np.linalg":
                assert node.attr not in FAILS, f"{file.name}:{node.lineno}: use reference.algebra"


class Wild:
    """Numbers that noise hardly ever makes, whatever was to be released."""

    kind = "simulation"

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def release(self, noise, pending, *, scale, shift, index):
        sizes = [0.0, 1e-300, 1.0, 1e6, 1e15]
        drawn = scale * self.rng.choice(sizes) * self.rng.choice([-1.0, 1.0], len(pending.values))
        return np.full(len(drawn), drawn[0]) if self.rng.random() < 0.3 else drawn


@pytest.mark.parametrize("name", names_of_proven())
def test_no_noise_makes_a_round_fail(name):
    size = {"max_norm": 1e30, "ridge": 1e50} if not registry.find(name).one_hot else {}
    for seed in range(6):
        more = size if seed % 2 else {}
        bandit = dpb.make(
            name, dim=3, epsilon=1.0, delta=1e-5, seed=0, horizon=60, backend="reference", **more
        )
        bandit.source = Wild(seed)
        rng = np.random.default_rng(seed)
        for t in range(60):
            x = np.eye(3)[rng.integers(3 if seed % 3 else 1)] * (bandit.options.max_norm or 1.0)
            bandit.select(np.eye(3) * bandit.options.max_norm)
            bandit.update(x, float(rng.choice([-0.5, 0.5])))
            assert bandit.rounds == t + 1
