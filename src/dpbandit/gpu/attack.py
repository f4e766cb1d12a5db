"""Runs an audit's attack on a machine: every run draws its own noise, and its score is the
likelihood ratio of all releases.

What the two streams would have published is computed once, elsewhere, by the bandit itself
(`auditor.trajectories`). Where a clean value never depends on earlier noise only the shifts between
the two streams matter; the anytime bandit's values do depend on it, and its public coefficients
come along. Those of `anytime-joint` have none: each run learns for itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import OptionError
from dpbandit.gpu.counting import Counts, count
from dpbandit.gpu.machines import THREADS, Definitions, Machine, to_numpy
from dpbandit.gpu.plans import NOISES

Array = NDArray[np.float64]

# Scores that come back for a picture.
SAMPLE = 100_000


@dataclass(frozen=True)
class Shifts:
    """How far apart the two streams are in each coordinate of each release, in units of its noise;
    zeros left out.

    For K-norm noise one length for each release, of `width` coordinates. `certain` is what releases
    without noise add.
    """

    noise: str
    shifts: Array
    width: int = 1
    certain: float = 0.0


@dataclass(frozen=True)
class Trajectory:
    """The anytime bandit on a fixed stream: what is public of every round and of every release, in
    kernels.cu's order."""

    dim: int
    rows: Array
    steps: Array
    moments: NDArray[np.int32]
    settings: Array


@dataclass(frozen=True)
class PairTrajectory:
    """`anytime-joint` on two streams, and what is public of every release, in pair.cu's order."""

    dim: int
    versions: int  # whiteners that the rounds get to
    rows: Array
    steps: Array
    settings: Array


Attack = Shifts | Trajectory | PairTrajectory


def scores(
    machine: Machine,
    attack: Attack,
    *,
    side: int,
    runs: int,
    seed: int,
    injected: Array | None = None,
) -> Any:
    """Scores of `runs` runs on one stream (0 as it was, 1 changed), on the machine. A run's noise
    depends on its number."""
    arrays, real = machine.arrays, machine.real
    sign, key = np.int32(2 * side - 1), np.uint64((2 * seed + side) % 2**64)
    blocks, out = -(-runs // THREADS), arrays.empty(runs, dtype=np.float32)
    asked = (sign, key, np.uint64(0), np.uint64(runs), out)  # what every kernel is asked
    fixed: Definitions
    if isinstance(attack, Shifts):
        fixed = (("NOISE", NOISES[attack.noise]),)
        padded = np.zeros(-(-len(attack.shifts) // 4) * 4 or 4)
        padded[: len(attack.shifts)] = np.abs(attack.shifts)
        number = len(attack.shifts) if attack.noise == "laplace-l2" else len(padded)
        constant = attack.certain + (
            0.5 * float((padded**2).sum()) if attack.noise == "gaussian" else 0.0
        )
        arguments: tuple[Any, ...] = (
            arrays.asarray(padded.astype(real)),
            np.int32(number),
            np.int32(attack.width),
            np.float64(constant),
            *asked,
        )
        machine.launch("score", fixed, blocks, arguments)
        return out
    if isinstance(attack, PairTrajectory):
        fixed = (("PAIR", 1), ("DIM", attack.dim), ("VERSIONS", attack.versions))
        arguments = (
            *(arrays.asarray(np.ascontiguousarray(part)) for part in (attack.rows, attack.steps)),
            np.int32(len(attack.rows)),
            np.int32(len(attack.steps)),
            arrays.asarray(attack.settings),
            *asked,
            np.uint64(0) if injected is None else np.ascontiguousarray(injected, np.float64),
        )
        machine.launch("score_pair", fixed, blocks, arguments)
        return out
    fixed = (("ALGORITHM", 7), ("DIM", attack.dim))
    rows, steps = (
        arrays.asarray(np.ascontiguousarray(part, dtype=real))
        for part in (attack.rows, attack.steps)
    )
    arguments = (
        rows,
        steps,
        arrays.asarray(np.append(attack.moments, 0).astype(np.int32)),
        np.int32(len(attack.rows)),
        np.int32(len(attack.steps)),
        arrays.asarray(attack.settings),
        *asked,
        np.uint64(0) if injected is None else np.ascontiguousarray(injected, dtype=real),
    )
    machine.launch("score_adaptive", fixed, blocks, arguments)
    return out


@dataclass(frozen=True)
class Found:
    """Counts of both sides, some of the scores, and how long it took."""

    counts: Counts
    sample0: Array
    sample1: Array
    seconds: float


def attack(machine: Machine, what: Attack, *, runs: int, seed: int) -> Found:
    """Score both sides and count. Single precision scores: a step of theirs is far below any
    distance between thresholds."""
    if runs > 2**31:
        raise OptionError(f"runs must be at most 2³¹ a side on one device, not {runs}")
    began = time.perf_counter()
    both = [scores(machine, what, side=side, runs=runs, seed=seed) for side in (0, 1)]
    counts = count(machine.arrays, *both)
    machine.finish()
    seconds = time.perf_counter() - began
    samples = [to_numpy(side[:SAMPLE]).astype(np.float64) for side in both]
    return Found(counts, samples[0], samples[1], seconds)


def save(path: Path, attacks: dict[str, Attack]) -> None:
    """Write attacks where a machine with NumPy and CuPy alone can read them."""
    arrays: dict[str, Any] = {
        f"{name}/{part}": np.asarray(value)
        for name, what in attacks.items()
        for part, value in vars(what).items()
    }
    np.savez_compressed(path, **arrays)


def load(path: Path) -> dict[str, Attack]:
    """Read what `save` wrote."""
    parts: dict[str, dict[str, Any]] = {}
    with np.load(path) as arrays:
        for key, value in arrays.items():
            name, part = key.split("/")
            parts.setdefault(name, {})[part] = value if value.ndim else value.item()
    kinds: dict[frozenset[str], Any] = {
        frozenset(field.name for field in fields(kind)): kind
        for kind in (Shifts, Trajectory, PairTrajectory)
    }
    return {name: kinds[frozenset(own)](**own) for name, own in parts.items()}
