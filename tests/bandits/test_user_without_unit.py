"""A user who is named and not counted would be protected by nothing: that is an error."""

import pytest

import dpbandit as dpb
from dpbandit import errors


@pytest.mark.parametrize("backend", ["core", "reference"])
def test_a_user_without_a_unit_is_refused_and_nothing_is_learned(backend):
    given = {"dim": 2, "epsilon": 1.0, "delta": 1e-6, "seed": 0, "backend": backend}
    bandit = dpb.make("anytime", **given)
    with pytest.raises(errors.OptionError, match="unit of privacy is one reward"):
        bandit.update([1.0, 0.0], 0.5, user="anna")
    assert bandit.rounds == 0
    bandit.update([1.0, 0.0], 0.5)
    assert bandit.rounds == 1
