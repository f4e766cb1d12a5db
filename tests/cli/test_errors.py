"""A mistake is one line on standard error that says what to do; the exit status is 2, and nothing is worked for in vain."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dpbandit.cli import extras
from dpbandit.simulate import run as simulation

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu"], "Did you mean 'run'? See dpbandit --help"),
        (["run", "--bogus"], "see dpbandit run --help"),
        (["run", "--horizon", "many"], "'--horizon'"),
        (["audit"], "Missing argument 'ALGORITHM'; see dpbandit audit --help"),
        (["keys", "create", "--role", "admin"], "DPBANDIT_STORE"),
        (["claim", "local", "--user-rewards", "2", "--person-clicks", "1"], "give only one"),
        (["verify", "joint", "--person-clicks", "1"], "contexts are private"),
        (["verify", "dsg"], "did you mean 'dgs'?"),
        (["run", "linucb", "--world", "drift"], "did you mean 'drifting'?"),
        (["claim", "local", "--out", "nowhere/sheet.md"], "there is no folder"),
        (["run", "linucb", "--out", "/proc/nothing"], "name another folder"),
        (["audit", "local", "--out", "/proc/nothing"], "name another folder"),
        (["plan", "--contexts", "none.npy"], "none.npy cannot be read: No such file"),
        (["plan", "--out", "nowhere/plan.svg"], "there is no folder"),
        (
            [
                "warm-start",
                "none.parquet",
                "--reward-range",
                "0",
                "1",
                "--delta",
                "1e-6",
                "--out",
                "b.npz",
            ],
            "no Parquet, CSV or Arrow file is found at none.parquet",
        ),
        (["keys", "list", "--store", "sqlite:///none.db"], "there is no store at none.db"),
        (["serve", "--store", "sqlite:///s.db", "--role", "king"], "ranker, learner or all"),
    ],
)
def test_mistakes_say_what_to_do(dpbandit_, arguments, words):
    said = dpbandit_(*arguments)
    assert said.status == 2
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert words in said.err
    assert len(said.err.splitlines()) == 1


def test_a_place_that_cannot_be_written_to_is_found_before_the_work(dpbandit_, monkeypatch):
    monkeypatch.setattr(
        simulation, "run", lambda *_, **__: pytest.fail("it was worked for in vain")
    )
    assert dpbandit_("run", "linucb", "--out", "/proc/nothing").status == 2


@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [
        ("numpy", None, ["run", "linucb"]),
        ("pandas", "lab", ["run", "linucb", "--horizon", "50", "--seeds", "1"]),
        ("msgspec", "service", ["serve", "--store", "sqlite:///s.db"]),
        (
            "psycopg",
            "postgres",
            ["store", "status", "--store", "postgresql://nobody@127.0.0.1:1/x"],
        ),
    ],
)
def test_a_missing_extra_is_named_with_the_command_that_brings_it(
    module, extra, arguments, tmp_path
):
    """In a new process in which the module cannot be found."""
    code = f"""
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
sys.argv = ["dpbandit", *{arguments!r}]
from dpbandit.cli import main
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert ran.returncode == 2, ran.stderr
    assert (f"pip install 'dpbandit[{extra}]'" if extra else "pip install dpbandit") in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [("ray", "cluster", ["--cluster", "local"]), ("cupy", "gpu", ["--device", "cuda"])],
)
def test_so_is_one_that_an_option_needs(module, extra, arguments, dpbandit_, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    said = dpbandit_("run", "linucb", "--horizon", "50", "--seeds", "1", *arguments)
    assert said.status == 2
    assert f"pip install 'dpbandit[{extra}]'" in said.err


def test_the_extras_are_those_of_the_package():
    names = {
        "scikit-learn": "sklearn",
        "cupy-cuda13x": "cupy",
        "opentelemetry-sdk": "opentelemetry.sdk",
        "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
    }
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for extra, modules in extras.EXTRAS.items():
        packages = [line.split(">=")[0].split("[")[0] for line in wanted[extra]]
        assert {names.get(name, name.replace("-", "_")) for name in packages} == set(modules)
    assert set(wanted) - set(extras.EXTRAS) <= {"dev", "docs", "second-opinions"}


def test_a_fault_of_ours_shows_where_it_is_and_nothing_of_what_was_in_memory(monkeypatch, tmp_path):
    code = """
import sys
import dpbandit.cli.names as names
def broken(incomplete=""):
    reward_of_a_person = "0.4242"
    raise RuntimeError("a fault")
names.algorithms = broken
sys.argv = ["dpbandit", "algorithms"]
from dpbandit.cli import main
main()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "RuntimeError: a fault" in ran.stderr
    assert ran.stderr.count("0.4242") == 0


def test_words_that_a_terminal_cannot_write_do_not_stop_it(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "dpbandit.cli", "algorithms"],
        capture_output=True,
        env={
            "PYTHONIOENCODING": "ascii",
            "PATH": "",
            "PYTHONPATH": ":".join(sys.path),
            "HOME": str(tmp_path),
        },
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert b"tree-gauss" in ran.stdout
