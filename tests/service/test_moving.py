"""A bandit that was started from a log learns on in the service: nothing is lost, counted anew, or
spent twice."""

import asyncio
import contextlib
import json
import math
import os
import random
import shutil
import signal
import sys
import threading
import time

import msgspec
import numpy as np
import pandas as pd
import pytest
from harness import BANDIT, Caller, decide, dpbandit, learned, make_key, reward
from test_crashes import Script
from test_restore import decide as decided
from test_store import copied, learn

import dpbandit as dpb
from dpbandit.cli import app
from dpbandit.errors import CapError, OptionError, RollbackError, SaveError, StoreError
from dpbandit.files import moved_to
from dpbandit.logs.record import hash_name
from dpbandit.privacy.accounting import delta_of
from dpbandit.privacy.grid import GRID_SHARE
from dpbandit.service import blueprint, moving, restore
from dpbandit.service.journal import Journal
from dpbandit.service.learner import Learner
from dpbandit.service.measure import Measure
from dpbandit.service.records import person_of_log
from dpbandit.service.settings import Settings
from dpbandit.service.trusted import TrustedStore as Store
from dpbandit.service.witness import Witness

GIVEN = {"dim": 3, "epsilon": 1.0, "delta": 1e-6, "reward_range": (0, 1)}
LOG = pd.DataFrame(
    {"who": ["ann", "bob", "ann", "ann", "carl"], "reward": [1.0, 1.0, 0.0, 1.0, 0.0]}
)
LOG["context"] = [
    [0.6, 0.0, 0.0],
    [0.0, 0.6, 0.0],
    [0.0, 0.0, 0.6],
    [0.6, 0.0, 0.0],
    [0.0, 0.6, 0.0],
]
UNITS = {"user": ("user", 2), "person": ("person", 1)}
X = np.array([0.5, 0.5, 0.0])
VISITS = ["ann", "bob", "bob", "dora", "dora", "dora", "carl"]


def started(path, unit=("user", 2), algorithm="anytime", log=LOG, **more):
    users = {} if unit == "reward" else {"user": "who"}
    bandit = dpb.warm_start(log, algorithm, unit=unit, **users, **{**GIVEN, **more})
    bandit.save(path)
    return bandit


@pytest.fixture
def settings(store_url, tmp_path):
    return Settings(
        store=store_url, role="learner", witness=tmp_path / "w", lease_seconds=0.2,
        keep_transcript=True,
    )  # fmt: skip


@pytest.fixture
def here(tmp_path):
    """SQLite is enough where it does not matter which store it is."""
    url = f"sqlite:///{tmp_path}/store.db"
    return Settings(store=url, role="learner", witness=tmp_path / "w", lease_seconds=0.2)


def move(settings, path, name="news", **more):
    store = Store(settings.store)
    try:
        return moving.move(store, path, {"name": name, "reward_window": 0.05, **more})
    finally:
        store.close()


def visit(settings, users, value=1.0, name="news"):
    """Decisions with rewards through the journal, learned when this returns."""
    store = Store(settings.store)
    (line,) = [line for line in store.lines() if line.name == name]
    key = bytes.fromhex(store.meta("person_key"))

    async def write():
        journal = Journal(settings.store)
        await journal.start()
        for user in users:
            who = None if user is None else person_of_log(hash_name(user), key)
            place = await journal.decide((line.id, 0, None, X.tobytes(), who, 0, "test"))
            said = await journal.report(line.id, 600.0, "test", [(*place, value)])
            assert said == ["accepted"]
        await journal.stop()

    asyncio.run(write())
    time.sleep(0.06)  # all of them are old enough
    for _ in range(200):
        found = learn(settings)[name]
        if found.status != "learning" or found.learned == found.decisions:
            break
    counts = store.connection.all(
        "SELECT person, decisions FROM people WHERE bandit = ?", (line.id,)
    )
    store.close()
    names = {person_of_log(hash_name(user), key): user for user in {*LOG["who"], *VISITS}}
    return found, {names[bytes(person)]: count for person, count in counts}


