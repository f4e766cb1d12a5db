"""Old copies put in place more than once, live copies beside each other, witnesses that are broken,
absent or elsewhere.
"""

import asyncio
import dataclasses
import os
import threading
import time

import pytest
from harness import dpbandit, free_port, make_key, until
from test_leases import add_decisions, make_bandit
from test_store import copied, learn

from dpbandit.errors import CapError, OptionError
from dpbandit.service import budgets, learner, restore, witness
from dpbandit.service.journal import Journal
from dpbandit.service.learner import Learner
from dpbandit.service.settings import Settings
from dpbandit.service.trusted import TrustedStore as Store
from dpbandit.service.witness import Witness


@pytest.fixture
def here(tmp_path):
    """SQLite is enough where it does not matter which store it is."""
    url = f"sqlite:///{tmp_path}/store.db"
    return Settings(
        store=url, role="learner", witness=tmp_path / "elsewhere" / "witness", lease_seconds=0.2
    )


def decide(settings, name="shop", *, pay_again, folder=None):
    store = Store(settings.store)
    try:
        return restore.accept_restore(
            store, Witness(folder or settings.witness), name, pay_again=pay_again
        )
    finally:
        store.close()


def restored(settings, tmp_path, name="old.db"):
    """A store whose bandit has one release, put back after the second; returns how to put it back
    again.
    """
    bandit = make_bandit(settings.store)
    add_decisions(settings.store, bandit, 2)
    assert learn(settings)["shop"].version == 1
    put_back = copied(settings.store, tmp_path, name)
    add_decisions(settings.store, bandit, 2)
    assert learn(settings)["shop"].version == 2
    put_back()
    add_decisions(settings.store, bandit, 2)
    assert learn(settings)["shop"].status == "restored"
    return bandit, put_back


# ---------------------------------------------------------------------- more than once


@pytest.mark.parametrize("pay_again", [False, True])
def test_the_same_copy_put_back_again_is_noticed_again(settings, tmp_path, pay_again):
    bandit, put_back = restored(settings, tmp_path)
    decide(settings, pay_again=pay_again)
    put_back()  # at once, before anything else was released
    add_decisions(settings.store, bandit, 2)
    found = learn(settings)["shop"]
    assert (found.status, found.version) == ("restored", 1)


def test_every_timeline_is_counted_though_the_copy_knows_of_one(settings, tmp_path):
    bandit, put_back = restored(settings, tmp_path)
    for timelines in (2, 3):
        assert f"{timelines} times" in decide(settings, pay_again=True)
        found = learn(settings)["shop"]
        assert (found.status, found.timelines, found.learned) == ("learning", timelines, 4)
        put_back()
        add_decisions(settings.store, bandit, 2)
        assert learn(settings)["shop"].status == "restored"
    store = Store(settings.store)
    store.set_cap(1.5, 1e-6)
    store.close()
    with pytest.raises(CapError):  # three more, not one more
        decide(settings, pay_again=True)


def test_a_lost_bandit_is_booked_as_often_as_it_was_promised(here, tmp_path):
    first = copied_empty(here, tmp_path)
    restored(here, tmp_path)
    decide(here, pay_again=True)
    found = learn(here)["shop"]
    assert found.timelines == 2
    first()
    learn(here)
    store = Store(here.store)
    assert restore.accept_lost(store, Witness(here.witness)) == ["shop"]
    assert [(line.status, line.timelines) for line in store.lines()] == [("deleted", 2)]
    store.close()


def copied_empty(settings, tmp_path):
    Store(settings.store).close()
    return copied(settings.store, tmp_path, "empty.db")


# ---------------------------------------------------------------------- bandits that the copy lacks


def test_nothing_new_begins_on_a_copy_that_lacks_a_bandit_whoever_learns(here, tmp_path):
    """A ranker that does not know makes a bandit on the old copy; the learner is bound to that one
    by --learn.
    """
    store = Store(here.store)
    store.set_cap(1.2, 1e-6)
    store.close()
    put_back = copied(here.store, tmp_path, "empty.db")
    lost = make_bandit(here.store, name="lost")
    add_decisions(here.store, lost, 1)
    learn(here)
    put_back()
    new = make_bandit(here.store, name="new")
    add_decisions(here.store, new, 2)
    bound = dataclasses.replace(here, bandits=("new",))
    found = learn(bound)["new"]
    assert (found.status, found.learned) == ("learning", 0)
    with pytest.raises(CapError, match="accept-restore --lost"):
        make_bandit(here.store, name="another", epsilon=0.01)
    ran = dpbandit(
        "store", "accept-restore", "--lost", "--store", here.store, "--witness", str(here.witness)
    )
    assert ran.returncode == 0, ran.stderr
    # what was lost counts now, and the new one does not fit beside it
    found = learn(bound)["new"]
    assert (found.status, found.learned) == ("failed", 0)
    assert "the cap" in found.reason


