"""Open Bandit Pipeline's estimators beside ours: on its own synthetic data and on its sample of real clicks.

obp 0.4.1 is the newest wheel for Python 3.11; 0.5 wants older ones. The Makefile installs it with all other tools of
the tests, so nothing here is skipped. It imports torch, which the estimators for arrays do not use: where torch is
not installed an empty module stands in its place while obp is imported.
"""

import importlib.util
import sys
from types import ModuleType

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.adapters import ObpPolicy, obp_rounds
from dpbandit.evaluate.estimates import Spread, estimates
from dpbandit.evaluate.tally import Public, Range, Seen
from dpbandit.privacy.accounting import mu_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def obp():
    if importlib.util.find_spec("obp") is None:
        pytest.fail(
            "obp is not installed: make .venv/.tools, or pip install --no-deps obp==0.4.1 seaborn tqdm"
        )
    empty = [name for name in ("torch", "torch.nn", "torch.optim", "torch.nn.functional", "torch.utils", "torch.utils.data") if importlib.util.find_spec("torch") is None]  # fmt: skip
    for name in empty:
        sys.modules[name] = _Empty(name)
    try:
        import obp.dataset
        import obp.ope
        import obp.simulator
    finally:
        for name in empty:
            del sys.modules[name]
    import obp

    return obp


class _Empty(ModuleType):
    """Classes to inherit from and to ask `isinstance` of; no array is one of them."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        inner = sys.modules.get(f"{self.__name__}.{name}")
        return inner if inner is not None else type(name, (), {})


def synthetic(obp, rows, seed):
    """obp's data set of binary rewards, logged by a policy that depends on contexts."""
    data = obp.dataset.SyntheticBanditDataset(
        n_actions=4,
        dim_context=3,
        reward_type="binary",
        reward_function=obp.dataset.logistic_reward_function,
        behavior_policy_function=obp.dataset.linear_behavior_policy,
        random_state=seed,
    )
    return data.obtain_batch_bandit_feedback(n_rounds=rows)


def fixed(contexts, seed=0):
    """A model that learned a little, elsewhere."""
    bandit = dpb.make("linucb", dim=contexts.shape[1], seed=seed, reward_range=(0, 1))
    rng = np.random.default_rng(seed)
    for _ in range(60):
        bandit.update(contexts[rng.integers(len(contexts))], float(rng.random()))
    return bandit.model()


def theirs(obp, feedback, model, rounds):
    """Their estimates of our model."""
    arms = np.array([model.select(one["contexts"]) for one in rounds])
    n, k = len(arms), feedback["n_actions"]
    dist = np.zeros((n, k, 1))
    dist[np.arange(n), arms, 0] = 1.0
    said = np.array([one["contexts"] @ model.theta for one in rounds])[:, :, None]
    given = {
        "action": feedback["action"],
        "reward": feedback["reward"],
        "action_dist": dist,
        "position": np.zeros(n, dtype=int),
    }
    weights, said = {"pscore": feedback["pscore"]}, {"estimated_rewards_by_reg_model": said}
    ope = obp.ope
    return arms, {
        "replay": ope.ReplayMethod().estimate_policy_value(**given),
        "ips": ope.InverseProbabilityWeighting().estimate_policy_value(**given, **weights),
        "snips": ope.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(
            **given, **weights
        ),
        "dr": ope.DoublyRobust().estimate_policy_value(**given, **weights, **said),
        "sndr": ope.SelfNormalizedDoublyRobust().estimate_policy_value(**given, **weights, **said),
    }


def test_estimates_are_equal_on_its_synthetic_data(obp):
    feedback = synthetic(obp, 4000, 12345)
    rounds = list(obp_rounds(feedback))
    model = fixed(rounds[0]["contexts"])
    _, want = theirs(obp, feedback, model, rounds)
    given = {"propensity": "propensity", "clip": 1e6, "reward_range": (0, 1), "seed": 0}
    clear = dpb.replay(rounds, {"m": model}, **given)
    noisy = dpb.replay(rounds, {"m": model}, release=(1e7, 1e-9), **{**given, "clip": 200.0})
    for name in ("ips", "snips", "dr", "sndr"):
        assert clear.of("m", name).value == pytest.approx(want[name], abs=1e-9), name
        assert noisy.of("m", name).value == pytest.approx(want[name], abs=1e-4), name


