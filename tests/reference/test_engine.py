"""The engine's interface: codes, single rounds and batches, going back, and loops."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rounds import DIM, WORLDS, algorithms, anytime, arms, common, ridge, variants

from dpbandit import codes
from dpbandit.reference.engine import Engine, pick
from dpbandit.reference.random import lot, normals

CLEAR = {"site": "nothing", "release": "once"}


def all_specs(rounds: int):
    world = WORLDS["one-hot"](rounds)
    return {**algorithms(rounds, world), **variants(rounds, world)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learner": "riidge"}, "learner 'riidge'"),
        ({"policy": "ucbb"}, "policy 'ucbb'"),
        ({"noise": "logistic"}, "noise 'logistic'"),
        ({"site": "momments"}, "site 'momments'"),
        ({"release": "treee"}, "release .*'treee'"),
        ({"form": "short"}, "form 'short'"),
        ({"forgetting": 0.9}, "unknown keys: forgetting"),
        ({"forget": 0.9}, "in the clear alone"),
        ({"site": "nothing", "release": "once", "forget": 1.1}, "below 1"),
        ({"policy": "index"}, "policy 'index' does not go with learner 'ridge'"),
        ({"release": "once"}, "release .*'once'"),
        ({"site": "own", "release": "honaker"}, "'honaker'"),
        ({"release": "honaker", "horizon": 0, "unknown_horizon": True}, "needs a horizon"),
    ],
)
def test_what_is_not_known_is_refused_by_name(change, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Engine({**ridge(10), **change})


def test_what_is_missing_is_named() -> None:
    spec = ridge(10)
    del spec["growth"], spec["alpha"]
    with pytest.raises(ValueError, match="lacks alpha, growth"):
        Engine(spec)
    with pytest.raises(ValueError, match=r"lacks .*ridge"):
        Engine({**common(10), "learner": "ridge"})
    with pytest.raises(ValueError, match="'thompson' has no use"):
        Engine({**common(10), "learner": "none", "policy": "thompson"})


def test_codes_of_slates() -> None:
    engine, eye = Engine(ridge(10, l1_limit=1.2, **CLEAR)), np.eye(DIM)
    assert engine.select(eye.tolist()) == codes.NOT_AN_ARRAY
    assert engine.select(eye[:, ::-1]) == codes.NOT_AN_ARRAY
    assert engine.select(eye[0]) == codes.NOT_AN_ARRAY
    assert engine.select(eye.astype(np.float32)) == codes.NOT_AN_ARRAY
    assert engine.select(np.zeros((0, DIM))) == codes.NO_ARMS
    assert engine.select(np.zeros((2, DIM + 1))) == codes.DIMENSION
    assert engine.select(np.full((1, DIM), np.inf)) == codes.NOT_FINITE
    assert engine.select(2 * eye) == codes.TOO_LONG
    assert engine.select(np.full((1, DIM), 0.45)) == codes.TOO_LONG_L1
    assert engine.select(eye * (1 + 1e-10)) >= 0
    assert engine.decisions == 1
    assert Engine(arms(10)).select(0.5 * eye) == codes.NOT_ONE_HOT


def test_codes_of_rewards_and_what_learning_says() -> None:
    x = np.eye(DIM)[0]
    engine = Engine(ridge(2, **CLEAR))
    assert engine.learn(x, float("nan")) == codes.REWARD_NOT_FINITE
    assert engine.learn(x, 0.5) == codes.LEARNED
    assert engine.learn_many(np.eye(DIM)[:2], np.zeros(2)) == (0, codes.HORIZON)
    assert engine.learn_many(np.eye(DIM)[:1], np.zeros(1)) == (1, codes.LEARNED)
    assert engine.admit(x, 0.5) == codes.HORIZON
    tree = Engine(ridge(9))
    assert tree.learn(x, 0.5) == codes.DUE
    assert tree.rounds == 0
    tree.prepare(x, 0.5)
    assert tree.learn(x, 0.5) == codes.BUSY
    with pytest.raises(ValueError, match="pending"):
        tree.prepare(x, 0.5)
    with pytest.raises(ValueError, match="numbers are pending"):
        tree.commit(np.zeros(1))
    tree.commit(np.zeros(DIM))
    with pytest.raises(ValueError, match="nothing is pending"):
        tree.commit(np.zeros(DIM))


def test_a_batch_is_admitted_whole_and_learned_until_a_release_is_due() -> None:
    xs, rs = np.tile(np.eye(DIM)[0], (8, 1)), np.zeros(8)
    engine = Engine(anytime(0, first=4))
    assert engine.learn_many(xs, rs) == (3, codes.DUE)
    rs[7] = np.nan
    assert engine.learn_many(xs, rs) == (0, codes.REWARD_NOT_FINITE)
    assert engine.rounds == 3


def test_rewards_are_clipped_and_counted_but_not_in_the_pan_private_form() -> None:
    x = np.eye(DIM)[0]
    for release, counted in (("tree", 1), ("pan-private", 0)):
        engine = Engine(ridge(9, release=release, multipliers=np.zeros(63)))
        engine.simulate(x, 5.0, True, 1, 2)
        assert engine.clipped == counted
        assert np.allclose(engine.theta(), x / 2)
    free = Engine(ridge(9, clips=False, **CLEAR))
    free.learn(x, 5.0)
    assert np.allclose(free.theta(), 2.5 * x)


def test_ties_are_broken_by_lot() -> None:
    scores = np.array([0.5, 1.0, 1.0 - 1e-13, 0.2, 1.0])
    for decision in range(20):
        tied = {arm: lot(3, decision, arm) for arm in (1, 2, 4)}
        assert pick(scores, 3, decision) == max(tied, key=tied.__getitem__)
    engine = Engine({**common(0), "learner": "none", "policy": "uniform"})
    played = [engine.select(np.eye(DIM)) for _ in range(4_000)]
    # Each arm a quarter of the time: false alarm 10⁻⁸ (six standard deviations, four arms).
    assert np.abs(np.bincount(played) / 4_000 - 0.25).max() < 6 * np.sqrt(3 / 16 / 4_000)


def test_a_ranking_starts_with_the_arm_that_is_played_and_names_each_once() -> None:
    world = WORLDS["synthetic"](50)
    one, other = Engine(ridge(50)), Engine(ridge(50))
    for rows, r in zip(world.shown, world.rewards, strict=True):
        slate = np.ascontiguousarray(world.pool[rows])
        ranked = one.rank(slate, len(rows))
        arm = other.select(slate)
        assert ranked[0] == arm
        assert sorted(ranked) == list(range(len(rows)))
        for engine in (one, other):
            engine.simulate(slate[arm], float(r[arm]), True, 1, 2)


def test_alpha_of_a_call_goes_before_the_one_of_the_spec() -> None:
    engine = Engine(ridge(9, alpha=0.0, **CLEAR))
    engine.learn(np.eye(DIM)[0], 0.1)
    assert engine.select(np.eye(DIM)) == 0
    assert engine.select(np.eye(DIM), 5.0) != 0


def test_thompson_by_hand() -> None:
    engine = Engine(ridge(9, policy="thompson", **CLEAR))
    engine.learn(np.eye(DIM)[0], 0.5)
    drawn = engine.theta() + 0.3 * np.linalg.cholesky(engine.model()["matrix"]) @ normals(
        11, 0 | 1 << 61, DIM
    )
    assert engine.select(np.eye(DIM)) == int(np.argmax(drawn))


def test_perturbed_contexts_are_what_is_scored_and_learned() -> None:
    spec = ridge(9, context_noise=0.5, **CLEAR)
    engine, eye = Engine(spec), np.eye(DIM)
    arm = engine.select(eye)
    moved = eye + 0.5 * normals(12, 0, DIM * DIM).reshape(DIM, DIM)
    moved *= np.minimum(1.0, 1.0 / np.linalg.norm(moved, axis=1, keepdims=True))
    engine.learn(eye[arm], 0.7)
    plain = Engine(ridge(9, **CLEAR))
    plain.learn(moved[arm], 0.7)
    assert np.allclose(engine.theta(), plain.theta())


@pytest.mark.parametrize("name", sorted(all_specs(64)))
def test_going_back_copying_and_loading_go_on_bit_for_bit(name: str) -> None:
    world = WORLDS["one-hot"](64)
    spec = all_specs(64)[name]

    def play(engine: Engine, start: int, stop: int) -> list[int]:
        arms = np.zeros(stop - start, dtype=np.int64)
        engine.play(
            world.pool,
            world.shown[start:stop],
            world.rewards[start:stop],
            world.means[start:stop],
            alphas=0.3,
            noise_key=1,
            start_key=2,
            in_public_set=np.ones(DIM, dtype=np.bool_),
            truth=world.truth,
            record=np.array([], dtype=np.int64),
            totals=np.zeros(2),
            arms=arms,
        )
        return [*arms.tolist(), *engine.theta().tolist()]

    engine = Engine(spec)
    first = play(engine, 0, 30)
    kept, twin = engine.snapshot(), engine.copy()
    loaded = Engine(spec)
    loaded.load_fields({field: array.copy() for field, array in engine.fields().items()})
    second = play(engine, 30, 60)
    assert play(twin, 30, 60) == second
    assert play(loaded, 30, 60) == second
    engine.restore(kept)
    assert play(engine, 30, 60) == second
    engine.reset()
    assert engine.rounds == engine.decisions == 0
    assert play(engine, 0, 30) == first


@pytest.mark.parametrize("name", sorted(all_specs(40)))
def test_a_trace_that_is_told_its_own_noise_is_itself(name: str) -> None:
    world = WORLDS["one-hot"](40)
    engine = Engine(all_specs(40)[name])
    xs, rs, known = world.pool[world.shown[:, 0]], world.rewards[:, 0], np.ones(40, dtype=np.bool_)
    noisy, values, scales = engine.trace(xs, rs, known, noise_key=1, start_key=2)
    again = engine.trace(xs, rs, known, noise_key=9, start_key=2, noisy=noisy)
    assert (again[1] == values).all()
    assert (again[2] == scales).all()
    assert engine.rounds == 0
    scores = engine.scores(xs, rs, xs, rs, known, key=5, first=0, count=2)
    assert (scores == 0).all()  # the same stream: nothing tells them apart


def test_scores_of_gaussian_noise_have_the_mean_and_variance_of_their_cost() -> None:
    """Σ log p(own) − log p(other) is N(μ²/2, μ²). False alarm: 2 · 10⁻⁶ (mean) and as much
    (variance).
    """
    xs, rs, known = np.tile(np.eye(DIM)[0], (3, 1)), np.zeros(3), np.ones(3, dtype=np.bool_)
    others = np.array([0.0, 1.0, 0.0])
    engine = Engine(ridge(3))
    # Round 2 is in its own node alone: the item moves by ½, σ = √2/2.
    mu = 0.5 / (np.sqrt(2) / 2)
    scores = engine.scores(xs, rs, xs, others, known, key=5, first=0, count=300)
    assert abs(scores.mean() - mu**2 / 2) < 4.8 * mu / np.sqrt(300)
    assert abs(scores.var() / mu**2 - 1) < 4.8 * np.sqrt(2 / 300)


def test_scores_without_noise_are_certain() -> None:
    xs, rs, known = np.tile(np.eye(DIM)[0], (3, 1)), np.zeros(3), np.ones(3, dtype=np.bool_)
    others = np.array([0.0, 0.0, 1.0])
    for spec in (ridge(3, **CLEAR), ridge(3, multipliers=np.zeros(63))):
        scores = Engine(spec).scores(xs, rs, xs, others, known, key=5, first=0, count=2)
        assert (scores == 1e6).all()


def test_loops_refuse_what_single_rounds_refuse() -> None:
    world = WORLDS["synthetic"](12)
    engine = Engine(ridge(10))
    given = {
        "alphas": 0.3,
        "noise_key": 1,
        "start_key": 2,
        "in_public_set": np.ones(len(world.pool), dtype=np.bool_),
        "truth": world.truth,
        "record": np.array([], dtype=np.int64),
        "totals": np.zeros(2),
    }
    blocks = (world.shown, world.rewards, world.means)
    assert engine.play(world.pool, *blocks, **given) == codes.HORIZON
    short = [block[:5] for block in blocks]
    assert engine.play(2 * world.pool, *short, **given) == codes.TOO_LONG
    assert engine.rounds == 0
    xs, rs, known = 2 * np.eye(DIM), np.zeros(DIM), np.ones(DIM, dtype=np.bool_)
    with pytest.raises(ValueError, match=str(codes.TOO_LONG)):
        engine.trace(xs, rs, known, noise_key=1, start_key=2)


def test_what_is_recorded_by_hand() -> None:
    world = WORLDS["synthetic"](30)
    engine, single = Engine(ridge(30)), Engine(ridge(30))
    known, totals = np.ones(len(world.pool), dtype=np.bool_), np.array([10.0, 20.0])
    out = engine.play(
        world.pool,
        world.shown,
        world.rewards,
        world.means,
        alphas=np.linspace(0.1, 1.0, 30),
        noise_key=1,
        start_key=2,
        in_public_set=known,
        truth=world.truth,
        record=np.array([9, 29]),
        totals=totals,
    )
    reward, regret = 10.0, 20.0
    for t, rows in enumerate(world.shown):
        slate = np.ascontiguousarray(world.pool[rows])
        arm = single.select(slate, float(np.linspace(0.1, 1.0, 30)[t]))
        reward += world.rewards[t, arm]
        regret += world.means[t].max() - world.means[t, arm]
        single.simulate(slate[arm], float(world.rewards[t, arm]), True, 1, 2)
        if t == 9:
            assert np.allclose(
                out[0], [reward, regret, np.linalg.norm(single.theta() - world.truth)]
            )
    assert np.allclose(out[1], [reward, regret, np.linalg.norm(single.theta() - world.truth)])
    assert np.allclose(totals, [reward, regret])


def test_more_rounds_than_rounding_in_toeplitz_buffers_is_paid_for_are_refused() -> None:
    engine = Engine(ridge(0, release="toeplitz", rates=np.array([0.5]), weights=np.array([0.3])))
    engine.fields()["rounds"][0] = 2**48
    assert engine.admit(np.eye(DIM)[0], 0.5) == codes.HORIZON
