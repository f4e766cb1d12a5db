"""Two arms, three rounds, computed on paper.

Arms e₁ = (1, 0) and e₂ = (0, 1); λ = 1, α = 0.5. Play e₁ → reward 1, e₂ → reward 0.4, e₁ → reward 0.

After round 1: A = diag(2, 1), b = (1, 0),   θ = (1/2, 0);     scores e₁: 1/2 + 0.5·√(1/2), e₂: 0 + 0.5·1.
After round 2: A = diag(2, 2), b = (1, 0.4), θ = (1/2, 1/5);   scores e₁: 1/2 + 0.5·√(1/2), e₂: 1/5 + 0.5·√(1/2).
After round 3: A = diag(3, 2), b = (1, 0.4), θ = (1/3, 1/5);   scores e₁: 1/3 + 0.5·√(1/3), e₂: 1/5 + 0.5·√(1/2).
"""

import math

import numpy as np

import dpbandit as dpb
from dpbandit.privacy.sources import Pending, Simulation

E1, E2 = np.array([1.0, 0.0]), np.array([0.0, 1.0])
PLAYED = [(E1, 1.0), (E2, 0.4), (E1, 0.0)]


def test_linucb_by_hand():
    bandit = dpb.make("linucb", dim=2, alpha=0.5, seed=0)
    thetas = []
    for x, r in PLAYED:
        bandit.update(x, r)
        thetas.append(bandit.theta)
    np.testing.assert_allclose(thetas, [[1 / 2, 0], [1 / 2, 1 / 5], [1 / 3, 1 / 5]], rtol=1e-15)
    # 1/3 + 0.5·√(1/3) = 0.622 > 1/5 + 0.5·√(1/2) = 0.554
    assert bandit.select([E1, E2]) == 0
    assert bandit.select([E2, E1]) == 1
    assert bandit.select([E1, E2], k=2).tolist() == [0, 1]


def test_tree_gauss_by_hand():
    """Horizon 3 has 2 levels: each node's noise has sd 2·√2/μ. Round 1 and 2 are nodes (0,1] and (0,2]; round 3 adds (2,3]."""
    bandit = dpb.make("tree-gauss", dim=2, epsilon=2.0, delta=0.01, horizon=3, seed=11)
    sd = 2 * math.sqrt(2) / bandit.claim.mu
    z = [
        Simulation(11).release("gaussian", Pending(np.zeros(2)), scale=sd, shift=1.0, index=t)
        for t in (1, 2, 3)
    ]
    sums = [np.array([1, 0]) + z[0], np.array([1, 0.4]) + z[1], np.array([1, 0.4]) + z[1] + z[2]]
    grams = [np.diag([2, 1]), np.diag([2, 2]), np.diag([3, 2])]
    for (x, r), b, gram in zip(PLAYED, sums, grams, strict=True):
        bandit.update(x, r)
        np.testing.assert_allclose(bandit.theta, np.linalg.solve(gram, b), rtol=1e-6)


def test_dgs_by_hand():
    """Δ_e = 2·max‖A_e⁻¹x‖ = 2·1, 2·1/2, 2·1/2 over the ball; each node publishes A_e⁻¹·(its own Σ x r)."""
    bandit = dpb.make("dgs", dim=2, epsilon=2.0, delta=0.01, horizon=3, seed=11)
    c = math.sqrt(2) / bandit.claim.mu
    z = [
        Simulation(11).release(
            "gaussian", Pending(np.zeros(2)), scale=c * 2 * size, shift=1.0, index=t
        )
        for t, size in ((1, 1.0), (2, 0.5), (3, 0.5))
    ]
    A1, A2, A3 = np.diag([2.0, 1.0]), np.diag([2.0, 2.0]), np.diag([3.0, 2.0])
    node1 = np.array([1, 0]) + A1 @ z[0]
    node2 = np.array([1, 0.4]) + A2 @ z[1]
    node3 = np.array([0, 0]) + A3 @ z[2]
    expected = [
        np.linalg.solve(A1, node1),
        np.linalg.solve(A2, node2),
        np.linalg.solve(A3, node2 + node3),
    ]
    for (x, r), theta in zip(PLAYED, expected, strict=True):
        bandit.update(x, r)
        np.testing.assert_allclose(bandit.theta, theta, rtol=1e-6)


def test_dgs_published_by_hand():
    """λ₀ = 0.5 and δ = 0.1: Lemma 1 starts after round 147, so Δ is the cap 2·1/1 throughout; log₂4 = 2 levels."""
    options = {
        "dim": 2,
        "epsilon": 2.0,
        "delta": 0.1,
        "horizon": 4,
        "smallest_eigenvalue": 0.5,
        "seed": 11,
    }
    bandit = dpb.make("dgs-published", **options)
    z = [
        Simulation(11).release(
            "laplace", Pending(np.zeros(2)), scale=2 * 2 / 2.0, shift=1.0, index=t
        )
        for t in (1, 2, 3)
    ]
    expected = [[1 / 2, 0] + z[0], [1 / 2, 1 / 5] + z[1], [1 / 3, 1 / 5] + z[1] + z[2]]
    for (x, r), theta in zip(PLAYED, expected, strict=True):
        bandit.update(x, r)
        np.testing.assert_allclose(bandit.theta, theta, rtol=1e-12)


def test_local_by_hand():
    bandit = dpb.make("local", dim=2, epsilon=4.0, seed=11)
    noisy = [
        Simulation(11).release(
            "laplace", Pending(np.array([r])), scale=2 / 4.0, shift=1.0, index=t
        )[0]
        for t, (_, r) in enumerate(PLAYED, start=1)
    ]
    for x, r in PLAYED:
        bandit.update(x, r)
    np.testing.assert_allclose(bandit.theta, [(noisy[0] + noisy[2]) / 3, noisy[1] / 2], rtol=1e-8)
