"""A log read by a real Ray cluster of two nodes, of which one is killed: the bandit is that of one machine, bit for bit."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbandit as dpb
from dpbandit import spread
from dpbandit.errors import LogError
from dpbandit.spread import dataset
from dpbandit.warmstart import caps, source, total
from dpbandit.warmstart.start import learn_log

ray = pytest.importorskip("ray", reason="the extra 'cluster' is not installed")

pytestmark = [pytest.mark.slow]

GIVEN = {"epsilon": 1.0, "delta": 1e-6, "reward_range": (0, 1), "seed": 0}
CAPPED = {"user": "who", "unit": ("user", 3)}
ROWS = 60_000


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Twelve parts in three files, users who come back all over them, and bad rows."""
    monkeypatch.setattr(source, "PART", 5_000)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ROWS, 4)) / 4
    x[::33, 1] = np.nan
    table = pa.table(
        {"context": list(x), "reward": rng.random(ROWS), "who": rng.integers(0, 9_000, ROWS)}
    )
    folder = tmp_path / "log"
    folder.mkdir()
    for number in range(3):
        pq.write_table(
            table.slice(number * ROWS // 3, ROWS // 3),
            folder / f"{number}.parquet",
            row_group_size=5_000,
        )
    assert len(source.open_log(folder).parts) == 12
    return folder


def same(one, two):
    return (
        two.theta.tobytes() == one.theta.tobytes()
        and two.log == one.log
        and two.ledger.fingerprint == one.ledger.fingerprint
        and np.array_equal(two.people.hashes, one.people.hashes)
        and np.array_equal(two.people.counts, one.people.counts)
    )


def doomed(notes, work, second):
    """The same work, noted in a file. The node `second` never ends a part, and the other one ends only two before that has begun one."""

    def noted(reading, own, tell):
        node = ray.get_runtime_context().get_node_id()
        part = own[0] if isinstance(own, tuple) else own

        def note(what):
            with open(notes, "a") as file:
                file.write(json.dumps([what, part.file, part.groups[0], node]) + "\n")

        def may_end():
            with open(notes) as file:
                said = file.read()
            return node != second and (said.count("end") < 2 or second in said)

        note("begin")
        end = time.monotonic() + 90
        while time.monotonic() < end and not may_end():
            time.sleep(0.05)
        found = work(reading, own, tell)
        note("end")
        return found

    return noted


class Killer:
    """Kills the second node as soon as it has begun a part. Results come in order, and may all wait for that part: so on a thread."""

    def __init__(self, nodes, notes):
        self.nodes, self.notes, self.second = nodes, notes, nodes.second.node_id
        self.shares, self.lost = [], set()
        notes.touch()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def noted(self, what):
        lines = [json.loads(line) for line in self.notes.read_text().splitlines()]
        return [(tuple(part), node) for said, *part, node in lines if said == what]

    def watch(self):
        end = time.monotonic() + 80
        while time.monotonic() < end and not self.lost:
            self.lost = {part for part, node in self.noted("begin") if node == self.second}
            time.sleep(0.05)
        if self.lost:
            self.nodes.kill_second()

    def progress(self, done, rows):
        self.shares.append(done / rows)

    def check(self):
        self.thread.join()
        self.nodes.add_second()  # for the next test
        assert self.shares == sorted(self.shares)
        assert self.shares[0] < 1
        assert self.shares[-1] == 1
        begins = Counter(part for part, _ in self.noted("begin"))
        assert len(begins) == 12
        assert self.lost
        assert all(begins[part] > 1 for part in self.lost), "what was lost is read again"
        assert {node for _, node in self.noted("end")}.isdisjoint({self.second})


def test_a_log_whose_reader_is_killed_midway_gives_the_bandit_of_one_machine(
    nodes, log, tmp_path, monkeypatch
):
    expected, killer = dpb.warm_start(log, **GIVEN), Killer(nodes, tmp_path / "notes")
    monkeypatch.setattr(
        total, "scan_part", doomed(str(killer.notes), total.scan_part, killer.second)
    )
    found = dpb.warm_start(log, cluster=nodes.address, progress=killer.progress, **GIVEN)
    killer.check()
    assert same(expected, found)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("anytime-joint", {"dim": 4}),
        ("anytime-joint", {"dim": 4, **CAPPED}),
        ("anytime", {"user": "who", "unit": ("person", 1.5)}),
        ("anytime-joint", {"dim": 4, "user": "who", "unit": ("person", 1.5)}),
    ],
)
def test_private_contexts_and_persons_are_those_of_one_machine(nodes, log, name, given):
    expected = dpb.warm_start(log, name, **given, **GIVEN)
    found = dpb.warm_start(log, name, cluster=nodes.address, **given, **GIVEN)
    assert same(expected, found)
    assert found.log.learned > 20_000


@pytest.mark.parametrize("reading", ["find_users", "scan_answered"])
def test_caps_for_users_survive_a_node_lost_in_either_reading(
    nodes, log, tmp_path, monkeypatch, reading
):
    given = {**CAPPED, **GIVEN, "horizon": 20}
    expected, killer = dpb.warm_start(log, "tree-gauss", **given), Killer(nodes, tmp_path / "notes")
    monkeypatch.setattr(
        caps, reading, doomed(str(killer.notes), getattr(caps, reading), killer.second)
    )
    found = dpb.warm_start(
        log, "tree-gauss", cluster=nodes.address, progress=killer.progress, **given
    )
    killer.check()
    assert same(expected, found)
    assert found.log.over_cap > 10_000


def test_an_overseer_that_is_lost_is_replaced_and_a_client_from_outside_notices_nothing(
    nodes, log, tmp_path, monkeypatch
):
    once, base = str(tmp_path / "once"), dataset._Overseer

    class Dying(base):
        def some(self):
            found = super().some()
            if not os.path.exists(once) and getattr(self, "calls", 0) == 2:
                open(once, "w").close()
                os._exit(1)
            self.calls = getattr(self, "calls", 0) + 1
            return found

    expected = dpb.warm_start(log, **GIVEN)
    monkeypatch.setattr(dataset, "_Overseer", Dying)
    with spread.over(nodes.client) as place:
        assert same(expected, dpb.warm_start(log, cluster=place, **GIVEN))
        assert os.path.exists(once)


def test_errors_on_a_node_are_those_of_one_machine(nodes, log):
    opened = source.open_log(log)
    columns = source.find_columns(opened, context="context", reward="reward", user=None)
    bandit = dpb.make("tree-gauss", dim=4, horizon=9, **GIVEN)
    (log / "1.parquet").rename(log / "elsewhere")
    for where in (None, nodes.address):
        # Its own words stay away: those of other errors may quote what a file holds.
        with pytest.raises(
            LogError,
            match=r"1\.parquet on .* cannot be read \(FileNotFoundError\)\. Nothing was released",
        ):
            learn_log(bandit, opened, columns, sample=np.zeros((0, 4)), cluster=where)
    assert bandit.ledger.releases == 0


def test_ctrl_c_releases_nothing_and_the_cluster_goes_on(nodes, log):
    def interrupt(done, rows):
        raise KeyboardInterrupt

    with spread.over(nodes.address) as place:
        with pytest.raises(KeyboardInterrupt):
            dpb.warm_start(log, cluster=place, progress=interrupt, **GIVEN)
        assert same(dpb.warm_start(log, **GIVEN), dpb.warm_start(log, cluster=place, **GIVEN))


def test_the_command_line_reads_a_log_on_a_cluster(nodes, log, tmp_path):
    found = []
    for name, more in (("a", []), ("b", ["--cluster", nodes.client, "--workers", "1"])):
        words = [
            "warm-start",
            str(log),
            "--delta",
            "1e-6",
            "--reward-range",
            "0",
            "1",
            "--seed",
            "3",
            "--user",
            "who",
            "--user-rewards",
            "2",
        ]
        words += ["--out", str(tmp_path / f"{name}.npz"), "--json", *more]
        done = subprocess.run(
            [sys.executable, "-m", "dpbandit.cli", *words], text=True, capture_output=True
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    one, two = found
    assert two["theta"] == one["theta"]
    assert two["log"] == one["log"]