def test_intervals_hold_on_its_synthetic_data(obp):
    held, seeds = [], 60
    for seed in range(seeds):
        feedback = synthetic(obp, 1200, seed)
        rounds = list(obp_rounds(feedback))
        model = fixed(rounds[0]["contexts"], seed)
        arms = [model.select(one["contexts"]) for one in rounds]
        truth = feedback["expected_reward"].reshape(1200, -1)[np.arange(1200), arms].mean()
        for release in (None, (1.0, 1e-6)):
            found = dpb.replay(
                rounds, {"m": model}, propensity="propensity", clip=1e3,
                reward_range=(0, 1), release=release, seed=seed,
            )  # fmt: skip
            held.append(
                [e.low <= truth <= e.high for e in found.estimates if e.estimator != "replay"]
            )
    shares = np.array(held).mean(axis=0)
    assert (shares > 0.95 - 3.1 * np.sqrt(0.05 * 0.95 / (2 * seeds))).all(), shares
    assert shares.mean() >= 0.94


def test_estimates_are_equal_on_its_sample_of_real_clicks(obp):
    world = dpb.worlds.OpenBandit("men")  # its package carries the sample
    n, k = world.rounds, world.arms
    log = world.log
    rounds = [
        {"contexts": world.contexts(i), "action": int(a), "reward": float(r)}
        for i, (a, r) in enumerate(zip(log.chosen, log.clicked, strict=True))
    ]
    rng = np.random.default_rng(1)
    bandit = dpb.make("linucb", dim=world.dim, seed=0, reward_range=(0, 1))
    for one in (rounds[i] for i in rng.integers(0, n, 300)):
        bandit.update(one["contexts"][one["action"]], one["reward"])
    model = bandit.model()
    feedback = {
        "action": log.chosen,
        "reward": log.clicked,
        "pscore": np.full(n, 1 / k),
        "n_actions": k,
    }
    _, want = theirs(obp, feedback, model, rounds)
    found = dpb.replay(iter(rounds), {"m": model}, reward_range=(0, 1), seed=0)
    for name, value in want.items():
        one = found.of("m", name)
        assert one.value == pytest.approx(value, abs=1e-9), name
        assert one.low <= world.clicks / n <= one.high  # so few clicks tell no policy from another


def test_intervals_hold_on_resamples_of_its_real_clicks():
    """Rows drawn with replacement: the sample's own estimate is the truth. 46 clicks in 10,000 rows."""
    world = dpb.worlds.OpenBandit("men")
    log, n, arms = world.log, world.rounds, float(world.arms)
    model = fixed(np.concatenate([world.contexts(i) for i in range(20)]))
    matched = np.array([model.select(world.contexts(i)) for i in range(n)]) == log.chosen
    clicked, noise = log.clicked.astype(float), Spread(arms / mu_of(epsilon=1.0, delta=1e-6))

    def said(rows, rng=None):
        w, y = matched[rows] * arms, clicked[rows]
        sums = w.sum(), (w * w).sum(), (w * y).sum(), (w * w * y).sum()
        public = Public(rows=n, matched=int(matched[rows].sum()), weight=sums[0], weight2=sums[1])
        public.low_w, public.high_w, public.low_q, public.high_q = arms, arms, 0.0, 0.0
        seen = Seen(wy=sums[2], w2y=sums[3], w2yy=sums[3]) if rng is None else None
        total = sums[2] if rng is None else sums[2] + rng.normal() * noise.deviation
        spread = Spread() if rng is None else noise
        return estimates(
            "m", public, total, seen, rewards=Range(0.0, 1.0), noise=spread, level=0.95
        )

    truth = {one.estimator: one.value for one in said(np.arange(n))}
    held = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, n, n)
        for found in (said(rows), said(rows, rng)):
            held.append([one.low <= truth[one.estimator] <= one.high for one in found])
    shares = np.array(held).reshape(400, 2, -1).mean(axis=0)
    assert (shares > 0.95 - 3.1 * np.sqrt(0.05 * 0.95 / 400)).all(), shares
    assert shares.mean() >= 0.94


def test_a_policy_of_ours_in_its_simulator(obp):
    feedback = {**synthetic(obp, 2500, 3), "position": np.zeros(2500, dtype=int)}
    policy = ObpPolicy("anytime", n_actions=4, epsilon=8.0, delta=1e-5, reward_range=(0, 1), seed=1)
    dist = obp.simulator.run_bandit_simulation(feedback, policy)
    arms = dist[:, :, 0].argmax(axis=1)
    assert policy.bandit.rounds == (arms == feedback["action"]).sum() > 300
    assert policy.bandit.claim.status == "proven"
