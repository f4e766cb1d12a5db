"""A bandit started from a log: the exact joint cost over the log's release and all online ones, and
an attack on it.
"""

import math

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.algorithms import registry
from dpbandit.auditor import warm as checks
from dpbandit.auditor.attack import lower_bound
from dpbandit.auditor.scores import scores_of_releases
from dpbandit.logs import enter

pytestmark = pytest.mark.filterwarnings("ignore::dpbandit.errors.PrivacyWarning")

PROVEN = [
    ("tree-gauss", {}),
    ("tree-gauss", {"unit": ("user", 3), "unknown_horizon": True}),
    ("tree-gauss", {"shape": "instruments", "honaker": True, "max_norm": 2.0}),
    ("toeplitz", {"reward_range": (3, 4)}),
    ("toeplitz", {"shape": "ellipsoid", "unknown_horizon": True}),
    ("private-linucb", {}),
    ("private-linucb", {"noise": "laplace-l2", "unit": ("user", 2)}),
    ("private-ts", {}),
    ("adac-oful", {}),
    ("dgs", {}),
    ("dgs", {"noise": "laplace", "unit": ("user", 4)}),
    ("anytime", {"first_release": 3, "knee": 20.0}),
    ("anytime-joint", {"first_release": 3, "knee": 20.0}),
    ("anytime-joint", {"first_release": 2, "knee": 9.0, "unit": ("user", 3), "window": 1.0}),
    (
        "anytime",
        {
            "first_release": 3,
            "knee": 20.0,
            "unit": ("user", 3),
            "max_norm": 3.0,
            "reward_range": (0, 1),
        },
    ),
]


@pytest.mark.parametrize(("name", "options"), PROVEN)
def test_no_logged_or_online_reward_and_no_user_pays_more_than_was_asked_for(name, options):
    result = dpb.verify(name, epsilon=1.5, delta=1e-4, log_rows=24, horizon=12, dim=3, **options)
    assert result.holds, str(result)
    kinds = {case.contexts.split(";")[0] for case in result.cases}
    of_users = {checks.BOTH, checks.WITHIN} if "unit" in options else set()
    assert kinds == {checks.LOGGED, checks.ONLINE} | of_users


class Scripted:
    """Noisy values that no reward has a part in, as somebody sees them who compares two logs."""

    kind = "simulation"

    def release(self, noise, pending, *, scale, shift, index):
        return np.linspace(-1.0, 1.0, len(pending.values))


PRIVATE_FIELDS = {"clipped"}


@pytest.mark.parametrize("backend", ["core", "reference"])
@pytest.mark.parametrize("unit", ["reward", ("user", 2)])
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("tree-gauss", {}),
        ("anytime", {}),
        ("dgs", {}),
        ("adac-oful", {}),
        ("toeplitz", {"shape": "instruments"}),
    ],
)
def test_no_reward_of_a_log_finite_or_not_changes_what_is_public(name, more, unit, backend):
    pa = pytest.importorskip("pyarrow")
    rng = np.random.default_rng(7)
    xs = rng.normal(size=(40, 2)) / 4
    users = [f"u{i % 15}" for i in range(40)]

    def public(reward):
        rewards = np.full(40, 0.25)
        rewards[11] = reward
        table = pa.table({"x": list(xs), "reward": rewards, "user": users})
        options = {"dim": 2, "epsilon": 1.0, "delta": 1e-4, "horizon": 9, "seed": 0} | more
        if more:
            options["public_contexts"] = xs
        bandit = registry.construct(name, {**options, "unit": unit, "backend": backend})
        bandit.source = Scripted()
        source = checks.open_log(table)
        columns = checks.find_columns(source, context="x", reward="reward", user="user")
        sample = checks.peek(source, columns, 1.0)
        log = checks.learn_log(bandit, source, columns, sample=sample, workers=1)
        fields = bandit.engine.fields().items()
        state = {key: field.tolist() for key, field in fields if key not in PRIVATE_FIELDS}
        people = bandit.people.hashes.tolist(), bandit.people.counts.tolist(), bandit.over_cap
        seen = log.to_dict(), str(log), str(bandit.claim), bandit.ledger.to_dict(), people
        return state, seen, bandit.model().to_record()

    first = public(0.5)
    for other in (-0.5, 1e300, math.nan, math.inf, -math.inf):
        assert public(other) == first, other


