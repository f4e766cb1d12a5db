"""Audits through the kernels (compiled by g++ here) score and judge as the CPU's do."""

import math
import shutil

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.algorithms import registry
from dpbandit.algorithms.anytime import PLAIN
from dpbandit.auditor.attack import worst_stream
from dpbandit.auditor.bounds import judge, lower_bound
from dpbandit.auditor.trajectories import trajectory
from dpbandit.errors import OptionError
from dpbandit.gpu import attack as gpu
from dpbandit.gpu.counting import count
from dpbandit.gpu.machines import Host
from dpbandit.reference.random import lot

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="g++ is not installed: nothing compiles the kernels here"
)

HORIZON = 48


def attacked(name, **options):
    given = {"dim": 1, "epsilon": 2.0, "delta": 1e-3, "horizon": HORIZON, "seed": 0, **options}
    if name == "anytime":
        given = {**PLAIN, **given}
    if "smallest_eigenvalue" in registry.find(name).own_options:
        given["smallest_eigenvalue"] = 1.0
    return worst_stream(registry.construct(name, given), HORIZON, 0, workers=1)


def cpu_scores(frozen, positions, *, side, key, first=0, count=1):
    """log p(changed) − log p(as it was) of runs on one side, each through the shipped engine."""
    other = frozen.neighbour(positions)
    streams = [(frozen.xs, frozen.rs), (other.xs, other.rs)]
    engine, (own, twin) = frozen.bandit.engine.copy(), (streams[side], streams[1 - side])
    found = engine.scores(*own, *twin, frozen.known, key=key, first=first, count=count)
    return found if side else -found


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tree-gauss", {}),
        ("private-linucb", {}),
        ("private-linucb", {"noise": "laplace-l2", "dim": 3}),
        ("toeplitz", {"dim": 2}),
        ("dgs-published", {}),
        ("joint", {}),
        ("anytime-joint", {}),
    ],
)
def test_scores_have_the_distribution_of_the_cpu_engines(name, options):
    """Kolmogorov's distance of 4,000 scores on either side; 2.3 times its scale has probability
    5e-5 for each case."""
    frozen, positions = attacked(name, **options)
    runs = 4000
    ours = np.sort(
        gpu.scores(Host(), trajectory(frozen, positions), side=1, runs=runs, seed=3).astype(
            np.float64
        )
    )
    theirs = np.sort(cpu_scores(frozen, positions, side=1, key=99, count=runs))
    grid = (
        np.concatenate([ours, theirs]) + 1e-5
    )  # atoms agree up to the rounding of single precision
    distance = np.abs(np.searchsorted(ours, grid) - np.searchsorted(theirs, grid)).max() / runs
    assert distance < 2.3 * np.sqrt(2 / runs)


def test_anytime_scores_are_those_of_paired_engines_on_the_same_noise():
    """Its values depend on its releases: engine and twin on the CPU, one reduced recursion in the
    kernel, same draws."""
    frozen, positions = attacked("anytime", dim=2)
    what = trajectory(frozen, positions)
    noise, zeros = frozen.bandit.noise, np.zeros(3)
    for run, side in ((0, 0), (1, 1), (2, 1)):
        key = lot(7, 2 * run, 0)
        drawn = np.array([noise.simulate(key, t, 1.0, zeros) for t in what.moments.tolist()])
        ours = cpu_scores(frozen, positions, side=side, key=7, first=run)
        found = gpu.scores(Host(np.float64), what, side=side, runs=1, seed=0, injected=drawn)
        assert float(found[0]) == pytest.approx(float(ours[0]), rel=1e-6)


# With their numbers of whiteners: of clicks, in more dimensions, from a public sample.
PAIRS = [
    ({"knee": 10.0, "reward_range": (0.0, 1.0), "rewards": "clicks"}, 4),
    ({"dim": 2, "epsilon": 20.0}, 4),
    ({"public_contexts": [[0.5], [0.1]]}, 3),
]


