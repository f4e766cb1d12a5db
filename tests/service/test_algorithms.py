"""Every algorithm with a proven claim, from its making to a model that has learned, over HTTP."""

import contextlib
import json

import harness
import numpy as np
import pytest

from dpbandit.algorithms.registry import ALGORITHMS
from dpbandit.errors import OptionError
from dpbandit.model import ReleasedModel
from dpbandit.service import blueprint

HOT = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
DAMPED = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.5]]


def _proven():
    for name in ALGORITHMS:
        config = {
            **harness.BANDIT,
            "algorithm": name,
            "horizon": 1000,
            "unit": "reward",
            "options": {},
        }
        # those that need more than this to be made have no proven claim
        with contextlib.suppress(OptionError):
            if blueprint.build(config).claim.status == "proven":
                yield name


PROVEN = sorted(_proven())


def test_what_is_served_is_most_of_what_there_is():
    most = "anytime tree-gauss toeplitz private-ucb dp-klucb private-ts local"
    assert set(most.split()) <= set(PROVEN)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("algorithms")
    url = f"sqlite:///{folder}/store.db"
    running = harness.Service(url, folder)
    yield running.caller(harness.make_key(url))
    running.stop()


@pytest.mark.parametrize("algorithm", PROVEN)
def test_learns_over_http(service, algorithm):
    arms = HOT if ALGORITHMS[algorithm].one_hot else DAMPED
    made = {**harness.BANDIT, "name": algorithm, "algorithm": algorithm, "horizon": 1000}
    made["reward_window"] = 0.2
    status, answer = service("POST", "/v1/bandits", made)
    assert status == 201, answer
    for _ in range(20):
        status, answer = service("POST", f"/v1/bandits/{algorithm}/decisions", {"contexts": arms})
        assert status == 201, answer
        assert (
            harness.reward(
                service, answer["decision"], 1.0 if answer["arm"] == 0 else 0.0, algorithm
            )[0]
            == 200
        )
    harness.learned(service, 20, algorithm)
    found = service.get(f"/v1/bandits/{algorithm}")
    assert found["status"] == "learning"
    assert found["model_version"] >= 1


def test_an_algorithm_without_features_refuses_features(service):
    service(
        "POST",
        "/v1/bandits",
        {**harness.BANDIT, "name": "plain", "algorithm": "private-ucb", "horizon": 1000},
    )
    status, answer = service("POST", "/v1/bandits/plain/decisions", {"contexts": DAMPED})
    assert status == 422
    assert "one-hot" in answer["error"]


@pytest.mark.parametrize("algorithm", PROVEN)
def test_a_ranker_chooses_what_the_bandit_would(algorithm):
    """What goes through the store as JSON ranks as the bandit itself does."""
    config = {
        **harness.BANDIT,
        "algorithm": algorithm,
        "horizon": 1000,
        "unit": "reward",
        "options": {},
    }
    bandit, rng = blueprint.build(config), np.random.default_rng(7)
    one_hot = bandit.one_hot
    for _ in range(50):
        x = np.eye(3)[rng.integers(3)] if one_hot else rng.normal(size=3) / 5
        bandit.update(x, float(rng.random() < 0.5))
    model = ReleasedModel.from_record(json.loads(json.dumps(bandit.model().to_record())))
    assert model.theta.tolist() == bandit.theta.tolist()
    for _ in range(100):
        arms = np.eye(3) if one_hot else rng.uniform(-0.5, 0.5, size=(6, 3))
        chosen = model.choose(model.check(arms.tolist()))
        if model.policy.name not in ("thompson", "uniform"):  # these draw lots
            scores = model.policy.scores(model.view, arms, model.alpha, 0, 0)
            assert scores[chosen] == scores[bandit.select(arms)]  # lots decide between equals
        assert 0 <= chosen < len(arms)
