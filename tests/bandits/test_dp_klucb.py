"""DP-KL-UCB against the same done by hand, its bound against exact tails, and its exact price."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

import dpbandit as dpb
from dpbandit.auditor.watch import record
from dpbandit.errors import OptionError
from dpbandit.learners.batches import upper
from dpbandit.privacy.grid import STEP
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.reference.random import NOISE, derive_key, laplaces, normals

ARMS = 4
VARIANTS = [
    {},
    {"noise": "gaussian"},
    {"horizon": None, "first_release": 2},
    {"ratio": 3.0, "alpha": 0.5, "reward_range": (-3, 1)},
    {"reward_variance": 0.04, "noise": "gaussian", "horizon": None},
    {"epsilon": math.inf},
]


def make(**given):
    usual = {"dim": ARMS, "epsilon": 2.0, "delta": 1e-3, "horizon": 300, "seed": 5}
    return dpb.make("dp-klucb", **(usual | {"reward_range": (0, 1)} | given))


def play(bandit, rng, rounds):
    """Rounds with a changing choice of arms; returns (arm, reward, arms offered)."""
    low, high = bandit.options.reward_range
    history = []
    for _ in range(rounds):
        offered = rng.permutation(ARMS)[: rng.integers(2, ARMS + 1)]
        x = np.eye(ARMS)[offered]
        chosen = bandit.select(x)
        reward = low + (high - low) * float(rng.random() < (offered[chosen] + 1) / (ARMS + 1))
        bandit.update(x[chosen], reward)
        history.append((int(offered[chosen]), reward, set(offered.tolist())))
    return history


class ByHand:
    """Lists of rewards; the largest mean whose Chernoff exponent is small enough, by SciPy."""

    def __init__(self, bandit):
        given = self.given = bandit.options
        self.gaussian, self.alpha = bandit.noise.name == "gaussian", given.alpha or 1.0
        budget = given.epsilon
        if self.gaussian:
            budget = dpb.budget.mu_of(epsilon=given.epsilon, delta=given.delta)
        self.scale = on_grid(1.0, dim=1, norm=2) / budget
        deviations = 1.0 if self.gaussian else math.sqrt(2)
        self.first = given.own("first_release", None) or max(1, round(8 * deviations / budget))
        self.ratio, self.key = given.own("ratio", 1.25), derive_key(given.seed, NOISE)
        self.rewards = [[] for _ in range(ARMS)]
        self.ends = [[0] for _ in range(ARMS)]
        self.noise = [[] for _ in range(ARMS)]
        self.t = 0

    def learn(self, arm, reward):
        low, high = self.given.reward_range
        self.rewards[arm].append((reward - low) / (high - low))
        self.t += 1
        last, n = self.ends[arm][-1], len(self.rewards[arm])
        if n == max(last + self.first, math.ceil(last * self.ratio)):
            draw = normals if self.gaussian else laplaces
            self.noise[arm].append(self.scale * draw(self.key, self.t, 1)[0])
            self.ends[arm].append(n)

    def mean(self, arm):
        n = self.ends[arm][-1]
        return (sum(self.rewards[arm][:n]) + sum(self.noise[arm])) / n if n else 0.0

    def exponent(self, arm, y):
        """−log of Chernoff's bound on P(a released mean so low | the true one is y)."""
        n, m, x = self.ends[arm][-1], len(self.noise[arm]), self.mean(arm)
        variance = self.given.own("reward_variance", 0.0)

        def negative(rate):
            s = rate * self.scale
            noise = 0.5 * s * s if self.gaussian else -math.log1p(-s * s)
            rewards = 0.5 * variance * rate**2 - rate * y
            if not variance:
                rewards = math.log(1 - y + y * math.exp(-rate))
            return rate * n * x + n * rewards + m * noise

        most = 64.0 if self.gaussian or not self.scale else min(64.0, (1 - 1e-12) / self.scale)
        found = optimize.minimize_scalar(negative, bounds=(0, most), options={"xatol": 1e-10})
        return -min(found.fun, negative(most))

    def index(self, arm):
        n = self.ends[arm][-1]
        if not n:
            return math.inf
        rounds = self.given.horizon / ARMS if self.given.horizon else 2 ** self.t.bit_length()
        log, least = self.alpha * math.log(max(rounds / n, 1)), min(max(self.mean(arm), 0), 1)
        high = 1.0 if self.given.own("reward_variance", 0.0) else 1 - 1e-15
        if log == 0 or self.exponent(arm, least) >= log:
            return least
        if self.exponent(arm, high) <= log:
            return 1.0
        return optimize.brentq(lambda y: self.exponent(arm, y) - log, least, high, xtol=1e-13)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("backend", ["core", "reference"])
