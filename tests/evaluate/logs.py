"""Logs whose truth is known, for the tests of evaluation."""

import numpy as np

import dpbandit as dpb

ARMS, DIM = 5, 4
THETA = np.array([0.25, 0.15, 0.0, -0.1])


def log_of(seed, rows, *, uniform=True, rare=False):
    """A log of contexts, actions, rewards and propensities; and the true mean of every arm."""
    rng = np.random.default_rng([seed, 5])
    xs = rng.normal(size=(rows, ARMS, DIM))
    xs /= np.linalg.norm(xs, axis=2, keepdims=True)
    base, size = (0.01, 0.03) if rare else (0.35, 1.0)
    means = np.clip(base + size * (xs @ THETA), 0, 1)
    chances = np.full((rows, ARMS), 1 / ARMS)
    if not uniform:
        chances = np.exp(3 * xs[:, :, 1])
        chances = 0.8 * chances / chances.sum(axis=1, keepdims=True) + 0.2 / ARMS
    every = np.arange(rows)
    action = (chances.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    reward = (rng.random(rows) < means[every, action]).astype(float)
    log = {"contexts": xs, "action": action, "reward": reward, "p": chances[every, action]}
    return log, means


def fixed_model():
    """A model that learned elsewhere: it ranks well, and does not learn."""
    bandit = dpb.make("linucb", dim=DIM, seed=0, reward_range=(0, 1))
    rng = np.random.default_rng(3)
    for _ in range(500):
        x = rng.normal(size=DIM)
        x /= np.linalg.norm(x)
        bandit.update(x, float(0.3 * x[0] + 0.2 * x[1] + 0.3))
    return bandit.model()
