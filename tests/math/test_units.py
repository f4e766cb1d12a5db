"""Whom a claim speaks of."""

import math

import pytest

from dpbandit.errors import OptionError
from dpbandit.privacy.unit import ONE_REWARD, Unit, find_unit, user


def test_units_are_found_by_their_option_and_give_it_back():
    assert find_unit("reward") == ONE_REWARD
    for option in (("user", 5), ["user", 5], ("user", 5.0), user(5)):
        assert find_unit(option) == user(5)
        assert find_unit(option).option == ("user", 5)
    assert ONE_REWARD.cap is None
    assert (user(5).cap, user(5).moves(2.0)) == (5, 5)


@pytest.mark.parametrize(
    "bad", ["user", "person", ("user",), ("user", 1, 2), 3, None, (), ("reward", 2)]
)
def test_an_unknown_unit_is_refused(bad):
    with pytest.raises(OptionError, match="unit must be 'reward', "):
        find_unit(bad)


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, "3", math.inf, math.nan])
def test_a_cap_that_is_no_whole_number_is_refused(bad):
    with pytest.raises(OptionError, match="the most rewards per user"):
        find_unit(("user", bad))


def test_a_unit_that_forgets_its_words_cannot_be_made():
    household = type("Household", (Unit,), {"cap": 2})
    with pytest.raises(TypeError, match="words"):
        household()