@pytest.mark.parametrize("backend", ["core", "reference"])
@pytest.mark.parametrize("unit", ["reward", ("user", 2)])
def test_no_context_of_a_log_changes_what_is_public_where_contexts_are_private(unit, backend):
    pa = pytest.importorskip("pyarrow")
    rng = np.random.default_rng(7)
    users = [f"u{i % 15}" for i in range(40)]

    def public(context):
        xs = [*rng.normal(size=(40, 2)) / 8]
        xs[11] = context
        contexts = pa.array([None if x is None else list(x) for x in xs], pa.list_(pa.float64()))
        table = pa.table({"x": contexts, "reward": np.full(40, 0.25), "user": users})
        options = {"dim": 2, "epsilon": 1.0, "delta": 1e-4, "seed": 0, "unit": unit}
        bandit = registry.construct("anytime-joint", {**options, "backend": backend})
        bandit.source = Scripted()
        source = checks.open_log(table)
        names = {"context": "x", "reward": "reward", "user": "user"}
        columns = checks.find_columns(source, **names, dim_given=2, private=True)
        log = checks.learn_log(bandit, source, columns, sample=np.empty((0, 2)), workers=1)
        fields = bandit.engine.fields().items()
        state = {key: field.tolist() for key, field in fields if key not in PRIVATE_FIELDS}
        people = bandit.people.hashes.tolist(), bandit.people.counts.tolist(), bandit.over_cap
        seen = log.to_dict(), str(log), str(bandit.claim), bandit.ledger.to_dict(), people
        return state, seen, bandit.model().to_record()

    first = public([0.5, 0.1])
    for other in (
        [-0.5, 0.5],
        [0, 0],
        [3, 4],
        [math.nan, 0],
        [math.inf, 1],
        [0.1],
        [None, 0.1],
        None,
    ):
        assert public(other) == first, other


def test_nobody_counts_how_long_private_contexts_are():
    pa = pytest.importorskip("pyarrow")
    given = {"epsilon": 1.0, "delta": 1e-6, "reward_range": (0, 1), "seed": 0}

    def log(first):
        chunks = [pa.array([x], pa.list_(pa.float64())) for x in (first, [0.1, 0.2])]
        return pa.table({"context": pa.chunked_array(chunks), "reward": [1.0, 0.0]})

    for first in ([0.1, 0.2], [0.1, 0.2, 0.3], None):
        with pytest.raises(dpb.errors.LogError, match="contexts are private, so nobody counts"):
            dpb.warm_start(log(first), "anytime-joint", **given)
        assert dpb.warm_start(log(first), "anytime-joint", dim=2, **given).dim == 2


def test_an_error_does_not_quote_what_is_in_a_log():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"context": [[0.1, 0.2], ["secret", 0.2]], "reward": [0.0, 1.0]})
    with pytest.raises(dpb.errors.LogError) as found:
        dpb.warm_start(frame, "anytime-joint", dim=2, epsilon=1.0, delta=1e-6)
    assert "secret" not in str(found.value)
    assert found.value.__cause__ is None


def test_a_log_with_private_contexts_finds_what_is_true():
    """A long one, and hardly any noise: θ is found as `anytime` finds it."""
    pa = pytest.importorskip("pyarrow")
    rng = np.random.default_rng(2)
    xs, true = rng.normal(size=(60_000, 3)) / 4, np.array([0.4, -0.3, 0.2])
    xs /= np.maximum(np.linalg.norm(xs, axis=1, keepdims=True), 1.0)
    rewards = 0.5 + xs @ true + rng.uniform(-0.1, 0.1, size=len(xs))
    log = pa.table({"a": xs[:, 0], "b": xs[:, 1], "c": xs[:, 2], "reward": rewards})
    given = {"context": ["a", "b", "c"], "epsilon": 50.0, "delta": 1e-6, "reward_range": (0, 1)}
    for more in ({}, {"window": 1.0}):
        bandit = dpb.warm_start(log, "anytime-joint", seed=0, **given, **more)
        assert np.allclose(bandit.theta, true, atol=0.03)


def test_public_contexts_and_a_log_do_not_go_together_where_contexts_are_private():
    pa = pytest.importorskip("pyarrow")
    log = pa.table({"a": [0.1, 0.2], "reward": [0.0, 1.0]})
    with pytest.raises(dpb.errors.OptionError, match="leave them out"):
        dpb.warm_start(
            log,
            "anytime-joint",
            context=["a"],
            epsilon=1.0,
            delta=1e-6,
            public_contexts=[[0.3]],
        )


