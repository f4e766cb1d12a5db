"""The package as a stranger meets it: imports, names, the command line."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dpbandit

ROOT = Path(__file__).parent.parent


def dpb(*arguments, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "dpbandit.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        **kwargs,
    )


def test_importing_is_light_and_fast():
    heavy = ("numpy", "numba", "scipy", "opendp", "pandas", "matplotlib", "rich", "typer")
    code = f"import sys, dpbandit; print([m for m in {heavy} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
    best = min(_timed() for _ in range(3))
    assert best < 0.5


def _timed():
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import dpbandit"], check=True)
    return time.perf_counter() - start


def test_every_public_name_exists():
    for name in dpbandit.__all__:
        assert getattr(dpbandit, name) is not None
    assert set(dpbandit.__all__) <= set(dir(dpbandit))
    with pytest.raises(AttributeError, match="did you mean 'make'"):
        _ = dpbandit.mak


def test_the_command_line_lists_algorithms():
    listed = json.loads(dpb("algorithms", "--json").stdout)
    assert set(listed) == set(dpbandit.algorithms()) or set(listed) <= set(dpbandit.algorithms())
    assert listed["dgs-figure"]["claim"].startswith("none")
    assert "tree-gauss" in dpb("algorithms").stdout


def test_the_command_line_runs_a_comparison_and_writes_files(tmp_path):
    ran = dpb(
        "run",
        "linucb",
        "dgs",
        "dgs-figure",
        "--horizon",
        "300",
        "--seeds",
        "2",
        "--json",
        "--out",
        str(tmp_path / "out"),
    )
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["algorithms"]["dgs"]["claim"]["status"] == "proven"
    assert report["algorithms"]["dgs-figure"]["claim"]["status"] == "none"
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {
        "results.parquet",
        "results.csv",
        "summary.csv",
        "regret.svg",
        "regret.png",
        "theta-error.svg",
        "config.json",
    } <= names
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["seeds"] == [0, 1]
    again = json.loads(
        dpb("run", "linucb", "dgs", "--horizon", "300", "--seeds", "2", "--json", "--workers", "1").stdout
    )
    assert again["algorithms"]["dgs"] == report["algorithms"]["dgs"]


def test_no_epsilon_is_printed_without_its_claim():
    ran = dpb(
        "run",
        "linucb",
        "tree-gauss",
        "dgs-figure",
        "--horizon",
        "200",
        "--seeds",
        "2",
        env={"COLUMNS": "200", "PATH": "", "HOME": "/tmp"},
    )
    assert ran.returncode == 0, ran.stderr
    for line in ran.stdout.splitlines():
        if "ε" in line:
            assert re.search(r"proven|published|no claim|claims are", line), line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "lincub"], "did you mean 'linucb'"),
        (["run", "dgs", "--epsilon", "-1"], "epsilon must be a number above 0"),
        (["run", "dgs", "--delta", "2"], "delta must lie strictly between 0 and 1"),
        (["run", "--alpha", "wide"], "--alpha must be a number or 'theory'"),
        (["run", "--noise", "gaus", "dgs"], "did you mean 'gaussian'"),
        (["run", "--shown", "2000"], "1 ≤ shown ≤ arms"),
    ],
)
def test_mistakes_are_one_line_with_exit_status_2(arguments, words):
    ran = dpb(*arguments)
    assert ran.returncode == 2
    assert words in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


def test_help_has_examples():
    assert "dpbandit run linucb" in dpb("run", "--help").stdout


def test_the_readmes_python_runs_as_printed(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        ran = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, cwd=tmp_path, timeout=300)
        assert ran.returncode == 0, ran.stderr


def test_the_readmes_commands_run_as_printed(tmp_path):
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    commands = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ dpbandit")]
    assert commands
    for command in commands:
        ran = dpb(*command.split()[1:], cwd=tmp_path)
        assert ran.returncode == 0, f"{command}: {ran.stderr}"


def test_the_makefile_has_the_commands_the_readme_names():
    makefile, readme = (ROOT / "Makefile").read_text(), (ROOT / "README.md").read_text()
    for target in re.findall(r"\bmake ([a-z-]+)", readme):
        assert re.search(rf"^{target}:", makefile, re.M), target
