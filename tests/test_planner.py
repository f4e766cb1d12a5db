"""Plans: limits that must hold, formulas against the real mechanisms, and the command line. No reward is in sight."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.bandits import registry
from dpbandit.errors import NotFiniteError, OptionError, ShapeError, UnknownAlgorithmError
from dpbandit.noise import GAUSSIAN, LAPLACE, LAPLACE_L2
from dpbandit.planning.march import clipped
from dpbandit.planning.models import model_for, predicts, standard_noise, toeplitz_covariance
from dpbandit.planning.problem import Problem, draw_thetas, sample_of
from dpbandit.release import toeplitz
from dpbandit.release.tree import tree_standard_error

SMALL = {"dim": 4, "arms": 5, "delta": 1e-5, "horizon": 2_000, "reward_range": (-0.5, 1.5), "particles": 8}
MOMENTS = ["tree-gauss", "toeplitz", "dgs", "private-linucb", "local", "adac-oful"]


def small(**changes):
    return dpb.plan(**{**SMALL, "epsilon": 2.0, **changes})


@pytest.fixture(scope="module")
def ordinary():
    return small()


def problem_for(dim=3, rounds=256, particles=400):
    offered, _ = sample_of(None, None, dim, 5, 1.0, 0)
    thetas, _ = draw_thetas(
        "contexts", offered, particles=particles, reward_range=(-1, 1), reward_noise=0.5, reward_spread=None, seed=0
    )
    return Problem(dim, 5, rounds, (-1.0, 1.0), 0.5, offered, False, thetas, 8, 0)


# ------------------------------------------------------------------ limits


@pytest.mark.parametrize("name", ["tree-gauss", "toeplitz", "dgs", "private-linucb", "local"])
def test_without_noise_every_mechanism_is_the_non_private_one(name):
    found = small(epsilon=math.inf, algorithms=[name, ("linucb", {"clip_rewards": True})])
    same = found.course("linucb clip_rewards=True")
    assert np.allclose(found.course(name).regret, same.regret, rtol=1e-6)
    assert np.allclose(found.course(name).theta_error, same.theta_error, rtol=1e-6)


@pytest.mark.parametrize("name", ["toeplitz", "anytime", "local"])
def test_more_privacy_costs_more_regret(name):
    finals = [small(epsilon=epsilon, algorithms=[name]).final(name) for epsilon in (0.3, 2.0, 20.0)]
    assert finals[0] > finals[1] > finals[2]


def test_toeplitz_beats_the_tree_and_honaker_lies_between():
    found = small(algorithms=["toeplitz", "tree-gauss", ("tree-gauss", {"honaker": True})], horizon=8_000)
    plain, better = found.final("tree-gauss"), found.final("tree-gauss honaker=True")
    assert found.final("toeplitz") < better < plain


def test_regret_grows_with_time_and_learning_flattens_it(ordinary):
    for name, forecast in ordinary.forecasts.items():
        if forecast.course is not None:  # every algorithm with a model
            assert (np.diff(forecast.course.regret) >= -1e-9).all(), name
    anytime = ordinary.at("anytime", [500, 1_000, 2_000])
    assert anytime[2] - anytime[1] < 2 * (anytime[1] - anytime[0])
    random = ordinary.at("random", [1_000, 2_000])
    assert random[1] == pytest.approx(2 * random[0], rel=0.05)


def test_the_same_question_has_the_same_answer(ordinary):
    assert small().to_dict() == ordinary.to_dict()


def test_a_known_theta_and_no_reward_noise_leave_only_privacy_to_pay():
    found = small(algorithms=["linucb", "tree-gauss"], reward_noise=0.0, prior=[[0.5, 0.1, 0.1, 0.3]])
    assert found.course("linucb").theta_error[-1] < 0.05
    assert found.final("tree-gauss") > 3 * found.final("linucb")


# ------------------------------------------------------------------ formulas against the real mechanisms


@pytest.mark.parametrize("t", [1, 100, 255])
@pytest.mark.parametrize("horizon", [256, None])
def test_tree_noise_has_the_standard_error_of_the_release(t, horizon):
    problem = problem_for()
    options = {"dim": 3, "epsilon": 2.0, "delta": 1e-5, "horizon": horizon, "seed": 0}
    for honaker in (False, True) if horizon else (False,):
        bandit = registry.construct("tree-gauss", {**options, "honaker": honaker})
        noise = model_for(bandit, problem)._tree_noise(t)
        one = bandit.plan.sensitivity * bandit.plan.multipliers[1]
        expected = one * tree_standard_error(t, horizon, honaker=honaker)
        # 1,200 Gaussians: a standard deviation is off by more than 10% once in a million times.
        assert noise.std() == pytest.approx(float(expected), rel=0.1)


def test_toeplitz_noise_has_the_covariance_of_the_release():
    times = np.array([1, 7, 50, 200])
    decays = toeplitz.inverse_decays(*toeplitz.decays_for(256))
    rows = np.array([[sum(b * (1 - r) ** k for r, b in zip(*decays, strict=True)) for k in range(200)]])[0]
    matrix = np.array([[rows[t - 1 - j] if j < t else 0.0 for j in range(200)] for t in times])
    assert np.allclose(toeplitz_covariance(times, 256), matrix @ matrix.T, rtol=1e-9)


@pytest.mark.parametrize(("kind", "variance"), [(GAUSSIAN, 1.0), (LAPLACE, 2.0), (LAPLACE_L2, 5.0)])
def test_noise_of_scale_one_has_its_variance(kind, variance):
    drawn = standard_noise(kind, (40_000, 4), np.random.default_rng(0))
    assert drawn.var() == pytest.approx(variance, rel=0.05)  # K-norm: d + 1


def test_clipped_rewards_have_the_mean_and_variance_of_simulated_ones():
    draws = np.clip(np.random.default_rng(0).normal(0.9, 0.5, size=400_000), -0.5, 1.5)
    mean, variance = clipped(np.array([0.9]), 0.5, -0.5, 1.5)
    assert mean[0] == pytest.approx(draws.mean(), abs=4e-3)
    assert variance[0] == pytest.approx(draws.var(), abs=4e-3)
    assert clipped(np.array([2.0]), 0.0, -0.5, 1.5)[0][0] == 1.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linucb", "local", "tree-gauss", "toeplitz", "dgs", "adac-oful", "anytime"])
def test_predicted_regret_and_error_are_those_of_simulations(name):
    world = dpb.worlds.Synthetic()
    options = {"epsilon": 2.0, "delta": 1e-4, "reward_range": (-0.5, 1.5)}
    measured = dpb.run(world, [name], horizon=2_000, seeds=40, **options).summary().loc[name]
    # 40 seeds and 48 particles: each side has a standard error of about 5%, so 30% is four of the difference's.
    found = dpb.plan(
        dim=10,
        arms=10,
        horizon=2_000,
        contexts=world.episode(99).public_contexts,
        known_contexts=True,
        prior=np.array([world.episode(100 + n).theta for n in range(48)]),
        particles=48,
        algorithms=[name],
        **options,
    )
    assert found.final(name) == pytest.approx(measured["regret"], rel=0.3)
    assert found.course(name).theta_error[-1] == pytest.approx(measured["theta_error"], rel=0.3)


def test_predicted_parameter_error_is_that_of_a_simulation():
    world = dpb.worlds.Synthetic(dim=4)
    options = {"epsilon": 2.0, "delta": 1e-4, "reward_range": (-0.5, 1.5)}
    names = ["linucb", "tree-gauss", "anytime"]
    measured = dpb.run(world, names, horizon=1_000, seeds=10, **options).summary()
    sample = world.episode(99).public_contexts
    found = dpb.plan(dim=4, arms=10, horizon=1_000, contexts=sample, known_contexts=True, algorithms=names, **options)
    for name in names:
        assert found.course(name).theta_error[-1] == pytest.approx(measured.loc[name, "theta_error"], rel=0.4), name
        assert found.final(name) == pytest.approx(measured.loc[name, "regret"], rel=0.4), name


# ------------------------------------------------------------------ what a plan says


def test_a_plan_recommends_a_proven_algorithm_and_never_prints_an_epsilon_without_its_claim(ordinary):
    assert ordinary.recommended == ordinary.ranked()[0] == "anytime"
    assert ordinary.forecasts[ordinary.recommended].status == "proven"
    assert {"dgs-published", "dgs-figure", "private-linucb-published"}.isdisjoint(ordinary.forecasts)
    for line in str(ordinary).splitlines():
        if "ε =" in line:
            assert "proven" in line or "published" in line


def test_rivals_that_are_not_clearly_worse_are_named():
    twins = [("toeplitz", {"alpha": 0.3}), ("toeplitz", {"alpha": 0.301}), "private-linucb"]
    found = small(algorithms=twins)
    assert len(found.rivals()) == 1
    assert "not clearly worse: toeplitz alpha=0.3" in found.headline()


def test_published_variants_are_predicted_when_named_and_never_recommended():
    found = small(algorithms=["dgs-figure", "tree-gauss", "private-linucb-published"], horizon=500)
    assert found.final("dgs-figure") < found.final("tree-gauss")
    assert found.recommended == "tree-gauss"


def test_shaped_moments_are_predicted():
    names = [("toeplitz", {"shape": shape}) for shape in ("round", "ellipsoid", "instruments")]
    found = small(algorithms=names, known_contexts=True, horizon=4_000)
    assert found.final("toeplitz shape=instruments") < found.final("toeplitz shape=round")


def test_an_algorithm_without_a_model_is_listed_as_such():
    class First:
        def __init__(self, **options):
            pass

    dpb.register("first-for-plans", First, claim="proven by nobody", replace=True)
    try:
        found = small(algorithms=["first-for-plans", "toeplitz"], horizon=200)
        assert found.recommended == "toeplitz"
        assert "no prediction" in str(found)
        assert found.table().loc["first-for-plans", "note"].startswith("no prediction")
        assert json.loads(json.dumps(found.to_dict()))["algorithms"]["first-for-plans"]["regret"] is None
        with pytest.raises(OptionError, match="no prediction"):
            found.final("first-for-plans")
    finally:
        registry.ALGORITHMS.pop("first-for-plans")


def test_a_model_for_a_new_family_is_added_in_one_place():
    class NewPlan:
        pass

    class New:
        plan = NewPlan()

    assert model_for(New(), problem_for()) is None
    predicts(NewPlan)(lambda bandit, problem: "a model")
    assert model_for(New(), problem_for()) == "a model"


def test_rounds_until_close_are_found_and_are_none_when_out_of_reach():
    found = small(epsilon=50.0, algorithms=["toeplitz", "private-linucb", "random"], horizon=20_000)
    assert found.rounds_until_close("linucb") == found.rounds_until_close("linucb", within=0.01)
    assert found.rounds_until_close("random") is None
    near, nearer = (found.rounds_until_close("toeplitz", within=share) for share in (3.0, 0.5))
    assert near is not None
    assert nearer is None or near <= nearer


def test_more_epsilon_is_needed_to_come_closer():
    options = {
        "dim": 3,
        "arms": 4,
        "delta": 1e-5,
        "horizon": 1_000,
        "particles": 6,
        "algorithms": ["anytime", "toeplitz"],
    }
    wide, narrow = (dpb.affordable_epsilon(within=within, **options) for within in (2.0, 0.5))
    assert wide.epsilon < narrow.epsilon
    assert wide.regret <= wide.target
    assert "(proven)" in str(wide)
    nothing = dpb.affordable_epsilon(regret=1e-3, **options)
    assert nothing.epsilon is None
    assert "no ε" in str(nothing)


def test_slates_in_order_plan_for_drift():
    world = dpb.worlds.Drifting(dim=4, shown=5, period=2_000)
    block = world.episode(5).block(1_000)
    slates = block.pool[block.shown]
    found = small(contexts=slates, in_order=True, algorithms=["anytime"], horizon=1_000)
    assert "in the order of time" in str(found)


def test_a_plan_for_an_unknown_horizon_looks_ahead():
    found = small(horizon=None, rounds=3_000, algorithms=["tree-gauss", "toeplitz", "anytime"])
    assert found.problem.rounds == 3_000
    assert found.to_dict()["setting"]["horizon"] is None


def test_pictures_and_tables_are_made(ordinary, tmp_path):
    ordinary.plot().savefig(tmp_path / "plan.png")
    assert set(ordinary.frame().columns) == {"algorithm", "round", "regret", "theta_error"}
    assert ordinary.table().index[0] in ("linucb", "anytime")


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"epsilon": -1}, OptionError, "epsilon"),
        ({"delta": 2}, OptionError, "delta"),
        ({"dim": 0}, OptionError, "dim"),
        ({"arms": 2.5}, OptionError, "arms"),
        ({"horizon": 0}, OptionError, "horizon"),
        ({"rounds": 5_000}, OptionError, "beyond the horizon"),
        ({"reward_noise": -1}, OptionError, "reward_noise"),
        ({"reward_spread": 0}, OptionError, "reward_spread"),
        ({"reward_range": (1, 0)}, OptionError, "reward_range"),
        ({"prior": "contxts"}, OptionError, "did you mean 'contexts'"),
        ({"prior": [[1.0, 2.0]]}, ShapeError, "θs"),
        ({"contexts": np.ones((3, 2))}, ShapeError, "contexts must have shape"),
        ({"contexts": np.full((3, 4), np.nan)}, NotFiniteError, "NaN"),
        ({"contexts": np.ones((3, 4))}, OptionError, "max_norm"),
        ({"contexts": np.zeros((3, 4))}, OptionError, "zero"),
        ({"contexts": np.eye(4), "covariance": np.eye(4)}, OptionError, "not both"),
        ({"covariance": np.eye(3)}, ShapeError, "covariance"),
        ({"covariance": -np.eye(4)}, OptionError, "semi-definite"),
        ({"in_order": True}, OptionError, "in_order"),
        ({"algorithms": ["lincub"]}, UnknownAlgorithmError, "did you mean 'linucb'"),
        ({"algorithms": []}, OptionError, "no algorithm"),
        ({"alhpa": 1.0}, OptionError, "did you mean 'alpha'"),
        ({"public_contexts": np.eye(4)}, OptionError, "public_contexts"),
        ({"particles": 1}, OptionError, "particles"),
    ],
)
def test_mistakes_are_named(changes, error, words):
    with pytest.raises(error, match=words):
        small(**changes)


# ------------------------------------------------------------------ the command line


def cli(*arguments, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "dpbandit.cli", "plan", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        **kwargs,
    )


def test_the_command_line_plans_and_draws(tmp_path):
    np.save(tmp_path / "sample.npy", np.eye(4))
    ran = cli(
        "toeplitz", "tree-gauss", "--dim", "4", "--arms", "3", "--horizon", "300", "--delta", "1e-4", "--contexts",
        str(tmp_path / "sample.npy"), "--known-contexts", "--out", str(tmp_path / "plan.svg"), "--json",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    record = json.loads(ran.stdout)
    assert record["recommended"] == "toeplitz"
    assert record["recommended_status"] == "proven"
    assert set(record) == {
        "setting", "recommended", "recommended_status", "not_clearly_worse", "algorithms", "assumptions", "notes", "accuracy",
        "complete",
    }  # fmt: skip
    row = record["algorithms"]["toeplitz"]
    assert row["claim"]["status"] == "proven"
    assert len(row["rounds"]) == len(row["regret_over_time"]) == len(row["theta_error_over_time"])
    assert (tmp_path / "plan.svg").stat().st_size > 1_000


def test_the_command_line_answers_what_one_can_afford(tmp_path):
    (tmp_path / "sample.csv").write_text("a,b\n1,0\n0,1\n0.6,0.8\n")
    ran = cli(
        "anytime", "--dim", "2", "--arms", "2", "--horizon", "300", "--delta", "1e-4", "--afford", "100%", "--contexts",
        str(tmp_path / "sample.csv"), "--json",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    record = json.loads(ran.stdout)
    assert record["status"] == "proven"
    assert record["within"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--contexts", "nowhere.npy"], "cannot be read"),
        (["--contexts", "sample.txt"], "must be a .npy"),
        (["--out", "plan.doc"], "--out must end in"),
        (["--afford", "much"], "--afford must be a share"),
        (["lincub"], "did you mean 'linucb'"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(arguments, words):
    ran = cli(*arguments)
    assert ran.returncode == 2
    assert words in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr
