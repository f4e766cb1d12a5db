"""The unmodified clients of Azure Personalizer against a real service, over TLS."""

import asyncio
import json
import time
import uuid
from types import SimpleNamespace

import numpy as np
import pytest
from azure.ai.personalizer import PersonalizerClient
from azure.cognitiveservices.personalizer import PersonalizerClient as OlderClient
from azure.cognitiveservices.personalizer import models
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from harness import BANDIT, make_key, until
from msrest.authentication import CognitiveServicesCredentials
from msrest.exceptions import HttpOperationError
from test_leases import make_bandit

import dpbandit as dpb
from dpbandit.errors import OptionError
from dpbandit.service import features as encoded
from dpbandit.service import personalizer
from dpbandit.service.api import App
from dpbandit.service.features import contexts_in_lots, flat
from dpbandit.service.settings import Settings
from dpbandit.service.store import Store

CONTEXT = [{"time": "morning"}, {"user": {"age": 33, "likes": ["tea", "jam"]}}]
ACTIONS = [
    {"id": "pasta", "features": [{"taste": "salty", "price": 9.5}, {"hot": True}]},
    {"id": "ice", "features": [{"taste": "sweet", "price": 3}]},
    {"id": "soup", "features": [{"taste": "salty", "price": 4}]},
    {"id": "cake", "features": [{"taste": "sweet", "price": 5}]},
]
SLOTS = [
    {"id": "top", "baselineAction": "pasta", "features": [{"size": "large"}]},
    {"id": "left", "baselineAction": "ice", "excludedActions": ["pasta", "soup", "cake"]},
    {"id": "foot", "baselineAction": "soup", "features": []},
]
TASTES = dpb.Category(["salty", "sweet"])
ENCODER = dpb.Encoder(
    {
        "time": dpb.Category(["morning", "evening"]),
        "user.age": dpb.Number(0, 100),
        "taste": TASTES,
        "id": dpb.Hashed(4),
        "slot": dpb.Category(["top", "left"]),
    },
    item=["taste", "id"],
    crosses=[("time", "taste")],
)


@pytest.fixture
def make(secure):
    """Makes a bandit; returns its name."""
    admin = secure.caller(make_key(secure.store))

    def make(**change):
        asked = {**BANDIT, "dim": 16, "reward_window": 600, "name": uuid.uuid4().hex, **change}
        asked = {name: value for name, value in asked.items() if value is not None}
        status, said = admin("POST", "/v1/bandits", asked)
        assert status == 201, said
        return asked["name"]

    return make


def endpoint(service, name):
    return f"https://127.0.0.1:{service.port}/v1/bandits/{name}"


def newer(service, name, role="app"):
    key = AzureKeyCredential(make_key(service.store, role))
    return PersonalizerClient(
        endpoint(service, name), key, connection_verify=str(service.tls), retry_total=0
    )


def older(service, name, role="app"):
    key = CognitiveServicesCredentials(make_key(service.store, role))
    client = OlderClient(endpoint(service, name), key)
    client.config.connection.verify = str(service.tls)
    return client


def rewards_of(service, name):
    """The rewards in the store, and the contexts' norms."""
    store = Store(service.store)
    rows = store.connection.all(
        "SELECT d.arm_id, r.value, d.context FROM bandits b JOIN decisions d ON d.bandit = b.id "
        "LEFT JOIN rewards r ON r.bandit = d.bandit AND r.seq = d.seq WHERE b.name = ? ORDER BY "
        "d.seq",
        (name,),
    )
    store.close()
    assert all(np.linalg.norm(np.frombuffer(row[2])) <= 1 + 1e-9 for row in rows)
    return [row[:2] for row in rows]


def test_the_newer_client_ranks_and_rewards(secure, make):
    name = make()
    with newer(secure, name) as client:
        asked = {"actions": ACTIONS, "contextFeatures": CONTEXT, "excludedActions": ["ice"]}
        said = client.rank({**asked, "eventId": "a/b é?"})
        ranked = [one["id"] for one in said["ranking"]]
        assert sorted(ranked) == ["cake", "ice", "pasta", "soup"]
        assert ranked[1] == "ice"  # excluded: where it stood, and never shown
        assert said["ranking"][1]["probability"] == 0.0
        assert sum(one["probability"] for one in said["ranking"]) == pytest.approx(1.0)
        assert said["rewardActionId"] == next(r for r in ranked if r != "ice")
        assert said["eventId"] == "a/b é?"
        # Asking again is safe, with the same body; with another it is refused.
        assert client.rank({**asked, "eventId": "a/b é?"}) == said
        with pytest.raises(HttpResponseError) as caught:
            client.rank({**asked, "excludedActions": [], "eventId": "a/b é?"})
        assert (caught.value.status_code, caught.value.error.code) == (409, "Conflict")
        client.reward("a/b é?", {"value": 0.5})
        client.reward("a/b é?", {"value": 0.9})  # the first counts
        own = client.rank({"actions": ACTIONS})
        assert own["eventId"] != client.rank({"actions": ACTIONS})["eventId"]
        client.reward(own["eventId"], {"value": 7})  # into the range
    found = rewards_of(secure, name)
    assert [value for _, value in found] == [0.5, 1.0, None]
    assert found[0][0] == said["rewardActionId"]


def test_the_older_client_ranks_rewards_and_activates(secure, make):
    name = make()
    client = older(secure, name)
    actions = [models.RankableAction(**one) for one in ACTIONS]
    request = models.RankRequest(
        actions=actions, context_features=CONTEXT, event_id="one", defer_activation=True
    )
    said = client.rank(request)
    assert said.event_id == "one"
    assert said.reward_action_id == said.ranking[0].id
    assert sum(one.probability for one in said.ranking) == pytest.approx(1.0)
    assert client.rank(request).reward_action_id == said.reward_action_id
    client.events.activate("one")
    client.events.reward("one", value=1.0)
    assert rewards_of(secure, name) == [(said.reward_action_id, 1.0)]
    with pytest.raises(models.ErrorResponseException) as caught:
        client.rank(models.RankRequest(actions=[]))
    assert caught.value.error.error.code == "BadRequest"
    assert "at least one" in caught.value.error.error.message
    with pytest.raises(HttpOperationError) as unknown:
        client.events.reward("two", value=1.0)
    assert unknown.value.response.status_code == 404


def test_slots_get_actions_of_their_own_and_rewards(secure, make):
    name = make(encoder=ENCODER.to_record(), dim=None)
    actions = [{"id": a["id"], "features": [{"taste": "salty"}]} for a in ACTIONS]
    slots = [{**one, "features": []} for one in SLOTS]
    with newer(secure, name) as client:
        for number in range(8):
            asked = {"actions": actions, "slots": slots, "eventId": f"e{number}"}
            said = client.rank_multi_slot({**asked, "contextFeatures": [{"time": "morning"}]})
            shown = {one["id"]: one["rewardActionId"] for one in said["slots"]}
            assert list(shown) == ["top", "left", "foot"]
            assert len(set(shown.values())) == 3
            assert shown["left"] == "ice"  # all else is excluded there: the slot above leaves it
        again = client.rank_multi_slot({**asked, "contextFeatures": [{"time": "morning"}]})
        assert again == said
        found = [{"slotId": "foot", "value": 1.0}, {"slotId": "top", "value": 0.25}]
        client.reward_multi_slot("e7", {"reward": found})
        client.activate_multi_slot("e7")
        for wrong in ([{"slotId": "nowhere", "value": 1.0}], []):
            with pytest.raises(HttpResponseError):
                client.reward_multi_slot("e6", {"reward": wrong})
        with pytest.raises(HttpResponseError) as other_kind:
            client.reward("e7", {"value": 1.0})
        assert other_kind.value.error.code == "ResourceNotFound"
        twice = [slots[0], {**slots[1], "baselineAction": "pasta"}]
        with pytest.raises(HttpResponseError, match="its own baselineAction"):
            client.rank_multi_slot({"actions": actions, "slots": twice})
        with pytest.raises(HttpResponseError, match=r"'tsate'.*did you mean 'taste'"):
            client.rank({"actions": [{"id": "a", "features": [{"tsate": 1}]}]})
    found = rewards_of(secure, name)
    assert len(found) == 24
    assert [value for _, value in found[-3:]] == [0.25, None, 1.0]
    assert all(value is None for _, value in found[:-3])


