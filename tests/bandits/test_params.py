"""Options read back, and what a bandit says of itself."""

import dataclasses
import inspect
import re
import typing

import numpy as np
import pytest

import dpbandit as dpb
from dpbandit.algorithms import registry
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
        "(ε = 1, δ = 1e-05, μ = 0.268051) for one reward [gdp, proven, noise: simulation]>"
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
    for option in shown:
        assert re.search(rf"^    (\w+, )*{option}(, \w+)* :", dpb.make.__doc__, re.MULTILINE), (
            option
        )
