"""Nothing that a rank key, a stranger or a graph can see changes because of a reward, other than
through a release: two services with the same decisions, one of which is told rewards."""

import asyncio
import contextlib
import json
import logging
import re
import sqlite3
import statistics
import threading
import time

import numpy as np
import pytest
from harness import ARMS, Service, make_key, until
from test_leases import add_decisions, make_bandit

from dpbandit.errors import StoreError
from dpbandit.service import batch, personalizer
from dpbandit.service.access import AccessLog
from dpbandit.service.answers import Overloaded
from dpbandit.service.api import App
from dpbandit.service.database import connect
from dpbandit.service.journal import Journal
from dpbandit.service.keys import revoke
from dpbandit.service.learner import Learner
from dpbandit.service.schema import LOCK_REWARDS
from dpbandit.service.settings import Settings
from dpbandit.service.store import Store

ROUNDS = 24
# However slow the machine: whether the lease has run out is no difference between two services.
LEARNS = {"lease_seconds": 600.0}
CALLS = "/v1/bandits/shop/personalizer/"
EVENTS = CALLS + "events/{event}/reward"
MANY = CALLS + "multislot/events/m0/reward"
# As Personalizer's clients do it; with one action for each place, so that nothing is drawn.
ONE = {"actions": [{"id": "a", "features": [{"x": "y"}]}], "eventId": "e0"}
DEFERRED = {**ONE, "eventId": "d0", "deferActivation": True}
SLOTS = {
    "actions": [{"id": "a", "features": []}, {"id": "b", "features": []}],
    "slots": [
        {"id": "top", "baselineAction": "a", "excludedActions": ["b"]},
        {"id": "foot", "baselineAction": "b"},
    ],
    "eventId": "m0",
}
PAGES = ("/", "/readyz", "/healthz", "/v1/bandits", "/v1/privacy", "/openapi.json", "/metrics")
OF_A_BANDIT = ("", "/privacy", "/releases", "/rewards")
# Times of day, and how long decisions took: never the same in two runs. What they say is compared
# apart. A release is drawn at random, and so are the arms that follow from it.
TIMES = r'"(created_at|store_time|lease_until|made_at|decisions_per_second)":[0-9.e+-]+'
# What was offered follows from releases, arm by arm; how many offers there were does not.
OFFERS = r'"offers":\[(.*?)\]'
# What a holdout told is drawn at random, and so is whom its lots fell on.
TOLD = r'"(mean|standard_error|low|high|by_lot|agreement)":[0-9.e+-]+'
# How often this test had to look is its own affair.
ASKED = r'requests_total\{action="metrics",status="200"\}'
TIMED = rf"^dpbandit_(start_time_seconds|decision_seconds_(sum|bucket\{{.*\}})|{ASKED}) .*$"


@pytest.fixture(autouse=True)
def _one_turn_learns_all(monkeypatch):
    """However slow the machine: where a turn ends decides which model is published."""
    monkeypatch.setattr(batch, "BATCH_SECONDS", 600.0)


def counted(found):
    return str(sum(map(int, re.findall(r'"offers":(\d+)', found[1]))))


