"""What every test and every example in a docstring starts from."""

import pytest

from dpbandit.algorithms import registry

# Their tests take seconds and mostly wait. They come first: of three workers, which get a third of
# all tests each, one waits while the others compute, and no long test is left for the end.
LONG = ("tests/service/", "tests/browser/", "tests/experiments/", "tests/docs/", "tests/examples/")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture(autouse=True)
def registered_algorithms():
    """What a test registers is gone after it: otherwise `dpbandit run` would play it in a later one."""
    before = dict(registry.ALGORITHMS)
    yield
    registry.ALGORITHMS.clear()
    registry.ALGORITHMS.update(before)