@pytest.mark.parametrize("unit", [*UNITS, "visitor"])
def test_it_learns_on_as_it_would_have_where_it_was_made(settings, tmp_path, unit):
    path = tmp_path / "bandit.npz"
    if unit == "visitor":  # a person whose contexts are private too
        bandit = started(path, ("person", 1), "anytime-joint", dim=3, first_release=2, knee=4.0)
    else:
        bandit = started(path, UNITS[unit], "tree-gauss", horizon=100)
    new, claim = move(settings, path)
    assert new
    assert claim["epsilon"] == 1.0
    assert "warm start: the" in claim["words"]
    line, counts = visit(settings, VISITS)
    assert (line.status, line.learned) == ("learning", len(VISITS))
    # the same rewards of the same users, with the noise that was published, where it was made
    store = Store(settings.store)
    rows = store.connection.all(
        "SELECT noisy FROM releases WHERE noisy IS NOT NULL ORDER BY number"
    )
    noisy = np.concatenate([np.frombuffer(bytes(row[0])) for row in rows] or [np.empty(0)])
    bandit.source = Script(noisy.reshape(-1, len(bandit.engine.pending())))
    for user in VISITS:
        bandit.update(X, 1.0, user=user)
    _, position, state = store.state(line.id)
    assert position == len(VISITS)
    from dpbandit.files import unpack

    there = unpack(state)
    for field, array in there.engine.fields().items():
        assert np.array_equal(array, bandit.engine.fields()[field]), field
    assert there.ledger.to_dict() == bandit.ledger.to_dict()
    assert (there.over_cap, there.identity) == (bandit.over_cap, bandit.identity)
    assert store.release_seal(line.id, 0) != ""
    if unit == "user":
        assert counts == {"ann": 3, "bob": 3, "carl": 2, "dora": 3}
        assert there.rounds == 4  # bob once, dora twice, carl once: each had so many left
    elif unit == "visitor":
        assert (counts["ann"], counts["bob"]) == (1 + (1 << 20), 1 + (1 << 20))  # in the log
        assert 1 < counts["carl"] < counts["dora"]
        assert there.rounds == len(VISITS)
    else:
        assert counts == dict.fromkeys(("ann", "bob", "carl", "dora"), 1 << 20)
        assert there.rounds == len(VISITS)
    record = store.privacy(line.id)
    assert record["releases"] == bandit.ledger.releases
    store.close()


@pytest.mark.parametrize("unit", UNITS)
def test_planted_users_whose_counts_stay_behind_are_learned_from_beyond_their_cap(
    here, tmp_path, monkeypatch, unit
):
    """What the test above would see, were the log's counts not carried over."""
    monkeypatch.setattr(moving, "_people", lambda bandit, key: {})
    started(tmp_path / "bandit.npz", UNITS[unit])
    move(here, tmp_path / "bandit.npz")
    _, counts = visit(here, VISITS)
    before = {"user": {"ann": 2, "bob": 1, "carl": 1}, "person": {"ann": 1 << 20, "bob": 1 << 20}}[
        unit
    ]
    most = {"user": 2, "person": 1 << 20}[unit]
    learned = {user: min(count, most) for user, count in counts.items()}
    assert any(learned[user] + before.get(user, 0) > most for user in learned)


def test_a_learner_refuses_users_that_the_store_does_not_count(here, tmp_path, monkeypatch):
    """Their counts are still in the state; or somebody is known by another name than the log's."""
    kept = started(tmp_path / "a.npz").people
    monkeypatch.setattr(moving.People, "nobody", lambda: kept)
    move(here, tmp_path / "a.npz", name="a")
    monkeypatch.undo()
    started(tmp_path / "b.npz")
    move(here, tmp_path / "b.npz", name="b")
    assert visit(here, ["dora"], name="a")[0].reason.startswith(
        "the store does not count the users"
    )
    monkeypatch.setattr(sys.modules[__name__], "person_of_log", lambda hashed, key: b"0" * 16)
    store = Store(here.store)
    with pytest.raises(KeyError):  # what came of it has no name in this test
        visit(here, ["dora"], name="b")
    lines = {line.name: line for line in store.lines()}
    assert lines["b"].status == "failed"
    assert "another name" in lines["b"].reason
    assert (lines["a"].learned, lines["b"].learned) == (0, 0)
    store.close()


