"""Tests that others wrote and ship in their wheels, run with our functions in the place of theirs.

Nothing of theirs is copied: their test files are found in the installed distribution and loaded
when a test here runs. Inputs, expected numbers and tolerances are what they published; only the
function that is asked is ours. A case that our functions do not cover (subsampling, δ = 0) says so
by raising `OutOfScope`; how many cases are left is asserted, so that nothing hides behind it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import unittest
from collections import Counter
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import pytest

# What was read when these tests were written. Another version may hold other cases, or none.
VERSIONS = {"dp-accounting": "0.6.0", "jax-privacy": "2.0.0"}


class OutOfScope(BaseException):
    """Our functions do not answer this case; the reason is its text. No Exception, so that none of
    their tests catches it."""


def shipped(distribution: str, path: str) -> ModuleType:
    """A test file that came with an installed distribution, as a module of a name of its own.

    jax-privacy's tests lie in site-packages/tests, so importing them by name would be a lottery.
    """
    found = importlib.metadata.version(distribution)
    if found != VERSIONS[distribution]:
        pytest.fail(
            f"{distribution} {found} is installed, and its tests were read at "
            f"{VERSIONS[distribution]}: see what changed in them, and say the new version here"
        )
    name = f"their_{path.removesuffix('.py').replace('/', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    files = importlib.metadata.files(distribution) or []
    matches = [file for file in files if str(file) == path]
    if not matches:
        pytest.fail(f"{distribution} {found} does not ship {path}: its wheel has no such file")
    spec = importlib.util.spec_from_file_location(name, str(matches[0].locate()))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def methods(case: type[unittest.TestCase], *starts: str) -> list[str]:
    """The test methods of a class whose names start so: one for each published case."""
    names = unittest.TestLoader().getTestCaseNames(case)
    found = [name for name in names if name.startswith(starts)]
    missing = [start for start in starts if not any(name.startswith(start) for name in found)]
    assert not missing, f"{case.__name__} has no test called {missing[0]}…"
    return found


def judge(
    case: type[unittest.TestCase], names: Iterable[str], patches: list[tuple[Any, str, Any]]
) -> Counter[str]:
    """Run these of their tests with our stand-ins; how many were judged, and why others were not.

    Their assertion decides. A failure is theirs to word.
    """
    count: Counter[str] = Counter()
    for name in names:
        test = case(name)
        with pytest.MonkeyPatch.context() as patch:
            for owner, attribute, ours in patches:
                getattr(owner, attribute)  # what is replaced must be there
                patch.setattr(owner, attribute, ours)
            try:
                test.debug()
            except OutOfScope as reason:
                count[f"not ours: {reason}"] += 1
                continue
            except Exception as error:
                error.add_note(f"in {case.__module__}.{case.__name__}.{name}")
                raise
        count["judged"] += 1
    return count


def inner(case: type[unittest.TestCase], name: str) -> Callable[..., None]:
    """The body of one of their property tests, to be called with every input that they list."""
    return getattr(case, name).hypothesis.inner_test  # type: ignore[no-any-return]
