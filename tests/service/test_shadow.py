"""A bandit in the shadow, made live by one call; and a holdout whose lift is told."""

import json
import time
import uuid

import numpy as np
import pytest
from harness import ARMS, BANDIT, learned, until
from test_leases import make_bandit

import dpbandit
from dpbandit.errors import RequestError
from dpbandit.service.learner import Learner
from dpbandit.service.measure import (
    HOLDOUT,
    REWARD_STEPS,
    SHADOW,
    WEIGHT_STEPS,
    Measure,
    Tally,
)
from dpbandit.service.records import Asked, judge, place
from dpbandit.service.settings import Settings
from dpbandit.service.store import Store
from dpbandit.service.trusted import TrustedStore

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


@pytest.mark.parametrize("algorithm", ["anytime", "anytime-joint"])
def test_a_policy_of_lots_keeps_the_propensity_of_every_decision(shared, client, algorithm):
    service, _ = shared
    asked = {**BANDIT, "name": uuid.uuid4().hex, "algorithm": algorithm, "horizon": None}
    name = client.create_bandit(**asked, policy="sampled")["name"]
    one = client.decide(name, ARMS)
    slate = client.decide(name, ARMS, k=3, propensities=True).slate
    stated = {each.arm: each.propensity for each in slate}
    assert sum(stated.values()) == pytest.approx(1.0)
    assert all(each.propensity_error == 0.0 for each in slate)
    first, second, *_ = kept(service, name, "arm, propensity")
    assert first == (one.arm, pytest.approx(stated[one.arm]))
    assert second == (slate[0].arm, pytest.approx(slate[0].propensity))


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
    assert told == {"releases": 0, "every": 1_000, "waiting": {"holdout": 5}}
    store = Store(service.store)

    def open_():
        sql = "SELECT s.measure FROM states s JOIN bandits b ON b.id = s.bandit WHERE b.name = ?"
        return json.loads(store.connection.one(sql, (name,))[0])["open"].get("holdout")

    assert until(open_)["rounds"] == 5
    store.close()


@pytest.mark.parametrize("seed", range(4))
def test_each_reward_is_in_one_stretch_whatever_happens(store_url, tmp_path, monkeypatch, seed):
    """Learners that restart, lose their lease while they publish or crash after it, persons erased,
    live in the middle of a stretch: what was told and the stretch under way add up to what was
    learned, exactly, each reward once. Noise is left out here, so that sums can be compared."""

    def told_as_it_is(measure, kind, source, rounds):
        tally, told = measure.open.pop(kind), measure.told.setdefault(kind, Tally())
        told.rounds += tally.rounds
        told.sums = [a + b for a, b in zip(told.sums, tally.sums, strict=True)]
        measure.releases += 1

    monkeypatch.setattr(Measure, "release", told_as_it_is)
    change = {"unit": ("user", 84), "horizon": 512, "epsilon": 20.0, "measure_every": 7}
    bandit = make_bandit(store_url, shadow=True, holdout=0.5, reward_window=0.001, **change)
    settings = Settings(store=store_url, witness=tmp_path / "witness", batch=5)
    store, rng = TrustedStore(store_url), np.random.default_rng(20_006 + seed)
    context = np.array([1.0, 0.0, 0.0]).tobytes()
    weight_of_seq, reward_of_seq, erased, gone = {}, {}, set(), set()

    def decide(count, kind):
        for _ in range(count):
            person = bytes([int(rng.integers(4))])
            weight, reward = int(rng.integers(WEIGHT_STEPS + 1)), float(rng.random())
            kept = {kind: weight}
            asked = Asked(None, None, **kept)
            with store.connection.write():
                row = (bandit, 0, None, context, person, 0, "test")
                ((seq, nonce),) = place(store.connection, [(row, None, asked)])
                judge(store.connection, [(bandit, 600.0, "test", [(seq, nonce, reward)], None)])
            weight_of_seq[seq], reward_of_seq[seq] = (kind, weight, person), reward
            if person in gone:  # once erased, always full
                erased.add(seq)

    def learner():
        one = Learner(settings)
        what = rng.integers(4)

        def lose(held):
            store.connection.run("UPDATE leases SET token = token + 1, expires_at = 0")

        def erase(held):
            person = bytes([int(rng.integers(9))])  # often one that never came
            gone.add(person)
            learned = store.lines()[0].learned
            store.erase_person(bandit, person)
            erased.update(s for s in weight_of_seq if s > learned and weight_of_seq[s][2] == person)

        if what:
            one.before_publishing = (None, lose, erase, lose)[what]
        one.turn()
        one.before_publishing = lambda held: None
        one.turn()
        one.stop() if rng.random() < 0.5 else store.connection.run(
            "UPDATE leases SET token = token + 1, expires_at = 0"
        )

    for turn in range(14):
        decide(6, "agreed" if turn < 7 else "by_lot")
        if turn == 6:
            store.go_live(bandit)
        learner()
    line = store.lines()[0]
    for _ in range(20):
        if (line := store.lines()[0]).learned == line.decisions:
            break
        time.sleep(0.01)
        learner()
    assert line.learned == line.decisions == 84
    measure, expected, rounds = Measure.from_text(store.measure(bandit)), {}, {}
    for seq, (kind, weight, _) in weight_of_seq.items():
        if seq not in erased:
            steps = round(reward_of_seq[seq] * REWARD_STEPS)
            sums = expected.setdefault(kind, [0, 0])
            sums[0] += steps * weight
            sums[1] += steps * (WEIGHT_STEPS - weight)
            rounds[kind] = rounds.get(kind, 0) + 1
    assert measure.releases == sum(n // 7 for n in rounds.values()) > 4
    for kind, name in (("agreed", SHADOW), ("by_lot", HOLDOUT)):
        parts = [one for one in (measure.told.get(name), measure.open.get(name)) if one]
        assert sum(one.rounds for one in parts) == rounds[kind]
        assert [sum(one.sums[i] for one in parts) for i in (0, 1)] == expected[kind]
    store.delete(bandit)
    assert store.measure(bandit) is None
    store.close()
