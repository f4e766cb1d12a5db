"""A log whose parts are read elsewhere, in any order, some twice: the bandit is that of one machine. None of it needs Ray."""

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbandit as dpb
from dpbandit.errors import ClusterError, LogError, OptionError
from dpbandit.logs.sums import OVER_CAP
from dpbandit.logs.users import Tally
from dpbandit.spread import Place, Task
from dpbandit.spread.threads import Threads
from dpbandit.warmstart import caps, source

CAPPED = {"user": "who", "unit": ("user", 3)}
PERSONS = {"user": "who", "unit": ("person", 1)}
NO_STEPS = np.empty(0, dtype=np.int64)
GIVEN = {"epsilon": 1.0, "delta": 1e-6, "reward_range": (0, 1), "seed": 0}


class Elsewhere(Place):
    """As another machine would: nothing is shared but files, what is done last may come first, and twice."""

    elsewhere = True

    def __init__(self, seed=0, drop=()):
        self.cores, self.rng, self.drop, self.done = 1, np.random.default_rng(seed), drop, []

    def each(self, work, tasks, advance):
        tasks = pickle.dumps((work, list(tasks)))
        order = self.rng.permutation(len(pickle.loads(tasks)[1]))
        for number in (*order, *order[:3]):
            work, fresh = pickle.loads(tasks)
            if int(number) in self.drop:
                continue
            self.done.append((work.__name__, int(number)))
            result = pickle.loads(
                pickle.dumps(work(fresh[number].common, fresh[number].own, lambda _: None))
            )
            advance(int(number), fresh[number].size)
            yield int(number), result


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Six parts in two files, 400 users who come back all over them, and every eleventh row bad in one of three ways."""
    monkeypatch.setattr(source, "PART", 2_000)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(9_000, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[::33, 1] = np.nan
    reward = rng.random(9_000)
    reward[11::33] = np.inf
    who = [None if i % 33 == 22 else f"u{n}" for i, n in enumerate(rng.integers(0, 400, 9_000))]
    table = pa.table({"context": list(x), "reward": reward, "who": who})
    for number in range(2):
        file = tmp_path / f"{number}.parquet"
        pq.write_table(table.slice(number * 4_500, 4_500), file, row_group_size=1_000)
    return tmp_path, x, reward, who


@pytest.mark.parametrize("options", [{}, CAPPED, PERSONS], ids=["rewards", "users", "persons"])
@pytest.mark.parametrize("name", ["anytime", "tree-gauss", "anytime-joint"])
def test_parts_read_elsewhere_in_any_order_give_the_same_bandit_to_the_last_bit(log, options, name):
    horizon = {"tree-gauss": {"horizon": 10}, "anytime-joint": {"dim": 4}}.get(name, {})
    one = dpb.warm_start(log[0], name, **options, **horizon, **GIVEN)
    place = Elsewhere()
    shares = []
    two = dpb.warm_start(
        log[0],
        name,
        cluster=place,
        progress=lambda done, total: shares.append(done),
        **options,
        **horizon,
        **GIVEN,
    )
    assert two.theta.tobytes() == one.theta.tobytes()
    assert two.log == one.log
    assert two.claim == one.claim
    assert (two.clipped, two.over_cap) == (one.clipped, one.over_cap)
    assert two.ledger.fingerprint == one.ledger.fingerprint
    assert {step for step, _ in place.done} == (
        {"find_users", "scan_answered"} if options else {"scan_part"}
    )
    assert shares[-1] >= 9_000
    for user in ("u0", "u7", "u399"):
        left = two.people.count(user)
        assert left == one.people.count(user)
        assert left > 3 if options is PERSONS else left == (3 if options else 0)


def test_a_users_first_good_rows_count_wherever_they_are_read(log):
    folder, x, _reward, who = log
    bandit = dpb.warm_start(folder, "tree-gauss", cluster=Elsewhere(), horizon=9, **CAPPED, **GIVEN)
    counts, over, learned = {}, 0, 0
    for row, name in zip(x, who, strict=True):
        if name is None or not np.isfinite(row).all():
            continue
        counts[name] = counts.get(name, 0) + 1
        learned, over = learned + (counts[name] <= 3), over + (counts[name] > 3)
    assert (bandit.log.learned, bandit.log.over_cap, bandit.log.users) == (
        learned,
        over,
        len(counts),
    )
    assert over > 5_000
    assert {kind: n for kind, n in bandit.log.bad.items() if n} == {
        "context not finite": 273,
        "user missing": 273,
    }


def test_decisions_part_by_part_are_those_on_all_rows_at_once():
    rng = np.random.default_rng(1)
    users = rng.integers(1, 300, 5_000).astype(np.uint64)
    status = np.zeros(5_000, dtype=np.uint8)
    Tally(4).admit(users, status, over=OVER_CAP)
    tally, found = Tally(4), []
    for piece in np.split(users, [0, 7, 1_000, 1_001, 4_999]):
        answer = caps.decide(piece, NO_STEPS, tally)
        assert answer.asked == len(piece)
        found.append(np.unpackbits(answer.taken, count=answer.asked))
    assert np.array_equal(np.concatenate(found), status == OVER_CAP)


def test_a_part_that_never_comes_back_releases_nothing(log):
    for options in ({}, CAPPED):
        with pytest.raises(ClusterError, match="task 5 of 6 never came"):
            dpb.warm_start(log[0], cluster=Elsewhere(drop=(4,)), **options, **GIVEN)


def test_a_node_with_another_file_of_that_name_is_found_out(log, monkeypatch):
    part = source.open_log(log[0]).parts[-1]
    pq.write_table(pq.read_table(part.file).slice(0, 4_499), part.file, row_group_size=1_000)
    with pytest.raises(
        LogError, match=r"1\.parquet on .* is not the file that was opened at the start"
    ):
        next(part.batches(["reward"]))
    with pytest.raises(LogError, match=r"nowhere\.parquet on .* cannot be read"):
        next(replace(part, file=str(log[0] / "nowhere.parquet")).batches(["reward"]))


def test_an_answer_for_other_rows_is_refused(log):
    opened = source.open_log(log[0])
    columns = source.find_columns(opened, context="context", reward="reward", user="who")
    bandit = dpb.make("tree-gauss", dim=4, horizon=9, unit=("user", 3), **GIVEN)
    from dpbandit.logs import enter
    from dpbandit.warmstart.scan import Reading

    reading = Reading(columns, enter.prepare(bandit, np.zeros((0, 4)), 1e-9).recipe, None)
    users, _steps = caps.find_users(reading, opened.parts[0], lambda _: None)
    for other in (users[1:], np.append(users, users[0])):
        with pytest.raises(LogError, match="changed while it was read"):
            caps.scan_answered(
                reading, (opened.parts[0], caps.decide(other, NO_STEPS, Tally(3))), lambda _: None
            )


def test_a_table_in_memory_stays_here():
    table = pa.table({"context": [[0.1, 0.2]] * 9, "reward": [0.5] * 9})
    with pytest.raises(OptionError, match="Parquet files that all its nodes see"):
        dpb.warm_start(table, cluster="local", **GIVEN)
    assert dpb.warm_start(table, cluster=Threads(1), **GIVEN).log.learned == 9


def test_threads_give_results_in_the_order_of_their_tasks():
    stream = Threads(3).stream(
        lambda common, own, tell: own, [Task(None, n, 1) for n in range(50)], lambda *_: None
    )
    assert list(stream) == list(range(50))
