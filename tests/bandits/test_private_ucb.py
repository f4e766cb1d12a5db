"""Private UCB against a brute-force reading of the paper, and what one-hot contexts allow and forbid."""

import math

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.engine import new_engine
from dpbandit.errors import BudgetError, OptionError, ShapeError
from dpbandit.privacy.sensitivity import on_grid
from dpbandit.reference.random import NOISE, derive_key, laplaces, normals

ARMS = 4
VARIANTS = [
    {},
    {"horizon": None},
    {"noise": "gaussian"},
    {"noise": "gaussian", "horizon": None, "alpha": "theory"},
    {"alpha": "theory"},
    {"alpha": "theory", "horizon": None},
    {"alpha": "theory", "split_budget": True, "epsilon": 40.0},
    {"noise": "gaussian", "split_budget": True},
    {"alpha": 0.7, "privacy_bonus": 0},
    {"alpha": 0.0, "privacy_bonus": 2.5, "reward_range": (-3, 1), "unit": ("user", 2)},
    {"epsilon": math.inf},
]


def make(**given):
    options = {
        "dim": ARMS,
        "epsilon": 2.0,
        "delta": 1e-3,
        "horizon": 300,
        "reward_range": (0, 1),
        "seed": 5,
    } | given
    return dpb.make("private-ucb", **options)


def play(bandit, rng, rounds):
    """Rounds with a changing choice of arms; returns (arm, reward, arms offered)."""
    low, high = bandit.options.reward_range
    history = []
    for t in range(rounds):
        offered = rng.permutation(bandit.dim)[: rng.integers(2, bandit.dim + 1)]
        x = np.eye(bandit.dim)[offered]
        chosen = bandit.select(x)
        reward = low + (high - low) * float(rng.random() < (offered[chosen] + 1) / (bandit.dim + 1))
        user = {} if bandit.options.unit == "reward" else {"user": f"user {t}"}
        bandit.update(x[chosen], reward, **user)
        history.append((int(offered[chosen]), reward, set(offered.tolist())))
    return history


class ByHand:
    """The paper's algorithm with lists: every node is a pair of ends, every sum is added up again."""

    def __init__(self, bandit):
        given, self.gaussian = bandit.options, bandit.noise.name == "gaussian"
        self.horizon, self.dim = given.horizon, given.dim
        self.alpha = 1.0 if given.alpha == "theory" else 0.3 if given.alpha is None else given.alpha
        self.bonus = given.own("privacy_bonus", "theory" if given.alpha == "theory" else 0.75)
        low, high = given.reward_range
        self.width, self.gamma = high - low, given.zeta
        self.margin = on_grid(1.0, dim=1, norm=2)
        budget = given.epsilon / given.moves_per_unit
        if self.gaussian:
            budget = (
                dpb.budget.mu_of(epsilon=given.epsilon, delta=given.delta) / given.moves_per_unit
            )
        if given.own("split_budget", False):
            budget = budget / (math.sqrt(self.dim) if self.gaussian else self.dim)
        self.budget, self.key = budget, derive_key(given.seed, NOISE)
        self.rewards = [[] for _ in range(self.dim)]
        self.nodes = [{} for _ in range(self.dim)]  # (first, last) → noisy sum
        self.t = 0

    def scale(self, levels):
        return (
            (math.sqrt(levels) if self.gaussian else levels)
            * self.width
            * self.margin
            / self.budget
        )

    def block(self, n):
        """(start, levels) of the tree that pull n belongs to."""
        if self.horizon is not None:
            return 0, int(math.log2(self.horizon)) + 1
        b = int(math.log2(n))
        return 2**b - 1, b + 1

    def in_use(self, n):
        """The nodes that make up the sum of n pulls, each with the levels that share its budget."""
        if n == 0:
            return []
        start, levels = self.block(n)
        nodes = []
        if self.horizon is None:
            nodes = [((2**b, 2 ** (b + 1) - 1), b + 1) for b in range(levels - 1)]
        end = start
        for bit in reversed(range(levels)):
            if (n - start) >> bit & 1:
                nodes.append(((end + 1, end + 2**bit), levels))
                end += 2**bit
        return nodes

    def learn(self, arm, reward):
        self.t += 1
        self.rewards[arm].append(reward)
        n = len(self.rewards[arm])
        (first, last), levels = self.in_use(n)[-1]
        assert last == n
        draw = (normals if self.gaussian else laplaces)(self.key, self.t, 1)[0]
        self.nodes[arm][first, last] = (
            sum(self.rewards[arm][first - 1 : last]) + self.scale(levels) * draw
        )

    def mean(self, arm):
        n = len(self.rewards[arm])
        return sum(self.nodes[arm][node] for node, _ in self.in_use(n)) / n if n else 0.0

    def privacy_term(self, n):
        nodes = self.in_use(n)
        if self.bonus != "theory":
            log = math.log(self.t + 1)
            tail = math.sqrt(2 * log) if self.gaussian else log
            return (
                self.bonus * tail * math.sqrt(sum(self.scale(levels) ** 2 for _, levels in nodes))
            )
        # as many nodes as the running tree can have in use, and one for every finished block
        _, running = self.block(n)
        scales = [self.scale(running)] * running
        if self.horizon is None:
            scales += [self.scale(b) for b in range(1, running)]
        rounds = self.horizon or self.t + 1
        levels = int(math.log2(rounds)) + 1
        if self.gaussian:
            return math.sqrt(
                sum(s * s for s in scales) * 2 * math.log(2 * self.dim * rounds / self.gamma)
            )
        return sum(scales) * math.log(self.dim * rounds * levels / self.gamma)

    def index(self, arm):
        n = len(self.rewards[arm])
        if n == 0:
            return math.inf
        explore = self.alpha * self.width * math.sqrt(2 * math.log(self.t + 1) / n)
        return self.mean(arm) + explore + self.privacy_term(n) / n


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_choices_and_means_are_those_of_the_algorithm_done_by_hand(options):
    bandit = make(**options)
    hand = ByHand(bandit)
    for arm, reward, offered in play(bandit, np.random.default_rng(1), 300):
        scores = {a: hand.index(a) for a in offered}
        assert scores[arm] >= max(scores.values()) - 1e-9
        hand.learn(arm, reward)
    np.testing.assert_allclose(
        bandit.theta, [hand.mean(a) for a in range(ARMS)], rtol=1e-8, atol=1e-12
    )
    assert bandit.engine.fields()["pulls"].tolist() == [len(r) for r in hand.rewards]


def test_the_means_are_right_after_every_single_round():
    bandit = make(horizon=None)
    hand, rng = ByHand(bandit), np.random.default_rng(2)
    for _ in range(120):
        ((arm, reward, _),) = play(bandit, rng, 1)
        hand.learn(arm, reward)
        np.testing.assert_allclose(
            bandit.theta, [hand.mean(a) for a in range(ARMS)], rtol=1e-8, atol=1e-12
        )


def test_without_noise_it_is_ucb_and_finds_the_best_arm():
    bandit = make(epsilon=math.inf, alpha=1.0, horizon=2000, reward_range=(0, 1))
    history = play(bandit, np.random.default_rng(0), 2000)
    rewards = [[r for a, r, _ in history if a == arm] for arm in range(ARMS)]
    np.testing.assert_allclose(bandit.theta, [np.mean(r) for r in rewards], atol=1e-12)
    late = [arm == max(offered) for arm, _, offered in history[1000:]]
    assert np.mean(late) > 0.8


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_a_loaded_bandit_continues_bit_for_bit(options, tmp_path):
    bandit = make(**options)
    play(bandit, np.random.default_rng(0), 77)
    bandit.save(tmp_path / "bandit.npz")
    copy = dpb.load(tmp_path / "bandit.npz")
    assert copy.claim == bandit.claim
    assert copy.ledger == bandit.ledger
    if bandit.options.unit == "reward":
        assert play(bandit, np.random.default_rng(9), 60) == play(
            copy, np.random.default_rng(9), 60
        )
        assert (bandit.theta == copy.theta).all()
        assert copy.ledger == bandit.ledger


@pytest.mark.parametrize(
    "options", [{}, {"noise": "gaussian", "horizon": None}, {"alpha": "theory"}], ids=str
)
def test_the_engine_plays_what_the_object_plays_step_by_step(options):
    world = dpb.worlds.Bernoulli(means=[0.2, 0.5, 0.7])
    given = {"epsilon": 2.0, "delta": 1e-5, "reward_range": (0, 1)} | options
    results = dpb.run(
        world, [("private-ucb", given)], horizon=1500, seeds=[3], record=[1, 700, 1500]
    )
    bandit = dpb.make("private-ucb", dim=3, seed=3, **{"horizon": 1500} | given)
    block, total = world.episode(3).block(1500), 0.0
    for t in range(1500):
        arm = bandit.select(block.pool[block.shown[t]])
        total += block.rewards[t, arm]
        bandit.update(block.pool[arm], float(block.rewards[t, arm]))
    last = results.frame().iloc[-1]
    assert last["reward"] == total
    assert last["theta_error"] == pytest.approx(
        np.linalg.norm(bandit.theta - [0.2, 0.5, 0.7]), rel=1e-12
    )


@pytest.mark.parametrize(
    "row",
    [
        [0.0, 0.0, 0.0, 0.0],
        [1.0, 1.0, 0.0, 0.0],
        [0.0, -1.0, 0.0, 0.0],
        [0.6, 0.8, 0, 0],
        [0.999, 0, 0, 0],
    ],
)
def test_contexts_that_are_not_one_hot_are_named_and_change_nothing(row):
    bandit = make(max_norm=2.0)
    bandit.update([1.0, 0, 0, 0], 0.5)
    before = {name: array.copy() for name, array in bandit.engine.fields().items()}
    with pytest.raises(ShapeError, match="must be one-hot"):
        bandit.select([[1.0, 0, 0, 0], row])
    with pytest.raises(ShapeError, match="must be one-hot"):
        bandit.update(row, 0.5)
    assert all((array == before[name]).all() for name, array in bandit.engine.fields().items())


def test_a_world_with_features_is_refused_by_name():
    with pytest.raises(ShapeError, match="must be one-hot"):
        dpb.run(dpb.worlds.Synthetic(dim=3), ["private-ucb"], horizon=10, seeds=1, epsilon=1.0)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_an_exported_model_ranks_like_the_bandit(options, tmp_path):
    bandit, rng = make(**options), np.random.default_rng(4)
    for _ in range(30):
        play(bandit, rng, 3)
        bandit.export(tmp_path / "model.json")
        model = dpb.load(tmp_path / "model.json")
        indices = bandit.theta + np.sqrt(np.diag(bandit.engine.model()["matrix"]))
        best = np.eye(ARMS)[rng.permutation(ARMS)]
        if len(set(np.round(np.sort(indices)[-2:], 6))) == 2:
            assert best[model.select(best)].tolist() == best[bandit.select(best)].tolist()


def test_every_arm_is_pulled_once_before_any_is_pulled_twice():
    bandit = make()
    for _ in range(ARMS):
        arm = bandit.select(np.eye(ARMS))
        bandit.update(np.eye(ARMS)[arm], 0.0)
    assert bandit.engine.fields()["pulls"].tolist() == [1] * ARMS


def test_a_slate_is_in_the_order_of_the_indices():
    bandit = make(epsilon=math.inf, alpha=0.0)
    bandit.update(np.eye(ARMS), [0.1, 0.9, 0.5, 0.3])
    assert bandit.select(np.eye(ARMS), k=4).tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("horizon", [64, None])
