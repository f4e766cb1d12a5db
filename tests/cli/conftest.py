"""The command line in this process: as a person types it, without the seconds that a new process takes."""

import sys
from typing import NamedTuple

import pytest

import dpbandit.cli


class Said(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def dpbandit_(monkeypatch, capsys, tmp_path):
    """Call it with arguments; get the exit status and what was printed. It runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["dpbandit", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            dpbandit.cli.main()
        said = capsys.readouterr()
        return Said(left.value.code or 0, said.out, said.err)

    return call


@pytest.fixture
def small(monkeypatch):
    """Profiles that take a second where the real ones take minutes."""
    from experiments.leaderboard import grid
    from experiments.reproduction import parts

    tiny = grid.Profile("tiny", {100: 4}, {100: 4}, (grid.Budget(2.0, 1e-5),))
    monkeypatch.setattr(grid, "profile", lambda name: tiny)
    shrunk = parts.replace(parts.PROFILES["quick"], horizon=200, seeds=4)
    monkeypatch.setitem(parts.PROFILES, "quick", shrunk)
    from experiments.speed import measure

    engine, decisions = measure.engine, measure.decisions
    few = [one for one in measure.CONTESTANTS if one.name in ("dpbandit linucb", "NumPy, by hand")]
    monkeypatch.setattr(measure, "engine", lambda names, **more: engine(["linucb"], rounds=500, **more))
    monkeypatch.setattr(measure, "decisions", lambda tasks, who=None, **more: decisions(tasks, few, **more))
    monkeypatch.setattr(measure, "noise_costs", lambda say: {})


@pytest.fixture
def log(tmp_path):
    """A log to start from, in the folder where commands run."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    x = np.random.default_rng(0).normal(size=(2_000, 2)) / 8
    table = pa.table({"context": list(x), "reward": (x[:, 0] > 0).astype(float)})
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=200)
