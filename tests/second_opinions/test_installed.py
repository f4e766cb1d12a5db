"""That the second opinions were heard at all."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import theirs


@pytest.mark.slow
@pytest.mark.parametrize("distribution", sorted(theirs.VERSIONS))
def test_nothing_was_skipped_for_want_of_a_package(distribution):
    """The other tests here are skipped where a package is missing. `make test-all` installs both,
    so there this fails instead."""
    found = importlib.metadata.version(distribution)
    assert found == theirs.VERSIONS[distribution]
