"""The same bits at every width of vectors: one process for each that this processor has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("dpbandit._core", reason="there is no compiled core here")

# Hashes of all that an engine holds after every round, and of worlds and noise: not of arms alone,
# which agree long after the numbers behind them do not.
SCRIPT = """
import hashlib, json, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from rounds import WORLDS, algorithms, variants
from dpbandit import _core
import dpbandit as dpb

ROUNDS = 300
found = {}
for world_name in ("one-hot", "drifting", "synthetic"):
    world = WORLDS[world_name](ROUNDS)
    for name, spec in {**algorithms(ROUNDS, world), **variants(ROUNDS, world)}.items():
        engine, seen = _core.Engine(spec), hashlib.sha256()
        for t, rows in enumerate(world.shown):
            slate = np.ascontiguousarray(world.pool[rows])
            ranked = engine.rank(slate, len(slate))
            seen.update(bytes(ranked))
            arm = ranked[0]
            scale = engine.simulate(slate[arm], float(world.rewards[t, arm]), t != 200, 5, 6)
            seen.update(np.float64(scale).tobytes())
            seen.update(engine.theta().tobytes() + engine.model()["matrix"].tobytes())
            if t % 50 == 49:
                for field, array in sorted(engine.fields().items()):
                    seen.update(field.encode() + np.ascontiguousarray(array).tobytes())
        found[world_name + ", " + name] = seen.hexdigest()
    xs, rs = world.pool[world.shown[:60, 0]], world.rewards[:60, 0].copy()
    for name in ("tree-gauss", "local", "dgs", "anytime", "joint"):
        engine = _core.Engine(algorithms(ROUNDS, world)[name])
        other = rs.copy()
        other[7] = -rs[7]
        scores = engine.scores(xs, rs, xs, other, key=9, first=0, count=8)
        shown = engine.trace(xs, rs, noise_key=3, start_key=4)
        numbers = b"".join(np.ascontiguousarray(part).tobytes() for part in (scores, *shown))
        found[world_name + ", scores of " + name] = hashlib.sha256(numbers).hexdigest()
for name, world in {
    "synthetic": dpb.worlds.Synthetic(arms=50, dim=5, shown=7),
    "bernoulli": dpb.worlds.Bernoulli(5),
    "drifting": dpb.worlds.Drifting(arms=50, dim=5, shown=4),
    "degenerate": dpb.worlds.Degenerate(arms=50, dim=5, shown=4),
    "moving": dpb.worlds.Moving("walk", 2000),
}.items():
    numbers = b"".join(part.tobytes() for part in _core.World(world.episode(2).spec).rounds(0, 1024))
    found["world " + name] = hashlib.sha256(numbers).hexdigest()
for noise in ("gaussian", "laplace", "laplace-l2", "wishart"):
    drawn = [_core.noise(noise, 3, i, 40.0, np.linspace(-1, 1, 15)).tobytes() for i in range(50)]
    found["noise " + noise] = hashlib.sha256(b"".join(drawn)).hexdigest()
print(json.dumps({"arch": _core.arch(), "found": found}))
"""


def hashes(arch: str) -> dict[str, str] | None:
    """What the core of this width says; None where the processor has no such width."""
    folder = Path(__file__).parents[1] / "reference"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env={**os.environ, "DPBANDIT_ARCH": arch},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        assert "more than this processor can run" in done.stderr, done.stderr
        return None
    said = json.loads(done.stdout)
    assert said["arch"] == arch
    found: dict[str, str] = said["found"]
    return found


def test_every_width_has_the_same_bits() -> None:
    from dpbandit import _core

    if _core.arch() == "generic":
        pytest.skip("this processor has one width only")
    found = {arch: hashes(arch) for arch in ("v2", "v3", "v4")}
    there = {arch: numbers for arch, numbers in found.items() if numbers is not None}
    assert "v2" in there
    if len(there) == 1:
        pytest.skip("this processor has one width only")
    first = there["v2"]
    assert len(first) > 100
    assert len(set(first.values())) > 100  # different specs are different runs
    for arch, numbers in there.items():
        differ = [name for name in first if numbers[name] != first[name]]
        assert not differ, f"{arch} differs from v2 in {differ}"