def report(service, path, keys, decision):
    """Whatever a report may be: accepted, repeated, contradicted, refused for any reason."""
    reward, revoked, rank = keys
    body = {"decision": decision, "reward": 1.0}
    call = service.caller(reward)
    found = [
        call("POST", path, body)[0],
        call("POST", path, body)[0],
        call("POST", path, {**body, "reward": 0.25})[0],
        call("POST", path, {**body, "decision": "1-0000000000000001"})[0],
        call("POST", path, [body] * 3)[0],
        call("POST", path, {**body, "reward": "x"})[0],
        call("POST", path, raw=b"{")[0],
        call("POST", path, raw=b" " * (5 << 20))[0],
        call("PUT", path, body)[0],
        call("POST", path + "/", body)[0],
        call("POST", path.replace("shop", "shopp"), body)[0],
        service.caller(revoked)("POST", path, body)[0],
        service.caller(rank)("POST", path, body)[0],
        service.caller("")("POST", path, body)[0],
        call("POST", EVENTS.replace("{event}", "e0"), {"value": 1.0})[0],
        call("POST", EVENTS.replace("{event}", "e0"), {"value": 0.5})[0],
        call("POST", EVENTS.replace("{event}", "none"), {"value": 0.5})[0],
        service.caller(rank)("POST", EVENTS.replace("{event}", "e0"), {"value": 1.0})[0],
        call("POST", EVENTS.replace("{event}", "d0"), {"value": 1.0})[0],
        call("POST", MANY, {"reward": [{"slotId": "foot", "value": 1.0}]})[0],
        call("POST", MANY, {"reward": [{"slotId": "foot", "value": 0.5}]})[0],
        call("POST", MANY, {"reward": [{"slotId": "none", "value": 0.5}]})[0],
    ]
    assert found == [
        200,
        200,
        409,
        404,
        200,
        422,
        400,
        413,
        405,
        404,
        404,
        401,
        403,
        401,
        204,
        204,
        404,
        403,
        204,
        204,
        204,
        404,
    ]


def seen(service, rank, names=("shop",)):
    """All answers, headers included, to a rank key and to a stranger."""
    found = {}
    pages = [*PAGES, *(f"/v1/bandits/{name}{page}" for name in names for page in OF_A_BANDIT)]
    for key in (rank, ""):
        call = service.caller(key)
        for path in pages:
            call.connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
            answer = call.connection.getresponse()
            head = [(name, value) for name, value in answer.getheaders() if name != "date"]
            text = re.sub(TIMES, r"\1", answer.read().decode())
            text = re.sub(OFFERS, counted, text)
            text = re.sub(TOLD, r"\1", text)
            text = re.sub(TIMED, r"\1", text, flags=re.MULTILINE)
            found[bool(key), path] = answer.status, text, head
    return {
        which: (status, text, [pair for pair in head if pair[0] != "content-length"])
        for which, (status, text, head) in found.items()
    }


def life(folder, *, rewards, caplog, env=None):
    """What was seen before and after a release and the log."""
    folder.mkdir()
    url = f"sqlite:///{folder}/store.db"
    make_bandit(url, reward_window=600)
    rank, reward, revoked = (make_key(url, role) for role in ("rank", "reward", "reward"))
    store = connect(url)
    revoke(store, revoked)
    service = Service(url, folder, role="ranker", settings={"otel": bool(env)}, env=env)
    learner = Learner(Settings(store=url, **LEARNS, witness=folder / "witness", retain_rewards=0.0))
    call, path = service.caller(rank), "/v1/bandits/shop/rewards"
    told = service.caller(reward)

    def decide():
        status, answer = call("POST", "/v1/bandits/shop/decisions", {"contexts": ARMS})
        assert status == 201
        return answer

    def events():
        """What a rank key is answered: asked again, activated once more, of what was never asked."""
        return [
            call("POST", CALLS + "rank", ONE),
            call("POST", CALLS + "rank", DEFERRED),
            call("POST", CALLS + "multislot/rank", SLOTS),
            call("POST", CALLS + "rank", {**DEFERRED, "eventId": "e0"}),
            *(call("POST", f"{CALLS}events/{event}/activate", {}) for event in ("d0", "e0", "m0")),
            call("POST", CALLS + "multislot/events/m0/activate", {}),
        ]

    first = events()
    assert [status for status, _ in first] == [201, 201, 201, 409, 204, 204, 404, 204]
    answers = []
    for number in range(4, ROUNDS):
        answers.append(decide())
        if rewards:
            body = {"decision": answers[-1]["decision"], "reward": 1.0}
            assert told("POST", path, body)[0] == 200
            if number == 4:
                report(service, path, (reward, revoked, rank), answers[-1]["decision"])
    until(lambda: f'decisions_total{{bandit="shop"}} {ROUNDS}.0' in call("GET", "/metrics")[1])
    before = seen(service, rank)
    assert events() == first
    store.run("UPDATE decisions SET decided_at = decided_at - 1000000000")
    with caplog.at_level(logging.DEBUG):
        caplog.clear()
        learner.turn()
        learner._erased = -1e9
        learner.turn()  # rewards are erased, where there were any
        learned = [record.getMessage() for record in caplog.records]
    assert store.one("SELECT count(*) FROM rewards") == (0,)
    until(lambda: 'model_version{bandit="shop"} 1.0' in call("GET", "/metrics")[1])
    after = seen(service, rank)
    assert events() == first
    last = {name: value for name, value in decide().items() if name == "model_version"}
    learner.stop()
    store.close()
    # What is sent at the end says how it was then.
    last_words = (
        f'decisions_total{{bandit="shop"}} {ROUNDS + 1}.0',
        'learner_up{bandit="shop"} 0.0',
    )
    until(lambda: all(words in call("GET", "/metrics")[1] for words in last_words))
    service.stop()
    log = re.sub(r"^\S+ \S+ |:\d+$", "", service.log.read_text(), flags=re.MULTILINE)
    return before, after, last, [*log.splitlines(), *learned]


