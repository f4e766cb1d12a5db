"""Failures, threads, forks and odd sizes: nothing is counted twice, nothing slips past a check."""

import math
import multiprocessing
import threading

import mpmath
import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.budget import mu_of
from dpbandit.errors import BudgetError, NoiseError, OptionError

X = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])


def make(name="tree-gauss", **given):
    return dpb.make(
        name, **({"dim": 2, "epsilon": 1.0, "delta": 1e-4, "horizon": 64, "seed": 2} | given)
    )


class Failing:
    """A source that fails at the n-th release."""

    kind = "simulation"

    def __init__(self, at):
        self.left = at

    def release(self, noise, pending, *, scale, shift, index):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return pending.values.copy()


@pytest.mark.parametrize("name", ["tree-gauss", "dgs", "local", "private-linucb"])
def test_a_failed_release_leaves_everything_as_it_was_and_a_retry_counts_once(name):
    bandit, reference = make(name), make(name)
    bandit.source, reference.source = Failing(at=4), Failing(at=0)
    for t in range(3):
        bandit.update(X[t], 0.5)
        reference.update(X[t], 0.5)
    before = {k: v.copy() for k, v in bandit.engine.fields().items()}, bandit.ledger.to_dict()
    with pytest.raises(KeyboardInterrupt):
        bandit.update(X[0], 5.0)
    assert all((bandit.engine.fields()[k] == v).all() for k, v in before[0].items())
    assert bandit.ledger.to_dict() == before[1]
    assert bandit.clipped == 0
    bandit.update(X[0], 5.0)
    reference.update(X[0], 5.0)
    assert (bandit.theta == reference.theta).all()
    assert bandit.ledger == reference.ledger


def test_a_batch_that_fails_says_how_much_of_it_was_learned():
    bandit = make()
    bandit.source = Failing(at=3)
    with pytest.raises(KeyboardInterrupt) as caught:
        bandit.update(X[[0, 1, 2, 0]], [0.1, 0.2, 0.3, 0.4])
    assert bandit.rounds == 2
    assert "first 2 of this batch of 4" in caught.value.__notes__[0]


