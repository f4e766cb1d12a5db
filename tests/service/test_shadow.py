"""A bandit in the shadow, made live by one call; and a holdout whose lift is told."""

import json
import uuid

import numpy as np
import pytest
from harness import ARMS, BANDIT, learned, until

import dpbandit
from dpbandit.errors import RequestError
from dpbandit.service.measure import WEIGHT_STEPS
from dpbandit.service.store import Store

EARNS = (0.2, 0.9, 0.4)


@pytest.fixture
def client(shared):
    service, key = shared
    with dpbandit.Client(f"http://127.0.0.1:{service.port}", key=key) as client:
        yield client


def made(client, **change):
    name = uuid.uuid4().hex
    asked = {**BANDIT, "name": name, "epsilon": 20.0, "horizon": 4096, "measure_share": 0.3}
    answer = client.create_bandit(**{**asked, "reward_window": 1.5, "measure_every": 60, **change})
    return name, answer


def kept(service, name, columns="agreed, by_lot, propensity, arm"):
    store = Store(service.store)
    sql = f"SELECT {columns} FROM decisions d JOIN bandits b ON b.id = d.bandit WHERE b.name = ?"
    rows = store.connection.all(sql + " ORDER BY d.seq", (name,))
    store.close()
    return rows


def test_it_learns_from_what_is_shown_says_what_it_would_have_earned_and_goes_live(shared, client):
    service, key = shared
    name, answer = made(client, shadow=True)
    assert answer["live"] is False
    draw = np.random.default_rng(20_003)
    for number in range(240):
        shown = int(draw.integers(3))
        asked = {"request": f"r{number}", "baseline": shown, "baseline_propensity": 1 / 3}
        one = client.decide(name, ARMS, **asked)
        assert one.arm == shown
        client.reward(name, one, float(draw.random() < EARNS[shown]))
        if number == 119:  # from here on it knows something
            learned(service.caller(key), 120, name)
    assert client.decide(name, ARMS, **asked).decision == one.decision
    learned(service.caller(key), 240, name)
    account = client.privacy(name)
    told = account["measured"]["shadow"]
    assert told["rounds"] == 240
    agreed = [row[0] for row in kept(service, name)]
    assert set(agreed) == {0, round(3 / 10 * WEIGHT_STEPS)}
    assert told["agreement"] == pytest.approx(np.mean(np.array(agreed) > 0))
    assert told["shown"]["low"] <= np.mean(EARNS) <= told["shown"]["high"]
    assert told["would_have_earned"]["mean"] > told["shown"]["mean"]
    assert 0 < account["spent"]["epsilon"] <= 20.0
    assert account["ledger"][-1]["what"].startswith("what a shadow")
    for wrong in ({}, {"baseline": 3}, {"baseline_propensity": 0.5}):
        with pytest.raises(RequestError, match="baseline"):
            client.decide(name, ARMS, **wrong)
    with pytest.raises(RequestError, match="not made with shadow"):
        client.go_live(made(client, measure_share=None, measure_every=None)[0])

    version = client.bandit(name)["model_version"]
    assert client.go_live(name)["live"] is True
    assert client.go_live(name)["live"] is True
    shown = [client.decide(name, ARMS, baseline=0).arm for _ in range(20)]
    assert shown.count(1) > 10  # what it learned in the shadow it knows now
    after = client.privacy(name)
    # The budget carries over: the same claim, and what was spent stays spent.
    assert after["claim"] == account["claim"]
    assert after["spent"]["epsilon"] >= account["spent"]["epsilon"]
    assert client.bandit(name)["model_version"] >= version
    assert [row[0] for row in kept(service, name)][-20:] == [None] * 20


def test_a_holdout_is_drawn_by_lot_stated_kept_and_its_lift_told(shared, client):
    service, key = shared
    name, _ = made(client, holdout=0.5)
    draw = np.random.default_rng(20_004)
    for _ in range(2):  # learn first, then earn
        for _ in range(60):
            one = client.decide(name, ARMS)
            client.reward(name, one, float(draw.random() < EARNS[one.arm]))
        learned(service.caller(key), 60, name)
    learned(service.caller(key), 120, name)
    rows = kept(service, name)
    lots = [by_lot for _, by_lot, _, _ in rows]
    assert set(lots) == {0, WEIGHT_STEPS}
    assert 35 < lots.count(WEIGHT_STEPS) < 85  # of 120: ±4.5 standard deviations
    told = client.privacy(name)["measured"]["holdout"]
    assert (told["rounds"], told["by_lot"]) == (120, lots.count(WEIGHT_STEPS))
    assert told["lift"]["low"] < told["lift"]["mean"] < told["lift"]["high"]
    assert told["lift"]["mean"] == pytest.approx(
        told["policy"]["mean"] - told["holdout"]["mean"], abs=1e-9
    )

    # Every decision is kept with its probability, and a slate states all of the first place.
    assert all(0.5 / 3 <= chance <= 0.5 + 0.5 / 3 + 1e-9 for _, _, chance, _ in rows)
    slate = client.decide(name, ARMS, k=3, propensities=True).slate
    assert sum(one.propensity for one in slate) == pytest.approx(1.0)
    assert sorted(one.arm for one in slate) == [0, 1, 2]
    *_, first, second, third = kept(service, name)
    assert first[2] == pytest.approx(slate[0].propensity)
    assert second[:3] == third[:3] == (None, None, None)  # what stands below is not measured


