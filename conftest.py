"""What every test and every example in a docstring starts from."""

import itertools

import pytest

from dpbandit.algorithms import registry

# Their tests take seconds and mostly wait.
LONG = ("tests/docs/", "tests/browser/", "tests/service/", "tests/examples/", "tests/experiments/")


def pytest_collection_modifyitems(items):
    """Of three workers, which take file after file, one waits while two compute; and no long file is
    left for the end."""
    files = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    waiting = [name for start in LONG for name in files if name.startswith(start)]
    others = iter([name for name in files if not name.startswith(LONG)])
    order = [name for one in waiting for name in (one, *itertools.islice(others, 2))]
    items[:] = [item for name in (*order, *others) for item in files[name]]


@pytest.fixture(autouse=True)
def registered_algorithms():
    """What a test registers is gone after it: otherwise `dpbandit run` would play it in a later one."""
    before = dict(registry.ALGORITHMS)
    yield
    registry.ALGORITHMS.clear()
    registry.ALGORITHMS.update(before)
