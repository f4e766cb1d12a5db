"""The compiled core does what the reference says: the same arms, the same θ, the same random
numbers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))

from rounds import DIM, WORLDS, World, algorithms, blocks, variants

from dpbandit import _core as core
from dpbandit.privacy.noise import NOISES
from dpbandit.reference import random
from dpbandit.reference.engine import Engine as Reference

ROUNDS, FEWER = 2_000, 400
NOISE_KEY, START_KEY = random.derive_key(5, random.NOISE), random.derive_key(5, random.START)
NAMED = [(world, name) for world, make in WORLDS.items() for name in algorithms(ROUNDS, make(4))]
OTHERS = [
    (world, name) for world in ("one-hot", "drifting") for name in variants(FEWER, WORLDS[world](4))
]


def played(engine, world: World):
    """Arms, totals, the recorded errors, and θ at the end."""
    rounds = len(world.shown)
    arms, totals = np.zeros(rounds, dtype=np.int64), np.zeros(2)
    out = engine.play(
        world.pool,
        world.shown,
        world.rewards,
        world.means,
        alphas=np.array([0.3]),
        noise_key=NOISE_KEY,
        start_key=START_KEY,
        in_public_set=np.ones(len(world.pool), dtype=np.bool_),
        truth=world.truth,
        record=np.arange(0, rounds, 50),
        totals=totals,
        arms=arms,
    )
    return arms, totals, np.asarray(out), np.asarray(engine.theta())


def assert_alike(spec, world: World) -> None:
    reference, compiled = Reference(spec), core.Engine(spec)
    arms, totals, errors, theta = played(reference, world)
    other_arms, other_totals, other_errors, other_theta = played(compiled, world)
    differ = np.flatnonzero(arms != other_arms)
    assert len(differ) == 0, f"the first of {len(differ)} other arms is in round {differ[0] + 1}"
    size = max(1.0, float(np.abs(theta).max()))
    assert np.abs(theta - other_theta).max() <= 1e-9 * size
    assert np.allclose(errors, other_errors, rtol=1e-9, atol=1e-9)
    assert np.allclose(totals, other_totals, rtol=1e-12)
    for name in ("rounds", "decisions", "clipped", "outside"):
        assert getattr(reference, name) == getattr(compiled, name), name
    assert np.allclose(
        reference.fields()["theta"], np.asarray(compiled.fields()["theta"]), atol=1e-9 * size
    )


@pytest.mark.parametrize(("world", "name"), NAMED)
def test_every_algorithm_plays_the_same_arms_and_has_the_same_theta(world: str, name: str) -> None:
    rounds = WORLDS[world](ROUNDS)
    assert_alike(algorithms(ROUNDS, rounds)[name], rounds)


@pytest.mark.parametrize(("world", "name"), OTHERS)
def test_so_does_every_other_form(world: str, name: str) -> None:
    rounds = WORLDS[world](FEWER)
    assert_alike(variants(FEWER, rounds)[name], rounds)


@pytest.mark.parametrize("until", [None, 20])
@pytest.mark.parametrize("name", ["anytime, local in blocks", "anytime, local first"])
def test_answers_are_the_same_where_arms_share_no_feature_and_where_they_begin_to(
    name: str, until: int | None
) -> None:
    world = blocks(FEWER, until)
    spec = variants(FEWER, world)[name]
    assert_alike(spec, world)
    engine = Reference(spec)
    played(engine, world)
    waits_for_nothing = until is None or name == "anytime, local first"
    assert engine.fields()["central_from"][0] == (spec["local"] if waits_for_nothing else until)


@pytest.mark.parametrize("name", ["tree-gauss", "dgs", "anytime", "joint", "local", "adac-oful"])
def test_single_rounds_release_the_same_numbers_at_the_same_scale(name: str) -> None:
    world = WORLDS["synthetic"](200)
    spec = algorithms(200, world)[name]
    engines = Reference(spec), core.Engine(spec)
    rng = np.random.default_rng(0)
    for rows, rewards in zip(world.shown, world.rewards, strict=True):
        slate = np.ascontiguousarray(world.pool[rows])
        arm, other = (engine.select(slate) for engine in engines)
        assert arm == other
        codes = {engine.learn(slate[arm], float(rewards[arm])) for engine in engines}
        assert len(codes) == 1
        if codes == {0}:
            continue
        scales = [engine.prepare(slate[arm], float(rewards[arm])) for engine in engines]
        assert np.isclose(*scales, rtol=1e-9)
        if scales[0] == -1.0:
            continue
        clean = [np.asarray(engine.pending()) for engine in engines]
        assert np.allclose(*clean, atol=1e-11)
        wholes = [engine.pending_whole() for engine in engines]
        assert (wholes[0] is None) == (wholes[1] is None)
        if wholes[0] is not None:
            # An item may be rounded to the next step by one of the two: products have an order.
            assert max(abs(a - b) for a, b in zip(*wholes, strict=True)) <= len(world.shown)
        noisy = clean[0] + scales[0] * rng.normal(size=len(clean[0]))
        for engine in engines:
            engine.commit(noisy)
    assert engines[0].rounds == engines[1].rounds == 200


@pytest.mark.parametrize("name", ["linucb", "tree-gauss", "dgs", "anytime", "joint", "local"])
def test_audits_see_the_same_values_and_the_same_scores(name: str) -> None:
    world = WORLDS["synthetic"](40)
    spec = algorithms(40, world)[name]
    xs, rs = np.ascontiguousarray(world.pool[world.shown[:, 0]]), world.rewards[:, 0].copy()
    others, known = rs.copy(), np.ones(40, dtype=np.bool_)
    others[7] = -others[7]
    traces, scores = [], []
    for engine in (Reference(spec), core.Engine(spec)):
        keys = {"noise_key": NOISE_KEY, "start_key": START_KEY}
        traces.append(engine.trace(xs, rs, known, **keys))
        forced = engine.trace(xs, others, known, **keys, noisy=np.asarray(traces[-1][0]))
        traces[-1] = (*traces[-1], *forced)
        scores.append(engine.scores(xs, rs, xs, others, known, key=77, first=3, count=5))
    for one, other in zip(*traces, strict=True):
        assert np.allclose(one, other, rtol=1e-9, atol=1e-9)
    assert np.allclose(*scores, rtol=1e-6, atol=1e-7)


CLOCK = {"rounds", "decisions", "clipped", "outside", "theta"}
SOLVED = {"inverse", "gram", "gram_low", "recent", "waiting", "age"}
SUMMED = {"moments", "moments_low", "ridge_theta"}
TREE = {"sums_high", "sums_low", "noisy", "carry"}
FIELDS = {
    "random": CLOCK,
    "linucb": CLOCK | SOLVED | SUMMED,
    "local": CLOCK | SOLVED | SUMMED,
    "tree-gauss": CLOCK | SOLVED | TREE | {"context_sum"},
    "dgs": CLOCK | SOLVED | TREE | {"context_sum"},
    "toeplitz": CLOCK
    | SOLVED
    | {"context_sum", "clean", "clean_low", "noisy_buffers", "noisy_low", "total", "total_low"},
    "adac-oful": CLOCK
    | SOLVED
    | {"context_sum", "episode_sum_high", "episode_sum_low", "carry", "anchor", "grown"},
    "anytime": CLOCK
    | {"sums_high", "sums_low", "due", "releases", "estimate", "design", "offset", "spread"}
    | {"mean", "slope", "covariance", "target", "precision", "pull", "whitener"}
    | {"local_rows", "local_values", "central_from", "local_waiting", "local_due", "blocks_seen"},
    "joint": CLOCK | TREE | {"gram", "inverse", "moments"},
    "anytime-joint": CLOCK
    | {"moments_high", "moments_low", "directions_high", "directions_low", "due", "change_due"}
    | {"version", "releases", "estimate", "posterior", "whiteners", "factors", "second", "against"},
    "private-ucb": CLOCK | TREE | {"pulls", "arm"},
    "dp-klucb": CLOCK | {"sums_high", "sums_low", "carry", "pulls", "shown", "releases", "arm"},
}


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_fields_that_others_read_have_the_same_names_and_shapes(name: str) -> None:
    spec = algorithms(ROUNDS, WORLDS["one-hot"](4))[name]
    own, other = Reference(spec).fields(), core.Engine(spec).fields()
    assert FIELDS[name] <= set(own)
    assert FIELDS[name] <= set(other)
    for field in FIELDS[name]:
        assert own[field].shape == other[field].shape, field
        assert own[field].dtype == other[field].dtype, field


def test_both_refuse_with_the_same_codes() -> None:
    world = WORLDS["one-hot"](10)
    for name in ("linucb", "private-ucb"):
        spec = algorithms(2, world)[name]
        reference, compiled = Reference(spec), core.Engine(spec)
        slates = [
            np.zeros((0, DIM)),
            np.zeros((2, DIM + 1)),
            np.full((1, DIM), np.nan),
            np.full((1, DIM), 2.0),
            np.full((1, DIM), 0.5),
            np.eye(DIM),
            np.eye(DIM)[:, ::-1],
            np.zeros(DIM),
            [[1.0, 0.0, 0.0, 0.0]],
        ]
        for slate in slates:
            assert reference.select(slate) == compiled.select(slate), slate
        for x, reward in (
            (np.eye(DIM)[0], np.inf),
            (np.full(DIM, 3.0), 0.0),
            (np.eye(DIM)[0], 0.5),
        ):
            assert reference.admit(x, reward) == compiled.admit(x, reward)
        for engine in (reference, compiled):
            for _ in range(2):
                engine.simulate(np.eye(DIM)[0], 0.5, True, 1, 2)
        assert reference.learn(np.eye(DIM)[0], 0.5) == compiled.learn(np.eye(DIM)[0], 0.5) == -9


@pytest.mark.parametrize("key", [0, 7, 2**64 - 1])
def test_random_numbers_are_the_same_bit_for_bit(key: int) -> None:
    for stream in (0, 1, 5_000_000_000, 2**62 | 3):
        for count in (1, 2, 3, 8, 9, 100):
            numbers = np.asarray(core.uniforms(key, stream, count))
            assert (numbers == random.uniforms(key, stream, count)).all()
            zeros = np.zeros(count)
            for noise, drawn in (("gaussian", random.normals), ("laplace", random.laplaces)):
                numbers = np.asarray(core.noise(noise, key, stream, 1.0, zeros))
                assert (numbers == drawn(key, stream, count)).all()
        for index in (0, 1, 2**40):
            assert core.lot(key, stream, index) == random.lot(key, stream, index)


@pytest.mark.parametrize("noise", sorted(NOISES))
def test_noise_is_the_same(noise: str) -> None:
    value = np.linspace(-1.0, 1.0, 15)
    for index in (1, 2, 1000):
        drawn = NOISES[noise].simulate(9, index, 30.0, value)
        assert np.allclose(np.asarray(core.noise(noise, 9, index, 30.0, value)), drawn, rtol=1e-13)