@pytest.mark.parametrize(("options", "versions"), PAIRS)
def test_scores_of_private_contexts_are_those_of_paired_engines_on_the_same_noise(
    options, versions
):
    """Whiteners, designs and θ follow from noise: a run learns in the kernel as the engine does."""
    frozen, positions = attacked("anytime-joint", **options)
    what = trajectory(frozen, positions)
    assert what.versions == versions
    rounds = what.steps[:, 0].astype(int).tolist()
    noise, zeros = frozen.bandit.noise, np.zeros(frozen.bandit.release.dim)
    for run, side in ((0, 0), (1, 1), (2, 1)):
        key = lot(7, 2 * run, 0)
        drawn = np.array([noise.simulate(key, t, 1.0, zeros) for t in rounds])
        ours = cpu_scores(frozen, positions, side=side, key=7, first=run)
        found = gpu.scores(Host(np.float64), what, side=side, runs=1, seed=0, injected=drawn)
        assert float(found[0]) == pytest.approx(float(ours[0]), rel=1e-6)


def test_an_audit_of_private_contexts_finds_what_is_claimed_at_most_and_a_planted_bug():
    """Scores of noise that is a third too small would refute the claim."""
    given = {"epsilon": 2.0, "delta": 0.1, "horizon": 24, "knee": 4.0, "first_release": 2}
    found = dpb.audit("anytime-joint", runs=20_000, device="host", ratio=2.0, **given)
    assert found.holds
    assert found.bound.epsilon > 1.0
    frozen, positions = attacked("anytime-joint", **given, ratio=2.0)
    what = trajectory(frozen, positions)
    what.settings[9] *= 2 / 3  # the scale
    counts = gpu.attack(Host(), what, runs=20_000, seed=0).counts
    assert judge(counts, delta=0.1).epsilon > 2.0


def test_counting_and_judging_apart_is_judging_scores():
    rng = np.random.default_rng(0)
    one, two = rng.normal(0, 1, 5001), rng.normal(1, 1, 5000)
    assert judge(count(np, one.round(9), two.round(9)), delta=0.01) == lower_bound(
        one, two, delta=0.01
    )


def test_a_wrong_claim_is_refuted_and_a_right_one_is_not():
    given = {"epsilon": 2.0, "delta": 1e-5, "horizon": 64, "runs": 40_000, "device": "host"}
    wrong = dpb.audit("private-linucb-published", **given)
    right = dpb.audit("private-linucb", **given)
    assert not wrong.holds
    assert right.holds
    assert right.runs == 40_000
    assert right.bound.epsilon > 1.0
    assert "likelihood ratio" in str(right)


def test_without_noise_an_attack_is_certain_and_random_play_gives_nothing():
    assert dpb.audit("linucb", horizon=16, runs=20_000, device="host").bound.epsilon > 6
    assert dpb.audit("random", horizon=16, runs=20_000, device="host").bound.epsilon == 0


def test_a_choice_that_pair_cu_does_not_know_is_refused_by_name():
    frozen, positions = attacked("anytime-joint")
    frozen.bandit.spec = {**frozen.bandit.spec, "forgetting": 0.9}
    with pytest.raises(OptionError, match=r"choice 'forgetting'.*device='cpu'"):
        trajectory(frozen, positions)


def test_attacks_travel(tmp_path):
    made = {
        name: trajectory(*attacked(name))
        for name in ("tree-gauss", "anytime", "anytime-joint", "linucb")
    }
    gpu.save(tmp_path / "attacks.npz", made)
    for name, what in gpu.load(tmp_path / "attacks.npz").items():
        for side in (0, 1):
            before, after = (
                gpu.scores(Host(), one, side=side, runs=50, seed=1) for one in (made[name], what)
            )
            assert (before == after).all()


def test_what_a_gpu_cannot_attack_is_refused_with_the_way_out():
    with pytest.raises(OptionError, match="device='cpu'"):
        dpb.audit("tree-gauss", real=True, device="cuda")
    with pytest.raises(OptionError, match="device='cpu'"):
        dpb.audit("tree-gauss", horizon=8, pan_private=True, device="host")
    with pytest.raises(OptionError, match="device='cpu'"):
        dpb.audit("joint", horizon=8, noise="wishart", device="host")
    person = {"unit": ("person", 1), "reward_range": (0.0, 1.0)}
    for given, why in (
        (person, "persons"),
        ({"dim": 9}, "8 dimensions"),
        ({"epsilon": math.inf, "first_release": 2}, "without noise"),
    ):
        with pytest.raises(OptionError, match=rf"{why}.*device='cpu'"):
            dpb.audit("anytime-joint", horizon=8, device="host", **given)
    with pytest.raises(OptionError, match="'cpu' or 'cuda'"):
        dpb.audit("tree-gauss", device="tpu")
