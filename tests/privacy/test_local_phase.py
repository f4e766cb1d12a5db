"""Rewards that are answered by themselves: each pays pure ε once and enters no sum, all others pay μ²."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import dpbandit as dpb
from dpbandit.algorithms.phase import in_blocks, local_phase
from dpbandit.auditor.frozen import freeze
from dpbandit.auditor.watch import Watch
from dpbandit.errors import OptionError
from dpbandit.privacy import opendp
from dpbandit.privacy.accounting import mu_of
from dpbandit.privacy.noise import RESPONSE, find_noise
from dpbandit.privacy.sources import Pending, Real

EPSILON, DELTA = 1.0, 1e-5
WHOLE = mu_of(epsilon=EPSILON, delta=DELTA) ** 2


def make(*, dim=2, seed=0, **given):
    return dpb.make("anytime", dim=dim, epsilon=EPSILON, delta=DELTA, seed=seed, **given)


def slates(rounds, arms=3, features=2):
    """Arms with features of their own: a slate a round."""
    own = np.random.default_rng(1).uniform(0.2, 0.6, size=(rounds, features))
    found = np.zeros((rounds, arms, arms * features))
    for arm in range(arms):
        found[:, arm, features * arm : features * (arm + 1)] = own
    return found


def play(bandit, offered):
    for slate in offered:
        arm = bandit.select(slate)
        bandit.update(slate[arm], float(arm == 1))
    return bandit


def phase(bandit):
    return int(bandit.engine.fields()["central_from"][0])


# ------------------------------------------------------------------------------------ what it costs


@pytest.mark.parametrize("backend", ["core", "reference"])
def test_every_answered_reward_pays_all_of_epsilon_once_and_the_others_what_sums_cost(backend):
    bandit = make(local=5, horizon=40, first_release=1, ratio=1.2, knee=4.0, backend=backend)
    xs = np.tile([[0.6, 0.8]], (40, 1))
    frozen = freeze(bandit, xs)
    places = np.arange(40) if backend == "core" else np.array([0, 4, 5, 6, 39])
    costs = dict(zip(places.tolist(), frozen.costs(places[:, None]), strict=True))
    answered = [cost for place, cost in costs.items() if place < 5]
    assert answered == pytest.approx([WHOLE] * len(answered), rel=1e-12)
    assert max(cost for place, cost in costs.items() if place >= 5) <= WHOLE
    assert costs[5] > 0.9 * WHOLE
    assert not frozen.uses_noise_twice


def test_an_answered_reward_moves_its_own_answer_and_nothing_else():
    frozen = freeze(make(local=5, horizon=30, first_release=1), np.tile([[0.6, 0.8]], (30, 1)))
    for position in range(5):
        change = frozen.neighbour(np.array([position]))
        moved = np.flatnonzero((change.values != frozen.values).any(axis=1))
        assert moved.tolist() == [position]
        assert np.flatnonzero(change.values[position] != frozen.values[position]).tolist() == [0]


def test_the_claim_is_a_pair_and_without_answers_it_is_mu():
    both, sums = make(), make(local="never")
    assert (both.claim.notion, both.claim.mu) == ("parallel", None)
    assert "never both" in str(both.claim)
    assert (sums.claim.notion, sums.claim.mu) == ("gdp", pytest.approx(math.sqrt(WHOLE)))
    known = np.random.default_rng(0).uniform(0.1, 0.5, size=(9, 2))
    assert make(public_contexts=known).claim.notion == "gdp"  # no block can be among them
    assert dpb.make("anytime", dim=2, epsilon=math.inf, delta=DELTA, seed=0).claim.status == "none"


def test_the_ledger_has_a_group_for_answers_and_spends_what_was_claimed():
    bandit = make(local=4, first_release=1)
    for _ in range(4):
        bandit.update([0.6, 0.8], 1.0)
    assert bandit.spent.epsilon == pytest.approx(EPSILON, rel=1e-9)
    assert bandit.spent.mu is None
    for _ in range(60):
        bandit.update([0.6, 0.8], 1.0)
    groups = {row["group"]: row for row in bandit.ledger.table()}
    assert groups[1]["what"] == "answers"
    assert groups[1]["releases"] == 4
    assert groups[0]["what"] == "releases"
    assert bandit.ledger.total <= bandit.ledger.limit * (1 + 1e-12)


def test_units_with_several_rewards_have_none_and_say_so():
    assert make(unit=("user", 3)).claim.notion == "gdp"
    assert make(unit=("user", 1), local=3).claim.notion == "parallel"
    for unit in (("user", 3), ("person", 1.0), ("spread", 2.0)):
        with pytest.raises(OptionError, match="no local phase"):
            make(unit=unit, reward_range=(0, 1), local=3)
    for wrong in ("always", 0, -3, 2.5, True):
        with pytest.raises(OptionError, match="local must be"):
            make(local=wrong)
        with pytest.raises(OptionError, match="local must be"):  # where nothing is private, too
            dpb.make("anytime", dim=2, epsilon=math.inf, delta=DELTA, seed=0, local=wrong)


def history(tmp_path, seed, backend, changed=None, script=None):
    """Slates in blocks and then not, rewards late or never or several, a user twice, and a save."""
    rng = np.random.default_rng(seed)
    end = int(rng.integers(3, 12))
    unit, local = (("user", 1), end) if seed % 2 else ("reward", "blocks")
    given = {"reward_range": (0, 1), "first_release": 1, "ratio": 1.2, "knee": 4.0}
    bandit = make(dim=4, seed=seed, unit=unit, local=local, backend=backend, **given)
    watch = bandit.source = Watch(bandit.source, script)
    arms, count = [], 0
    own = slates(24, arms=2)
    for t in range(24):
        slate = own[t] if t < end else rng.uniform(-0.3, 0.3, size=(3, 4))
        arms.append(bandit.select(slate))
        for reward in rng.uniform(size=rng.integers(0, 3)).tolist():
            if changed is not None and count == changed[0]:
                reward = changed[1]
            user = {"user": [count - (count % 5 == 4)]} if seed % 2 else {}
            bandit.update(slate[arms[-1]][None], [reward], **user)
            count += 1
        if t == 6:
            bandit.source = watch.inner
            bandit.save(tmp_path / "half")
            bandit = dpb.load(tmp_path / "half")
            bandit.source = watch
    return watch.transcript, arms, count


@pytest.mark.parametrize("backend", ["core", "reference"])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_every_reward_of_a_history_is_answered_once_or_summed_and_pays_the_claim(
    tmp_path, seed, backend
):
    dearest = 0.0
    stride = 1 if backend == "core" else 5  # every position of the reference takes a second
    for position in range(0, history(tmp_path, seed, backend)[2], stride):
        one, arms, _ = history(tmp_path, seed, backend, (position, -9.0))
        two, same, _ = history(tmp_path, seed, backend, (position, 9.0), one)
        assert arms == same
        pure, squares = [], 0.0
        for a, b in zip(one.releases, two.releases, strict=True):
            assert (a.noise, a.scale) == (b.noise, b.scale)
            shift = b.value - a.value
            if a.noise is RESPONSE and shift.any():
                pure.append(RESPONSE.cost(shift, a.scale))
            elif a.noise is not RESPONSE:
                squares += float(shift @ shift) / a.scale**2
        assert len(pure) + (squares > 0) <= 1  # none beyond a user's cap
        assert sum(pure) <= EPSILON * (1 + 1e-12)
        assert squares <= WHOLE * (1 + 1e-12)
        dearest = max(dearest, sum(pure))
    assert dearest == pytest.approx(EPSILON, rel=1e-12)


# -------------------------------------------------------------------------------- when there is one


def test_answers_are_asked_where_arms_share_no_feature_until_they_do():
    bandit = make(dim=6)
    length = bandit.spec["local"]
    assert length > 40
    play(bandit, slates(12))
    assert phase(bandit) == length
    assert bandit.ledger.releases == 12
    shared = np.full((1, 2, 6), 0.2)
    bandit.select(shared[0])
    assert phase(bandit) == 12
    bandit.update(shared[0, 0], 1.0)
    assert bandit.ledger.releases == 12
    play(bandit, slates(3))
    assert phase(bandit) == 12  # it does not begin again


@pytest.mark.parametrize("offered", [np.eye(6)[None, :3], np.full((1, 2, 6), 0.3), None])
def test_names_shared_features_and_rewards_of_unknown_slates_are_summed(offered):
    bandit = make(dim=6)
    if offered is not None:
        bandit.select(offered[0])
    bandit.update(np.full(6, 0.3), 1.0)
    assert phase(bandit) == 0
    assert bandit.ledger.releases == 0
    assert bandit.claim.notion == "parallel"


def test_public_contexts_say_whether_there_are_blocks():
    blocks = slates(4).reshape(-1, 6)
    assert in_blocks(blocks)
    assert not in_blocks(np.eye(6))
    assert not in_blocks(np.vstack([blocks, np.full((1, 6), 0.1)]))
    assert make(dim=6, public_contexts=blocks).claim.notion == "parallel"


def test_a_log_counts_as_summed():
    rng = np.random.default_rng(0)
    rows = slates(30).reshape(-1, 6)
    log = pd.DataFrame({"context": list(rows), "reward": rng.uniform(size=len(rows))})
    given = {"epsilon": EPSILON, "delta": DELTA, "seed": 0, "reward_range": (0, 1)}
    bandit = dpb.warm_start(log, "anytime", **given)
    assert phase(bandit) == 0
    play(bandit, slates(4))
    assert bandit.ledger.groups.keys().isdisjoint({1})


def test_equations_that_wait_are_read_when_a_slate_ends_the_phase():
    bandit = make(dim=6, first_release=1, backend="reference")
    play(bandit, slates(70))
    waiting = int(bandit.engine.fields()["local_waiting"][0])
    assert waiting > 0
    before = np.array(bandit.engine.fields()["information_root"])
    bandit.select(np.full((2, 6), 0.2))
    bandit.update(np.full(6, 0.2), 1.0)
    assert int(bandit.engine.fields()["local_waiting"][0]) == 0
    assert (np.array(bandit.engine.fields()["information_root"]) != before).any()


@pytest.mark.parametrize("backend", ["core", "reference"])
def test_a_saved_bandit_goes_on_in_the_middle_of_the_phase(tmp_path, backend):
    offered = slates(30)
    whole = play(make(dim=6, backend=backend), offered)
    half = play(make(dim=6, backend=backend), offered[:13])
    half.save(tmp_path / "half")
    again = play(dpb.load(tmp_path / "half"), offered[13:])
    assert (again.theta == whole.theta).all()
    assert again.spent == whole.spent


def test_a_matching_context_alone_teaches_about_as_much_as_its_variance_says():
    """Regression on answers finds the parameter, to within what their number allows."""
    n, truth = 4000, np.array([0.8, 0.3])
    errors = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        bandit = dpb.make(
            "anytime", dim=2, epsilon=3.0, delta=1e-5, seed=seed, local=n, reward_range=(0, 1),
            memories=(), window=0.5,
        )  # fmt: skip
        for x in np.eye(2)[rng.integers(2, size=n)]:
            bandit.update(x, float(rng.random() < x @ truth))
        errors.append((bandit.theta - truth) @ [1.0, -1.0])  # an intercept has what both share
    sd = math.sqrt(2 * bandit.spec["local_variance"] / (n / 2))
    assert abs(np.mean(errors)) < 4 * sd / math.sqrt(12)
    assert 0.4 * sd < np.std(errors) < 1.7 * sd


# ------------------------------------------------------------------------------------- the answers


def test_an_answer_has_the_mean_and_costs_what_is_said():
    scale = RESPONSE.multiplier(EPSILON, 1)
    assert RESPONSE.share(scale) == pytest.approx(EPSILON, rel=1e-12)
    up = 0.5 + np.array([-0.5, 0.5]) / scale  # the chance of +, at either end
    assert math.log(up[1] / up[0]) == pytest.approx(EPSILON, rel=1e-12)
    for v0, v1 in ((-0.5, 0.5), (-0.2, 0.5), (0.1, 0.1), (-0.5, -0.1)):
        ends = [np.array([v0]), np.array([v1])]
        ratios = [RESPONSE.log_ratio(np.array([y]), *ends, scale) for y in (scale / 2, -scale / 2)]
        cost = RESPONSE.cost(ends[1] - ends[0], scale)
        assert max(map(abs, ratios)) <= cost * (1 + 1e-12)
        assert cost <= EPSILON * (1 + 1e-12)
    drawn = [RESPONSE.simulate(5, index, scale, np.array([0.3]))[0] for index in range(4000)]
    assert set(np.abs(drawn)) == {scale / 2}
    assert np.mean(drawn) == pytest.approx(0.3, abs=5 * scale / 2 / math.sqrt(4000))
    assert find_noise("response") is RESPONSE
    with pytest.raises(OptionError, match="not possible here"):
        make(noise="response")


@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.parametrize("epsilon", [8.0, 14.0, 18.0, 18.3, 20.0])
def test_at_a_large_epsilon_an_answer_costs_no_more_than_was_claimed(epsilon, seed):
    """Nearest 1 a step of B is much of ε: rounded to the nearest, every answer could be refused."""
    given = {"local": 2, "first_release": 1, "reward_range": (0, 1)}
    bandit = dpb.make("anytime", dim=2, epsilon=epsilon, delta=DELTA, seed=seed, **given)
    for _ in range(4):
        bandit.update([0.6, 0.8], 1.0)
    assert bandit.spent.epsilon == epsilon
    assert bandit.ledger.groups[1]["answers"].releases == 2


def test_no_scale_costs_more_than_its_budget():
    sizes = np.exp(np.random.default_rng(0).uniform(math.log(1e-9), math.log(2000.0), size=2000))
    for epsilon in (*sizes.tolist(), 37.0, 1e-300):
        scale = RESPONSE.multiplier(epsilon, 1)
        assert scale > 1
        assert RESPONSE.share(scale) <= epsilon
        if epsilon < 20:
            assert RESPONSE.share(scale) == pytest.approx(epsilon, rel=1e-8)


def test_real_answers_are_opendps_and_its_proof_is_asked_before():
    scale = RESPONSE.multiplier(EPSILON, 1)
    sampler = opendp.response(scale)
    assert EPSILON * (1 - 1e-10) < sampler.cost <= EPSILON
    one, source = 1 << 40, Real()
    pending = Pending(np.array([0.3]), [round(0.3 * one)])
    drawn = [
        source.release(RESPONSE, pending, scale=scale, shift=1.0, index=1)[0] for _ in range(3000)
    ]
    assert set(np.abs(drawn)) == {scale / 2}
    # One run in 10⁶ is further off by chance.
    assert np.mean(drawn) == pytest.approx(0.3, abs=5 * scale / 2 / math.sqrt(3000))
    with pytest.raises(dpb.errors.NoiseError, match="more than"):
        source.release(RESPONSE, pending, scale=scale, shift=0.5, index=1)
    with pytest.raises(dpb.errors.NoiseError, match="whole number"):
        source.release(RESPONSE, Pending(np.array([0.3])), scale=scale, shift=1.0, index=1)
    outside = pending._replace(whole=[one])
    with pytest.raises(dpb.errors.NoiseError, match="outside its range"):
        source.release(RESPONSE, outside, scale=scale, shift=1.0, index=1)


def test_a_value_is_rounded_to_an_end_by_an_exact_lot():
    assert not any(opendp.one_of(0, 8) for _ in range(200))
    assert all(opendp.one_of(8, 8) for _ in range(200))
    assert sum(opendp.one_of(3, 8) for _ in range(4000)) == pytest.approx(1500, abs=150)


def test_the_shipped_object_with_real_noise_answers_and_sums():
    bandit = make(seed=None, local=6, first_release=1, reward_range=(0, 1))
    for _ in range(12):
        bandit.update([0.6, 0.8], 1.0)
    assert bandit.claim.noise == "real"
    assert bandit.ledger.groups[1]["answers"].releases == 6
    assert np.isfinite(bandit.theta).all()


def test_a_phase_longer_than_the_stream_is_verified_and_attacked():
    given = {"epsilon": EPSILON, "horizon": 24, "local": 500}
    found = dpb.verify("anytime", delta=DELTA, dim=2, tries=2, **given)
    assert found.holds
    assert found.worst.ratio == pytest.approx(1, rel=1e-6)
    assert dpb.audit("anytime", delta=0.1, runs=200, seed=1, **given).holds


def test_the_attack_on_answers_finds_nearly_all_of_epsilon_and_no_more():
    given = {"epsilon": 2.0, "delta": 0.1, "horizon": 24, "seed": 1}
    result = dpb.audit("anytime", runs=6_000, local=6, **given)  # 99.9%
    assert result.holds, str(result)
    assert result.bound.epsilon > 1.5


def test_length_follows_what_an_answer_teaches():
    """Twice the rounds at which an answer teaches as much as a sum of as many would."""
    options = dpb.make("anytime", dim=90, epsilon=1.0, delta=1e-6, seed=0, reward_range=(0, 1))
    found = local_phase(options.options, numbers=91, budget=mu_of(epsilon=1.0, delta=1e-6))
    variance = 1 / math.tanh(0.5) ** 2 / 4
    assert found.rounds == pytest.approx(2 * 91 / (0.236704**2 * variance), abs=2)
    assert options.spec["local"] == pytest.approx(found.rounds, abs=1)
