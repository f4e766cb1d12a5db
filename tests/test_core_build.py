"""The compiled core: it is there, it picks an instruction set, and it builds without a compiler."""

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARCHES = ("v2", "v3", "v4") if platform.machine() in ("x86_64", "AMD64") else ("generic",)


def ask_for(arch, *, source=ROOT / "src"):
    """Import the core of a folder in a process of its own, with DPBANDIT_ARCH set."""
    code = "import dpbandit._core as core; print(core.arch(), core.__file__)"
    environment = {**os.environ, "DPBANDIT_ARCH": arch, "PYTHONPATH": str(source)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )


def test_the_core_names_the_instruction_set_it_picked():
    ran = ask_for("")
    assert ran.returncode == 0, ran.stderr
    arch, place = ran.stdout.split()
    assert arch in ARCHES
    assert Path(place).parent == ROOT / "src" / "dpbandit"


def test_the_narrowest_instruction_set_can_be_forced():
    ran = ask_for(ARCHES[0])
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[0] == ARCHES[0]


@pytest.mark.parametrize("arch", ["v1", "v22", "V2", "v2 ", "native", "é"])
def test_an_unknown_instruction_set_is_refused(arch):
    ran = ask_for(arch)
    assert ran.returncode == 1
    assert (
        f"ImportError: DPBANDIT_ARCH={arch} is no instruction set known here; allowed: {ARCHES[0]}"
        in ran.stderr
    )


def foreign_code(unit, arch):
    """Functions in an object file that the linker could use for another instruction set's core.

    Those are what other units may define too: all outside of this instruction set's namespace.
    """
    listed = subprocess.run(
        ["nm", "--defined-only", "--extern-only", str(unit)], capture_output=True, text=True
    )
    assert listed.returncode == 0, listed.stderr
    symbols = [line.split()[-2:] for line in listed.stdout.splitlines() if line.strip()]
    own = f"3dpb{len(arch)}{arch}"
    # T and W are code; a weak table of pointers (V) is the same for every processor
    return [
        name
        for kind, name in symbols
        if kind in "TWu" and (own not in name or is_of_the_library(name))
    ]


def is_of_the_library(name):
    """Whether a mangled name is one in namespace std, or in one of its companions."""
    spaces = ("ZSt", "ZNSt", "ZNKSt", "ZNSa", "ZNSs", "ZNKSs", "ZN9__gnu_cxx", "ZNK9__gnu_cxx")
    return name.lstrip("_").startswith(spaces)


needs_nm = pytest.mark.skipif(
    shutil.which("nm") is None or sys.platform != "linux",
    reason="needs Linux and nm, of the binutils",
)


@needs_nm
@pytest.mark.parametrize("arch", ARCHES)
def test_a_core_defines_no_code_that_another_could_be_given(arch):
    units = list(
        (ROOT / "build" / "core").glob(f"*/CMakeFiles/core_{arch}.dir/src/core/arch.cpp.o")
    )
    assert units, "the core was not built in this tree: make core"
    for unit in units:
        assert foreign_code(unit, arch) == []


@needs_nm
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a compiler, c++")
def test_code_of_the_library_in_a_core_would_be_seen(tmp_path):
    source, unit = tmp_path / "planted.cpp", tmp_path / "planted.o"
    source.write_text(
        "#include <vector>\n"
        "inline int shared(int x) { return x + 1; }\n"
        "namespace dpb { namespace v4 {\n"
        "struct Own { int x; };\n"
        "int size(std::vector<Own>& all, std::vector<int>& plain, int x) {\n"
        "    all.push_back({x}), plain.push_back(shared(x));\n"
        "    return x;\n"
        "}}}\n"
    )
    subprocess.run(
        ["c++", "-std=c++17", "-O0", "-c", str(source), "-o", str(unit)], check=True, timeout=60
    )
    found = foreign_code(unit, "v4")
    assert "_Z6sharedi" in found
    assert any("vectorIi" in name for name in found)
    assert any("vectorIN3dpb2v43Own" in name for name in found)
    assert not any(name.startswith("_ZN3dpb2v44size") for name in found)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ziglang") is None, reason="needs ziglang: pip install ziglang")
@pytest.mark.skipif(find_spec("scikit_build_core") is None, reason="needs scikit-build-core")
def test_without_a_compiler_zig_builds_a_core_that_works(tmp_path):
    # some 2.5 minutes on two cores: zig first compiles a C++ library of its own
    tree, path, out = tmp_path / "tree", tmp_path / "path", tmp_path / "out"
    leave_out = shutil.ignore_patterns("__pycache__", "_core.*.so")
    for name in ("src", "tools"):
        shutil.copytree(ROOT / name, tree / name, ignore=leave_out)
    for name in ("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    path.mkdir()
    (path / "sh").symlink_to("/bin/sh")
    environment = {
        **{
            name: value
            for name, value in os.environ.items()
            if name not in ("CC", "CXX", "CXXFLAGS")
        },
        "PATH": str(path),
        "PYTHONPATH": str(tree / "tools"),
        "ZIG_GLOBAL_CACHE_DIR": str(tmp_path / "cache"),
    }
    code = f"import backend; assert backend.compiler() is None; backend.build_wheel({str(out)!r})"
    built = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    for arch in ("", ARCHES[0]):
        ran = ask_for(arch, source=tmp_path / "installed")
        assert ran.returncode == 0, ran.stderr
        assert Path(ran.stdout.split()[1]).is_relative_to(tmp_path / "installed")