def test_two_services_one_with_rewards_cannot_be_told_apart(tmp_path, caplog):
    without = life(tmp_path / "without", rewards=False, caplog=caplog)
    with_rewards = life(tmp_path / "with", rewards=True, caplog=caplog)
    for number, (one, other) in enumerate(zip(without, with_rewards, strict=True)):
        assert one == other, number


def visits(folder, *, other):
    """What all others saw of a bandit whose contexts are private, before and after releases. One
    person is offered, plays and earns something else."""
    folder.mkdir()
    url = f"sqlite:///{folder}/store.db"
    given = {"algorithm": "anytime-joint", "unit": ("person", 1), "options": {"first_release": 8}}
    make_bandit(url, reward_window=600, **given)
    rank, reward = make_key(url, "rank"), make_key(url, "reward")
    service = Service(url, folder, role="ranker", settings={})
    learner = Learner(Settings(store=url, **LEARNS, witness=folder / "witness"))
    call, told = service.caller(rank), service.caller(reward)
    for number in range(ROUNDS):
        user, slate = f"u{number % 4}", {"contexts": ARMS, "arms": [f"a{at}" for at in range(3)]}
        whose = other and user == "u2"
        if whose:
            slate = {"contexts": [[0.0, -0.6, 0.6], [0.1, 0.0, 0.0]], "arms": ["b", "c"]}
        status, answer = call("POST", "/v1/bandits/shop/decisions", {**slate, "user": user})
        assert status == 201
        if whose or number % 5 == 0:
            body = {"decision": answer["decision"], "reward": 1.0}
            assert told("POST", "/v1/bandits/shop/rewards", body)[0] == 200
    until(lambda: f'decisions_total{{bandit="shop"}} {ROUNDS}.0' in call("GET", "/metrics")[1])
    before = seen(service, rank)
    store = connect(url)
    store.run("UPDATE decisions SET decided_at = decided_at - 1000000000")
    learner.turn()
    until(lambda: 'model_version{bandit="shop"} 1.0' in call("GET", "/metrics")[1])
    after = seen(service, rank)
    said = call("DELETE", "/v1/bandits/shop/users/u9")
    learner.stop()
    store.close()
    service.stop()
    return before, after, said


def test_where_contexts_are_private_nobody_sees_what_another_person_was_offered(tmp_path):
    one, two = visits(tmp_path / "one", other=False), visits(tmp_path / "two", other=True)
    assert one == two
    text = one[1][True, "/v1/bandits/shop"][1]
    assert '"learned":24' in text
    assert text.endswith(",0}")  # no offers are counted


