"""What is said before anything is sent: the extra, the address, the versions. None of it needs a cluster, nor Ray."""

import socket
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbandit as dpb
from dpbandit import spread
from dpbandit.errors import ClusterError, ClusterWarning, OptionError
from dpbandit.spread import Task, cluster, versions
from dpbandit.spread.threads import Threads

HERE = versions.look()() | {"ray": "2.60.0"}


def test_without_ray_the_message_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'dpbandit\[cluster\]'"):
        dpb.run(dpb.worlds.Synthetic(), ["random"], horizon=5, seeds=1, cluster="local")
    with pytest.raises(ClusterError, match="extra 'cluster'"):
        dpb.audit("local", horizon=2, runs=100, cluster="auto")
    pq.write_table(
        pa.table({"context": [[0.1, 0.2]] * 9, "reward": [0.5] * 9}), tmp_path / "log.parquet"
    )
    with pytest.raises(ClusterError, match=r"pip install 'dpbandit\[cluster\]'"):
        dpb.warm_start(tmp_path, epsilon=1.0, delta=1e-6, cluster="local")


@pytest.mark.parametrize("address", ["", "head", "ray://head", "head:", "http://head", "locl"])
def test_an_address_that_is_none_is_refused_with_what_is_allowed(address):
    with pytest.raises(OptionError, match="'local', 'auto', 'ray://host:10001' or 'host:6379'"):
        cluster.Cluster(address)


def test_an_address_that_nobody_answers_is_said_at_once():
    with socket.socket() as taken:  # bound, but it does not listen
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ClusterError, match="nobody answers"):
            cluster._reach(f"ray://127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.parametrize("name", ["Python", "ray", "numpy", "scipy", "opendp", "pyarrow"])
def test_a_node_with_other_versions_is_refused(name):
    with pytest.raises(ClusterError, match=rf"node a has {name} 0\.1, here is .*install the same"):
        versions.refuse_other_versions(HERE, HERE | {name: "0.1"}, "node a")
    with pytest.raises(ClusterError, match=f"node a has no {name}: install {name}=="):
        versions.refuse_other_versions(HERE, HERE | {name: None}, "node a")


def test_other_code_is_refused_on_a_node_that_joins_later_and_another_processor_is_said():
    with pytest.raises(ClusterError, match="joined later"):
        versions.refuse_other_versions(HERE, HERE | {"dpbandit": "another"}, "node a", code=True)
    versions.refuse_other_versions(HERE, HERE | {"dpbandit": None}, "node a")
    other = HERE | {"processor": "abacus", "core": "its own"}
    with pytest.warns(ClusterWarning, match="last digits"):
        versions.refuse_other_versions(HERE, other, "node a")
    for lacking in ({"core": None}, {"core": HERE["core"]}, {"dpbandit": None}):
        with pytest.raises(ClusterError, match="processor of another kind"):
            versions.refuse_other_versions(HERE, other | lacking, "node a")


def test_another_core_is_other_code():
    assert versions.same_code(HERE, HERE)
    assert not versions.same_code(HERE, HERE | {"core": "another"})
    assert not versions.same_code(HERE, HERE | {"core": None})


def test_threads_draw_tasks_as_they_go_and_stop_when_closed():
    drawn, stopped = [], []

    def tasks():
        for number in range(1_000):
            drawn.append(number)
            yield Task("common", number, 1)

    def work(common, own, tell):
        try:
            tell(1)
        except BaseException:
            stopped.append(own)
            raise
        return common, own

    results = Threads(2).each(work, tasks(), lambda *_: None)
    number, found = next(results)
    assert found == ("common", number)
    results.close()
    assert len(drawn) < 20
    assert len(stopped) < 20


def test_an_open_place_is_used_as_it_is():
    with spread.over(workers=3) as place, spread.over(place, workers=1) as same:
        assert same is place
        assert place.cores == 3
        assert place.for_python.cores == 1
