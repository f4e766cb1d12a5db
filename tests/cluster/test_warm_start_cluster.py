"""A log read by a real Ray cluster of two nodes, of which one is killed: the bandit is that of one machine, bit for bit."""

import json
import os
import subprocess
import sys
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
    table = pa.table({"context": list(x), "reward": rng.random(ROWS), "who": rng.integers(0, 9_000, ROWS)})
    folder = tmp_path / "log"
    folder.mkdir()
    for number in range(3):
        pq.write_table(table.slice(number * ROWS // 3, ROWS // 3), folder / f"{number}.parquet", row_group_size=5_000)
    assert len(source.open_log(folder).parts) == 12
    return folder


def same(one, two):
    return (
        two.theta.tobytes() == one.theta.tobytes()
        and two.log == one.log
        and two.ledger.fingerprint == one.ledger.fingerprint
        and np.array_equal(two._people.hashes, one._people.hashes)
        and np.array_equal(two._people.counts, one._people.counts)
    )


def noting(notes, work, pause):
    """The same work, slower, which notes in a file where each part begins and ends."""

    def noted(reading, own, tell):
        def note(what):
            part = own[0] if isinstance(own, tuple) else own
            with open(notes, "a") as file:
                file.write(
                    json.dumps([what, part.file, part.groups[0], ray.get_runtime_context().get_node_id()]) + "\n"
                )

        note("begin")
        time.sleep(pause)
        found = work(reading, own, tell)
        note("end")
        return found

    return noted


def noted(notes, what):
    lines = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    return [(tuple(part), node) for said, *part, node in lines if said == what]


def test_a_log_whose_reader_is_killed_midway_gives_the_bandit_of_one_machine(nodes, log, tmp_path, monkeypatch):
    expected, notes = dpb.warm_start(log, **GIVEN), tmp_path / "notes"
    monkeypatch.setattr(total, "scan_part", noting(str(notes), total.scan_part, 0.4))
    killed, shares, second = [], [], nodes.second.node_id

    def kill_once(done, rows):
        shares.append(done / rows)
        ended = {part for part, _ in noted(notes, "end")}
        open_there = {part for part, node in noted(notes, "begin") if node == second} - ended
        if not killed and done > rows / 4 and open_there:
            nodes.kill_second()
            killed.append(open_there)

    found = dpb.warm_start(log, cluster=nodes.address, progress=kill_once, **GIVEN)
    nodes.add_second()  # for the next test
    assert same(expected, found)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    (lost,) = killed
    begins = Counter(part for part, _ in noted(notes, "begin"))
    assert len(begins) == 12
    assert all(begins[part] > 1 for part in lost), "what was lost is read again"
    assert {node for part, node in noted(notes, "end") if part in lost} != {second}


def test_caps_for_users_survive_a_lost_node_too(nodes, log, tmp_path, monkeypatch):
    given = {**CAPPED, **GIVEN, "horizon": 20}
    expected, notes = dpb.warm_start(log, "tree-gauss", **given), tmp_path / "notes"
    monkeypatch.setattr(caps, "find_users", noting(str(notes), caps.find_users, 0.2))
    killed, second = [], nodes.second.node_id

    def kill_once(done, rows):
        if not killed and done > rows / 8 and any(node == second for _, node in noted(notes, "begin")):
            nodes.kill_second()
            killed.append(done)

    found = dpb.warm_start(log, "tree-gauss", cluster=nodes.address, progress=kill_once, **given)
    nodes.add_second()
    assert killed
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
        with pytest.raises(LogError, match=r"1\.parquet on .* cannot be read: .*No such file.*Nothing was released"):
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
        words = ["warm-start", str(log), "--delta", "1e-6", "--seed", "3", "--user", "who", "--user-rewards", "2"]
        words += ["--out", str(tmp_path / f"{name}.npz"), "--json", *more]
        done = subprocess.run([sys.executable, "-m", "dpbandit.cli", *words], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    one, two = found
    assert two["theta"] == one["theta"]
    assert two["log"] == one["log"]