# ------------------------------------------------------------------------------ twice, and elsewhere


def test_the_same_again_changes_nothing_and_it_moves_once(here, tmp_path):
    path = tmp_path / "bandit.npz"
    started(path)
    shutil.copy(path, tmp_path / "copy.npz")  # which no note is beside
    assert move(here, path)[0]
    _, counts = visit(here, ["dora", "dora", "bob"])
    assert not move(here, path)[0]
    assert not move(here, tmp_path / "copy.npz")[0]
    assert visit(here, [])[1] == counts
    shutil.copy(path, tmp_path / "third.npz")
    for file in (path, tmp_path / "third.npz"):
        with pytest.raises(OptionError, match="is or was here already, as 'news'"):
            move(here, file, name="second")
    assert json.loads((tmp_path / "third.npz.moved").read_text())["bandit"] == "news"
    with pytest.raises(OptionError, match="the same settings"):
        move(here, path, reward_window=7.0)
    started(tmp_path / "other.npz")
    with pytest.raises(OptionError, match="another bandit of this name"):
        move(here, tmp_path / "other.npz")
    assert not (tmp_path / "other.npz.moved").exists()
    with pytest.raises(
        RollbackError, match="moved into a service, which learns on from it as 'news'"
    ):
        dpb.load(path)
    # deleted, its budget stays spent and nobody begins again from the file
    store = Store(here.store)
    store.delete(store.lines()[0].id)
    for name in ("news", "again"):
        for file in (path, tmp_path / "copy.npz"):
            with pytest.raises(OptionError, match=r"was deleted|is or was here already, as .news."):
                move(here, file, name=name)
    assert [times for _, times in store.claims()] == [1]
    store.close()


def test_another_store_is_refused_by_the_note(here, tmp_path):
    path = tmp_path / "bandit.npz"
    started(path)
    move(here, path)
    (tmp_path / "link.npz").symlink_to(path)
    other = Settings(store=f"sqlite:///{tmp_path}/other.db", witness=tmp_path / "w2")
    for file in (path, tmp_path / "link.npz"):
        with pytest.raises(
            OptionError, match=r"moved into another store, as 'news'.*bandit\.npz\.moved"
        ):
            move(other, file)
    (tmp_path / "bandit.npz.moved").write_text("{}")
    with pytest.raises(SaveError, match="cannot be read"):
        move(here, path)


def test_a_name_that_moved_is_not_used_again(here, tmp_path):
    """The note beside it would speak of a bandit that never was there."""
    path = tmp_path / "bandit.npz"
    started(path)
    move(here, path)
    with pytest.raises(SaveError, match=r"bandit.npz moved into a service: give this one"):
        started(path)
    path.unlink()
    asked = ["warm-start", "log.parquet", "--reward-range", "0", "1", "--out", str(path)]
    with pytest.raises(SaveError, match="another name"):  # before the log is opened
        app(asked, standalone_mode=False)


def test_an_old_copy_of_the_store_does_not_learn_again(settings, tmp_path):
    path = tmp_path / "bandit.npz"
    started(path)
    Store(settings.store).close()
    before = copied(settings.store, tmp_path, "before.db")
    move(settings, path)
    learn(settings)
    moved = copied(settings.store, tmp_path, "moved.db")
    assert visit(settings, ["dora", "bob"])[0].version >= 1
    # from after it came, and before it learned
    moved()
    assert learn(settings)["news"].status == "restored"
    assert "resumed" in decided(settings, "news", pay_again=True)
    line, counts = visit(settings, ["dora"])
    assert (line.timelines, counts["dora"], counts["ann"]) == (2, 1, 2)
    # from before it came: it comes back, and the witness knows how far it was
    before()
    assert move(settings, path)[0]
    assert learn(settings)["news"].status == "restored"
    # the learner was first: what is lost is booked, and it does not come back
    before()
    assert learn(settings) == {}
    with pytest.raises(CapError, match="restored from an old copy"):
        move(settings, path)
    store = Store(settings.store)
    assert restore.accept_lost(store, Witness(settings.witness)) == ["news"]
    assert [times for _, times in store.claims()] == [2]
    store.close()
    with pytest.raises(OptionError, match="was deleted"):
        move(settings, path)