def test_a_bandit_made_on_the_copy_begins_if_it_fits_beside_what_was_lost(here, tmp_path):
    put_back = copied_empty(here, tmp_path)
    make_bandit(here.store, name="lost")
    learn(here)
    put_back()
    new = make_bandit(here.store, name="lost", dim=4)  # of the same name
    assert learn(here)["lost"].version == 0
    store = Store(here.store)
    restore.accept_lost(store, Witness(here.witness))
    assert budgets.add_up(store.claims()).bandits == 2
    assert store.meta("restored") is None
    assert new == store.lines()[0].id
    learn(here)
    assert Witness(here.witness).seen(store.lines()[0].identity) is not None  # begun
    store.close()


def test_only_a_witness_that_knows_them_books_what_was_lost(here, tmp_path):
    put_back = copied_empty(here, tmp_path)
    make_bandit(here.store, name="lost")
    learn(here)
    put_back()
    learn(here)
    command = ["store", "accept-restore", "--lost", "--store", here.store, "--witness"]
    ran = dpbandit(*command, str(tmp_path / "absent"))
    assert (ran.returncode, (tmp_path / "absent").exists()) == (2, False)
    (tmp_path / "wrong").mkdir()
    ran = dpbandit(*command, str(tmp_path / "wrong"))
    assert ran.returncode == 2
    assert "knows nothing of lost" in " ".join(ran.stderr.split())
    store = Store(here.store)
    assert "lost" in store.meta("restored")
    # nor is anything booked by guessing
    (record,) = here.witness.glob("*.json")
    kept = record.read_text()
    record.write_text("{")
    with pytest.raises(OptionError, match=record.name):
        restore.accept_lost(store, Witness(here.witness))
    record.write_text(kept)
    assert restore.accept_lost(store, Witness(here.witness)) == ["lost"]
    assert store.meta("restored") is None
    store.close()


# ------------------------------------------------------- what an operator cannot vouch for


def test_nobody_can_vouch_against_a_witness_that_knows_better(here, tmp_path):
    bandit, _ = restored(here, tmp_path)
    ran = dpbandit(
        "store", "trust", "--bandit", "shop", "--store", here.store, "--witness", str(here.witness)
    )
    assert ran.returncode == 2
    assert "accept-restore" in ran.stderr
    assert learn(here)["shop"].status == "restored"
    ran = dpbandit(
        "store",
        "trust",
        "--bandit",
        "shop",
        "--store",
        here.store,
        "--witness",
        str(tmp_path / "none"),
    )
    assert (ran.returncode, (tmp_path / "none").exists()) == (2, False)
    assert bandit


# ---------------------------------------------------------------------- two copies, both alive


def live_copies(settings, tmp_path):
    bandit = make_bandit(settings.store)
    add_decisions(settings.store, bandit, 1)
    assert learn(settings)["shop"].version == 1
    copied(settings.store, tmp_path, "copy.db")
    other = dataclasses.replace(settings, store=f"sqlite:///{tmp_path}/copy.db")
    return bandit, other


def state(settings):
    store = Store(settings.store)
    (line,) = store.lines()
    store.close()
    return line.status, line.version


def test_of_two_live_copies_with_one_witness_only_one_goes_on(here, tmp_path):
    bandit, there = live_copies(here, tmp_path)
    first, second = Learner(here), Learner(there)
    first.turn()
    second.turn()  # both have the lease of their own store
    for settings, each in ((here, first), (there, second)):
        add_decisions(settings.store, bandit, 2)
        each.turn()
    assert (state(here), state(there)) == (("learning", 2), ("restored", 1))
    first.stop()
    second.stop()


def test_two_live_copies_cannot_publish_at_the_same_moment(here, tmp_path):
    bandit, there = live_copies(here, tmp_path)

    class Slow(Learner):
        def before_publishing(self, held):
            add_decisions(there.store, bandit, 2)
            second.turn()  # the noise of the first is drawn, and not yet published

    first, second = Slow(here), Learner(there)
    add_decisions(here.store, bandit, 2)
    first.turn()
    assert (state(here), state(there)) == (("restored", 1), ("learning", 2))
    first.stop()
    second.stop()


def test_a_store_that_moved_on_meanwhile_is_not_taken_for_an_old_copy(settings):
    """What a learner read at the start of its turn is old when it asks for the lease."""
    bandit = make_bandit(settings.store)
    first, second = Learner(settings), Learner(settings)
    first.turn()
    first.stop()
    (early,) = second.store.lines()
    add_decisions(settings.store, bandit, 3)
    assert learn(settings)["shop"].version == 1  # a third, meanwhile
    second._serve(early)
    assert learn_status(second) == ("learning", 1)
    second.stop()


