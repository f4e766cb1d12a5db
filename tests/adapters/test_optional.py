"""dpbandit without the packages that the adapters adapt to."""

import subprocess
import sys

import pytest

import dpbandit.adapters


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_nothing_is_imported_until_it_is_named():
    foreign = ("coba", "river", "gymnasium", "polars", "pyarrow", "pandas")
    ran = python(
        f"import sys, dpbandit.adapters; dpbandit.make; print([m for m in {foreign} if m in sys.modules])"
    )
    assert ran.stdout.strip() == "[]", ran.stderr


@pytest.mark.parametrize(
    ("name", "package"),
    [("CobaLearner", "coba"), ("RiverPolicy", "river"), ("WorldEnv", "gymnasium")],
)
def test_a_missing_package_is_named_with_what_to_install(name, package):
    ran = python(
        f"import sys; sys.modules[{package!r}] = None\nfrom dpbandit.adapters import {name}"
    )
    assert ran.returncode == 1
    last = ran.stderr.strip().splitlines()[-1]
    assert f"pip install {package}" in last
    assert "dpbandit[adapters]" in last


def test_a_mistyped_name_gets_a_hint():
    with pytest.raises(AttributeError, match="did you mean 'CobaLearner'"):
        _ = dpbandit.adapters.CobaLerner
