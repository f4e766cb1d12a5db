"""How dpbandit is built: scikit-build-core, with zig as the compiler where there is no other.

pip calls the functions that the packaging standards name (PEP 517, PEP 660). By hand:

    python tools/backend.py                    build the core into src/dpbandit, as `make core` does
    python tools/backend.py needs              print what building needs, for pip install
    python tools/backend.py requires lab,audit print what running needs, with these extras
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ["cmake>=3.26", "ninja>=1.11"]
ZIG = "ziglang>=0.13"
Settings = dict[str, list[str] | str]


def compiler() -> str | None:
    """The C++ compiler that CMake will use, or None where there is none and zig must help."""
    found = filter(None, map(shutil.which, ("c++", "g++", "clang++")))
    return os.environ.get("CXX") or next(found, None)


def needs() -> list[str]:
    """What must be installed before this file can build anything."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [*project["build-system"]["requires"], *TOOLS, *_zig_if_needed()]


def _zig_if_needed() -> list[str]:
    return [] if compiler() else [ZIG]


def _zig_programs() -> dict[str, str]:
    """Programs that CMake can call as it calls a compiler.

    Their paths never change: otherwise all would be built again.
    """
    if os.name == "nt":
        raise SystemExit("no C++ compiler was found: install LLVM, and set CXX=clang++")
    package = find_spec("ziglang")
    if package is None or package.origin is None:
        raise SystemExit(f"no C++ compiler was found: install one, or pip install '{ZIG}'")
    zig, folder = Path(package.origin).with_name("zig"), ROOT / "build" / "core" / "zig"
    folder.mkdir(parents=True, exist_ok=True)
    programs = {tool: folder / f"zig-{tool}" for tool in ("cc", "c++", "ar", "ranlib")}
    for tool, program in programs.items():
        program.write_text(f'#!/bin/sh\nexec "{zig}" {tool} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return {tool: str(program) for tool, program in programs.items()}


@contextmanager
def _compiling(given: Settings | None) -> Iterator[Settings]:
    """The settings to build with. Inside, CC and CXX name a compiler even if there was none."""
    settings, before, found = dict(given or {}), dict(os.environ), compiler()
    # CMake keeps the compiler that a folder began with, so each compiler has a folder
    name = Path(found.split()[0]).name if found else "zig"
    settings.setdefault("build-dir", f"build/core/{{wheel_tag}}-{name}")
    if found:
        os.environ["CXX"] = found
    else:
        programs = _zig_programs()
        os.environ |= {"CC": programs["cc"], "CXX": programs["c++"]}
        os.environ |= {"AR": programs["ar"], "RANLIB": programs["ranlib"]}
        # zig compiles its libraries anew for each set of flags: CMake's checks get the module's
        os.environ["CXXFLAGS"] = f"-O2 -mcpu=baseline {os.environ.get('CXXFLAGS', '')}"
        # CMake reads the compilers from the environment, and these only as definitions
        settings["cmake.define.CMAKE_AR"] = programs["ar"]
        settings["cmake.define.CMAKE_RANLIB"] = programs["ranlib"]
    try:
        yield settings
    finally:
        os.environ.clear()
        os.environ.update(before)


def build_in_place() -> Path:
    """Build the core beside the Python files, where editable installs and PYTHONPATH find it."""
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / build_wheel(folder)
        with zipfile.ZipFile(built) as wheel:
            (name,) = (n for n in wheel.namelist() if n.endswith((".so", ".pyd")))
            content = wheel.read(name)
    target = ROOT / "src" / name
    if not target.exists() or target.read_bytes() != content:
        new = target.with_name(target.name + ".new")
        new.write_bytes(content)
        new.replace(target)  # a running process keeps the file that it has open
    return target


def _editable(given: Settings | None) -> Settings:
    """Settings for a wheel that holds one line, the path to src/, where the core is built too.

    scikit-build-core's own editable wheels put a finder before sys.path: PYTHONPATH, and with it
    another worktree, would be passed over in silence.
    """
    folder = "build/core/editable"
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    (ROOT / folder / "dpbandit.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")
    settings: Settings = {"wheel.cmake": "false", "wheel.py-api": "py3", "wheel.packages": []}
    return {**(given or {}), **settings, f"wheel.force-include.{folder}": "."}


def get_requires_for_build_sdist(config_settings: Settings | None = None) -> list[str]:
    from scikit_build_core import build

    return build.get_requires_for_build_sdist(config_settings)


def build_sdist(sdist_directory: str, config_settings: Settings | None = None) -> str:
    from scikit_build_core import build

    return build.build_sdist(sdist_directory, config_settings)


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    from scikit_build_core import build

    return [*build.get_requires_for_build_wheel(config_settings), *_zig_if_needed()]


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings | None = None
) -> str:
    from scikit_build_core import build

    return build.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    from scikit_build_core import build

    with _compiling(config_settings) as settings:
        return build.build_wheel(wheel_directory, settings, metadata_directory)


def get_requires_for_build_editable(config_settings: Settings | None = None) -> list[str]:
    return get_requires_for_build_wheel(config_settings)


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Settings | None = None
) -> str:
    from scikit_build_core import build

    return build.prepare_metadata_for_build_wheel(metadata_directory, _editable(config_settings))


def build_editable(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    from scikit_build_core import build

    build_in_place()
    return build.build_wheel(wheel_directory, _editable(config_settings), metadata_directory)


def requires(extras: list[str]) -> list[str]:
    """What the package needs when it runs, with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups, name = project["optional-dependencies"], project["name"]
    wanted, found = list(extras), list(project["dependencies"])
    for extra in wanted:
        for one in groups[extra]:
            if one.startswith(f"{name}["):  # another extra of this package
                wanted += one.removeprefix(f"{name}[").removesuffix("]").split(",")
            else:
                found.append(one)
    return found


def main(arguments: list[str]) -> None:
    match arguments:
        case []:
            if not (find_spec("scikit_build_core") and find_spec("nanobind")):
                wanted = " ".join(f"'{need}'" for need in needs())
                raise SystemExit(
                    f"build tools are missing: pip install -c constraints.txt {wanted}"
                )
            print(build_in_place().relative_to(ROOT))
        case ["requires", extras]:
            print(*requires(extras.split(",")), sep="\n")
        case ["needs"]:
            if not compiler():
                print("no C++ compiler: zig builds the core, in some 3 minutes", file=sys.stderr)
            print(*needs())
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