@pytest.mark.parametrize("dim", [2, 7])
def test_both_backends_make_the_same_of_a_log_with_private_contexts(dim):
    pa = pytest.importorskip("pyarrow")
    rng = np.random.default_rng(3)
    xs = rng.normal(size=(700, dim)) / (3 * math.sqrt(dim))
    log = pa.table({"x": list(xs), "reward": xs[:, 0] + rng.normal(size=700) / 4})
    given = {"context": "x", "epsilon": 2.0, "delta": 1e-4, "seed": 1, "dim": dim}
    one, two = (
        dpb.warm_start(log, "anytime-joint", backend=b, **given) for b in ("core", "reference")
    )
    for _ in range(2):
        for name, field in two.engine.fields().items():
            assert np.allclose(one.engine.fields()[name], field, rtol=1e-9, atol=1e-9), name
        assert one.ledger.total == two.ledger.total
        for bandit in (one, two):
            bandit.update(xs[:300], xs[:300, 0])
    assert one.theta @ np.eye(dim)[0] > 0.3 * np.abs(one.theta).max() > 0


def test_every_algorithm_that_may_start_from_a_log_is_tried():
    given = {"dim": 2, "epsilon": 1.0, "delta": 1e-4, "horizon": 8, "seed": 0}
    given["smallest_eigenvalue"] = 0.1
    able = set()
    for name, algorithm in dpb.algorithms().items():
        if algorithm.registered_by_user:
            continue
        known = {n: v for n, v in given.items() if n != "smallest_eigenvalue"}
        known |= given if "smallest_eigenvalue" in algorithm.own_options else {}
        if not enter.why_not(registry.construct(name, known)):
            able.add(name)
    assert {name for name, _ in PROVEN} | {"linucb"} == able


@pytest.mark.parametrize(
    ("name", "options"), [("tree-gauss", {}), ("anytime", {}), ("private-linucb", {})]
)
def test_a_logged_reward_uses_its_budget_to_the_full(name, options):
    result = dpb.verify(name, epsilon=1.0, delta=1e-5, log_rows=24, horizon=4, dim=3, **options)
    logged = max(case.ratio for case in result.cases if case.contexts.startswith(checks.LOGGED))
    assert logged == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", ["tree-gauss", "anytime"])
@pytest.mark.parametrize("kind", [checks.LOGGED, checks.ONLINE])
def test_the_attack_finds_nearly_all_of_the_budget_and_no_more(name, kind):
    """The likelihood ratio of the whole transcript, the log's release included.

    False alarms have probability 0.001.
    """
    rows, rounds, delta = 16, 8, 0.1
    given = {"dim": 1, "epsilon": 2.0, "delta": delta, "horizon": rounds, "seed": 0}
    given |= {"first_release": 1, "knee": 2.0, "ratio": 2.0} if name == "anytime" else {}

    def make():
        return registry.construct(name, given)

    changed, users = checks.neighbours(rows, rounds, 0)[kind]
    stream = checks.Stream(np.ones((rows + rounds, 1)), np.full(rows + rounds, -100.0), users, rows)
    other = stream.rewards.copy()
    other[changed] = 100.0
    one = checks.record(make, stream)
    two = checks.record(make, stream._replace(rewards=other), script=one)
    longest = max(
        len(release.value) for release in one.releases
    )  # a log's has nothing that rides along
    values = [
        np.array(
            [np.resize(np.append(it.value, np.zeros(longest)), longest) for it in made.releases]
        )
        for made in (one, two)
    ]
    scales = np.array([release.scale for release in one.releases])
    found = lower_bound(*scores_of_releases("gaussian", *values, scales, runs=60_000), delta=delta)
    assert found.epsilon <= 2.0
    assert found.epsilon > (1.6 if kind == checks.LOGGED or name == "tree-gauss" else 0.5)


def test_nothing_public_depends_on_a_logged_reward_not_even_how_many_were_clipped():
    given = {"dim": 2, "epsilon": 1.0, "delta": 1e-5, "horizon": 4, "seed": 0}
    xs = np.random.default_rng(0).random((20, 2)) / 2
    stream = checks.Stream(xs, np.zeros(20), [f"u{i}" for i in range(20)], 16)
    one = checks.record(lambda: registry.construct("anytime", given), stream)
    far = stream.rewards.copy()
    far[:10] = 1e9
    two = checks.record(
        lambda: registry.construct("anytime", given), stream._replace(rewards=far), script=one
    )
    assert one.public == two.public
    assert not math.isinf(checks.joint_cost(one, two)[0])