def test_one_arm_alone_spends_everything_and_many_arms_less_each(noise, horizon):
    one, many = make(noise=noise, horizon=horizon), make(noise=noise, horizon=horizon)
    one.update(np.eye(ARMS)[[0] * 63], [0.0] * 63)
    many.update(np.eye(ARMS)[[0, 1, 2, 3] * 15], [0.0] * 60)
    limit = 2.0 * (1 + 1e-9)
    assert many.spent.epsilon <= one.spent.epsilon <= limit
    if horizon is None:
        assert one.spent.epsilon == pytest.approx(2.0, rel=1e-6)
        return
    assert many.spent.epsilon < 0.9 * one.spent.epsilon
    one.update(np.eye(ARMS)[0], 0.0)
    assert one.spent.epsilon == pytest.approx(2.0, rel=1e-6)
    # four lanes or more for each of the arms: a reward of one arm never pays for another's nodes
    assert {row["group"] // 63 for row in many.ledger.table()} == {0, 1, 2, 3}


def test_the_published_split_has_as_many_times_the_noise_as_there_are_arms():
    whole, split = make(), make(split_budget=True)
    assert split.spec["multipliers"][9] == pytest.approx(ARMS * whole.spec["multipliers"][9])
    split.update(np.eye(ARMS)[[0] * 256], [0.0] * 256)
    assert split.spent.epsilon == pytest.approx(2.0 / ARMS)


@pytest.mark.slow
def test_the_papers_term_covers_the_noise_of_all_arms_at_all_times():
    """With probability at least 1 − γ a run. 200 runs at γ = 0.2: more than 70 failures have probability below 1e-6."""
    failures = 0
    for seed in range(200):
        bandit = make(horizon=64, alpha="theory", zeta=0.2, seed=seed, backend="reference")
        covered = True
        for t in range(64):
            arm = t % ARMS
            bandit.update(np.eye(ARMS)[arm], 0.0)
            fields, learner = bandit.engine.fields(), bandit.engine._learner
            gamma = learner.privacy_weight(t + 1) * fields["spread"][arm]
            covered &= abs(bandit.theta[arm]) * fields["pulls"][arm] <= gamma
        failures += not covered
    assert failures <= 70
    # Γ = h²·log(K·T·h/γ)·W/ε
    assert gamma == pytest.approx(7 * 7 * math.log(ARMS * 64 * 7 / 0.2) / 2.0)


def test_real_noise_is_drawn_without_a_seed():
    bandits = [make(seed=None, horizon=8) for _ in range(2)]
    for bandit in bandits:
        bandit.update(np.eye(ARMS), [0.5] * ARMS)
        assert bandit.claim.noise == "real"
        assert bandit.claim.status == "proven"
    assert (bandits[0].theta != bandits[1].theta).all()


def test_a_failed_round_leaves_no_trace():
    class Broken:
        kind = "simulation"

        def release(self, *_, **__):
            raise MemoryError

    bandit = make()
    bandit.update(np.eye(ARMS), [1.0, 0.0, 1.0, 0.0])
    before, ledger = (
        {n: a.copy() for n, a in bandit.engine.fields().items()},
        bandit.ledger.to_dict(),
    )
    source, bandit.source = bandit.source, Broken()
    with pytest.raises(MemoryError):
        bandit.update([1.0, 0, 0, 0], 1.0)
    assert all((array == before[name]).all() for name, array in bandit.engine.fields().items())
    assert bandit.ledger.to_dict() == ledger
    bandit.source = source


def test_an_arm_never_outgrows_its_tree():
    bandit = make(horizon=4)
    bandit.engine = new_engine(
        {**bandit.spec, "horizon": 0}, bandit.backend
    )  # one that does not look
    with pytest.raises(BudgetError, match="one level more than the 3"):
        bandit.update(np.eye(ARMS)[[0] * 20], [0.0] * 20)
    assert bandit.rounds == 7


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": "laplace-l2"}, "noise 'laplace-l2' is not possible here"),
        ({"pan_private": True}, "has no pan-private form"),
        ({"context_noise": 0.1}, "no context_noise"),
        ({"max_norm": 0.5}, "max_norm ≥ 1"),
        ({"privacy_bonus": -1}, "privacy_bonus must be"),
        ({"privacy_bonus": True}, "privacy_bonus must be"),
        ({"privacy_bonus": "wide"}, "privacy_bonus must be a number of at least 0, or 'theory'"),
        ({"split_budget": 1}, "split_budget must be True or False"),
        ({"privacy_bonuss": 1}, "did you mean 'privacy_bonus'"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(OptionError, match=words):
        make(**options)