# --------------------------------------------------------------------------------------- crashes


@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_dies_while_it_moves_moves_it_again(here, tmp_path, monkeypatch, when):
    path = tmp_path / "bandit.npz"
    started(path)
    plain = Store.create

    class Died(BaseException):
        pass

    def dies(*arguments, **more):
        if when == "after":
            plain(*arguments, **more)
        raise Died

    monkeypatch.setattr(Store, "create", dies)
    with pytest.raises(Died):
        move(here, path)
    monkeypatch.undo()
    assert (tmp_path / "bandit.npz.moved").exists()  # said before it was there
    assert move(here, path)[0] is (when == "before")
    assert visit(here, ["ann", "dora"])[1] == {"ann": 3, "bob": 1, "carl": 1, "dora": 1}


def test_killed_at_any_moment_while_it_moves_nothing_is_there_without_its_note(here, tmp_path):
    """In a process of its own, which somebody kills: the note is whole, and there before the bandit."""
    chance, path = random.Random(5), tmp_path / "bandit.npz"
    began = time.monotonic()
    started(path)
    move(here, path, name="first")
    seconds, seen = time.monotonic() - began, set()
    store = Store(here.store)
    for number in range(24):
        path = tmp_path / f"{number}.npz"
        started(path)
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                move(here, path, name=f"b{number}")
            os._exit(0)
        time.sleep(chance.uniform(0.0, seconds))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        there = any(line.name == f"b{number}" for line in store.lines())
        # However busy the machine is, some kills come before the end and some after it.
        seconds *= 0.8 if there else 1.25
        noted = moved_to(path)
        assert noted is not None or not there
        seen.add((there, noted is not None))
        assert move(here, path, name=f"b{number}")[0] is not there
    assert {(False, False), (True, True)} <= seen
    assert [times for _, times in store.claims()] == [1] * 25
    store.close()


@pytest.mark.parametrize("got_it", [False, True])
def test_a_store_that_does_not_say_whether_it_got_it_leaves_the_note(
    here, tmp_path, monkeypatch, got_it
):
    """It may be waiting for a standby: then the bandit is there a moment later, and nobody sees it."""
    path = tmp_path / "bandit.npz"
    started(path)
    plain = Store.create

    def silent(*given, **more):
        if got_it:
            plain(*given, **more)
        raise StoreError("the server is silent")

    monkeypatch.setattr(Store, "create", silent)
    monkeypatch.setattr(Store, "name_of", lambda *_: None)
    with pytest.raises(StoreError):
        move(here, path)
    monkeypatch.undo()
    assert (tmp_path / "bandit.npz.moved").exists()
    other = Settings(store=f"sqlite:///{tmp_path}/other.db", witness=tmp_path / "w2")
    with pytest.raises(OptionError, match="another store"):
        move(other, path)
    assert move(here, path)[0] is not got_it


def test_of_two_at_once_the_refused_one_leaves_the_others_note(here, tmp_path, monkeypatch):
    path = tmp_path / "bandit.npz"
    started(path)
    plain, refusing, done = Store.create, threading.Event(), []

    def create(self, config, **more):
        if config["name"] == "refused":
            refusing.set()
            time.sleep(0.3)  # the other would come in between
            raise CapError("no")
        return plain(self, config, **more)

    monkeypatch.setattr(Store, "create", create)

    def refused():
        with pytest.raises(CapError):
            move(here, path, name="refused")
        done.append(1)

    first = threading.Thread(target=refused)
    first.start()
    assert refusing.wait(20)
    assert move(here, path)[0]
    first.join(20)
    assert done
    assert json.loads((tmp_path / "bandit.npz.moved").read_text())["bandit"] == "news"