def test_threads_take_turns():
    bandit = make(horizon=4000, epsilon=5.0)
    inside, seen = [], []

    class Slow:
        kind = "simulation"

        def release(self, noise, pending, *, scale, shift, index):
            inside.append(index)
            for _ in range(50):
                pass
            seen.append(inside == [index] and bandit.rounds == index - 1)
            inside.remove(index)
            return pending.values

    bandit.source = Slow()
    threads = [
        threading.Thread(target=lambda: [bandit.update(X[0], 0.1) for _ in range(500)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bandit.rounds == 2000 == bandit.ledger.releases
    assert all(seen)
    assert {row["what"]: row["releases"] for row in bandit.ledger.table()}["tree level 0"] == 1000


def test_a_forked_copy_ranks_and_refuses_to_learn():
    bandit = make()
    bandit.update(X[0], 0.5)
    queue = multiprocessing.get_context("fork").Queue()

    def child():
        try:
            queue.put(int(bandit.select(X)))
            bandit.update(X[0], 0.5)
        except BudgetError as error:
            queue.put(str(error))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert queue.get(timeout=60) in (0, 1, 2)
    assert "another process" in queue.get(timeout=60)
    process.join(timeout=60)


def test_contexts_given_to_a_run_do_not_shrink_the_noise_of_contexts_that_are_not_among_them():
    world = dpb.worlds.Synthetic(arms=40, dim=3, shown=5)
    options = {"horizon": 400, "seeds": 2, "epsilon": 0.1, "delta": 1e-6}
    lied = dpb.run(world, ["dgs"], public_contexts=1e-6 * np.eye(3), **options).summary()
    ball = dpb.run(world, {"dgs": ("dgs", {"public_contexts": None})}, **options).summary()
    assert lied.loc["dgs", "theta_error"] == pytest.approx(ball.loc["dgs", "theta_error"], rel=0.2)


def test_a_subclass_runs_its_own_methods_in_a_run():
    class Always0(dpb.Bandit):
        def select(self, contexts, k=None):
            return 0

    def factory(**options):
        made = dpb.make("linucb", **options)
        return Always0("always-0-test", made.options, made.design)

    dpb.register("always-0-test", factory, replace=True)
    world = dpb.worlds.Synthetic(arms=10, dim=2, shown=3)
    reward = (
        dpb.run(world, ["always-0-test"], horizon=50, seeds=[0])
        .summary()
        .loc["always-0-test", "reward"]
    )
    assert reward == pytest.approx(world.episode(0).block(50).rewards[:, 0].sum())


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_norm": 1e-170},
        {"max_norm": 1e200},
        {"ridge": 1e-320},
        {"ridge": 1e-16},
        {"reward_range": (-1e308, 1e308)},
        {"reward_range": (1e14, 1e14 + 1)},
        {"horizon": 2**62},
        {"horizon": math.inf},
        {"dim": math.nan},
        {"zeta": "x"},
        {"pan_private": "no"},
        {"public_contexts": [[1.0, 0.0], [1.0]]},
        {"public_contexts": "x"},
    ],
)
def test_sizes_at_which_arithmetic_fails_are_refused(wrong):
    with pytest.raises(dpb.errors.DpbanditError):
        make(**wrong)


@pytest.mark.parametrize("name", ["linucb", "random"])
def test_options_that_make_no_sense_are_refused_by_references_too(name):
    with pytest.raises(OptionError, match="noise"):
        dpb.make(name, dim=2, noise="foo")
    with pytest.raises(OptionError, match="pan-private"):
        dpb.make(name, dim=2, pan_private=True)


def test_numpy_numbers_are_numbers():
    bandit = make(
        epsilon=np.float32(1.0),
        delta=np.float64(1e-4),
        horizon=np.int64(64),
        unit=("user", np.int64(2)),
    )
    bandit.update(X[0], 0.5, user=np.int64(3))
    assert bandit.options.unit == ("user", 2)


@pytest.mark.parametrize("user", [17.0, b"u", True, [None], 3.5])
def test_a_user_is_text_or_a_whole_number(user):
    with pytest.raises(OptionError, match="user"):
        make(unit=("user", 2)).update(X[0], 0.5, user=user)


def test_no_noise_and_no_seed_is_refused_without_learning():
    bandit = make(epsilon=math.inf, seed=None)
    with pytest.raises(NoiseError, match="scale 0"):
        bandit.update(X[0], 0.5)
    assert bandit.rounds == 0


@pytest.mark.parametrize("horizon", [64, None])
@pytest.mark.parametrize("seed", [5, None])
def test_a_pan_private_memory_holds_no_clean_number(horizon, seed):
    """Between two updates, streams that differ in a reward differ only in sums that carry noise, by the change itself."""
    states = []
    for last in (-1.0, 1.0):
        bandit = make(horizon=horizon, seed=seed, pan_private=True, delta=1e-2)
        bandit.update(X, [0.3, -0.2, last])
        states.append({k: v.copy() for k, v in bandit.engine.fields().items()})
    clean = {name: state for name, state in states[0].items() if name in ("moments", "ridge_theta")}
    assert all((state == 0).all() for state in clean.values())
    assert (states[0]["clipped"] == 0).all()
    if seed is None:
        return
    noisy = {"theta", "noisy", "sums_high", "sums_low"}
    for name in set(states[0]) - noisy:
        assert (states[0][name] == states[1][name]).all(), name
    one, two = ([row(state, level) for level in range(2)] for state in states)
    # the third reward is in the first two levels' nodes in progress: both move by x, on top of noise
    change = [[2 * int(v) for v in np.rint(0.5 * X[2] * 2.0**40)]] * 2
    assert [
        [b - a for a, b in zip(*pair, strict=True)] for pair in zip(one, two, strict=True)
    ] == change
    assert all(value != 0 for level in one for value in level)


def row(fields, level):
    """A row of whole numbers that are kept in two words."""
    high, low = fields["sums_high"][level].tolist(), fields["sums_low"][level].tolist()
    return [h * 2**64 + w % 2**64 for h, w in zip(high, low, strict=True)]


def test_mu_is_rounded_down_against_eighty_digits():
    mpmath.mp.dps = 80
    rng = np.random.default_rng(0)
    for _ in range(60):
        epsilon, delta = 10 ** rng.uniform(-6, 1), 10 ** rng.uniform(-12, -1)
        mu = mpmath.mpf(mu_of(epsilon=epsilon, delta=delta))
        e = mpmath.mpf(epsilon)
        exact = mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2)
        assert exact <= mpmath.mpf(delta)


def test_a_context_outside_the_known_ones_is_said_aloud_once():
    bandit = make("dgs", public_contexts=np.eye(2))
    with pytest.warns(dpb.errors.PrivacyWarning, match="not among public_contexts"):
        bandit.update(X[2], 0.1)
    bandit.update(X[2], 0.1)  # a second warning would be an error here
    assert bandit.rounds == 2


def test_selected_and_perturbed_contexts_survive_a_save(tmp_path):
    bandit = make("linucb", context_noise=0.3)
    arm = bandit.select(X)
    bandit.save(tmp_path / "b")
    copy = dpb.load(tmp_path / "b")
    for b in (bandit, copy):
        b.update(X[arm], 0.7)
    assert (bandit.theta == copy.theta).all()


def test_exports_rank_with_the_bonus_in_force_and_random_stays_random(tmp_path):
    bandit = make(alpha="theory")
    bandit.update(X, [0.1, 0.2, 0.3])
    bandit.export(tmp_path / "m")
    assert dpb.load(tmp_path / "m").alpha == pytest.approx(bandit.alphas(4, 1)[0])
    dpb.make("random", dim=2, seed=0).export(tmp_path / "r")
    model = dpb.load(tmp_path / "r")
    assert (
        len({model.select(X) for _ in range(60)}) == 3
    )  # one of three never drawn: probability 8e-11
    with pytest.raises(dpb.errors.NotFiniteError):
        model.select([[math.nan, 0.0]])