@pytest.mark.parametrize("algorithm", ["tree-gauss", "private-ts"])
def test_stated_propensities_are_what_is_played(shared, client, algorithm):
    """600 decisions of the first model: each arm as often as it was said, within 4.5 standard
    errors."""
    name, _ = made(client, holdout=0.3, algorithm=algorithm, reward_window=600)
    stated = client.decide(name, ARMS, k=3, propensities=True).slate
    chances = {one.arm: one.propensity for one in stated}
    errors = {one.arm: one.propensity_error for one in stated}
    many = client.decide_many(name, [{"contexts": ARMS}] * 600)
    shown = np.bincount([one.arm for one in many], minlength=3) / 600
    for arm, chance in chances.items():
        spread = np.sqrt(chance * (1 - chance) / 600 + errors[arm] ** 2)
        assert abs(shown[arm] - chance) <= 4.5 * spread, (arm, shown, chances)


def test_clients_of_personalizer_in_the_shadow_get_their_baseline(shared, client):
    service, key = shared
    name, _ = made(client, shadow=True, dim=8)
    call, path = service.caller(key), f"/v1/bandits/{name}/personalizer/"
    actions = [{"id": one, "features": [{"is": one}]} for one in ("tea", "jam", "pie")]
    asked = {"actions": actions, "excludedActions": ["tea"], "eventId": "e"}
    for _ in range(3):
        status, said = call("POST", path + "rank", {**asked, "eventId": uuid.uuid4().hex})
        assert (status, said["rewardActionId"]) == (201, "jam")  # the first that is not excluded
        assert [one["probability"] for one in said["ranking"]] == [0.0, 1.0, 0.0]
    slots = [{"id": "a", "baselineAction": "pie"}, {"id": "b", "baselineAction": "tea"}]
    status, said = call("POST", path + "multislot/rank", {"actions": actions, "slots": slots})
    assert [slot["rewardActionId"] for slot in said["slots"]] == ["pie", "tea"]
    assert len([row for row in kept(service, name) if row[0] is not None]) == 5
    client.go_live(name)
    seen = {
        call("POST", path + "rank", {**asked, "eventId": uuid.uuid4().hex})[1]["rewardActionId"]
        for _ in range(20)
    }
    assert seen == {"jam", "pie"}  # before it has learned anything all are equal


def test_a_bandit_without_either_is_as_before(shared, client):
    service, _ = shared
    name, answer = made(client, measure_share=None, measure_every=None)
    assert answer["live"] is True
    assert not {"shadow", "holdout", "measure_share", "measure_every"} & set(answer)
    client.decide(name, ARMS, baseline=2)  # a live one does not look at it
    assert kept(service, name)[0][:3] == (None, None, None)
    assert "measured" not in client.privacy(name)
    store = Store(service.store)
    text = "SELECT s.measure FROM states s JOIN bandits b ON b.id = s.bandit WHERE b.name = ?"
    assert store.connection.one(text, (name,)) == (None,)
    store.close()


def test_the_stretch_under_way_is_the_learners_alone(shared, client):
    """What is not released yet is in no answer: only in the learner's own table."""
    service, key = shared
    name, _ = made(client, holdout=0.5, measure_every=1_000)
    for _ in range(5):
        client.reward(name, client.decide(name, ARMS), 1.0)
    learned(service.caller(key), 5, name)
    told = client.privacy(name)["measured"]
    assert told == {"releases": 0, "every": 1_000}
    store = Store(service.store)

    def open_():
        sql = "SELECT s.measure FROM states s JOIN bandits b ON b.id = s.bandit WHERE b.name = ?"
        return json.loads(store.connection.one(sql, (name,))[0])["open"].get("holdout")

    assert until(open_)["rounds"] == 5
    store.close()