MEASURED = {
    "hold": {"algorithm": "anytime", "holdout": 0.5, "measure_every": 4},
    "shade": {"algorithm": "tree-gauss", "shadow": True, "measure_every": 4, "unit": ("user", 9)},
    "lots": {"algorithm": "anytime", "options": {"policy": "sampled"}},
    "people": {"algorithm": "anytime-joint", "unit": ("person", 1)},
}


def measured(folder, url, *, rewards, caplog):
    """The same of bandits with a holdout, in the shadow, with lots, and with persons."""
    folder.mkdir()
    for name, given in MEASURED.items():
        make_bandit(url, name=name, reward_window=600, **given)
    rank, reward = make_key(url, "rank"), make_key(url, "reward")
    service = Service(url, folder, role="ranker", settings={})
    learner = Learner(Settings(store=url, **LEARNS, witness=folder / "witness", retain_rewards=0.0))
    call, told = service.caller(rank), service.caller(reward)
    store = connect(url)
    first = []

    def asks(name, number):
        # One arm, so that nothing that is drawn is compared; a slate now and then.
        more = {"k": 1, "propensities": True} if number % 2 else {}
        more |= {"user": f"u{number % 4}"} if "unit" in MEASURED[name] else {}
        more |= {"baseline": 0, "baseline_propensity": 0.5} if name == "shade" else {}
        body = {"contexts": ARMS[:1], "request": f"{name} {number}", **more}
        return call("POST", f"/v1/bandits/{name}/decisions", body)

    for number in range(ROUNDS):
        for name in MEASURED:
            status, answer = asks(name, number)
            assert status == 201
            if rewards and number % 3:
                for _ in range(2):
                    body = {"decision": answer["decision"], "reward": 1.0}
                    assert told("POST", f"/v1/bandits/{name}/rewards", body)[0] == 200
            first.append(
                {**answer, "decision": "", "slate": [*map(without, answer.get("slate", ()))]}
            )
    made = [f'decisions_total{{bandit="{name}"}} {ROUNDS}.0' for name in MEASURED]
    until(lambda: all(words in call("GET", "/metrics")[1] for words in made))
    before = seen(service, rank, MEASURED)
    store.run("UPDATE decisions SET decided_at = decided_at - 1000000000")
    with caplog.at_level(logging.DEBUG):
        caplog.clear()
        while learner.turn():
            pass
        learner._erased = -1e9
        learner.turn()
        said = [record.getMessage() for record in caplog.records]
    assert store.one("SELECT count(*) FROM rewards") == (0,)
    until(lambda: all(line.endswith(" 0.0") for line in waiting(call)))
    after = seen(service, rank, MEASURED)
    again = [asks(name, 0)[0] for name in MEASURED]
    several = [{"contexts": ARMS[:1], "user": "u2", "request": f"{at} of a list"} for at in "ab"]
    again += call("POST", "/v1/bandits/people/decisions", several)[:1]
    admin = service.caller(make_key(url))
    gone = [admin("DELETE", f"/v1/bandits/{name}/users/u1") for name in MEASURED]
    live = admin("POST", "/v1/bandits/shade/live")
    gone.append(
        (live[0], {name: live[1][name] for name in ("live", "decisions", "learned", "claim")})
    )
    gone.append(admin("POST", "/v1/bandits/hold/live"))
    gone.append(admin("DELETE", "/v1/bandits/lots"))
    learner.stop()
    store.close()
    service.stop()
    log = re.sub(r"^\S+ \S+ |:\d+$", "", service.log.read_text(), flags=re.MULTILINE)
    return first, before, after, again, gone, [*log.splitlines(), *said]


def without(ranked):
    """What is not drawn of an arm that was ranked."""
    return {**ranked, "decision": "", "score": 0.0}


def waiting(call):
    lines = call("GET", "/metrics")[1].splitlines()
    return [line for line in lines if line.startswith("dpbandit_waiting{")]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_holdouts_shadows_lots_and_persons_cannot_be_told_apart_either(
    kind, tmp_path, caplog, request
):
    found = []
    for rewards in (False, True):
        folder = tmp_path / str(rewards)
        url = f"sqlite:///{tmp_path}/{rewards}.db"
        if kind == "postgresql":
            url = request.getfixturevalue("new_database")()
        found.append(measured(folder, url, rewards=rewards, caplog=caplog))
    for number, (one, other) in enumerate(zip(*found, strict=True)):
        assert one == other, number
    text = found[0][2][True, "/v1/bandits/hold/privacy"][1]
    assert '"measured":{"releases":6,' in text  # something was told


def test_when_something_was_released_is_told_to_the_second(tmp_path):
    """A learner takes longer where there are rewards, by a millisecond or so."""
    url = f"sqlite:///{tmp_path}/store.db"
    bandit = make_bandit(url)
    add_decisions(url, bandit, 2)
    learner = Learner(Settings(store=url, witness=tmp_path / "witness"))
    learner.turn()
    call = (service := Service(url, tmp_path, role="ranker", settings={})).caller(make_key(url))
    found = call.get("/v1/bandits/shop/releases")["releases"]
    times = [one["made_at"] for one in found] + [
        call.get("/v1/bandits/shop")["learner"]["lease_until"]
    ]
    assert len(times) == 3
    assert all(isinstance(one, int) for one in times)
    assert 0 <= time.time() - times[1] < 60
    learner.stop()
    service.stop()


def test_decisions_take_the_same_time_after_a_reward(tmp_path):
    """In turns, so that whatever else the machine does falls on both alike."""
    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url, reward_window=600)
    call = (service := Service(url, tmp_path, role="ranker", settings={})).caller(make_key(url))
    seconds = {True: [], False: []}
    for number in range(120):
        began = time.perf_counter()
        answer = call("POST", "/v1/bandits/shop/decisions", {"contexts": ARMS})[1]
        seconds[number % 2 == 1].append(time.perf_counter() - began)  # after a reward, every other
        if number % 2 == 0:
            body = {"decision": answer["decision"], "reward": 1.0}
            assert call("POST", "/v1/bandits/shop/rewards", body)[0] == 200
    service.stop()
    quiet, told = statistics.median(seconds[False]), statistics.median(seconds[True])
    assert told < 2 * quiet + 0.002, (told, quiet)


def test_rewards_that_wait_leave_decisions_their_room(tmp_path):
    async def fill():
        journal = Journal(f"sqlite:///{tmp_path}/store.db", most_waiting=3)
        journal._decisions._loop = asyncio.get_running_loop()  # no thread: everything waits
        journal.report(1, 600.0, "test", [(1, 1, 1.0)] * 3)
        with pytest.raises(Overloaded):
            journal.report(1, 600.0, "test", [(1, 1, 1.0)])
        for _ in range(3):
            journal.decide((1, 0, None, b"", None, 0, "test"))
        with pytest.raises(Overloaded):
            journal.decide((1, 0, None, b"", None, 0, "test"))

    asyncio.run(fill())


def test_a_report_that_waits_for_a_learner_holds_up_no_decision(new_database):
    """A learner that stands still while it closes its stretch: once decisions waited for it too, but
    only where somebody had reported a reward."""
    url = new_database()
    bandit = make_bandit(url, reward_window=600)
    decision = (bandit, 0, None, np.array([0.5, 0.5, 0.0]).tobytes(), None, 0, "test")

    async def write():
        journal, learner = Journal(url), Store(url)
        await journal.start()
        place = await journal.decide(decision)
        with learner.connection.write():
            learner.connection.exclude(LOCK_REWARDS, bandit)
            report = journal.report(bandit, 600.0, "test", [(*place, 1.0)])
            await asyncio.sleep(0.3)
            await asyncio.wait_for(journal.decide(decision), 3)
            await journal.probe(3)
            assert not report.done()
        found = await asyncio.wait_for(report, 10)
        await journal.stop()
        learner.close()
        return found

    assert asyncio.run(write()) == ["accepted"]