def test_what_is_not_activated_is_not_learned(secure, make):
    name = make(reward_window=2)
    with newer(secure, name) as client:
        for event, deferred in (("plain", False), ("seen", True), ("unseen", True)):
            client.rank({"actions": ACTIONS, "eventId": event, "deferActivation": deferred})
        slots = {"actions": ACTIONS, "slots": SLOTS, "deferActivation": True}
        for event in ("slots", "no slots"):
            client.rank_multi_slot({**slots, "eventId": event})
        client.activate("seen")
        client.activate_multi_slot("slots")
        client.reward("unseen", {"value": 1.0})  # a reward is no activation
        with pytest.raises(HttpResponseError):
            client.activate("slots")
        call = secure.caller(make_key(secure.store))
        until(lambda: call.get(f"/v1/bandits/{name}")["learned"] == 9)
        store = Store(secure.store)
        (bandit,) = store.connection.one("SELECT id FROM bandits WHERE name = ?", (name,))
        assert store.model(bandit)[1]["round"] == 5  # plain, seen, and three slots
        store.close()
        client.activate("unseen")  # too late: nothing happens
        assert call.get(f"/v1/bandits/{name}")["learned"] == 9


def test_keys_have_roles_here_too(secure, make):
    name = make(unit=["user", 2])
    asked = {"actions": ACTIONS, "contextFeatures": [{"_user": "ann"}, *CONTEXT], "eventId": "e"}
    with newer(secure, name, "rank") as ranks, newer(secure, name, "reward") as reports:
        ranks.rank(asked)
        with pytest.raises(HttpResponseError, match="say whose"):
            ranks.rank({"actions": ACTIONS})
        for refused in (
            lambda: ranks.reward("e", {"value": 1.0}),
            lambda: reports.rank(asked),
            lambda: reports.activate("e"),
        ):
            with pytest.raises(HttpResponseError) as caught:
                refused()
            assert (caught.value.status_code, caught.value.error.code) == (403, "Forbidden")
        reports.reward("e", {"value": 1.0})
    store = Store(secure.store)
    sql = "SELECT d.person FROM decisions d JOIN bandits b ON b.id = d.bandit WHERE b.name = ?"
    assert [len(bytes(row[0])) for row in store.connection.all(sql, (name,))] == [16]
    store.close()
    key = AzureKeyCredential("dpb_0123456789ab_" + "x" * 43)
    stranger = PersonalizerClient(
        endpoint(secure, name), key, connection_verify=str(secure.tls), retry_total=0
    )
    with pytest.raises(ClientAuthenticationError) as caught:
        stranger.rank(asked)
    assert caught.value.error.code == "Unauthorized"
    with newer(secure, "nobody") as client, pytest.raises(HttpResponseError) as caught:
        client.rank(asked)
    assert caught.value.error.code == "ResourceNotFound"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"actions": [*ACTIONS, ACTIONS[0]]}, "its own id"),
        ({"excludedActions": [one["id"] for one in ACTIONS]}, "every action is excluded"),
        ({"contextFeatures": [["no", "object"]]}, "list of objects"),
        (
            {"contextFeatures": [{"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": 1}}}}}}}}}]},
            "deeper",
        ),
        ({"contextFeatures": [{f"f{n}": 1 for n in range(1001)}]}, "more than the 1,000"),
        ({"eventId": "x" * 257}, "1 to 256"),
        ({"actoins": []}, "actoins"),
        ({"contextFeatures": [{"_user": 7}]}, "_user says"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(secure, make, change, words):
    with newer(secure, make()) as client, pytest.raises(HttpResponseError, match=words) as caught:
        client.rank({"actions": ACTIONS, **change})
    assert (caught.value.status_code, caught.value.error.code) == (400, "BadRequest")


def contexts_of(*given):
    return np.concatenate([*contexts_in_lots(*given)])


def test_context_and_actions_may_have_features_of_one_name():
    """As in Azure's own example, where both have a taste."""
    fields = {"context.taste": TASTES, "action.taste": TASTES, "hot": dpb.Number(0, 1)}
    encoder = dpb.Encoder(
        fields, item=["action.taste"], crosses=[("context.taste", "action.taste")]
    )
    model = SimpleNamespace(encoder=encoder, dim=encoder.dim)
    actions = [("pasta", [("taste", "salty")]), ("ice", [("taste", "sweet")])]
    found = contexts_of(model, [("taste", "sweet"), ("hot", 1)], actions)
    want = encoder.slate([{"action.taste": "salty"}, {"action.taste": "sweet"}])
    assert np.array_equal(found, want.contexts({"context.taste": "sweet", "hot": 1}))
    with pytest.raises(OptionError, match=r"with context\. and action\. before it"):
        contexts_of(model, [("colour", "red")], actions)
    with pytest.raises(OptionError, match=r"'context.taste' twice"):
        contexts_of(model, [("taste", "sweet"), ("context.taste", "salty")], actions)


def test_hashed_features_are_learned_from():
    """Who likes what depends on the hour; 800 events, ε = 20."""
    bandit = dpb.make("anytime", dim=64, epsilon=20.0, delta=1e-6, reward_range=(0.0, 1.0), seed=7)
    rng, right = np.random.default_rng(7), []
    actions = [(one["id"], flat(one["features"], "it")) for one in ACTIONS]
    best = {"morning": "soup", "evening": "cake"}
    for _ in range(800):
        hour = ("morning", "evening")[rng.integers(2)]
        model = bandit.model()
        given = contexts_of(model, flat([{"time": hour}], "it"), actions)
        arm = model.select(given)
        bandit.update(given[arm], float(ACTIONS[arm]["id"] == best[hour]))
        right.append(ACTIONS[arm]["id"] == best[hour])
    assert np.mean(right[-200:]) > 0.8


def test_features_are_the_same_in_every_process_and_keep_their_norm():
    model = dpb.make("random", dim=32, seed=0).model()
    one = contexts_of(model, flat(CONTEXT, "it"), [("a", flat([{"x": 1e308, "y": -3}], "it"))])
    # Written down once, from another process: rankers must agree on every machine.
    assert np.flatnonzero(one[0]).tolist() == PLACES
    assert np.linalg.norm(one) == pytest.approx(1.0, abs=1e-12)
    many = flat([{f"f{n}": 1 for n in range(1000)}], "it")
    with pytest.raises(OptionError, match="products"):
        contexts_of(model, many, [("a", many)])
    declared = dpb.make("random", encoder=ENCODER, seed=0).model()
    with pytest.raises(OptionError, match="twice"):
        contexts_of(declared, flat([{"time": "a"}, {"time": "b"}], "it"), [("a", [])])


PLACES = [1, 3, 4, 7, 9, 10, 13, 15, 16, 17, 18, 20, 21, 26, 31]


def possible(open_, taken):
    """The actions that the first of these slots may take, by trying every assignment."""
    from itertools import product

    return {
        arms[0] for arms in product(*open_) if len(set(arms)) == len(arms) and not taken & set(arms)
    }


def test_slots_can_always_be_filled():
    """Against every assignment, whatever was taken before."""
    rng = np.random.default_rng(5)
    ended = 0
    for _ in range(300):
        count = int(rng.integers(1, 5))
        actions = int(rng.integers(count, 6))
        baselines = rng.permutation(actions)[:count].tolist()
        open_ = [
            sorted({one, *rng.choice(actions, int(rng.integers(0, actions))).tolist()})
            for one in baselines
        ]
        filling, taken = personalizer.Filling(open_, baselines), set()
        for slot in range(count):
            found = filling.possible(slot)
            assert set(found) == possible(open_[slot:], taken), (open_, baselines, taken)
            ended += len(found) < len(set(open_[slot]) - taken)
            filling.take(slot, int(rng.choice(found)))
            taken = filling._taken
    assert ended > 30  # something had to be left for others


@pytest.mark.parametrize("sparse", [False, True])
def test_filling_slots_is_little_work(sparse):
    """The most that is allowed took four seconds of work, and eight at once everybody's time."""
    count, began = 310, time.process_time()
    open_ = [[a for a in range(count) if not sparse or (a * 7 + s) % 2] for s in range(count)]
    filling = personalizer.Filling(
        [sorted({*arms, slot}) for slot, arms in enumerate(open_)], [*range(count)]
    )
    for slot in range(count):
        filling.take(slot, filling.possible(slot)[-1])
    assert len(filling._taken) == count
    assert time.process_time() - began < 1.5


def test_many_slots_are_filled_in_a_moment_and_more_are_refused(secure, make):
    """Sixty slots for 200 actions took minutes, and nobody else was answered meanwhile."""
    name = make()
    call = secure.caller(make_key(secure.store, "app"))
    path = f"/v1/bandits/{name}/personalizer/multislot/rank"

    def asked(slots, actions):
        idents = [f"a{n}" for n in range(actions)]
        slots = [{"id": f"s{n}", "baselineAction": idents[n]} for n in range(slots)]
        actions = [{"id": ident, "features": []} for ident in idents]
        return {"actions": actions, "slots": slots, "deferActivation": True}

    began = time.monotonic()
    status, said = call("POST", path, asked(60, 200))
    assert status == 201, said
    assert len({one["rewardActionId"] for one in said["slots"]}) == 60
    assert time.monotonic() - began < 10
    assert call("POST", path, asked(350, 350))[0] == 413


def test_large_events_leave_others_their_turn():
    """One of 4 MB kept everybody else waiting for three seconds, and 24 of them for a minute."""
    features = [{f"f{n}": n % 7 for n in range(500)}]
    actions = [personalizer.Action(f"a{n}", features) for n in range(200)]
    app = SimpleNamespace(settings=SimpleNamespace(max_arms=1000))
    items = dpb.Encoder({name: dpb.Number(0, 10) for name in features[0]}, item=[*features[0]])
    hashed = dpb.make("random", dim=32, seed=0).model()
    declared = dpb.make("random", encoder=items, seed=0).model()

    async def works(model):
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        waiting = asyncio.create_task(others())
        rows = await personalizer._contexts(model, [], await personalizer._actions(app, actions))
        waiting.cancel()
        assert len(rows) == len(actions)
        return turns

    for model in (hashed, declared):
        assert asyncio.run(works(model)) > 20


@pytest.mark.parametrize(("letters", "most"), [(1 << 17, 1), (1, 3)])
def test_large_events_go_one_after_the_other(tmp_path, monkeypatch, letters, most):
    """All at once, none of a dozen was answered in time."""
    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url)
    plain, here, seen = personalizer._actions, [], []

    async def actions(*given):
        here.append(1)
        seen.append(len(here))
        await asyncio.sleep(0.05)
        here.pop()
        return await plain(*given)

    monkeypatch.setattr(personalizer, "_actions", actions)
    asked = [{"id": one, "features": [{"x": "y" * letters}]} for one in "ab"]
    slots = [{"id": "top", "baselineAction": "a"}]

    async def sent(app, handler, **more):
        async def receive():
            return {"type": "http.request", "body": json.dumps({"actions": asked, **more}).encode()}

        app._working[asyncio.current_task()] = time.monotonic()
        return (await handler(app, "shop", "key", receive))[0]

    async def live():
        app = App(Settings(store=url))
        await app.start()
        sends = [sent(app, personalizer.rank), sent(app, personalizer.rank_slots, slots=slots)]
        assert await asyncio.gather(*sends, sent(app, personalizer.rank)) == [201] * 3
        await app.stop()

    asyncio.run(live())
    assert max(seen) == most


