"""From nothing to a learned reward: how long it takes, where it may not write, what it loads."""

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from harness import BANDIT, Service, decide, learned, make_key, reward, until

from dpbandit.service import blueprint
from dpbandit.service.store import Store

SOURCE = Path(blueprint.__file__).parents[2]
# Bars: what a user waits for, and what a small machine has room for.
SECONDS = 4.0
RANKER_MEGABYTES, LEARNER_MEGABYTES = 90, 200
# Ranking needs none of them.
HEAVY = {"matplotlib", "numba", "opendp", "pandas", "pyarrow", "scipy", "sklearn"}
LEARNING = {
    "_core",
    "algorithms",
    "bandit",
    "learning",
    "learners",
    "reference",
    "service.learner",
    "service.trusted",
}


def megabytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def children(pid):
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def first_reward(store, folder, **how):
    """(seconds until the first reward is learned, megabytes of the ranker, of the learner)."""
    key, began = make_key(store), time.monotonic()
    service = Service(store, folder, **how)
    try:
        call = service.caller(key)
        status, answer = call("POST", "/v1/bandits", BANDIT)
        assert status == 201, answer
        assert reward(call, decide(call), 1.0) == (200, {"status": "accepted"})
        learned(call, 1)
        seconds = time.monotonic() - began
        assert call.get("/v1/bandits/shop")["status"] == "learning"
        (learner,) = children(service.process.pid)
        return seconds, megabytes(service.process.pid), megabytes(learner)
    finally:
        service.stop()


def read_only(folder):
    """Run what follows where nothing but `folder` can be written to."""
    if os.getuid() != 0:
        return []  # permissions do it
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", script, str(folder)]
    tried = subprocess.run(
        [*prefix, "touch", str(SOURCE / "written")], capture_output=True, check=False
    )
    if shutil.which("unshare") is None or b"Read-only" not in tried.stderr:
        pytest.skip("root may write anywhere here, and no file system can be made read-only")
    return prefix


def test_the_first_reward_is_learned_in_seconds_on_a_read_only_system(tmp_path):
    """No cache, no bytecode, no home: the store's folder is all there is to write to."""
    source, home = tmp_path / "source", tmp_path / "home"
    shutil.copytree(
        SOURCE / "dpbandit", source / "dpbandit", ignore=shutil.ignore_patterns("__pycache__")
    )
    home.mkdir()
    before = sorted(source.rglob("*"))
    for path in (home, source, *before):
        path.chmod(0o555 if path.is_dir() else 0o444)
    found = []
    # The bar holds on an idle machine: tests beside this one may take the first attempt's time.
    for attempt in range(3):
        folder = tmp_path / f"store{attempt}"
        folder.mkdir()
        env = {
            "PYTHONPATH": str(source),
            "HOME": str(home),
            "XDG_STATE_HOME": "",
            "TMPDIR": str(folder),
        }
        found.append(
            first_reward(f"sqlite:///{folder}/store.db", folder, prefix=read_only(folder), env=env)
        )
        if found[-1][0] <= SECONDS:
            break
    print(found)
    assert min(seconds for seconds, _, _ in found) <= SECONDS
    assert max(ranker for _, ranker, _ in found) <= RANKER_MEGABYTES
    assert max(learner for _, _, learner in found) <= LEARNER_MEGABYTES
    assert sorted(source.rglob("*")) == before
    assert not list(home.iterdir())
    for path in (home, source, *before):
        path.chmod(0o755)  # so that the folder can be removed


def modules_of_a_ranker(tmp_path, use):
    """The modules that a ranker's process has loaded at its end."""
    url, listed = f"sqlite:///{tmp_path}/store.db", tmp_path / "modules.json"
    key = make_key(url)
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        f"import atexit, json, sys\natexit.register(lambda: open({str(listed)!r}, "
        "'w').write(json.dumps(sorted(sys.modules))))\n"
    )
    service = Service(url, tmp_path, role="ranker", env={"PYTHONPATH": f"{site}:{SOURCE}"})
    use(service.caller(key), url)
    assert service.stop() in (0, -15)
    return set(json.loads(until(lambda: listed.exists() and listed.read_text(), 10)))


def test_a_ranker_that_ranks_loads_no_code_that_learns(tmp_path):
    def use(call, url):
        asked = blueprint.Request(**{**BANDIT, "reward_range": (0, 1)})
        config = blueprint.normalised(asked, max_dim=100)
        with contextlib.closing(Store(url)) as store:
            made = blueprint.draft(config, allow_unproven=False)
            text = blueprint.canonical(config)
            assert store.create(config, text=text, key="test", **blueprint.records(made))
        for _ in range(3):
            assert reward(call, decide(call), 1.0)[0] == 200
        for path in ("/v1/bandits", "/v1/privacy", "/v1/bandits/shop/privacy", "/metrics"):
            call.get(path)

    modules = modules_of_a_ranker(tmp_path, use)
    assert "dpbandit.model" in modules
    assert not HEAVY & modules
    assert not {f"dpbandit.{name}" for name in LEARNING} & modules


def test_a_ranker_that_makes_a_bandit_loads_no_sampler(tmp_path):
    def use(call, url):
        for algorithm in ("tree-gauss", "anytime", "private-linucb", "local", "dgs"):
            made = {**BANDIT, "name": algorithm, "algorithm": algorithm, "horizon": 1000}
            status, answer = call("POST", "/v1/bandits", made)
            assert status == 201, answer
            decide(call, algorithm)

    modules = modules_of_a_ranker(tmp_path, use)
    assert "dpbandit.bandit" in modules
    assert not HEAVY & modules
