"""Learners beside what they stand for, computed from scratch."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rounds import DIM, WORLDS, algorithms, anytime, arms, joint, ridge

from dpbandit.learners.bank import Bank
from dpbandit.learners.filter import Filter
from dpbandit.learners.joint import pack
from dpbandit.learners.prior import Prior
from dpbandit.privacy.sensitivity import lemma1
from dpbandit.reference.bound import LazyBound, growth, lift
from dpbandit.reference.engine import Engine

SILENT = np.zeros(63)  # multipliers at ε = ∞


def stream(count: int = 60, seed: int = 0):
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(count, DIM))
    xs /= np.linalg.norm(xs, axis=1, keepdims=True) * rng.uniform(1.0, 3.0, size=(count, 1))
    return np.ascontiguousarray(xs), rng.uniform(-0.9, 0.9, size=count)


def learned(spec, xs, rs) -> Engine:
    engine = Engine(spec)
    for x, r in zip(xs, rs, strict=True):
        engine.simulate(x, float(r), True, 1, 2)
    return engine


def batch(xs, rs, strength: float = 1.0):
    gram = strength * np.eye(DIM) + xs.T @ xs
    return np.linalg.solve(gram, xs.T @ rs), np.linalg.inv(gram)


def test_ridge_equals_the_batch_solution() -> None:
    xs, rs = stream(300)
    engine = learned(ridge(300, site="nothing", release="once"), xs, rs)
    theta, inverse = batch(xs, rs)
    assert np.allclose(engine.theta(), theta, atol=1e-12)
    assert np.allclose(engine.model()["matrix"], inverse, atol=1e-12)


SITES = {
    "reward": {"site": "reward", "release": "once"},
    "tree": {},
    "tree without a horizon": {"horizon": 0},
    "honaker": {"release": "honaker"},
    "pan-private": {"release": "pan-private"},
    "toeplitz": {"release": "toeplitz", "rates": np.array([0.5]), "weights": np.array([0.3])},
    "own": {"site": "own", "sensitivity": 2.0},
    "increment": {"site": "increment"},
    "increment without a horizon": {"site": "increment", "horizon": 0},
}


@pytest.mark.parametrize("site", sorted(SITES))
@pytest.mark.parametrize("low", [-1.0, -3.0])
def test_every_site_without_noise_has_the_theta_of_linucb(site: str, low: float) -> None:
    xs, rs = stream(70)
    engine = learned(ridge(70, low=low, multipliers=SILENT, **SITES[site]), xs, rs)
    assert np.allclose(engine.theta(), batch(xs, rs)[0], atol=1e-9)


def test_episodes_without_noise_have_the_theta_of_linucb_after_each_release() -> None:
    xs, rs = stream(200)
    engine = Engine(ridge(200, release="episodes", growth=0.5, multipliers=SILENT))
    released = 0
    for t, (x, r) in enumerate(zip(xs, rs, strict=True), start=1):
        before = engine.theta()
        if engine.simulate(x, float(r), True, 1, 2) == -1.0:
            assert (engine.theta() == before).all()
            continue
        released += 1
        theta, inverse = batch(xs[:t], rs[:t])
        assert np.allclose(engine.theta(), theta, atol=1e-9)
        assert np.allclose(engine.model()["matrix"], inverse)
    assert 5 < released < 100


def test_an_episode_ends_when_det_a_doubles_exactly() -> None:
    engine = Engine(ridge(10, release="episodes", growth=math.log(2.0)))
    assert engine.simulate(np.eye(DIM)[0], 0.0, True, 1, 2) != -1.0


@pytest.mark.parametrize("floor", [0.0, 2.5])
def test_shaped_sums_solve_the_equation_that_they_stand_for(floor: float) -> None:
    xs, rs = stream(80)
    rng = np.random.default_rng(5)
    root = rng.normal(size=(DIM, DIM))
    shape = root @ root.T / 4 + np.eye(DIM)
    spec = ridge(
        80, multipliers=SILENT, shape=shape, unshape=np.linalg.inv(shape), floor=floor, low=0.0
    )
    engine = learned(spec, xs, np.abs(rs))
    sizes = np.maximum(np.linalg.norm(xs @ shape, axis=1), floor)
    gram = np.eye(DIM) / max(math.sqrt(DIM), floor) + (xs / sizes[:, None]).T @ xs
    wanted = np.linalg.solve(gram, (xs / sizes[:, None]).T @ np.abs(rs))
    assert np.allclose(engine.theta(), wanted, atol=1e-9)


def test_local_learns_the_noisy_reward() -> None:
    engine = Engine(ridge(5, site="reward", release="once", low=0.0, high=4.0))
    x = np.eye(DIM)[0]
    assert engine.prepare(x, 3.0) == 0.5  # one level of the whole budget, μ = 2
    assert engine.pending().tolist() == [0.25]  # (3 − 2)/4
    engine.commit(np.array([0.4]))
    assert np.allclose(engine.theta(), np.array([2.0 + 4.0 * 0.4, 0, 0, 0]) / 2)


def test_a_tree_by_hand() -> None:
    """Round 3 adds its node to that of rounds 1 and 2."""
    engine, x = Engine(ridge(4, low=0.0, high=1.0)), np.eye(DIM)[1]
    noise = {1: 0.125, 2: -0.25, 3: 0.5}
    sums = {1: 0.5, 2: 1.0, 3: 0.5}  # every reward is 1: the item is ½·x
    for t in (1, 2, 3):
        assert engine.prepare(x, 1.0) == math.sqrt(3) / 2
        assert engine.pending().tolist() == [0.0, sums[t], 0.0, 0.0]
        assert engine.pending_whole() == [0, int(sums[t] * 2**40), 0, 0]
        engine.commit(engine.pending() + noise[t] * x)
    moments = (1.0 - 0.25) + (0.5 + 0.5) + 0.5 * 3  # the centre of three rewards is public
    assert np.allclose(engine.theta(), [0, moments / 4, 0, 0])


def test_pan_private_nodes_start_with_noise_and_carry_it() -> None:
    engine, x = Engine(ridge(3, release="pan-private")), np.eye(DIM)[0]
    assert engine.starts() == [0, 1]
    engine.begin(0, [2**39, 0, 0, 0])
    engine.begin(1, [2**38, 0, 0, 0])
    engine.prepare(x, 1.0)
    assert engine.pending().tolist() == [1.0, 0, 0, 0]  # ½ and the noise ½
    engine.commit(engine.pending())
    assert engine.starts() == [0]
    engine.begin(0, [7, 0, 0, 0])
    engine.prepare(x, -1.0)
    assert engine.pending().tolist() == [0.25, 0, 0, 0]  # ½ − ½ and the noise ¼


def test_own_scales_its_noise_by_what_the_public_matrix_shows() -> None:
    world = WORLDS["synthetic"](120)
    engine = Engine(ridge(120, site="own", sensitivity=2.0, public_arms=world.public))
    gram = np.eye(DIM)
    for rows, r in zip(world.shown, world.rewards, strict=True):
        x = world.pool[rows[0]]
        gram += np.outer(x, x)
        scale = engine.simulate(x, float(r[0]), True, 1, 2)
        exact = np.linalg.norm(world.public @ np.linalg.inv(gram), axis=1).max()
        needed = 2.0 * exact * math.sqrt(7) / 2
        assert needed <= scale <= needed * 1.6
    engine.simulate(world.pool[0] * 0.5, 0.1, False, 1, 2)
    assert engine.outside


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("ball", [False, True])
def test_the_lazy_bound_is_a_bound_and_seldom_much_too_large(norm: int, ball: bool) -> None:
    rng = np.random.default_rng(norm)
    arms_given = np.empty((0, DIM)) if ball else rng.normal(size=(50, DIM)) / 4
    bound, gram, ratios = LazyBound(max_norm=1.0, norm=norm), np.eye(DIM), []
    for t in range(400):
        x = rng.normal(size=DIM)
        x /= np.linalg.norm(x)
        old = np.linalg.inv(gram)
        gram += np.outer(x, x)
        inverse = np.linalg.inv(gram)
        if t % 100 == 99:
            bound.distrust()
        found = bound.after(inverse, arms_given, x, old @ x, float(x @ old @ x))
        exact = np.linalg.eigvalsh(inverse)[-1] * (math.sqrt(DIM) if norm == 1 else 1.0)
        if not ball:
            exact = np.linalg.norm(arms_given @ inverse, ord=norm, axis=1).max()
        ratios.append(found / exact)
    assert min(ratios) >= 1.0
    assert np.mean(ratios) < 1.25


@pytest.mark.parametrize("norm", [1, 2])
def test_growth_bounds_what_a_context_can_do(norm: int) -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        root = rng.normal(size=(DIM, DIM))
        old = np.linalg.inv(np.eye(DIM) + root @ root.T)
        x, z = rng.normal(size=(2, DIM))
        z /= np.linalg.norm(z)
        new = np.linalg.inv(np.linalg.inv(old) + np.outer(x, x))
        factor, moved = growth(x, old @ x, float(x @ old @ x), 1.0, norm)
        before, after = (np.linalg.norm(matrix @ z, ord=norm) for matrix in (old, new))
        assert after <= before * factor * (1 + 1e-12)
        assert abs(after - before) <= moved * (1 + 1e-12)


def test_lift_is_how_much_the_square_of_a_length_can_grow() -> None:
    """Of all z of length 1 one grows by just this, and none by more."""
    rng = np.random.default_rng(8)
    for _ in range(200):
        root, x = rng.normal(size=(DIM, DIM)), rng.normal(size=DIM)
        old = np.linalg.inv(np.eye(DIM) + root @ root.T)
        new = np.linalg.inv(np.linalg.inv(old) + np.outer(x, x))
        largest = np.linalg.eigvalsh(new @ new - old @ old)[-1]
        found = lift(new, old @ x, float(x @ old @ x))
        assert largest <= found * (1 + 1e-9)
        assert found <= largest * (1 + 1e-6) + 1e-12


def test_lemma_1_by_hand() -> None:
    given = {"smallest_eigenvalue": 0.5, "delta": 0.1, "width_times_norm": 2.0, "ridge": 1.0}
    assert lemma1(8.0, form="figure", **given) == 0.125
    assert lemma1(100.0, form="simplified", **given) == 2.0  # 32·log(10)/0.5 = 147: the cap
    assert lemma1(160.0, form="simplified", **given) == 2.0 / (0.5 * 160 / 16)
    t, log = 4_000.0, math.log(40_030)
    wanted = 2.0 / (0.5 * t / 4 - 8 * log - 2 * math.sqrt(t * log))
    assert math.isclose(lemma1(t, form="full", **given), wanted)
    with pytest.raises(ValueError, match="'fulll'"):
        lemma1(8.0, form="fulll", **given)


def test_the_filter_equals_a_dense_posterior() -> None:
    """Everything at once: θ⁺ and all reward noises are Gaussian, and each release is linear in
    them.
    """
    rng = np.random.default_rng(3)
    n, count, variance, scale = 4, 30, 0.3, 0.7
    longer, us = rng.normal(size=(2, count, n))
    us /= np.linalg.norm(us, axis=1, keepdims=True)
    predictions, weight = rng.normal(size=count), 0.8
    due = {7: 0.9, 15: 0.8, 22: 0.95, 29: 0.7}  # the round, and ρ there
    state, left = Filter(n), np.zeros(count)  # how much of each item is left
    bank = Bank(n, np.empty(0))
    rows, offsets, seen = [], [], []
    for t in range(count):
        left[t] = 1.0
        state.see(longer[t], us[t], weight, predictions[t])
        if t not in due:
            continue
        rho = due[t]
        q = math.sqrt(1 - rho * rho)
        y = rng.normal(size=n)
        part = (q * weight * left[: t + 1])[:, None] * us[: t + 1]
        block = np.zeros((n, n + count))  # on θ⁺, then on reward noises
        block[:, :n] = part.T @ longer[: t + 1]
        block[:, n : n + t + 1] = part.T
        rows.append(block)
        offsets.append(part.T @ predictions[: t + 1])
        seen.append(y)
        said = state.learn(y, q, rho, scale, variance)
        bank.learn(*said, 1.0, (np.eye(n), np.zeros(n)), first=t == 7)
        left[: t + 1] *= rho
    root = rng.normal(size=(n, n))
    precision, mean = root @ root.T + np.eye(n), rng.normal(size=n)
    design, y = np.vstack(rows), np.concatenate(seen) + np.concatenate(offsets)
    prior = np.zeros((n + count, n + count))
    prior[:n, :n] = np.linalg.inv(precision)
    prior[n:, n:] = variance * np.eye(count)
    noise = design @ prior @ design.T + scale**2 * np.eye(len(y))
    centre = np.concatenate([mean, np.zeros(count)])
    gain = prior @ design.T @ np.linalg.inv(noise)
    wanted = centre + gain @ (y - design @ centre)
    covariance = prior - gain @ design @ prior
    found = bank.join(0, precision, precision @ mean)
    (theta, spread), likely = found.read(), found.likely
    assert np.allclose(theta, wanted[:n], atol=1e-9)
    assert np.allclose(spread, covariance[:n, :n], atol=1e-9)
    # The marginal likelihood, up to a constant: its difference between two priors.
    other = bank.join(0, 2 * precision, 2 * precision @ mean).likely
    prior[:n, :n] /= 2
    noise2 = design @ prior @ design.T + scale**2 * np.eye(len(y))
    rest = y - design @ centre

    def log_density(matrix):
        return -0.5 * (np.linalg.slogdet(matrix)[1] + rest @ np.linalg.solve(matrix, rest))

    assert math.isclose(likely - other, log_density(noise) - log_density(noise2), abs_tol=1e-8)


def test_anytime_without_noise_comes_close_to_the_truth() -> None:
    world = WORLDS["synthetic"](1_000)
    given = {"window": 1.0, "reward_variance": 1e-6, "public_contexts": world.public}
    spec = anytime(1_000, scale=0.0, **given)
    xs = world.pool[world.shown[:, 0]]
    engine = learned(spec, xs, xs @ world.truth)
    assert np.linalg.norm(engine.theta() - world.truth) < 0.02


def test_anytime_spends_no_more_of_an_item_than_it_came_with() -> None:
    """The same stream with one item more: squared differences of all releases add up to its square
    at most.
    """
    xs, rs = stream(400)
    others = rs.copy()
    others[10] = -others[10]
    engine = Engine(anytime(400, window=1.0))
    ones = np.ones(400, dtype=np.bool_)
    noisy, values, scales = engine.trace(xs, rs, ones, noise_key=1, start_key=2)
    _, other, _ = engine.trace(xs, others, ones, noise_key=1, start_key=2, noisy=noisy)
    assert (scales >= 0).sum() > 50
    moved = abs(others[10] - rs[10]) / 2
    assert 0.5 * moved**2 < ((values - other) ** 2).sum() <= moved**2 * (1 + 1e-9)


def test_the_prior_says_the_middle_of_the_range_by_an_intercept() -> None:
    """Where contexts cannot express a constant: before any release, each reward is the middle."""
    rounds = WORLDS["synthetic"](60)
    engine = Engine(anytime(60, low=0.0, high=4.0, window=1.5, first=1_000))
    for rows in rounds.shown:
        engine.select(np.ascontiguousarray(rounds.pool[rows]))
    engine.prepare(rounds.pool[0], 1.0)
    assert np.allclose(engine.fields()["estimate"], [0, 0, 0, 0, 2.0])


def test_or_along_the_mean_of_contexts_that_can() -> None:
    public = np.repeat(np.eye(DIM), 10, axis=0)  # one-hot: a constant is their sum
    engine = Engine(anytime(60, low=0.0, high=4.0, window=1.5, public_contexts=public))
    mean = public.mean(axis=0)
    assert np.allclose(engine.fields()["estimate"], [*(2.0 * mean), 0.0])  # E‖x‖² = 1


def test_the_whitener_makes_public_contexts_round() -> None:
    rng = np.random.default_rng(0)
    public = rng.normal(size=(500, DIM)) * np.array([1.0, 0.5, 0.3, 0.2])
    prior = Prior(DIM, public)
    prior.refresh(-1.0, 1.0)
    longer = np.column_stack([public / prior.context_size, np.ones(500)]) @ prior.whitener
    assert np.allclose(longer.T @ longer / 500, np.eye(DIM + 1), atol=0.05)


def test_contexts_that_were_seen_before_count_once() -> None:
    prior = Prior(DIM, np.empty((0, DIM)))
    for _ in range(10):
        prior.look(np.eye(DIM))
    prior.look_at_one(np.full(DIM, 0.3))
    assert prior.different == 5
    assert (prior.slates, prior.pairs) == (11, 10)


def test_the_gram_matrix_of_joint_without_noise_is_the_sum() -> None:
    xs, rs = stream(50)
    for horizon in (50, 0):
        engine = learned(joint(50, horizon=horizon, multipliers=SILENT), xs, rs)
        theta, inverse = batch(xs, rs)
        assert np.allclose(engine.fields()["gram"], np.eye(DIM) + xs.T @ xs, atol=1e-9)
        assert np.allclose(engine.fields()["moments"], xs.T @ rs, atol=1e-9)
        assert np.allclose(engine.theta(), theta, atol=1e-9)
        assert np.allclose(engine.model()["matrix"], inverse, atol=1e-9)
        assert engine.fields()["raised"][0] == 0


def test_eigenvalues_of_joint_are_raised_where_noise_took_them_away() -> None:
    xs, rs = stream(30)
    engine = learned(joint(30, shift=0.0), xs, rs)
    assert engine.fields()["raised"][0] > 0
    gram, matrix = engine.fields()["gram"], engine.model()["matrix"]
    assert np.linalg.eigvalsh(gram)[0] >= 0.5 - 1e-9
    assert np.allclose(gram @ matrix, np.eye(DIM), atol=1e-8)


def test_packing_keeps_the_norm() -> None:
    v = np.array([0.3, -0.5, 0.2])
    assert math.isclose(np.linalg.norm(pack(v)), float(v @ v))


def test_arms_have_their_means_and_a_bonus_by_hand() -> None:
    engine = Engine(arms(10, low=0.0, high=2.0, multipliers=SILENT))
    eye = np.eye(DIM)
    for arm, reward in ((0, 2.0), (1, 1.0), (0, 1.0), (2, 0.5)):
        engine.simulate(eye[arm], reward, True, 1, 2)
    assert np.allclose(engine.theta(), [1.5, 1.0, 0.5, 0.0])
    assert engine.select(eye) == 3  # it was never pulled
    bonuses = np.sqrt(np.diag(engine.model()["matrix"]))
    explore = 0.3 * 2.0 * math.sqrt(2 * math.log(5))
    assert np.allclose(bonuses[:3], [explore / math.sqrt(2), explore, explore])


def test_arms_bonus_grows_with_the_noise_of_the_nodes_in_use() -> None:
    engine = Engine(arms(8, low=0.0, high=2.0, alpha=0.0))
    for _ in range(3):
        engine.simulate(np.eye(DIM)[0], 1.0, True, 1, 2)
    scale = math.sqrt(4) / 2.0  # four levels, μ = 2
    spread = 2.0 * math.sqrt(2) * scale  # rounds 1, 2 and round 3, in units of rewards
    wanted = 0.75 * math.sqrt(2 * math.log(4)) * spread / 3
    assert math.isclose(math.sqrt(engine.model()["matrix"][0, 0]), wanted)


@pytest.mark.parametrize("name", sorted(set(algorithms(100, WORLDS["one-hot"](4))) - {"linucb"}))
def test_what_is_shown_does_not_depend_on_the_reward_of_a_round_before_its_release(
    name: str,
) -> None:
    """Two rewards, one release told to both: θ and the matrix are the same."""
    spec = algorithms(100, WORLDS["one-hot"](4))[name]
    x, shown = np.eye(DIM)[1], []
    for reward in (-1.0, 1.0):
        engine = Engine(spec)
        if engine.prepare(x, reward) != -1.0:
            engine.commit(np.zeros(len(engine.pending())))
        model = engine.model()
        shown.append(np.concatenate([model["theta"], model["matrix"].ravel()]))
    assert (shown[0] == shown[1]).all()
