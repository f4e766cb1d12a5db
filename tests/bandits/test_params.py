"""Options read back, and what a bandit says of itself."""

import dataclasses
import inspect
import re
import typing
import warnings

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.algorithms import registry
from dpbandit.algorithms.given import Given
from dpbandit.errors import LargeDeltaWarning, RangeWarning
from dpbandit.options import SHARED, Options


@pytest.mark.parametrize("name", list(dpb.algorithms()))
def test_a_bandit_made_from_the_parameters_of_another_is_alike(name):
    own = {
        "dgs-published": {"smallest_eigenvalue": 0.2},
        "tree-gauss": {"honaker": True},
        "anytime": {"ratio": 1.5},
    }
    given = {
        "dim": 2,
        "epsilon": 2.0,
        "delta": 1e-3,
        "horizon": 50,
        "seed": 4,
        "unit": ("user", 2),
        **own.get(name, {}),
    }
    bandit = dpb.make(name, **given)
    params = bandit.get_params()
    assert params["name"] == name
    assert given.items() <= params.items()
    again = dpb.make(**params)
    assert again.get_params() == params
    assert again.claim == bandit.claim
    for twin in (bandit, again):
        twin.update(np.eye(2)[twin.select(np.eye(2))], 0.5, user=7)
    assert np.array_equal(bandit.theta, again.theta)


def test_the_parameters_are_not_the_state():
    bandit = dpb.make("linucb", dim=2, public_contexts=np.eye(2), seed=0)
    before = bandit.get_params(deep=False)
    bandit.update([1.0, 0.0], 1.0)
    assert bandit.get_params().keys() == before.keys()
    assert dpb.make(**bandit.get_params()).rounds == 0


def test_what_it_says_of_itself_is_one_line_with_what_was_chosen_and_the_claim():
    bandit = dpb.make(
        "tree-gauss", dim=2, epsilon=1.0, delta=1e-5, horizon=10, honaker=True, seed=0
    )
    bandit.update([1.0, 0.0], 0.123456)
    assert repr(bandit) == (
        "<tree-gauss(dim=2, horizon=10, seed=0, honaker=True): 1 rounds learned; "
        "proven: ε = 1, δ = 1e-05 for one reward (simulation noise)>"
    )
    assert "<3 × 2 array>" in repr(dpb.make("linucb", dim=2, public_contexts=np.ones((3, 2)) / 2))


def test_editors_know_every_algorithm_and_option():
    ours = dpb.algorithms()
    assert list(typing.get_args(registry.Name)) == list(ours)
    own = {option for algorithm in ours.values() for option in algorithm.own_options}
    shown = inspect.signature(dpb.make).parameters
    assert set(shown) == {"name", "encoder", *SHARED, *own}
    for option in dataclasses.fields(Options):
        if option.name not in ("dim", "extra"):
            assert shown[option.name].default == option.default
    types = inspect.get_annotations(Given)
    names = {option: shown[option].annotation for option in shown if option != "name"}
    assert {option: re.sub(r"\s", "", names[option]) for option in names} == {
        option: re.sub(r"\s|^\(|\)$", "", types[option].__forward_arg__) for option in types
    }
    for option in shown:
        assert re.search(rf"^    (\w+, )*{option}(, \w+)* :", dpb.make.__doc__, re.MULTILINE), (
            option
        )


def test_dir_shows_what_a_user_needs_and_all_of_it_is_there():
    bandit = dpb.make("anytime", dim=2, epsilon=1.0, delta=1e-6, reward_range=(0, 1), seed=0)
    shown = dir(bandit)
    assert {"select", "update", "theta", "claim", "spent", "save", "export"} <= set(shown)
    assert len(shown) <= 24
    assert all(hasattr(bandit, name) for name in shown)


def test_a_forgotten_range_is_said_with_what_it_costs():
    budget = {"epsilon": 1.0, "delta": 1e-6}
    with pytest.warns(RangeWarning, match=r"twice the noise .* reward_range=\(0, 1\)") as caught:
        dpb.make("anytime", dim=2, **budget)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dpb.make("anytime", dim=2, reward_range=(-1, 1), **budget)
        dpb.make("linucb", dim=2)
        dpb.make("random", dim=2)
        dpb.make("local", dim=2, epsilon=float("inf"))
        dpb.run(dpb.worlds.Synthetic(), ["anytime"], horizon=5, seeds=1, **budget)


def test_a_run_clips_to_the_range_of_its_world_unless_told():
    given = {"horizon": 300, "seeds": 2, "epsilon": 1.0, "delta": 1e-6, "record": []}
    said = {"reward_range": (-0.5, 1.5)}
    world = dpb.worlds.Synthetic()
    ours = dpb.run(world, ["anytime"], **given).frame()
    assert ours.equals(dpb.run(world, ["anytime"], **given, **said).frame())
    assert not ours.equals(dpb.run(world, ["anytime"], **given, reward_range=(-1, 1)).frame())


@pytest.mark.parametrize("name", ["anytime", "local"])
def test_a_large_delta_without_a_horizon_is_said(name):
    given = {"dim": 2, "epsilon": 1.0, "reward_range": (0, 1)} | (
        {"noise": "gaussian"} if name == "local" else {}
    )
    with pytest.warns(LargeDeltaWarning, match="delta = 0.001 without a horizon") as caught:
        dpb.make(name, delta=1e-3, **given)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dpb.make(name, delta=9e-4, **given)
