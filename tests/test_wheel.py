"""What is built from this tree, as somebody would install it without any extra."""

import fnmatch
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ESSENTIAL = ["numpy", "opendp", "rich", "scipy", "typer"]
PROOFS = "dpbandit/proofs.md"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    return build("wheel", folder)


def build(kind, folder, tree=ROOT):
    """Call the build back end itself: it needs no network, unlike pip with its isolated build."""
    code = f"import backend; print(backend.build_{kind}({str(folder)!r}))"
    environment = {**os.environ, "PYTHONPATH": str(tree / "tools")}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder / ran.stdout.split()[-1]


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def alone(folder, code, missing=(), cwd=None):
    """Run code with the unpacked wheel as the only dpbandit there is, and some packages hidden."""
    hide = "".join(f"sys.modules[{name!r}] = None; " for name in missing)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", f"import sys; {hide}{code}"],
        capture_output=True,
        text=True,
        cwd=cwd or folder,
        env=environment,
        timeout=120,
    )


def test_the_wheel_holds_the_package_whole_and_nothing_else(wheel):
    package = ROOT / "src" / "dpbandit"
    inside = {
        str(path.relative_to(ROOT / "src"))
        for path in package.rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not fnmatch.fnmatch(path.name, "_core.*.*")
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
        scripts = archive.read(
            next(name for name in names if name.endswith("entry_points.txt"))
        ).decode()
    cores = {
        name
        for name in names
        if fnmatch.fnmatch(name, "dpbandit/_core.*") and not name.endswith(".pyi")
    }
    assert len(cores) == 1
    assert {name for name in names if name.startswith("dpbandit/")} == inside | cores | {PROOFS}
    for name in (
        "py.typed",
        "gpu/kernels.cu",
        "gpu/pair.cu",
        "service/static/dashboard.html",
        "service/static/dashboard.js",
        "service/static/dashboard.css",
    ):
        assert f"dpbandit/{name}" in names
    assert all(name.startswith(("dpbandit/", "dpbandit-")) for name in names)
    assert "dpbandit = dpbandit.cli:main" in scripts
    needed = [
        line.split(": ")[1]
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist") and "extra ==" not in line
    ]
    assert sorted(line.split(">=")[0] for line in needed) == ESSENTIAL
    assert wheel.stat().st_size < 1_800_000  # the core, for three instruction sets, and the proofs


def command(folder, *words, cwd=None):
    code = f"sys.argv = ['dpbandit', *{words}]; from dpbandit.cli import main; main()"
    return alone(folder, code, cwd=cwd)


@pytest.mark.parametrize("words", [("reproduce",), ("bench", "speed", "--json")], ids=" ".join)
def test_commands_of_a_clone_are_not_listed_and_say_where_they_are(unpacked, words):
    listed = command(unpacked, "--help").stdout
    assert "audit" in listed
    assert words[0] not in listed
    ran = command(unpacked, *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        f"error: dpbandit {words[0]} is not part of the installed package: clone the repository and call it there\n"
    )


def test_an_installed_package_finds_them_in_a_clone_when_they_are_asked_for(unpacked):
    ran = command(unpacked, "bench", "privacy-cost", "--help", cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    assert "dpbandit bench privacy-cost --profile full --docs docs/leaderboard.md" in ran.stdout
    loaded = "sys.argv = ['dpbandit', 'algorithms']; from dpbandit.cli import main\ntry: main()\nfinally: "
    loaded += "print('experiments' in sys.modules)"
    assert alone(unpacked, loaded, cwd=ROOT).stdout.splitlines()[-1] == "False", (
        "no other command runs code of the folder"
    )


def test_without_extras_the_library_works_and_so_does_the_command_line(unpacked):
    extras = (
        "pandas",
        "pyarrow",
        "polars",
        "matplotlib",
        "sklearn",
        "coba",
        "river",
        "gymnasium",
        "msgspec",
    )
    code = """
import dpbandit as dpb
bandit = dpb.make("tree-gauss", dim=2, epsilon=1.0, delta=1e-6)
bandit.update([1.0, 0.0], 0.5)
print(dpb.__file__, bandit.claim.status, bandit.backend)
"""
    ran = alone(unpacked, code, extras)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [str(unpacked / "dpbandit" / "__init__.py"), "proven", "core"]
    for words, said in (
        (["--help"], "doctor"),
        (["algorithms"], "anytime"),
        (["doctor"], "dpbandit can work here"),
        (["claim", "anytime"], "PROVEN"),
        (["proofs"], "# Privacy: what is promised"),
        (["plan", "anytime", "--dim", "2", "--arms", "3", "--horizon", "200"], "recommended"),
        (["verify", "local", "--dim", "2", "--horizon", "16", "--runs", "0"], "HOLDS"),
        (["audit", "local", "--horizon", "4", "--runs", "1000"], "no violation found"),
    ):
        code = f"sys.argv = ['dpbandit', *{words}]; from dpbandit.cli import main; main()"
        ran = alone(unpacked, code, extras)
        assert (ran.returncode, said in ran.stdout) == (0, True), (words, ran.stdout, ran.stderr)
    code = "sys.argv = ['dpbandit', 'run', 'linucb']; from dpbandit.cli import main; main()"
    ran = alone(unpacked, code, extras)
    assert ran.returncode == 2
    assert "a comparison needs the extra 'lab': pip install 'dpbandit[lab]'" in ran.stderr


def test_the_source_archive_holds_all_that_building_needs_and_nothing_built(tmp_path):
    archive = build("sdist", tmp_path)
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    sources = {
        str(path.relative_to(ROOT)) for path in (ROOT / "src" / "core").rglob("*") if path.is_file()
    }
    assert sources
    assert (
        sources | {"CMakeLists.txt", "pyproject.toml", "tools/backend.py", "README.md", "LICENSE"}
        <= names
    )
    assert not [
        name
        for name in names
        if name.endswith((".so", ".o", ".pyc")) or name.startswith(("build/", "out/"))
    ]


def test_an_editable_install_is_one_path_so_that_pythonpath_still_wins(tmp_path):
    with zipfile.ZipFile(build("editable", tmp_path)) as archive:
        (name,) = (name for name in archive.namelist() if ".dist-info/" not in name)
        assert name == "dpbandit.pth"
        assert archive.read(name).decode() == f"{ROOT / 'src'}\n"