def test_rows_are_the_same_in_any_lots(monkeypatch):
    rng = np.random.default_rng(3)
    person = flat([{"time": "morning"}], "it")
    actions = [
        (f"a{n}", flat([{"taste": ["salty", "sweet"][n % 2]}], "it") * (n < 7)) for n in range(9)
    ]
    more = [(name, [*features, ("price", rng.normal())]) for name, features in actions]
    for model, given in (
        (dpb.make("random", dim=32, seed=0).model(), more),
        (dpb.make("random", encoder=ENCODER, seed=0).model(), actions),
    ):
        whole = [*contexts_in_lots(model, person, given)]
        assert len(whole) == 1
        monkeypatch.setattr(encoded, "LOT", 4)
        lots = [*contexts_in_lots(model, person, given)]
        monkeypatch.undo()
        assert len(lots) > 3
        assert np.array_equal(np.concatenate(lots), whole[0])
        for at, one in enumerate(given):
            assert np.array_equal(contexts_of(model, person, [one])[0], whole[0][at])


@pytest.mark.parametrize("nothing", [None, [], {}])
def test_what_holds_no_feature_is_not_looked_at_for_ever(nothing):
    assert flat([{"a": [nothing] * 9_000}], "it") == []
    for much in ([{"a": [nothing] * 11_000}], [{}] * 11_000):
        with pytest.raises(OptionError, match="more than"):
            flat(much, "it")


