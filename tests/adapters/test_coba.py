"""dpbandit's algorithms in coba's experiments, beside coba's own."""

import copy
import json
import pickle

import coba as cb
import numpy as np
import pytest
from coba.environments.synthetics import LinearSyntheticSimulation
from coba.safety import SafeLearner

import dpbandit as dpb
from dpbandit.adapters import CobaLearner, CobaWorld
from dpbandit.errors import BudgetError, OptionError, PropensityError, UnknownAlgorithmError

PRIVATE = {"epsilon": 2.0, "delta": 1e-5, "reward_range": (0, 1), "seed": 1}


@pytest.fixture(autouse=True)
def quiet():
    cb.CobaContext.logger = cb.NullLogger()
    cb.CobaContext.experiment.processes = 1


def experiment(environments, learners, processes=1):
    return cb.Experiment(environments, learners).run(quiet=True, processes=processes)


def rewards(result, of):
    """Total reward of each learner, by what `of` finds in its row."""
    table = {row["learner_id"]: row for row in result.learners.to_dicts()}
    totals = {}
    for row in result.interactions.to_dicts():
        name = of(table[row["learner_id"]])
        totals[name] = totals.get(name, 0.0) + row["reward"]
    return totals


def test_ours_without_privacy_is_cobas_linucb_action_by_action():
    """Same features, ridge 1 and α = 1: both are Chu et al.'s LinUCB, until scores tie."""
    theirs, ours = (
        cb.LinUCBLearner(alpha=1),
        CobaLearner("linucb", alpha=1.0, max_norm=10.0, reward_range=(0, 1), seed=1),
    )
    same = 0
    for number, step in enumerate(
        LinearSyntheticSimulation(
            200, n_actions=4, n_context_features=3, n_action_features=0, seed=3
        ).read()
    ):
        actions = [tuple(action) for action in step["actions"]]
        pmf = theirs._pmf(step["context"], actions)
        chosen = ours.predict(step["context"], actions)["action"]
        assert pmf[actions.index(chosen)] > 0, f"round {number}"
        same += max(pmf) == 1
        reward = step["rewards"][actions.index(chosen)]
        theirs.learn(step["context"], chosen, reward, 1.0)
        ours.learn(step["context"], chosen, reward, None)
    assert same > 190  # it was hardly ever a tie
    assert np.allclose(theirs._theta, ours.bandit.theta, atol=1e-8)


def test_a_private_learner_beside_cobas_own_on_its_environment():
    environments = cb.Environments.from_linear_synthetic(
        1_500, n_actions=3, n_context_features=2, n_action_features=0, seed=[1, 2]
    )
    learners = [
        cb.RandomLearner(),
        cb.LinUCBLearner(alpha=0.3),
        CobaLearner("anytime", max_norm=3.0, **PRIVATE),
    ]
    result = experiment(environments, learners)
    found = rewards(result, lambda row: row["family"])
    assert set(found) == {"Random", "LinUCB", "dpbandit anytime"}
    # two environments of 1,500 rounds: what privacy costs is far less than what learning gains
    gained, cost = found["LinUCB"] - found["Random"], found["LinUCB"] - found["dpbandit anytime"]
    assert gained > 300
    assert cost < 0.5 * gained
    row = next(row for row in result.learners.to_dicts() if row["family"] == "dpbandit anytime")
    assert row["epsilon"] == 2.0
    assert row["claim"].startswith("GDP, proven")


def test_it_runs_in_cobas_processes_with_the_same_result():
    environments = cb.Environments.from_linear_synthetic(
        60, n_actions=2, n_context_features=2, n_action_features=0, seed=[1, 2]
    )
    learner = CobaLearner("anytime", **PRIVATE)
    alone = experiment(environments, [learner])
    spread = experiment(environments, [learner], processes=2)
    assert rewards(alone, str) == rewards(spread, str)
    assert len(alone.interactions) == 120
    assert learner.bandit is None  # each environment had a copy


def test_our_world_in_coba_gives_what_run_gives():
    world = dpb.worlds.Synthetic(arms=50, dim=4, shown=5)
    options = {"epsilon": 2.0, "delta": 1e-5, "reward_range": (-0.5, 1.5)}
    result = experiment(
        CobaWorld(world, rounds=300, seed=7),
        [CobaLearner("tree-gauss", features=["a"], seed=7, horizon=300, **options)],
    )
    run = dpb.run(world, ["tree-gauss"], horizon=300, seeds=[7], workers=1, **options)
    assert sum(rewards(result, str).values()) == pytest.approx(
        run.summary().loc["tree-gauss", "reward"]
    )