def test_choices_means_and_indices_are_those_of_the_algorithm_done_by_hand(options, backend):
    bandit = make(backend=backend, **options)
    hand, rng = ByHand(bandit), np.random.default_rng(1)
    low, high = bandit.options.reward_range
    for _ in range(60):
        ((arm, reward, offered),) = play(bandit, rng, 1)
        scores = {a: hand.index(a) for a in offered}
        assert scores[arm] >= max(scores.values()) - 1e-7
        hand.learn(arm, reward)
        for more, paid, _ in play(bandit, rng, 3):
            hand.learn(more, paid)
    means = np.clip([hand.mean(a) for a in range(ARMS)], 0, 1)
    known = [bool(ends[1:]) for ends in hand.ends]
    np.testing.assert_allclose(bandit.theta[known], (low + (high - low) * means)[known], atol=1e-9)
    indices = bandit.theta + np.sqrt(np.diag(bandit.engine.model()["matrix"]))
    expected = low + (high - low) * np.array([hand.index(a) for a in range(ARMS)])
    np.testing.assert_allclose(indices[known], expected[known], atol=1e-7)
    assert bandit.engine.fields()["shown"].tolist() == [ends[-1] for ends in hand.ends]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("n", "mean", "log", "scale"), [(20, 0.3, 3, 1), (400, 0.85, 6, 4), (60, -0.02, 2, 2)]
)
def test_a_mean_above_the_bound_shows_so_low_a_sum_with_less_than_its_probability(
    n, mean, log, scale, noise
):
    """Exactly, for one release: a binomial sum, and noise."""
    top = upper(n, 1, mean, float(log), noise, float(scale), 0.0)
    law = {"laplace": stats.laplace, "gaussian": stats.norm}[noise](scale=scale)
    sums = np.arange(n + 1)
    for y in (top, (top + 1) / 2):
        chance = stats.binom.pmf(sums, n, y) @ law.cdf(n * mean - sums)
        assert chance <= math.exp(-log)
    # and it is not idle: far below it so low a sum is likely
    likely = stats.binom.pmf(sums, n, max(mean, 0.0)) @ law.cdf(n * mean - sums)
    assert likely > 2 * math.exp(-log)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_every_reward_pays_for_one_batch_exactly_and_for_nothing_else(noise):
    """The cost of each reward over all releases, in whole numbers, against what a batch costs."""
    xs = np.eye(2)[np.array([0, 0, 1] * 20)]
    ends = {2: [4, 8, 12, 18], 1: [4, 8, 12, 18, 27]}  # of the second arm, and of the first
    low, high = np.full(60, 0.25), np.full(60, -1.0)

    def new():
        given = {"dim": 2, "first_release": 4, "ratio": 1.5, "noise": noise}
        return make(**given, reward_range=(-1, 1))

    first = record(new, xs, low)
    assert len(first.releases) == 4 + 5
    for k in range(60):
        other = low.copy()
        other[k] = high[k]
        second = record(new, xs, other, script=first)
        moved = [
            (b.pending.whole[0] - a.pending.whole[0]) * STEP
            for a, b in zip(first.releases, second.releases, strict=True)
        ]
        arm = int(xs[k, 1])
        pull = int(xs[: k + 1, arm].sum())
        shown = pull <= ends[1 + arm][-1]
        assert [round(shift, 9) for shift in moved if shift] == [-0.625] * shown
        assert [a.scale for a in first.releases] == [b.scale for b in second.releases]
        assert [a.index for a in first.releases] == [b.index for b in second.releases]


def test_what_nobody_was_shown_was_not_spent_and_then_all_is():
    bandit = make(first_release=4)
    bandit.update(np.eye(ARMS)[[0, 0, 0, 1, 2, 3]], [1.0] * 6)
    assert bandit.spent.epsilon == 0
    assert (bandit.theta == 0).all()
    bandit.update(np.eye(ARMS)[0], 1.0)
    assert bandit.spent.epsilon == pytest.approx(2.0, rel=1e-9)
    bandit.update(np.eye(ARMS)[[0, 1, 2, 3] * 20], [1.0] * 80)
    assert bandit.spent.epsilon == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize("options", VARIANTS[:3], ids=str)
def test_a_loaded_bandit_goes_on_and_an_exported_model_has_its_indices(options, tmp_path):
    bandit = make(**options)
    play(bandit, np.random.default_rng(0), 77)
    bandit.save(tmp_path / "bandit.npz")
    copy = dpb.load(tmp_path / "bandit.npz")
    assert play(bandit, np.random.default_rng(9), 60) == play(copy, np.random.default_rng(9), 60)
    assert (copy.claim, copy.ledger) == (bandit.claim, bandit.ledger)
    bandit.export(tmp_path / "model.json")
    model = dpb.load(tmp_path / "model.json")
    assert (model.theta == bandit.theta).all()
    assert (model.view.matrix == bandit.engine.model()["matrix"]).all()


def test_it_learns_many_times_faster_than_trees():
    """At T = 10⁴ private-ucb has some 1,100: ten standard errors of 8 seeds lie in between."""
    world = dpb.worlds.Bernoulli(means=np.linspace(0.1, 0.9, 10))
    given = {"epsilon": 1.0, "reward_range": (0, 1)}
    found = dpb.run(world, ["dp-klucb"], horizon=10_000, seeds=range(10_000, 10_008), **given)
    assert found.summary()["regret"].item() < 300


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": "laplace-l2"}, "noise 'laplace-l2' is not possible here"),
        ({"pan_private": True}, "has no pan-private form"),
        ({"context_noise": 0.1}, "no context_noise"),
        ({"max_norm": 0.5}, "max_norm ≥ 1"),
        ({"first_release": 0}, "first_release must be"),
        ({"ratio": 1.0}, "ratio must lie above 1"),
        ({"reward_variance": 0.0}, "reward_variance must be"),
        ({"privacy_bonus": 1}, "privacy_bonus"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(OptionError, match=words):
        make(**options)
