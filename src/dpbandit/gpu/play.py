"""Plays a plan on many replications of the paper's simulation, all rounds inside one kernel.

Replications come in groups of THREADS that share a pool of arms (it has to fit into a block's fast
memory); each has its own θ*, slates, reward noise and privacy noise. Whole groups are always
played, so that a replication depends on its seed alone: seed s is replication s mod THREADS of
group s // THREADS. Sharing a pool correlates regrets a little (docs/gpu.md has by how much):
standard errors over seeds alone are somewhat too small, most for `dgs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import OptionError
from dpbandit.gpu.machines import THREADS, Definitions, Machine, to_numpy
from dpbandit.gpu.plans import FAMILIES, NOISES, Plan
from dpbandit.learners.prior import Prior
from dpbandit.worlds import Synthetic

Array = NDArray[np.float64]

LARGEST_DIM = {"anytime": 16}
LARGEST_SEED = 2**31 * THREADS
LONGEST = 2**31 - 2

# Blocks that share a multiprocessor, found by measuring (benchmarks/gpu_rounds.py --blocks 2 3 4):
# fewer leave more registers, and these kernels have enough independent work in each thread to need
# no more.
BLOCKS = 2


@dataclass(frozen=True)
class Injected:
    """Everything random, given: for comparing arithmetic with the CPU engine's."""

    shown: NDArray[np.int32]  # (rounds, shown)
    reward_noise: Array
    noise: Array  # (rounds, numbers in a release), of scale 1
    lots: NDArray[np.uint64]  # (rounds, shown)


@dataclass
class Played:
    """What was recorded: arrays of shape (replications, records)."""

    seeds: NDArray[np.int64]
    reward: Array
    regret: Array
    error: Array
    thetas: Array | None = None  # injected: (records, dim)
    chosen: NDArray[np.int32] | None = None


def groups_of(seeds: Iterable[int]) -> list[int]:
    """The groups that hold these seeds."""
    found = sorted({int(seed) // THREADS for seed in seeds})
    if found and (found[0] < 0 or found[-1] * THREADS >= LARGEST_SEED):
        raise OptionError(f"device='cuda' takes seeds from 0 to {LARGEST_SEED - 1}")
    return found


def pool_and_truths(world: Synthetic, group: int) -> tuple[Array, Array]:
    """A group's arms, and θ* of each of its replications."""
    rng = np.random.default_rng([group, 3])
    pool = rng.uniform(size=(world.pool_size, world.dim))
    truths = rng.uniform(size=(THREADS, world.dim))
    return _unit(pool), _unit(truths)


def _unit(rows: Array) -> Array:
    lengths: Array = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths


def instruments_and_prior(pools: Array, low: float, high: float) -> tuple[Array, Array]:
    """The anytime bandit's, where all contexts are public: unit instruments (pool, arm, d + 1), and
    the prior's precision (packed lower triangle) with its pull (pool, …)."""
    instruments, numbers = [], []
    for pool in pools:
        prior = Prior(pool.shape[1], pool)
        prior.refresh(0.5 * (low + high), high - low)
        z = np.column_stack([pool / prior.context_size, np.ones(len(pool))])
        instruments.append(_unit(z @ prior.whitener))
        packed = prior.precision[np.tril_indices(len(prior.pull))]
        numbers.append(np.concatenate([packed, prior.pull]))
    return np.stack(instruments), np.stack(numbers)


def definitions(plan: Plan, world: Synthetic, blocks: int | None = None) -> Definitions:
    """What is fixed while compiling."""
    return (
        ("ALGORITHM", FAMILIES[plan.family]),
        ("NOISE", NOISES[plan.noise]),
        ("DIM", world.dim),
        ("SHOWN", world.arms),
        ("BLOCKS", blocks or BLOCKS),
    )


class Stage:
    """Groups of replications, laid out on a machine: worlds once, then any number of plans."""

    def __init__(
        self,
        machine: Machine,
        world: Synthetic,
        groups: Sequence[int],
        *,
        pools: Array | None = None,
        truths: Array | None = None,
    ) -> None:
        self.machine, self.world, self.groups = machine, world, list(groups)
        if pools is None or truths is None:
            both = [pool_and_truths(world, group) for group in groups]
            pools, truths = (
                np.stack([pool for pool, _ in both]),
                np.concatenate([truth for _, truth in both]),
            )
        self.pools = pools
        self.replications = len(truths)
        self._pools = self._rows(pools)
        self._truths = self._array(truths.T)
        first = np.arange(THREADS, dtype=np.uint64)
        seeds = np.concatenate([first + np.uint64(group * THREADS) for group in groups])[
            : self.replications
        ]
        self.seeds = seeds.astype(np.int64)
        self._seeds = machine.arrays.asarray(seeds)

    def _array(self, values: Any) -> Any:
        return self.machine.arrays.ascontiguousarray(
            self.machine.arrays.asarray(np.ascontiguousarray(values, dtype=self.machine.real))
        )

    def _rows(self, values: Array) -> Any:
        """With rows padded to a multiple of four numbers."""
        width = values.shape[-1]
        padded = np.zeros((*values.shape[:-1], -(-width // 4) * 4))
        padded[..., :width] = values
        return self._array(padded)

    def play(
        self,
        plans: Plan | Sequence[Plan],
        rounds: int,
        recorded: Sequence[int] | NDArray[np.int64],
        *,
        injected: Injected | None = None,
        blocks: int | None = None,
    ) -> Played:
        """Play a plan, or one for each group, and bring back what was recorded."""
        start = self.prepare(plans, rounds, recorded, injected=injected, blocks=blocks)
        start()
        return start.collect()

    def prepare(
        self,
        plans: Plan | Sequence[Plan],
        rounds: int,
        recorded: Sequence[int] | NDArray[np.int64],
        *,
        injected: Injected | None = None,
        blocks: int | None = None,
    ) -> Launch:
        """Everything on the machine, ready to start any number of times."""
        each = [plans] * len(self.groups) if isinstance(plans, Plan) else list(plans)
        plan, world = each[0], self.world
        _check(plan, world, rounds)
        np_, real = self.machine.arrays, self.machine.real
        fixed = definitions(plan, world, blocks)
        if injected is not None:
            fixed += (("INJECTED", 1),)
        nothing = np_.zeros(1, dtype=real)
        instruments, prior = nothing, np_.zeros(1)
        if plan.family == "anytime":
            assert plan.anytime is not None
            raised, numbers = instruments_and_prior(self.pools, plan.anytime.low, plan.anytime.high)
            instruments, prior = self._rows(raised), np_.asarray(numbers)
        alphas, scales = np.array([p.alphas for p in each]), np.array([p.scales for p in each])
        marks = np.asarray(recorded, dtype=np.int32)
        out = np_.full((len(marks), 3, self.replications), math.nan, dtype=np.float32)
        thetas = np_.zeros(
            (len(marks), world.dim, self.replications) if injected else 1, dtype=real
        )
        chosen = np_.zeros(rounds if injected else 1, dtype=np.int32)
        given = (
            (np_.zeros(1, dtype=np.int32), nothing, nothing, np_.zeros(1, dtype=np.uint64))
            if injected is None
            else (
                np_.asarray(np.ascontiguousarray(injected.shown, dtype=np.int32)),
                self._array(injected.reward_noise),
                self._array(injected.noise),
                np_.asarray(injected.lots),
            )
        )
        arguments = (
            self._pools,
            instruments,
            prior,
            self._truths,
            self._seeds,
            np_.asarray(plan.settings(world)),
            np_.asarray(plan.table()),
            np_.asarray(plan.moments()),
            self._array(alphas),
            np.int32(alphas.shape[1]),
            self._array(scales),
            np.int32(scales.shape[1]),
            np_.asarray(marks),
            np.int32(len(marks)),
            np.int32(rounds),
            np.int32(self.replications),
            out,
            *given,
            thetas,
            chosen,
        )
        shared = world.pool_size * (-(-world.dim // 4) * 4) * np.dtype(real).itemsize
        return Launch(self, fixed, arguments, shared, out, thetas, chosen)


class Launch:
    """A kernel with its arguments."""

    def __init__(
        self, stage: Stage, fixed: Definitions, arguments: Any, shared: int, *results: Any
    ) -> None:
        self.stage, self._fixed, self._arguments, self._shared = stage, fixed, arguments, shared
        self._out, self._thetas, self._chosen = results

    def __call__(self) -> None:
        """Start it; does not wait."""
        self.stage.machine.launch(
            "play", self._fixed, len(self.stage.groups), self._arguments, self._shared
        )

    def collect(self) -> Played:
        """Wait for it and bring the results back."""
        self.stage.machine.finish()
        out = to_numpy(self._out).astype(np.float64)
        reward, regret, error = (np.ascontiguousarray(out[:, column].T) for column in range(3))
        played = Played(self.stage.seeds, reward, regret, error)
        if len(self._chosen) > 1:
            played.thetas, played.chosen = to_numpy(self._thetas)[:, :, 0], to_numpy(self._chosen)
        return played


def play(
    machine: Machine,
    plans: Plan | Callable[[int, Array], Plan],
    world: Synthetic,
    *,
    rounds: int,
    seeds: Iterable[int],
    recorded: Sequence[int] | NDArray[np.int64],
    advance: Callable[[int], None] = lambda replications: None,
    at_once: int = 528,
) -> Played:
    """Play these seeds, `at_once` groups in one launch. `plans` is one for all, or made for each
    group and its pool."""
    wanted = np.array([int(seed) for seed in seeds], dtype=np.int64)
    groups = groups_of(wanted.tolist())
    parts = []
    for start in range(0, len(groups), at_once):
        stage = Stage(machine, world, groups[start : start + at_once])
        own = (
            plans
            if isinstance(plans, Plan)
            else [plans(group, pool) for group, pool in zip(stage.groups, stage.pools, strict=True)]
        )
        parts.append(stage.play(own, rounds, recorded))
        advance(stage.replications)
    found = np.concatenate([part.seeds for part in parts])
    place = np.searchsorted(found, wanted)
    return Played(
        wanted,
        np.concatenate([part.reward for part in parts])[place],
        np.concatenate([part.regret for part in parts])[place],
        np.concatenate([part.error for part in parts])[place],
    )


def _check(plan: Plan, world: Synthetic, rounds: int) -> None:
    largest = LARGEST_DIM.get(plan.family, 32)
    if world.dim > largest:
        raise OptionError(
            f"device='cuda' plays {plan.family!r} in at most {largest} dimensions: use device='cpu'"
        )
    if not 1 <= rounds <= LONGEST:
        raise OptionError(f"device='cuda' plays between 1 and {LONGEST:,} rounds, not {rounds!r}")
    if plan.noise not in ("gaussian", "laplace"):
        raise OptionError(f"device='cuda' has no {plan.noise!r} noise for runs: use device='cpu'")