def test_a_learner_that_dies_before_its_first_release_learns_once(settings, tmp_path, monkeypatch):
    path = tmp_path / "bandit.npz"
    started(path, ("user", 2), "tree-gauss", horizon=100)
    move(settings, path)
    died = []

    def dies(self, held):
        if len(died) < 3:
            died.append(held.bandit.rounds)
            raise KeyboardInterrupt

    monkeypatch.setattr(Learner, "before_publishing", dies)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            visit(settings, ["dora", "bob"])
    line, counts = visit(settings, ["bob"])
    assert died == [2, 3, 3]  # each time from the start: dora twice, bob once
    assert counts == {"ann": 2, "bob": 5, "carl": 1, "dora": 3}
    store = Store(settings.store)
    charged = [r["releases"] for r in store.releases(line.id, limit=100)]
    assert charged == [1, 1 + 3]  # the log's, and one for each that was learned
    store.close()


# ------------------------------------------------------------------------------------- what moves


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"seed": 7}, "simulated noise"),
        ({"backend": "reference"}, "'backend' cannot be served"),
        ({"holdout": 0.1}, "made with a holdout of its own"),
        (
            {"algorithm": "linucb", "unit": "reward", "epsilon": None, "delta": None},
            "no proven claim",
        ),
    ],
)
def test_what_cannot_be_served_does_not_move(here, tmp_path, given, words):
    started(tmp_path / "bandit.npz", **given)
    with pytest.raises(OptionError, match=words):
        move(here, tmp_path / "bandit.npz")
    assert not (tmp_path / "bandit.npz.moved").exists()


def test_what_has_learned_online_or_from_no_log_does_not_move(here, tmp_path):
    path = tmp_path / "bandit.npz"
    dpb.make("anytime", **GIVEN).save(path)
    with pytest.raises(OptionError, match="not started from a log"):
        move(here, path)
    bandit = started(path)
    bandit.update(X, 1.0, user="dora")
    bandit.save(path)
    with pytest.raises(OptionError, match="has learned 1 rounds"):
        move(here, path)
    started(path).update(X, 1.0, user="ann")  # beyond the cap: counted, not learned
    bandit.export(path)
    with pytest.raises(SaveError, match="neither a saved bandit"):
        move(here, path)
    with pytest.raises(OptionError, match="cannot read"):
        move(here, tmp_path / "nothing.npz")


def test_a_damaged_file_does_not_move_and_is_said_in_a_line(here, tmp_path):
    path = tmp_path / "bandit.npz"
    started(path)
    arrays = dict(np.load(path))
    record = json.loads(arrays.pop("record").tobytes())
    changes = [
        ({"log": {**record["log"], "rows": None, "more": 1}}, {}),
        ({"ledger": 7}, {}),
        ({"options": None}, {}),
        ({}, {"log_counts": -arrays["log_counts"]}),
        ({}, {"log_counts": arrays["log_counts"][1:]}),
        ({}, {"log_users": arrays["log_users"].astype(float)}),
    ]
    for change, other in changes:
        text = np.frombuffer(json.dumps(record | change).encode(), dtype=np.uint8)
        np.savez(path, record=text, **arrays | other)
        with pytest.raises(SaveError):
            move(here, path)
        assert not (tmp_path / "bandit.npz.moved").exists()
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SaveError, match="damaged"):
        move(here, path)


def test_a_cap_refuses_it_and_it_counts_under_the_cap(here, tmp_path):
    store = Store(here.store)
    store.set_cap(1.5, 1e-5)
    started(tmp_path / "a.npz", "reward")
    started(tmp_path / "b.npz", "reward", epsilon=1.2)
    assert move(here, tmp_path / "a.npz", name="a")[0]
    with pytest.raises(CapError):
        move(here, tmp_path / "b.npz", name="b")
    assert not (tmp_path / "b.npz.moved").exists()
    assert dpb.load(tmp_path / "b.npz").log.learned == 5  # it may go elsewhere
    store.close()