def learn_status(one):
    (line,) = one.store.lines()
    return line.status, line.version


# ---------------------------------------------------------------------- witnesses that fail


def test_one_broken_witness_stops_one_bandit_and_an_operator_can_decide(here):
    bandits = {
        name: make_bandit(here.store, name=name, epsilon=0.1) for name in ("first", "second")
    }
    for bandit in bandits.values():
        add_decisions(here.store, bandit, 1)
    lines = learn(here)
    record = here.witness / f"{lines['first'].identity}.json"
    record.write_text("not json")
    for bandit in bandits.values():
        add_decisions(here.store, bandit, 1)
    lines = learn(here)
    assert {name: (line.status, line.learned) for name, line in lines.items()} == {
        "first": ("restored", 1),
        "second": ("learning", 2),
    }
    assert "not a readable witness" in lines["first"].reason
    ran = dpbandit(
        "store", "trust", "--bandit", "first", "--store", here.store, "--witness", str(here.witness)
    )
    assert ran.returncode == 0, ran.stderr
    assert learn(here)["first"].learned == 2


def test_a_witness_that_cannot_be_written_delays_the_next_release_and_nothing_else(
    here, monkeypatch
):
    bandits = [make_bandit(here.store, name=name, epsilon=0.1) for name in ("first", "second")]
    for bandit in bandits:
        add_decisions(here.store, bandit, 1)
    one = Learner(here)
    one.turn()
    monkeypatch.setattr(learner, "WAIT_SECONDS", 0.0)
    identity = one.store.lines()[0].identity
    real = os.replace

    def full(source, target):
        if identity in str(target):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(witness.os, "replace", full)
    for _ in range(3):
        for bandit in bandits:
            add_decisions(here.store, bandit, 1)
        one.turn()
    assert [(line.status, line.learned) for line in one.store.lines()] == [
        ("learning", 2),
        ("learning", 4),
    ]
    assert "No space left" in one._said[bandits[0]]
    monkeypatch.undo()
    until(lambda: one.turn() or one.store.lines()[0].learned == 4, 10)
    assert one.witness.seen(identity).number == one.store.lines()[0].version
    one.stop()


# ---------------------------------------------------------------------- other machines


def test_a_standby_elsewhere_understands_that_a_timeline_was_given_up(settings, tmp_path):
    # However slow the machine: the lease ends when it is given back.
    settings = dataclasses.replace(settings, lease_seconds=600.0)
    bandit = make_bandit(settings.store)
    beside = dataclasses.replace(settings, witness=tmp_path / "second machine")
    put_back = None
    active, standby = Learner(settings), Learner(beside)
    for _ in range(4):
        add_decisions(settings.store, bandit, 1)
        active.turn()
        standby.turn()
        if put_back is None:
            active.stop()
            standby.stop()
            put_back = copied(settings.store, tmp_path, "old.db")
            active, standby = Learner(settings), Learner(beside)
    active.stop()
    standby.stop()
    assert all(seen.number >= 3 for seen in Witness(beside.witness).everything().values())
    put_back()
    assert learn(settings)["shop"].status == "restored"
    decide(settings, pay_again=True)
    add_decisions(settings.store, bandit, 2)
    found = learn(beside)["shop"]  # the standby takes over
    assert (found.status, found.timelines, found.learned) == ("learning", 2, 3)
    # and knows the new timeline from here on
    (seen,) = Witness(beside.witness).everything().values()
    assert seen.mark[:2] == (2, found.version)
    put_back()
    assert learn(beside)["shop"].status == "restored"


# ---------------------------------------------------------------------- the account


def test_what_was_spent_never_falls(here, tmp_path, serve):
    key = make_key(here.store)
    restored(here, tmp_path)
    service = serve(here.store, role="ranker")
    call = service.caller(key)
    before = call.get("/v1/bandits/shop/privacy")
    decide(here, pay_again=True)
    after = call.get("/v1/bandits/shop/privacy")
    whole = before["claim"]
    for part in ("epsilon", "mu"):
        assert (
            0 < before["spent"][part] <= whole[part] < after["spent"][part] <= after["claim"][part]
        )
    assert after["spent"]["delta"] == after["claim"]["delta"] == whole["delta"]
    assert after["spent"]["mu"] ** 2 == pytest.approx(whole["mu"] ** 2 + before["spent"]["mu"] ** 2)
    remaining = after["remaining"]
    assert remaining["left"] == before["remaining"]["left"]
    assert remaining["limit"] == 2 * before["remaining"]["limit"]
    assert remaining["fraction"] == pytest.approx(before["remaining"]["fraction"] / 2)
    learn(here)
    assert call.get("/v1/bandits/shop/privacy")["spent"]["epsilon"] >= after["spent"]["epsilon"]