def test_a_feature_with_an_endless_name_is_refused_in_a_line():
    declared = dpb.make("random", encoder=ENCODER, seed=0).model()
    with pytest.raises(OptionError) as said:
        contexts_of(declared, [("x" * (1 << 20), 1.0)], [("a", [])])
    assert len(str(said.value)) < 300


def test_a_decision_names_the_model_that_chose_though_another_comes_meanwhile(
    tmp_path, monkeypatch
):
    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url, algorithm="private-ts", horizon=100)
    drawn = personalizer.drawn
    slots = [{"id": one, "baselineAction": one} for one in "ab"]
    actions = [{"id": one, "features": []} for one in "abc"]

    async def live():
        app = App(Settings(store=url))
        await app.start()
        served = app.catalog.bandits["shop"]

        async def slowly(*given, **more):
            served.version += 1  # the ranker takes up a newer one
            return await drawn(*given, **more)

        monkeypatch.setattr(personalizer, "drawn", slowly)
        for handler, body in (
            (personalizer.rank, {"actions": actions}),
            (personalizer.rank_slots, {"actions": actions, "slots": slots}),
        ):
            served.version = 0

            async def receive(body=body):
                return {"type": "http.request", "body": json.dumps(body).encode()}

            app._working[asyncio.current_task()] = time.monotonic()
            assert (await handler(app, "shop", "key", receive))[0] == 201
            assert served.version > 0
        await app.stop()

    asyncio.run(live())
    store = Store(url)
    assert store.connection.all("SELECT DISTINCT version FROM decisions") == [(0,)]
    store.close()


def test_a_certificate_that_cannot_be_used_is_said_in_one_line(tmp_path):
    from harness import dpbandit

    store = f"sqlite:///{tmp_path}/s.db"
    no = str(tmp_path / "none.pem")
    said = dpbandit("serve", "--store", store, "--port", "0", "--tls-cert", no, "--tls-key", no)
    assert said.returncode == 2
    assert "TLS certificate" in said.stderr
    assert "Traceback" not in said.stderr