@pytest.mark.parametrize("algorithm", ["anytime", "tree-gauss", "private-linucb", "toeplitz"])
@pytest.mark.parametrize("unit", ["reward", ("user", 2)])
def test_a_config_is_what_the_bandit_was_made_with(here, tmp_path, algorithm, unit):
    more = {"delta": None} if algorithm == "private-linucb" else {}
    bandit = started(tmp_path / "bandit.npz", unit, algorithm, horizon=1000, **more)
    move(here, tmp_path / "bandit.npz")
    store = Store(here.store)
    config = json.loads(msgspec.json.encode(store.config(store.lines()[0].id)))
    again = blueprint.build(config)
    assert again.claim.to_dict() | {"assumptions": []} == bandit.claim.to_dict() | {
        "assumptions": []
    }
    assert config["log"]["learned"] == bandit.log.learned
    store.close()


def test_a_shadow_is_paid_on_top_and_the_claim_says_so(here, tmp_path):
    bandit = started(tmp_path / "bandit.npz")
    _, claim = move(here, tmp_path / "bandit.npz", shadow=True, holdout=0.1, measure_share=0.1)
    assert 1.05 < claim["epsilon"] < 1.07
    assert claim["delta"] == 1e-6
    assert claim["mu"] > bandit.claim.mu
    store = Store(here.store)
    (line,) = store.lines()
    told = Measure.from_text(store.measure(line.id))
    # A user's two rewards pay twice as much μ as one, in the log, online, and for what is told.
    both = math.hypot(2 * math.sqrt(bandit.ledger.limit), 2 * math.sqrt(told.cost))
    assert both <= claim["mu"] * (1 + 1e-9)
    assert both == pytest.approx(claim["mu"], rel=1e-4)
    assert delta_of(epsilon=claim["epsilon"], mu=both) + GRID_SHARE * 1e-6 <= 1e-6 * (1 + 1e-9)
    record = store.privacy(line.id)
    assert record["remaining"]["limit"] == pytest.approx(bandit.ledger.limit + told.cost)
    store.close()
    pure = started(tmp_path / "pure.npz", "reward", "private-linucb", delta=None, horizon=100)
    _, claim = move(here, tmp_path / "pure.npz", name="pure", holdout=0.1, measure_share=0.2)
    assert (pure.claim.epsilon, claim["epsilon"]) == (1.0, 1.25)
    started(tmp_path / "person.npz", ("person", 1))
    with pytest.raises(OptionError, match="no shadow and no holdout"):
        move(here, tmp_path / "person.npz", name="person", shadow=True)
    assert not (tmp_path / "person.npz.moved").exists()


# ---------------------------------------------------------------------------------- over the wire


def test_the_command_and_a_service_that_counts_whom_the_log_had(store_url, serve, tmp_path):
    file = tmp_path / "bandit.npz"
    started(file)
    more = ("--store", store_url, "--reward-window", "1", "--json")
    done = dpbandit("store", "import", str(file), "--bandit", "news", *more)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["new"]
    assert said["claim"]["epsilon"] == 1.0
    service = serve(store_url)
    call = Caller(service.port, make_key(store_url))
    assert call.get("/v1/bandits/news")["log"] == {
        "rows": 5, "learned": 4, "bad": dict.fromkeys(started(tmp_path / "same.npz").log.bad, 0), "over_cap": 1, "users": 3, "full": 1,
    }  # fmt: skip
    for user in ("ann", "bob", "dora"):
        assert reward(call, decide(call, "news", user=user), 1.0, "news")[0] == 200
    learned(call, 3, "news")
    store = Store(store_url)
    rows = store.connection.all("SELECT decisions FROM people ORDER BY decisions")
    assert rows == [(1,), (1,), (2,), (3,)]
    # Whom the log had is found when they ask to be forgotten: nothing more is learned of them.
    assert call("DELETE", "/v1/bandits/news/users/carl")[1]["decisions"] == 0
    rows = store.connection.all("SELECT decisions FROM people ORDER BY decisions")
    assert rows == [(-1,), (1,), (2,), (3,)]
    store.close()
    # No call makes one: what a file holds is for nobody who has a key.
    asked = {**BANDIT, "name": "other", "log": {}}
    assert call("POST", "/v1/bandits", asked)[0] in (400, 422)
    assert call("POST", "/v1/bandits", {**BANDIT, "name": "news"})[0] == 409