def test_ucb_reports_no_probability_and_thompson_sampling_its_own():
    ucb = SafeLearner(CobaLearner("anytime", **PRIVATE))
    action, probability, _ = ucb.predict([0.1, 0.9], [(1, 0), (0, 1)])
    assert action in [(1, 0), (0, 1)]
    assert probability is None
    assert not ucb.has_score
    with pytest.raises(PropensityError, match="has no score"):
        ucb.learner.score([0.1, 0.9], [(1, 0), (0, 1)], (1, 0))
    thompson = SafeLearner(CobaLearner("private-ts", **PRIVATE))
    assert thompson.has_score
    action, probability, _ = thompson.predict([0.1, 0.9], [(1, 0), (0, 1)])
    assert probability == pytest.approx(0.5)  # two actions of which nothing is known
    assert thompson.score([0.1, 0.9], [(1, 0), (0, 1)], action) == pytest.approx(probability)


@pytest.mark.parametrize(
    ("context", "actions", "dim"),
    [
        (None, [(1, 0), (0, 1)], 3),  # a constant and the action
        (0.0, [(1, 0), (0, 1)], 5),  # a context of one number, which is 0
        ((0.1, 0.2), [1.5, 2.5], 4),
        ([0.1, 0.2], [(1, 0), (0, 1)], 7),
        ({"age": 0.3, "city": "Bern"}, ["red", "blue"], 64),
        (None, [{"size": 1.0}, {"size": 2.0, "new": 1}], 64),
        ("evening", ["red", "blue"], 64),
    ],
)
def test_every_kind_of_context_and_action(context, actions, dim):
    learner = CobaLearner("linucb", hash_to=64, reward_range=(0, 1), seed=0)
    chosen = learner.predict(context, actions)["action"]
    assert any(chosen is action for action in actions)
    learner.learn(context, chosen, 1.0, None)
    assert learner.bandit.dim == dim
    rows = learner._rows(context, actions)
    assert (np.linalg.norm(rows, axis=1) <= 1 + 1e-12).all()
    assert not np.array_equal(rows[0], rows[1])


def test_batches_are_taken_apart():
    environments = cb.Environments.from_linear_synthetic(
        40, n_actions=2, n_context_features=2, n_action_features=0, seed=1
    )
    found = [
        experiment(e, [CobaLearner("linucb", reward_range=(0, 1), seed=1)])
        for e in (environments, environments.batch(1))
    ]
    assert rewards(found[0], str) == rewards(found[1], str)
    assert len(found[0].interactions) == 40


def test_mistakes_are_refused_when_the_learner_is_made():
    with pytest.raises(UnknownAlgorithmError, match="did you mean 'anytime'"):
        CobaLearner("anytim", **PRIVATE)
    with pytest.raises(OptionError, match="delta is missing"):
        CobaLearner("anytime", epsilon=1.0, reward_range=(0, 1))
    with pytest.raises(OptionError, match="whose reward"):
        CobaLearner("anytime", unit=("user", 3), **PRIVATE)
    with pytest.raises(OptionError, match="omit dim"):
        CobaLearner("anytime", dim=3, **PRIVATE)
    with pytest.raises(TypeError, match="reward_range"):
        CobaLearner("anytime", epsilon=1.0, delta=1e-5)
    with pytest.raises(OptionError, match="hash_to"):
        CobaLearner("anytime", **PRIVATE).predict({"a": 1}, [1, 2])
    with pytest.raises(cb.CobaException, match="given actions"):
        CobaLearner("anytime", **PRIVATE).predict([1.0], [])


def test_a_learner_that_has_learned_is_not_copied():
    learner = CobaLearner("anytime", **PRIVATE)
    learner.predict([0.1], [(1, 0), (0, 1)])
    assert pickle.loads(pickle.dumps(learner)).params == learner.params
    learner.learn([0.1], (1, 0), 1.0, None)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(BudgetError, match="spend their budget twice"):
            copied(learner)


def test_parameters_fit_into_a_result_file(tmp_path):
    learner = CobaLearner("private-ts", public_contexts=np.eye(3), features=["a"], **PRIVATE)
    assert json.loads(json.dumps(learner.params)) == learner.params
    environments = cb.Environments.from_linear_synthetic(
        5, n_actions=3, n_context_features=0, n_action_features=3, seed=1
    )
    cb.Experiment(environments, [CobaLearner("linucb", reward_range=(0, 1), seed=1)]).run(
        str(tmp_path / "result.log.gz"), quiet=True
    )
    assert len(cb.Result.from_file(str(tmp_path / "result.log.gz")).interactions) == 5


def test_a_holdout_of_arms_without_features_has_propensities_too():
    """Whether lots are drawn was once asked with a context of zeros, which names no arm."""
    learner = CobaLearner("private-ucb", features=["a"], holdout=0.2, **PRIVATE)
    actions = [(1.0, 0.0), (0.0, 1.0)]
    found = learner.predict(None, actions)
    assert found["action_prob"][1] == pytest.approx(0.5)  # nothing is known of either
    assert learner.score(None, actions, actions[0]) == pytest.approx(0.5)
