"""The kernels, compiled by g++ in double precision, do what the CPU engine does: same slates,
rewards and noise, same arms and θ."""

import shutil
from itertools import pairwise

import numpy as np
import pytest

from dpbandit.algorithms import registry
from dpbandit.algorithms.anytime import PLAIN
from dpbandit.gpu.machines import Host
from dpbandit.gpu.play import Injected, Stage
from dpbandit.gpu.translation import plan_of
from dpbandit.reference.random import START, TIES, lots
from dpbandit.worlds import Synthetic

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="g++ is not installed: nothing compiles the kernels here"
)

# Four refreshes of A⁻¹ on the CPU, eleven levels of a tree, 170 releases of `anytime`.
ROUNDS = 1200
RECORDED = [1, 2, 3, 17, 255, 256, 257, 1000, ROUNDS]


def on_both(name, **options):
    """(arms, thetas, cumulative rewards and regrets) of the CPU engine and of the kernels on
    identical draws."""
    world, seed = Synthetic(), 5
    episode = world.episode(seed)
    block = episode.block(ROUNDS)
    given = {
        "dim": 10,
        "horizon": ROUNDS,
        "public_contexts": episode.public_contexts,
        "epsilon": 2.0,
        "delta": 0.1,
    }
    bandit = registry.construct(
        name, {**given, "reward_range": (-0.5, 1.5), **options, "seed": seed}
    )
    engine, key = bandit.engine, bandit.source.key
    width = len(engine.pending())
    zeros = np.zeros(width)
    noise = np.array([bandit.noise.simulate(key, t, 1.0, zeros) for t in range(1, ROUNDS + 1)])
    ties = bandit.keys[TIES]
    drawn = np.array([lots(ties, t, np.arange(10)) for t in range(ROUNDS)], dtype=np.uint64)
    translated = plan_of(bandit, ROUNDS)
    if translated.family == "dgs":
        # The CPU engine looks again whenever it refreshes A⁻¹.
        object.__setattr__(translated, "refresh", 256)
    # The CPU engine, from record to record, so that parameters can be seen.
    shown = np.ascontiguousarray(block.shown, dtype=np.int64)
    totals, arms, thetas, table = np.zeros(2), np.zeros(ROUNDS, dtype=np.int64), [], []
    alphas = bandit.alphas(1, ROUNDS)
    for first, last in pairwise([0, *RECORDED]):
        part = slice(first, last)
        out = engine.play(
            block.pool,
            shown[part],
            block.rewards[part],
            block.means[part],
            alphas=alphas[part],
            noise_key=key,
            start_key=bandit.keys[START],
            in_public_set=np.ones(len(block.pool), dtype=bool),
            truth=episode.theta,
            record=np.array([last - first - 1]),
            totals=totals,
            arms=arms[part],
        )
        thetas.append(engine.theta())
        table.append(out[0])
    machine = Host(np.float64)
    stage = Stage(machine, Synthetic(), [0], pools=block.pool[None], truths=episode.theta[None])
    injected = Injected(block.shown, block.rewards[:, 0] - block.means[:, 0], noise, drawn)
    played = stage.play(translated, ROUNDS, RECORDED, injected=injected)
    return arms, np.array(thetas), np.array(table), played


CASES = {
    "random": {},
    "linucb": {},
    "local": {},
    "private-linucb": {},
    "private-linucb-published": {},
    "tree-gauss": {},
    "toeplitz": {},
    # Two valid bounds on the largest ‖A⁻¹x‖, brought up to date at different times: the noise is
    # alike, not equal. So hardly any of it here; in regret (test_play) there is as much as ever.
    "dgs": {"epsilon": 1e16},
    "dgs with Laplace noise": {"noise": "laplace", "epsilon": 1e16},
    "dgs-published": {},
    "dgs-figure": {},
    # At 1 the first context of norm 1 ends an episode, or not, by an ulp of log 2.
    "adac-oful": {"determinant_growth": 0.9},
    "anytime": PLAIN,
    "tree-gauss with Lemma 2's bonus": {"alpha": "theory"},
}


@pytest.mark.parametrize("case", CASES)
def test_kernels_choose_the_arms_and_release_the_parameters_of_the_cpu_engine(case):
    arms, thetas, table, played = on_both(case.split(" ")[0], **CASES[case])
    assert played.chosen.tolist() == arms.tolist()
    assert np.abs(played.thetas - thetas).max() < 1e-8 * max(1.0, np.abs(thetas).max())
    assert played.reward[0] == pytest.approx(table[:, 0], rel=1e-6)  # recorded in single precision
    assert played.regret[0] == pytest.approx(table[:, 1], rel=1e-6, abs=1e-6)
    assert played.error[0] == pytest.approx(table[:, 2], rel=1e-6) if case != "random" else True
