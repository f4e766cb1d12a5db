"""What every test and every example in a docstring starts from."""

import pytest

from dpbandit.algorithms import registry


@pytest.fixture(autouse=True)
def registered_algorithms():
    """What a test registers is gone after it: otherwise `dpbandit run` would play it in a later one."""
    before = dict(registry.ALGORITHMS)
    yield
    registry.ALGORITHMS.clear()
    registry.ALGORITHMS.update(before)
