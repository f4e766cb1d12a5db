"""Nodes of a cluster have the package and no clone: what is sent there brings its code along."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import dpbandit
from dpbandit.worlds import Synthetic
from experiments.reproduction import changes

NODE = """
import importlib.util, pickle, sys
assert importlib.util.find_spec("experiments") is None
work, tasks = pickle.load(sys.stdin.buffer)
found = [work(task.common, task.own, lambda _: None) for task in tasks]
sys.stdout.buffer.write(pickle.dumps(found))
"""


class Node:
    """A process of its own, in a folder without a clone."""

    elsewhere = True

    def __init__(self, folder, cloudpickle):
        self.folder, self.dumps, self.for_python = folder, cloudpickle.dumps, self

    def each(self, work, tasks, advance):
        parcel = self.dumps((work, list(tasks)))
        environment = {**os.environ, "PYTHONPATH": str(Path(dpbandit.__file__).parents[1])}
        ran = subprocess.run(
            [sys.executable, "-c", NODE],
            input=parcel,
            capture_output=True,
            cwd=self.folder,
            env=environment,
        )
        assert ran.returncode == 0, ran.stderr.decode()
        yield from enumerate(pickle.loads(ran.stdout))


class Here:
    elsewhere = False

    def __init__(self):
        self.for_python = self

    def each(self, work, tasks, advance):
        yield from ((n, work(t.common, t.own, lambda _: None)) for n, t in enumerate(tasks))


def test_changed_arms_are_counted_where_there_is_no_clone(tmp_path, monkeypatch):
    cloudpickle = pytest.importorskip("cloudpickle")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(cloudpickle=cloudpickle))
    monkeypatch.setattr(changes, "ALL", ("linucb", "tree-gauss"))
    change = changes.Change(Synthetic(), 30, (0, 5), lambda reward: reward + 0.5, (-0.5, 1.5))
    try:
        there = changes._changes(change, 1, lambda *_: None, Node(tmp_path, cloudpickle))
    finally:
        cloudpickle.unregister_pickle_by_value(changes)
    here = changes._changes(change, 1, lambda *_: None, Here())
    pd.testing.assert_frame_equal(there, here)
    assert len(there) == 4
