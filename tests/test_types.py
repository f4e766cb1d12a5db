"""What a strict type checker tells somebody who uses the package."""

import ast
import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

CODE = """
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import dpbandit as dpb

bandit = dpb.make("anytime", dim=2, epsilon=1.0, delta=1e-6, reward_range=(0, 1), seed=1)
assert_type(bandit, dpb.Bandit)
assert_type(bandit.select(np.eye(2)), int)
assert_type(bandit.select(np.eye(2), k=2), NDArray[np.int64])
assert_type(bandit.propensities(np.eye(2)).probabilities, NDArray[np.float64])
assert_type(bandit.claim, dpb.Claim)
results = dpb.run(dpb.worlds.Synthetic(), ["linucb"], horizon=10, seeds=1)
assert_type(results, dpb.Results)
assert_type(dpb.warm_start("log.parquet", epsilon=1.0, delta=1e-6), dpb.Bandit)
assert_type(dpb.recommend(dim=2, arms=2, epsilon=1.0, delta=1e-6).call, str)
"""

MISTAKES = {
    "arm: str = bandit.select(np.eye(2))": 'expression has type "int", variable has type "str"',
    'dpb.make("anytme", dim=2)': """has incompatible type "Literal['anytme']\"""",
    'dpb.make("anytime", dim=2, epsilom=1.0)': 'Unexpected keyword argument "epsilom" for "make"',
    'dpb.make("anytime", dim="3")': 'Argument "dim" to "make" has incompatible type "str"',
    'dpb.make("anytime", dim=2, unit=("usr", 3))': 'Argument "unit" to "make" has incompatible type',
    'dpb.warm_start("a", epsilom=1.0)': 'Unexpected keyword argument "epsilom" for "warm_start"',
    'dpb.recommend(dim="3", arms=2, epsilon=1.0, delta=1e-6)': 'Argument "dim" to "recommend" has incompatible type "str"',
    'dpb.warm_start("a", "anytme")': 'Argument 2 to "warm_start" has incompatible type',
}


def test_the_stub_says_what_the_core_has():
    from dpbandit import _core

    stub = ast.parse((ROOT / "src/dpbandit/_core.pyi").read_text())
    kinds = {"World": _core.World, "Engine": _core.Engine}
    said = {one.name: one for one in stub.body if isinstance(one, ast.FunctionDef)}
    here = {name for name in dir(_core) if not name.startswith("_")}
    assert here == set(said) | set(kinds)
    for one in stub.body:
        if isinstance(one, ast.ClassDef):
            said |= {f"{one.name}.{m.name}": m for m in one.body if isinstance(m, ast.FunctionDef)}
            own = {name for name in dir(kinds[one.name]) if not name.startswith("_")}
            assert own == {m.name for m in one.body if m.name != "__init__"}
    for name, function in said.items():
        found = operator.attrgetter(name)(_core)
        if "->" not in (found.__doc__ or "") or function.decorator_list:
            continue
        given = re.findall(r"(\w+): |(\*),|(self)", found.__doc__.splitlines()[0].split(" -> ")[0])
        told = function.args
        names = [argument.arg for argument in told.args] + ["*"] * bool(told.kwonlyargs)
        names += [argument.arg for argument in told.kwonlyargs]
        assert ["".join(word) for word in given] == names, name


@pytest.mark.slow  # the type checker reads the whole package first
def test_public_names_are_known_with_their_types_and_a_mistake_is_found(tmp_path):
    (tmp_path / "user.py").write_text("\n".join([CODE, *MISTAKES, ""]))
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--config-file",
        str(ROOT / "pyproject.toml"),
    ]
    ran = subprocess.run(
        [*command, str(tmp_path / "user.py")], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    lines = ran.stdout.splitlines()
    complaints = [line for line in lines if "user.py" in line and ": error: " in line]
    assert len(complaints) == len(MISTAKES), ran.stdout + ran.stderr
    for complaint, words in zip(complaints, MISTAKES.values(), strict=True):
        assert words in complaint
