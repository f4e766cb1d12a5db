"""What two neighbours cost exactly, in fractions, with the second told the first one's noisy values.

Each case here once cost more than its claim, or let through what the noise was not scaled for.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import learning
from dpbandit.auditor.stories import interrupting
from dpbandit.errors import BudgetError, NormError, OptionError
from dpbandit.privacy.noise import GAUSSIAN
from dpbandit.release import Toeplitz
from dpbandit.release.toeplitz import FLOAT_GRID_BITS, column_norm

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "seed": 0}
BACKENDS = ("core", "reference")


class Exact:
    """A source that keeps clean values as fractions; with a script it answers from it."""

    kind = "simulation"

    def __init__(self, script=None):
        self.made, self.script, self.rng = [], script, np.random.default_rng(5)

    def release(self, noise, pending, *, scale, shift, index):
        values = [Fraction(float(v)) for v in pending.values]
        if pending.whole is not None:
            values = [Fraction(number) * Fraction(pending.step) for number in pending.whole]
        noisy = pending.values + scale * self.rng.normal(size=len(values))
        if self.script is not None:
            noisy = self.script[len(self.made)][2]
        self.made.append((values, scale, noisy))
        return noisy.copy()


def cost_over_claim(name, xs, changed, **options):
    """Rewards 1, and the changed one −1: √(μ²) that all releases together cost, over the claim's."""
    runs: list[Exact] = []
    for low in (1.0, -1.0):
        bandit = dpb.make(name, dim=xs.shape[1], **BUDGET, **options)
        bandit.source = Exact(runs[0].made if runs else None)
        runs.append(bandit.source)
        for t, x in enumerate(xs):
            bandit.update(x, low if t == changed else 1.0)
    total = Fraction(0)
    for (one, scale, _), (two, same, _) in zip(runs[0].made, runs[1].made, strict=True):
        assert scale == same > 0
        total += sum((a - b) ** 2 for a, b in zip(one, two, strict=True)) / Fraction(scale) ** 2
    return math.sqrt(total / Fraction(bandit.ledger.limit))


def unit(rows):
    rows = np.array(rows, dtype=float)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nearly_collinear_arms_are_all_looked_at(backend):
    """How far lengths can have grown multiplied to infinity, and 0·∞ was larger than nothing."""
    arms = unit([[1, 0, 0, 0], [1, 1e-6, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1e-6]])
    order = ([0, 1] * 65)[:129] + [2, 3] * 63
    found = cost_over_claim(
        "dgs", arms[order], 128, horizon=255, ridge=1e-10, public_contexts=arms, backend=backend
    )
    assert found <= 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("ridge", "longest"), [(1e90, 1e-80), (1e99, 1e-60), (1e99, 1e-99)])
def test_lengths_whose_squares_vanish_are_no_reason_for_no_noise(backend, ridge, longest):
    arms = np.array([[0.6, 0.8]]) * longest
    given = {"horizon": 8, "ridge": ridge, "max_norm": longest, "public_contexts": arms}
    assert cost_over_claim("dgs", np.repeat(arms, 8, axis=0), 0, backend=backend, **given) <= 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dim", [2, 29])
def test_the_inverse_that_is_bounded_is_the_one_that_is_multiplied_with(backend, dim):
    """Rounding of a large A⁻¹ left it asymmetric: rows were bounded, and columns multiplied."""
    rng = np.random.default_rng(0)
    for _ in range(60 if dim == 2 else 6):
        arms = unit(rng.normal(size=(dim // 10 + 2, dim)))
        known = {"ridge": 1.2e-10, "public_contexts": arms, "backend": backend}
        xs = arms[[0, 1, 0, 1, 0, 1, 0, 1, *rng.integers(2, size=7)]]
        bandit = dpb.make("dgs", dim=dim, **known, **BUDGET)
        for x in xs:
            bandit.update(x, 1.0)
            inverse = bandit.engine.fields()["inverse"]
            assert (inverse == inverse.T).all()
        assert cost_over_claim("dgs", xs, 7, **known) <= 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_limit_of_0_is_a_limit(backend):
    """Public contexts of zeros need no noise, and it was no limit for contexts that need some."""
    zeros = np.zeros((1, 2))
    given = {"dim": 2, "horizon": 4, "public_contexts": zeros, "backend": backend, **BUDGET}
    bandit = dpb.make("private-linucb", **given)
    with pytest.raises(NormError, match="L1"):
        bandit.update(np.array([1.0, 0.0]), 1.0)
    with pytest.raises(NormError, match="L1"):
        bandit.select(np.eye(2))
    bandit.update(zeros[0], 1.0)
    assert bandit.rounds == 1
    pa = pytest.importorskip("pyarrow")
    log = pa.table({"x": [0.0, 1.0], "y": [0.0, 0.0], "reward": [1.0, 1.0]})
    started = dpb.warm_start(log, "private-linucb", context=["x", "y"], **given)
    assert started.log.bad["context longer in L1 than public_contexts"] == 1


def test_the_grid_of_toeplitz_is_a_share_of_all_its_noise():
    """The steps grow with the noise that is to cover them."""
    shown = Toeplitz(GAUSSIAN, None, 1.0, 1e-3, dim=10_000, real=True)
    steps = math.sqrt(10_000 * 2.0**48) * 2.0**-FLOAT_GRID_BITS * shown.scale
    assert column_norm(None) + steps <= shown.scale * shown.budget
    with pytest.raises(OptionError, match="horizon"):
        _ = Toeplitz(GAUSSIAN, None, 1.0, 1e-5, dim=10_000, real=True).scale


# ------------------------------------------------------------------ interrupts


def interrupted(bandit, at, call) -> bool:
    """Whether Ctrl-C came: it comes before bytecode number `at` of this library."""
    try:
        with interrupting(at):
            call(bandit)
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["tree-gauss", "anytime"])
def test_no_interrupt_lets_a_user_beyond_the_cap(name, backend):
    def call(bandit):
        bandit.update([1.0, 0.0], 1.0, user="u")

    at, stride = 1, 3 if backend == "core" else 61
    while True:
        bandit = dpb.make(name, dim=2, unit=("user", 1), horizon=64, backend=backend, **BUDGET)
        if not interrupted(bandit, at, call):
            break
        assert bandit.user_counts == ({"u": 1} if bandit.rounds else {})
        call(bandit)
        assert bandit.rounds == 1
        at += stride
    assert at > 300


def test_an_update_from_within_a_release_is_refused(monkeypatch):
    """A signal handler may call it. The outer round's failure would undo the inner round, whose
    release was seen.
    """
    bandit = dpb.make("tree-gauss", dim=2, horizon=64, **BUDGET)
    bandit.source = Exact()
    # What is called between the snapshot and the first change.
    monkeypatch.setattr(learning, "begin_nodes", lambda bandit, _: bandit.update([1.0, 0.0], 1.0))
    with pytest.raises(BudgetError, match="from within one of its own calls"):
        bandit.update([1.0, 0.0], 1.0)
    assert (bandit.rounds, bandit.ledger.releases, bandit.source.made) == (0, 0, [])
    monkeypatch.undo()
    bandit.update([1.0, 0.0], 1.0)
    assert bandit.rounds == 1


def test_an_exported_joint_model_says_nothing_of_a_context(tmp_path):
    bandit = dpb.make("joint", dim=2, horizon=10, **BUDGET)
    bandit.export(tmp_path / "model.json")
    with pytest.raises(NormError) as caught:
        dpb.load(tmp_path / "model.json").select([[5.5, 0.0]])
    assert "5.5" not in str(caught.value)