def test_rewards_of_a_paused_bandit_are_taken_for_when_it_goes_on(here):
    bandit = make_bandit(here.store, reward_window=60)
    store = Store(here.store)

    async def report():
        journal = Journal(here.store)
        await journal.start()
        found = {}
        for status in ("failed", "restored", "spent", "retired"):
            place = await journal.decide((bandit, 0, None, bytes(24), None, 0, "test"))
            store.set_status(bandit, status, "test")
            (found[status],) = await journal.report(bandit, 60.0, "test", [(*place, 1.0)])
        await journal.stop()
        return found

    assert asyncio.run(report()) == {
        "failed": "accepted",
        "restored": "accepted",
        "spent": "late",
        "retired": "late",
    }
    store.close()


# ---------------------------------------------------------------------- leases that last


def test_a_lease_outlives_a_turn_that_is_longer_than_it(settings):
    bandit = make_bandit(settings.store)
    seen = []

    class Busy(Learner):
        def before_publishing(self, held):
            time.sleep(1.0)  # five leases long
            other.turn()
            seen.append(bandit in other._held)

    first, other, stop = Busy(settings), Learner(settings), threading.Event()
    add_decisions(settings.store, bandit, 1)
    thread = threading.Thread(target=first.run, args=(stop,))
    thread.start()
    until(lambda: learn_status(other)[1] == 1, 30)
    stop.set()
    thread.join(30)
    assert seen == [False]
    assert other.store.connection.all("SELECT expires_at FROM leases") == [
        (0,)
    ]  # given back, and not prolonged after
    other.stop()


def test_a_stuck_learner_loses_its_lease(here, monkeypatch):
    monkeypatch.setattr(learner, "STUCK_SECONDS", 0.3)
    bandit = make_bandit(here.store)
    wake, asleep = threading.Event(), threading.Event()

    class Stuck(Learner):
        def before_publishing(self, held):
            asleep.set()
            wake.wait(60)

    first, other, stop = Stuck(here), Learner(here), threading.Event()
    add_decisions(here.store, bandit, 1)
    thread = threading.Thread(target=first.run, args=(stop,))
    thread.start()
    assert asleep.wait(60)
    until(lambda: other.turn() or learn_status(other)[1] == 1, 30)
    assert not first.healthy
    stop.set()
    wake.set()
    thread.join(30)
    assert learn_status(other) == ("learning", 1)
    other.stop()


def test_a_learner_whose_connection_broke_has_its_bandits_back_at_once(settings):
    settings = dataclasses.replace(settings, lease_seconds=60.0)
    bandit = make_bandit(settings.store)
    one = Learner(settings)
    one.turn()
    token = one._leases[bandit]
    one._forget_all()  # what `run` does after a StoreError
    add_decisions(settings.store, bandit, 1)
    one.turn()
    assert one._leases[bandit] > token
    assert learn_status(one) == ("learning", 1)
    one.stop()


def test_a_hole_in_one_stream_stops_one_bandit(here):
    bandits = [make_bandit(here.store, name=name, epsilon=0.1) for name in ("first", "second")]
    for bandit in bandits:
        add_decisions(here.store, bandit, 3)
    store = Store(here.store)
    store.connection.run("DELETE FROM decisions WHERE bandit = ? AND seq = 2", (bandits[0],))
    store.close()
    lines = learn(here)
    assert (lines["first"].status, lines["second"].learned) == ("failed", 3)
    assert "decision 2 is missing" in lines["first"].reason


# ---------------------------------------------------------------------- the learner beside a port


def test_a_learner_with_a_port_ends_with_its_learner(tmp_path, serve):
    (tmp_path / "file").write_text("in the way")
    url = f"sqlite:///{tmp_path}/store.db"
    make_key(url)
    options = ("--port", str(free_port()), "--witness", str(tmp_path / "file" / "witness"))
    service = serve(url, *options, role="learner", listens=False)
    assert service.process.wait(60) == 2
    assert "no witness" in service.log.read_text()


def test_a_learner_that_is_stuck_is_not_ready(here):
    from dpbandit.service.server import _Helper

    helper = _Helper(here, threading.Event())
    assert helper.healthy()
    helper._learner = Learner(here)
    assert helper.healthy()
    helper._learner._moved -= learner.STUCK_SECONDS
    assert not helper.healthy()
    helper._learner.stop()
