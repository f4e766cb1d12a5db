"""A shadow and a holdout: what both cost together with learning, exactly, and what they say."""

import math
from dataclasses import replace

import numpy as np
import pytest
from stretches import DELTA, EPSILON, FULL, NONE, config_of, cost, held_of, released, rounds_of

from dpbandit.errors import OptionError
from dpbandit.privacy.accounting import delta_of
from dpbandit.privacy.grid import GRID_SHARE
from dpbandit.service import blueprint
from dpbandit.service.measure import (
    HOLDOUT,
    SHADOW,
    WEIGHT_STEPS,
    Measure,
    estimates,
    measure_for,
    weight_of,
)
from dpbandit.service.trusted import StreamError

rng = np.random.default_rng(20_001)
KINDS = [
    (int(rng.integers(WEIGHT_STEPS + 1)), None) if rng.random() < 0.3 else (None, int(w))
    for w in rng.choice([0, WEIGHT_STEPS // 3, WEIGHT_STEPS], 60)
]
REWARDS = rng.random(60).round(3).tolist()


@pytest.mark.parametrize("algorithm", ["tree-gauss", "private-linucb"])
def test_one_reward_costs_what_was_set_aside_and_no_more(algorithm):
    config = config_of(algorithm, horizon=64)
    dearest = 0.0
    for at in (0, 3, 4, 5, 31, 58):
        low, high = ([*REWARDS[:at], r, *REWARDS[at + 1 :]] for r in (-3.0, 9.0))
        streams = (rounds_of(rewards, kinds=KINDS) for rewards in (low, high))
        paid, may, claim, account = cost(config, *streams)
        dearest = max(dearest, paid)
        assert paid <= may * (1 + 1e-12)
    # At full weight nothing is wasted, in either of the two sums.
    for weights in (FULL, NONE):
        streams = (rounds_of([r] * 5, kinds=[weights] * 5) for r in (0.0, 0.0))
        one, other = streams
        other[2] = other[2]._replace(reward=1.0)
        paid, may, claim, account = cost(config, one, other)
        assert paid == pytest.approx(may, rel=1e-6)
        dearest = max(dearest, paid)
    assert dearest <= may * (1 + 1e-12)
    assert claim["epsilon"] == EPSILON
    assert account["spent"]["epsilon"] <= EPSILON
    assert account["remaining"]["left"] >= 0
    assert account["ledger"][-1]["releases"] == 1


def test_learning_and_measuring_together_stay_within_the_claim():
    for share in (0.001, 0.1, 0.9):
        config = config_of(measure_share=share)
        held, claim = held_of(config)
        mu = math.hypot(held.bandit.claim.mu, math.sqrt(held.measure.cost))
        assert mu <= claim["mu"] * (1 + 1e-12)
        assert mu == pytest.approx(claim["mu"], rel=1e-6)
        assert delta_of(epsilon=EPSILON, mu=mu) + GRID_SHARE * DELTA <= DELTA * (1 + 1e-9)
        assert claim["delta"] == DELTA
        assert "shadow or a holdout" in claim["words"]
    pure = config_of("private-linucb", horizon=64, measure_share=0.25)
    held, claim = held_of(pure)
    assert held.bandit.claim.epsilon + held.measure.cost <= EPSILON
    assert held.measure.cost == pytest.approx(0.25 * EPSILON)
    assert claim["epsilon"] == EPSILON


@pytest.mark.parametrize("algorithm", ["tree-gauss", "private-linucb"])
@pytest.mark.parametrize("cap", [1, 4])
def test_a_user_costs_what_the_cap_allows(algorithm, cap):
    config = config_of(algorithm, horizon=64, unit=("user", cap))
    people = [b"ann" if at % 2 else b"bob%d" % at for at in range(40)]
    kinds = [FULL] * 40
    one = rounds_of([0.0] * 40, kinds=kinds, people=people)
    other = [r._replace(reward=float(r.person == b"ann")) for r in one]
    paid, may, _, _ = cost(config, one, other)
    assert 0 < paid <= may * (1 + 1e-12)
    # All of a user's rewards in one stretch are the worst that there is.
    people = [b"ann"] * cap + [b"bob%d" % at for at in range(5 - cap)]
    one = rounds_of([0.0] * 5, kinds=kinds[:5], people=people)
    other = [r._replace(reward=float(r.person == b"ann")) for r in one]
    paid, may, _, _ = cost(config, one, other)
    assert paid == pytest.approx(may, rel=1e-6)


def test_what_is_not_learned_is_not_measured():
    config = config_of(unit=("user", 2), measure_every=1)
    stream = rounds_of([1.0] * 6, kinds=[FULL] * 6, people=[b"ann"] * 5 + [b"bob"])
    stream[2] = stream[2]._replace(context=b"")  # erased, or never shown
    held, _, seen, account = released(config, stream)
    assert len(seen) == 3  # two of Ann's, one of Bob's
    assert held.bandit.rounds == 3
    assert account["measured"]["told"][HOLDOUT]["rounds"] == 3


def test_an_attacker_with_all_releases_gains_no_more_than_the_claim():
    """The likeliest of two worlds, from the released sum, 8,000 times: the advantage stays below
    that of the claim's trade-off, by four standard errors."""
    from statistics import NormalDist

    from dpbandit.privacy.noise import find_noise

    config = config_of()
    held, _ = held_of(config)
    measure = held.measure
    whole = np.array([measure.shift, 0.0])  # how far one reward at full weight moves a sum
    noise, right = find_noise("gaussian"), 0
    tries = 8_000
    for number in range(tries):
        secret = number % 2
        noisy = noise.simulate(77, number + 1, measure.scale, secret * whole)
        right += (noisy[0] > whole[0] / 2) == bool(secret)
    mu = math.sqrt(measure.cost)
    best = NormalDist().cdf(mu / 2)
    assert right / tries <= best + 4 * math.sqrt(0.25 / tries)
    assert right / tries >= best - 4 * math.sqrt(0.25 / tries)  # and it is no weaker than meant


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_intervals_cover(noise):
    """200 drawn runs each: shadow means, self-normalised weights, lifts; 95% should be covered."""
    draw = np.random.default_rng(20_002)
    inside = {"shown": 0, "would": 0, "lift": 0}
    runs, rounds = 200, 3_000

    class Fast:
        def release(self, name, pending, *, scale, shift, index):
            if name == "laplace":
                return pending.values + draw.laplace(0, scale, 2)
            return pending.values + draw.normal(0, scale, 2)

    algorithm = "tree-gauss" if noise == "gaussian" else "private-linucb"
    config = config_of(algorithm, horizon=8_192, measure_every=500)
    made = blueprint.draft(config, allow_unproven=False)
    whole = replace(made.claim, epsilon=EPSILON, delta=config["delta"] or 0.0)
    start = measure_for(made, whole, every=500, share=0.1)
    shown_at = np.array([0.7, 0.2, 0.1])  # what the other system shows, and how often
    means = np.array([0.3, 0.6, 0.5])
    for _ in range(runs):
        measure = Measure.from_text(start.to_text())
        arms = draw.choice(3, size=rounds, p=shown_at)
        clicks = draw.random(rounds) < means[arms]
        for arm, click in zip(arms, clicks, strict=True):
            weight = weight_of(float(shown_at[arm])) if arm == 1 else 0  # it would show arm 1
            for kind, w in ((SHADOW, weight), (HOLDOUT, WEIGHT_STEPS * int(arm == 0))):
                if measure.learned(kind, w, float(click), 0.0, 1.0):
                    measure.release(kind, Fast(), 1)
        said = estimates(measure.public(), 0.0, 1.0)
        for name, part, truth in (
            ("shown", said[SHADOW]["shown"], float(shown_at @ means)),
            ("would", said[SHADOW]["would_have_earned"], 0.6),
            ("lift", said[HOLDOUT]["lift"], float(means[1:] @ shown_at[1:] / 0.3) - 0.3),
        ):
            inside[name] += part["low"] <= truth <= part["high"]
    # 94% less four standard errors
    least = 0.94 - 4 * math.sqrt(0.94 * 0.06 / runs)
    assert all(count / runs >= least for count in inside.values()), inside
    assert abs(said[SHADOW]["agreement"] - 0.2) < 0.05


def test_a_round_counts_for_one_kind_alone():
    """For both it would cost √2 of what was set aside: the learner stops, and nothing is told."""
    config = config_of(measure_every=1)
    with pytest.raises(StreamError, match="decision 2 counts for a shadow and for a holdout"):
        released(config, rounds_of([1.0] * 3, kinds=[FULL, (WEIGHT_STEPS, 0), FULL]))


def test_grids_are_paid_at_the_epsilon_of_both():
    """The smallest δ at which this algorithm's grid is fine enough at the joint ε. The learner has
    less of ε, where its grid counts for less, so that it alone would be made; and a thousandth of
    what grids may take is the stretches'."""
    config = config_of("toeplitz", horizon=None, epsilon=8.0, measure_share=0.5)
    alone = {name: config[name] for name in config if name not in ("holdout", "measure_share")}
    low, high = 1e-30, 0.5
    for _ in range(60):
        middle = math.sqrt(low * high)
        try:
            blueprint.build({**alone, "delta": middle})
            high = middle
        except OptionError:
            low = middle
    blueprint.build({**alone, "epsilon": 5.0, "delta": high / 10})
    with pytest.raises(OptionError, match="too small for real noise"):
        blueprint.build({**config, "delta": high})
    blueprint.build({**config, "delta": high * 1.002})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algorithm": "anytime-joint"}, "protects contexts"),
        ({"algorithm": "random", "epsilon": None, "delta": None}, "proven claim"),
        ({"unit": ("person", 2)}, "no shadow and no holdout"),
        ({"holdout": 0.6}, "from 0 to 0.5"),
        ({"measure_share": 0.0}, "measure_share"),
        ({"measure_every": 0}, "measure_every"),
        ({"holdout": 0.0}, "for a shadow or a holdout"),
        ({"algorithm": "anytime", "options": {"local": 4}}, "parallel, proven; give local='never'"),
        # With the whole budget it would answer no reward, with what is left of it some.
        (
            {"algorithm": "anytime", "dim": 1, "options": {"local": "blocks"}, "horizon": 50}
            | {"epsilon": 16.0, "delta": 0.05, "measure_share": 0.5},
            "parallel, proven; give local='never'",
        ),
    ],
)
def test_what_cannot_be_is_refused(change, words):
    def make():
        config = config_of(**change)
        return blueprint.records(blueprint.draft(config, allow_unproven=True), config)

    with pytest.raises(OptionError, match=words):
        make()
