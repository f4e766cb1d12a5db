"""An update is all or nothing: interrupted at every bytecode, in a thread, and called from within."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import pickle
import signal
import sys
import threading
import warnings

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit import learning
from dpbandit.errors import BudgetError, NormError, PrivacyWarning
from dpbandit.privacy.noise import GAUSSIAN
from dpbandit.release import Toeplitz

X = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
BACKENDS = ("core", "reference")
NAMES = ["linucb", "tree-gauss", "anytime", "adac-oful", "toeplitz", "dgs", "joint", "local"]


def make(name="tree-gauss", **given):
    usual = {"dim": 2, "epsilon": 1.0, "delta": 1e-4, "horizon": 300, "seed": 2}
    return dpb.make(name, **(usual | given))


def everything(bandit):
    """All that a reward changes, and all that a reader sees."""
    fields = {name: field.tolist() for name, field in bandit.engine.fields().items()}
    seen = bandit.theta.tolist(), bandit.spent.epsilon, bandit.receipt()["fingerprint"]
    counts = bandit.counters, bandit.over_cap
    return fields, bandit.ledger.to_dict(), counts, seen


def without_decisions(found):
    """Choosing an arm counts one, and looks at contexts."""
    kept = ("theta", "sums_high", "sums_low", "clean", "noisy", "rounds", "moments", "carry")
    return {name: found[0].get(name) for name in kept}, found[1:]


class Interrupt:
    """Ctrl-C before bytecode number `at` of this library; `call` in its place, if given."""

    def __init__(self, at, call=None):
        self.left, self.call, self.came = at, call, False

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def trace(self, frame, event, _):
        if "/dpbandit/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                self.came = True
                if self.call is None:
                    raise KeyboardInterrupt
                self.call()
        return self.trace


def states(name, call, **given):
    """What is true before and after an update that nothing interrupts, after two others."""
    bandit = make(name, **given)
    bandit.identity = "the same"
    found = []
    for step in (lambda b: warm_up(b, given), call):
        step(bandit)
        found.append(everything(bandit))
    return found


def warm_up(bandit, given):
    users = {"user": "u"} if "unit" in given else {}
    bandit.update(X[0], 0.3, **users)
    bandit.update(X[1], -0.2, **users)


def at_every_bytecode(name, call, stride, **given):
    """Interrupt, look, and try again where nothing was learned."""
    before, after = states(name, call, **given)
    at, noted = 1, 0
    while True:
        bandit = make(name, **given)
        bandit.identity = "the same"
        warm_up(bandit, given)
        try:
            with Interrupt(at) as interrupt:
                call(bandit)
        except KeyboardInterrupt as error:
            found = everything(bandit)
            learned = bandit.rounds == 3
            assert found == (after if learned else before), at
            notes = getattr(error, "__notes__", [])
            if notes:
                noted += 1
                assert ("not learned" in notes[0] or "nothing" in notes[0]) != learned
        if not interrupt.came:
            break
        # Another thread comes in, and a reward that was not learned is learned once.
        worker = threading.Thread(target=call, args=(bandit,), daemon=True)
        if bandit.rounds == 3:
            worker = threading.Thread(target=bandit.select, args=(X,), daemon=True)
        worker.start()
        worker.join(timeout=20)
        assert not worker.is_alive(), at
        assert without_decisions(everything(bandit)) == without_decisions(after), at
        at += stride
    assert at > 30
    # But for the first and last bytecodes of `update` itself, an interrupt has a note.
    assert noted >= (at // stride) - 30 // stride - 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_an_interrupt_leaves_all_or_nothing(name, backend):
    stride = 3 if backend == "core" else 211
    at_every_bytecode(name, lambda b: b.update([0.6, 0.8], 0.5), stride, backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_an_interrupt_at_any_bytecode_leaves_all_or_nothing(name, backend):
    stride = 1 if backend == "core" else 5
    at_every_bytecode(name, lambda b: b.update([0.6, 0.8], 0.5), stride, backend=backend)
    units = [("user", 3)] + [("person", 1)] * (name in ("tree-gauss", "anytime"))
    for unit in units:
        given = {"backend": backend, "unit": unit, "reward_range": (0.0, 1.0)}
        at_every_bytecode(name, lambda b: b.update([0.6, 0.8], 0.5, user="u"), stride, **given)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["linucb", "tree-gauss", "anytime", "spread"])
def test_an_interrupt_leaves_a_users_count_as_true_as_the_sums(name, backend):
    stride = 7 if backend == "core" else 211
    name, kind = ("anytime", "spread") if name == "spread" else (name, "user")
    given = {"backend": backend, "unit": (kind, 3)}
    at_every_bytecode(name, lambda b: b.update([0.6, 0.8], 0.5, user="u"), stride, **given)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["tree-gauss", "anytime", "anytime-joint", "a release of it"])
def test_an_interrupt_leaves_what_a_persons_rewards_add_up_to_as_true_as_the_sums(name, backend):
    stride = 11 if backend == "core" else 211
    more = {}
    if name == "a release of it":  # many steps of its schedule are computed there
        name, stride, more = "anytime-joint", max(stride, 61), {"first_release": 3, "knee": 9.0}
    given = more | {"backend": backend, "unit": ("person", 1), "reward_range": (0.0, 1.0)}
    at_every_bytecode(name, lambda b: b.update([0.6, 0.8], 0.9, user="u"), stride, **given)


def test_what_was_seen_stays():
    """A reader in another thread saw the release; the interrupt that comes then undoes nothing."""
    at, seen_new = 1, 0
    while True:
        bandit = make()
        bandit.update(X[0], 0.3)
        old = bandit.theta.tolist()
        seen = []

        def look(bandit=bandit, seen=seen):
            reader = threading.Thread(target=lambda: seen.append(bandit.theta.tolist()))
            reader.start()
            reader.join()
            raise KeyboardInterrupt

        try:
            with Interrupt(at, look) as interrupt:
                bandit.update(X[2], 0.5)
        except KeyboardInterrupt:
            pass
        if not interrupt.came:
            break
        if seen[0] != old:
            seen_new += 1
            assert bandit.theta.tolist() == seen[0]
            assert (bandit.rounds, bandit.ledger.releases) == (2, 2)
        else:
            assert (bandit.rounds, bandit.ledger.releases) in ((1, 1), (2, 2))
        at += 1
    assert seen_new > 5


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_thrown_into_a_thread_leaves_all_or_nothing(backend):
    """As servers end a worker: from another thread, wherever it is, in Python or in the core."""

    class Ended(BaseException):
        pass

    bandit, twin = (make(backend=backend, horizon=None) for _ in range(2))
    bandit.identity = twin.identity = "the same"
    done, landed = [0], 0

    def work():
        with contextlib.suppress(Ended):
            while True:
                bandit.update([0.6, 0.8], 0.5)
                done[0] += 1

    end = ctypes.pythonapi.PyThreadState_SetAsyncExc
    for number in range(40):
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        worker.join(0.0001 * (number % 7))
        while worker.is_alive():
            landed += end(ctypes.c_ulong(worker.ident), ctypes.py_object(Ended))
            worker.join(0.001)
        # One that ended between its reward and its count was learned all the same.
        assert bandit.rounds == bandit.ledger.releases >= done[0], number
        while twin.rounds < bandit.rounds:
            twin.update([0.6, 0.8], 0.5)
        assert everything(bandit) == everything(twin), number
    assert landed >= 40
    assert bandit.rounds > 0


@pytest.mark.parametrize("more", [{}, {"pan_private": True}])
def test_an_interrupt_of_a_round_with_real_noise_leaves_all_or_nothing(more):
    at, learned = 1, 0
    while True:
        bandit = make(seed=None, delta=1e-3, **more)
        bandit.update(X[0], 0.3)
        before = everything(bandit)
        try:
            with Interrupt(at) as interrupt:
                bandit.update(X[2], 0.5)
        except KeyboardInterrupt:
            if bandit.rounds == 1:
                assert everything(bandit) == before
            else:
                learned += 1
                assert (bandit.rounds, bandit.ledger.releases) == (2, 2)
                assert bandit.theta.tolist() != before[3][0]
        if not interrupt.came:
            break
        at += 7
    assert learned > 1


@pytest.mark.parametrize("name", ["linucb", "tree-gauss", "anytime"])
def test_an_interrupted_start_from_a_log_leaves_all_or_nothing(name):
    pa = pytest.importorskip("pyarrow")
    from dpbandit.logs import enter
    from dpbandit.logs.users import Tally
    from dpbandit.warmstart.scan import Reading, rows_of, scan
    from dpbandit.warmstart.source import find_columns, open_log

    xs = np.random.default_rng(1).normal(size=(30, 2)) / 4
    table = pa.table({"x": list(xs), "r": np.linspace(-2, 2, 30), "u": ["a", "b", "c"] * 10})
    source = open_log(table)
    columns = find_columns(source, context="x", reward="r", user="u")

    def started():
        bandit = make(name, unit=("user", 4))
        bandit.identity = "the same"
        start, tally = enter.prepare(bandit, xs, 1e-9), Tally(4)
        rows = rows_of(source.parts[0], Reading(columns, start.recipe, None))
        sums = scan(rows, start.recipe, lambda r: tally.admit(r.users, r.status, over=8) or r)
        return bandit, lambda: enter.enter(bandit, start, sums, tally.people())

    def all_of(bandit):
        people = bandit.people.counts.tolist(), bandit.log, bandit.claim
        return everything(bandit), people

    bandit, call = started()
    before = all_of(bandit)
    call()
    after, at = all_of(bandit), 1
    assert (bandit.log.learned, bandit.over_cap) == (12, 18)
    while True:
        bandit, call = started()
        try:
            with Interrupt(at) as interrupt:
                call()
        except KeyboardInterrupt:
            assert all_of(bandit) == (after if bandit.log else before), at
        if not interrupt.came:
            break
        at += 11
    assert at > 300


@pytest.mark.parametrize("name", ["tree-gauss", "linucb", "anytime"])
def test_a_batch_says_how_much_of_it_was_learned(name):
    xs, rs = X[[0, 1, 2, 0]], np.array([0.1, 0.2, 0.3, 0.4])
    at, noted = 1, 0
    while True:
        bandit = make(name)
        try:
            with Interrupt(at) as interrupt:
                bandit.update(xs, rs)
        except KeyboardInterrupt as error:
            notes = getattr(error, "__notes__", [])
            noted += bool(notes)
            words = f"the first {bandit.rounds} of this batch of 4 were learned"
            assert all(words in note or not bandit.rounds for note in notes), at
        if not interrupt.came:
            break
        at += 5
    assert noted > 20


# ------------------------------------------------------------------ from within


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("what", ["update", "select", "save"])
def test_a_call_from_a_signal_handler_is_whole_or_refused(what, backend, tmp_path):
    def call(bandit):
        {
            "update": lambda: bandit.update(X[1], -0.5),
            "select": lambda: bandit.select(X),
            "save": lambda: bandit.save(tmp_path / "bandit.npz"),
        }[what]()

    at, refused, stride = 1, 0, 11 if backend == "core" else 499
    while True:
        bandit = make(backend=backend)
        words = []

        def handler(*_, bandit=bandit, words=words):
            try:
                call(bandit)
            except BudgetError as error:
                words.append(str(error))

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with Interrupt(at, lambda: signal.raise_signal(signal.SIGUSR1)) as interrupt:
                bandit.update(X[0], 0.5)
        finally:
            signal.signal(signal.SIGUSR1, before)
        if not interrupt.came:
            break
        refused += bool(words)
        assert all("from within one of its own calls" in said for said in words)
        learned = 1 + (what == "update" and not words)
        # Each reward that was learned was charged, and each that was refused was not.
        assert (bandit.rounds, bandit.ledger.releases) == (learned, learned), at
        if what == "save" and not words:
            assert dpb.load(tmp_path / "bandit.npz").rounds in (0, 1)
        at += stride
    assert refused > 3


def test_a_warnings_hook_that_learns_is_refused(monkeypatch):
    bandit = make("dgs", public_contexts=np.eye(2))
    with warnings.catch_warnings():
        warnings.simplefilter("always", PrivacyWarning)
        monkeypatch.setattr(warnings, "showwarning", lambda *_, **__: bandit.update(X[0], 0.5))
        with pytest.raises(BudgetError, match="from within one of its own calls"):
            bandit.update(X[2], 0.1)
    assert (bandit.rounds, bandit.ledger.releases) == (0, 0)
    with pytest.warns(PrivacyWarning):
        bandit.update(X[2], 0.1)
    assert bandit.rounds == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_save_while_others_learn_is_of_one_moment(backend, tmp_path):
    bandit = make("linucb", backend=backend, horizon=None)
    bandit.update(X[0], 0.5)
    stop = threading.Event()

    def learn():
        while not stop.is_set():
            bandit.update(X[2], 1.0)

    threads = [threading.Thread(target=learn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            bandit.save(tmp_path / "bandit.npz")
            found = dpb.load(tmp_path / "bandit.npz")
            fields, rounds = found.engine.fields(), found.rounds
            waiting = fields["recent"][: int(fields["waiting"][0])]
            gram = fields["gram"] + fields["gram_low"] + waiting.T @ waiting
            assert gram[0, 0] == pytest.approx(2.0 + 0.36 * (rounds - 1), abs=1e-6)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_select_with_perturbed_contexts_and_what_a_save_keeps_of_it_change_together(tmp_path):
    at = 1
    while True:
        bandit = make("linucb", context_noise=0.3)
        bandit.select(X[:2])
        try:
            with Interrupt(at) as interrupt:
                bandit.select(X)
        except KeyboardInterrupt:
            pass
        if not interrupt.came:
            break
        assert bandit.engine.decisions == (2 if len(bandit.offered) == 3 else 1)
        bandit.save(tmp_path / "b")
        twin = dpb.load(tmp_path / "b")
        arm = bandit.select(X)
        assert twin.select(X) == arm
        for one in (bandit, twin):
            one.update(X[arm], 0.7)
        assert (bandit.theta == twin.theta).all()
        at += 9
    assert at > 100


# ------------------------------------------------------------------ rows that change meanwhile


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("unit", ["reward", ("user", 9)])
def test_what_was_checked_is_what_is_learned(unit, backend, monkeypatch):
    """Another thread writes into the caller's array after it was admitted."""
    xs, rs = X.copy(), np.array([0.1, 0.2, 0.3])
    bandit = make(unit=unit, backend=backend)
    seen = []

    def release(bandit, x, reward, *rest, own=learning.learn_with_release):
        xs[:] = 1e6
        rs[:] = 1e6
        own(bandit, x, reward, *rest)
        seen.append((x.tolist(), reward))

    monkeypatch.setattr(learning, "learn_with_release", release)
    bandit.update(xs, rs, user=None if unit == "reward" else "u")
    assert seen == [(x, r) for x, r in zip(X.tolist(), (0.1, 0.2, 0.3), strict=True)]
    assert bandit.clipped == 0
    assert bandit.engine.fields()["gram"].max() < 10


def test_the_core_reads_a_row_once():
    """A number flips between allowed and too long, without Python's lock, while it is learned."""
    bandit = dpb.make("linucb", dim=400, seed=0)
    bandit.update(np.eye(400)[0], 0.5)
    row, stop = 0.5 * np.eye(400)[-1], threading.Event()
    flips = np.tile([9.0, 0.0], 2_000_000)
    # All of `flips` is written into one place, one number after the other.
    place = np.lib.stride_tricks.as_strided(row, shape=flips.shape, strides=(0,))

    def write():
        while not stop.is_set():
            np.copyto(place, flips)

    writer = threading.Thread(target=write)
    writer.start()
    refused = 0
    try:
        for _ in range(12_000):
            try:
                bandit.update(row, 0.5)
            except NormError:
                refused += 1
    finally:
        stop.set()
        writer.join()
    assert refused > 0
    assert bandit.model().view.matrix[0, 0] == pytest.approx(0.5)  # 1/(1 + 1): no 9² is in A


# ------------------------------------------------------------------ copies


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_bandit_is_not_copied(way):
    bandit = make()
    with pytest.raises(BudgetError, match=r"bandit\.save\(path\).*receipt.*get_params"):
        way(bandit)
    bandit.update(X[0], 0.5)
    again = dpb.make(**bandit.get_params())
    assert (again.rounds, bandit.rounds) == (0, 1)


def test_an_empty_list_of_files_is_named():
    pytest.importorskip("pyarrow")
    with pytest.raises(dpb.errors.LogError, match="empty"):
        dpb.warm_start([])


# ------------------------------------------------------------------ constants that end

ENDS = {"toeplitz": 2**48, "pan-private": 2**57 - 1}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [*NAMES, "private-ucb", "dp-klucb", "pan-private"])
def test_where_a_clock_ends_the_next_reward_is_refused_by_name(name, backend):
    last = ENDS.get(name, 2**62 - 1)
    given = {"ratio": 10.0} if name == "anytime" else {}
    if name == "pan-private":
        name, given = "tree-gauss", {"pan_private": True}
    bandit = make(name, horizon=None, backend=backend, **given)
    fields = {key: field.copy() for key, field in bandit.engine.fields().items()}
    fields["rounds"][0] = last - 1
    for key, value in (("pulls", last - 1), ("due", last)):
        if key in fields:
            fields[key][0] = value
    bandit.engine.load_fields(fields)
    bandit.update(X[0], 0.5)
    before = everything(bandit)
    with pytest.raises(dpb.errors.HorizonError, match="do not fit"):
        bandit.update(X[0], 0.5)
    assert bandit.rounds == last
    assert everything(bandit) == before


def test_a_sensitivity_that_rounding_drowns_is_refused_and_max_norm_is_a_unit():
    with pytest.raises(dpb.errors.OptionError, match="lost in the rounding"):
        _ = Toeplitz(GAUSSIAN, 100, 1e-30, 0.5, dim=2, real=True).scale
    scales = {make("toeplitz", max_norm=norm).release.scale for norm in (1.0, 1e-30, 1e-99)}
    assert len(scales) == 1
    with pytest.raises(dpb.errors.OptionError, match="max_norm"):
        make("toeplitz", max_norm=1e-300)