def test_reports_of_events_that_wait_hold_up_no_activation(tmp_path):
    """A rank key would see by its activations how many reports are looked up."""
    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url, reward_window=600)
    free = threading.Event()

    async def sent(app, handler, what, body):
        async def receive():
            return {"type": "http.request", "body": json.dumps(body).encode()}

        app._working[asyncio.current_task()] = time.monotonic()
        try:
            return (await handler(app, what, "key", receive))[0]
        finally:
            del app._working[asyncio.current_task()]

    async def live():
        app = App(Settings(store=url))
        await app.start()
        asked = {"actions": [{"id": "a", "features": []}], "eventId": "e", "deferActivation": True}
        assert await sent(app, personalizer.rank, "shop", asked) == 201
        slow = asyncio.create_task(app.reported.do(lambda _: free.wait(60)))
        report = asyncio.create_task(sent(app, personalizer.reward, "shop/e", {"value": 1.0}))
        await asyncio.sleep(0.2)
        activation = asyncio.create_task(sent(app, personalizer.activate, "shop/e", None))
        assert await asyncio.wait_for(activation, 20) == 204
        assert not report.done()
        free.set()
        assert await report == 204
        await slow
        await app.stop()

    asyncio.run(live())


def test_what_is_noted_of_reports_is_noted_by_the_day(monkeypatch, tmp_path):
    log = AccessLog(f"sqlite:///{tmp_path}/store.db")
    for second in (0, 3_000, 60_000):
        monkeypatch.setattr(time, "time", lambda second=second: second + 0.5)
        for status in (200, 409, 401, 404, 413, 503):
            log.note("key", "rewards", "shop", status)
    assert {bucket for bucket, *_ in log._entries} == {0}
    assert {status for *_, status in log._entries} == {200, 401, 404, 413, 503}


def test_a_log_that_cannot_be_written_does_not_show_that_it_had_entries(tmp_path):
    async def says(entries):
        log = AccessLog(f"sqlite:///{tmp_path}/none/store.db")
        log.start()
        for status in entries:
            log.note("key", "rewards", "shop", status)
        with pytest.raises(StoreError) as failed:
            await log.write()
        log.stop()
        return str(failed.value)

    assert asyncio.run(says([])) == asyncio.run(says([200, 404]))


def test_an_end_with_a_store_that_hangs_names_no_report(tmp_path):
    """They are answered, and neither their number nor their place in the program is in the log."""
    url = f"sqlite:///{tmp_path}/store.db"
    make_bandit(url, reward_window=600)
    key = make_key(url)
    settings = {"shutdown_seconds": 2.0, "log_level": "debug"}
    service = Service(url, tmp_path, role="ranker", settings=settings)
    asked = {"contexts": ARMS}
    made = service.caller(key)("POST", "/v1/bandits/shop/decisions", asked)[1]["decision"]
    statuses = []

    def report():
        body = {"decision": made, "reward": 1.0}
        statuses.append(service.caller(key)("POST", "/v1/bandits/shop/rewards", body)[0])

    with contextlib.closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        reports = [threading.Thread(target=report) for _ in range(3)]
        for one in reports:
            one.start()
        time.sleep(0.5)
        service.stop()
        for one in reports:
            one.join()
    assert statuses == [503] * 3
    lines = service.log.read_text().splitlines()
    assert all(" dpbandit.service " in line for line in lines), lines
    assert "reward" not in "".join(lines)


def test_a_bug_in_reports_is_said_once(tmp_path, caplog):
    app = App(Settings(store=f"sqlite:///{tmp_path}/store.db"))
    for _ in range(5):
        try:
            raise ValueError("0.73194268")
        except ValueError as error:
            app._say_unexpected("rewards", error)
    assert len(caplog.records) == 1
    assert "7319" not in caplog.text
