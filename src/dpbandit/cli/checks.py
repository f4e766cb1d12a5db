"""What `dpbandit doctor` looks at. Each check answers what was found and, where something is
missing, what would bring it.

Nothing is downloaded or installed, and no check may raise: a broken part is a line, not the end of
the report.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import dpbandit
from dpbandit.cli import extras

State = Literal["fine", "absent", "broken", "unset"]


class Finding(NamedTuple):
    """One line. `absent` is something one may do without; `broken` something one may not."""

    name: str
    state: State
    words: str
    fix: str = ""


Findings = Iterator[Finding]


def library() -> Findings:
    """Python, dpbandit and what it cannot do without."""
    enough = sys.version_info >= (3, 11)
    yield Finding(
        "Python",
        "fine" if enough else "broken",
        f"{platform.python_version()} at {sys.executable}",
        "" if enough else "dpbandit needs Python 3.11 or newer",
    )
    yield Finding("dpbandit", "fine", f"{dpbandit.__version__} in {Path(dpbandit.__file__).parent}")
    for name in ("numpy", "scipy", "opendp"):
        try:
            __import__(name)
        except ImportError as error:
            found = _version(name)
            words = f"{found} cannot be imported: {error}" if found else "not installed"
            yield Finding(
                name,
                "broken",
                words,
                f"pip install --force-reinstall {name}" if found else "pip install dpbandit",
            )
        else:
            yield Finding(name, "fine", _version(name) or "of unknown version")


def privacy() -> Findings:
    """Real noise is drawn, once of each kind, the way a bandit without a seed draws it."""
    yield _tried("real noise", _draw, "pip install --force-reinstall opendp")


def _draw() -> str:
    import numpy as np

    from dpbandit.privacy.grid import STEP
    from dpbandit.privacy.noise import NOISES
    from dpbandit.privacy.sources import Pending, Real

    real = [noise for noise in NOISES.values() if noise.has_real_source]
    for noise in real:
        clean = Pending(np.zeros(8), [0] * 8)
        once, again = (
            Real().release(noise, clean, scale=1.0, shift=1.0, index=1) for _ in range(2)
        )
        steps = once / STEP
        if not np.isfinite(once).all() or (once == again).any() or (steps != np.rint(steps)).any():
            raise ArithmeticError(f"{noise.name} noise is constant, not finite, or off its grid")
    names = " and ".join(noise.name.capitalize() for noise in real)
    return f"{names}, drawn by OpenDP's exact samplers, on their grid"


def core() -> Findings:
    """What runs bandits: the compiled core, or the reference in its place."""
    from dpbandit.engine import core_status, has_core

    if has_core():
        yield _tried("core", _compute, "pip install --force-reinstall dpbandit")
    else:
        fix = "pip install --force-reinstall dpbandit, where there is a wheel or a C++ compiler"
        yield Finding("core", "absent", core_status(), fix)


def _compute() -> str:
    import numpy as np

    from dpbandit import _core
    from dpbandit.engine import core_status
    from dpbandit.privacy.noise import NOISES

    for noise in NOISES.values():
        zeros = np.zeros(3)
        ours, theirs = (
            noise.simulate(7, 4, 5.0, zeros),
            _core.noise(noise.name, 7, 4, 5.0, zeros),
        )
        if not np.isfinite(ours).all() or not np.allclose(ours, theirs, rtol=1e-12):
            raise ArithmeticError(f"seeded {noise.name} noise is not that of the reference")
    return f"{core_status()}; seeded noise is that of the reference"


def machine() -> Findings:
    """Processor, memory, and what limits threads."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    yield Finding("processor", "fine", f"{_processor()}, {cores} cores")
    memory = _memory()
    if memory:
        yield Finding("memory", "fine", memory)
    given = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
    yield Finding(
        "threads",
        "fine" if given else "unset",
        ", ".join(given) or "all cores (none of the limits is set)",
    )


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _processor() -> str:
    with suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _memory() -> str:
    try:
        page = os.sysconf("SC_PAGE_SIZE") / 2**30
        total, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return ""
    with (
        suppress(OSError),
        open("/proc/meminfo") as file,
    ):  # what could be had counts caches that would be given up
        free = next(
            (int(line.split()[1]) / 2**20 for line in file if line.startswith("MemAvailable")), free
        )
    return f"{total:.1f} GiB, {free:.1f} available"


def gpu() -> Findings:
    """A CUDA device, as `--device cuda` would find it."""
    from dpbandit.errors import DeviceError

    seen = "nvidia-smi is here" if shutil.which("nvidia-smi") else "no nvidia-smi here"
    if not extras.there("cupy"):
        yield Finding("GPU", "absent", f"CuPy is not installed; {seen}", extras.pip_install("gpu"))
        return
    try:
        from dpbandit.gpu.machines import Cuda

        device = Cuda()
        runtime = device.arrays.cuda.runtime
        free, total = (part / 2**30 for part in runtime.memGetInfo())
        driver = runtime.driverGetVersion()
        version = f"{driver // 1000}.{driver % 1000 // 10}"
        words = (
            f"{device.name}, {free:.0f} of {total:.0f} GiB free, CUDA {version}, "
            f"CuPy {device.arrays.__version__}"
        )
        yield Finding("GPU", "fine", words)
    except DeviceError as error:
        yield Finding(
            "GPU",
            "absent",
            f"{error}; {seen}",
            "install the NVIDIA driver, or leave out --device cuda",
        )
    except Exception as error:  # a CuPy for another CUDA fails in many ways
        yield Finding(
            "GPU",
            "absent",
            f"CuPy cannot be used ({_brief(error)})",
            "install the CuPy of your CUDA version",
        )


def data() -> Findings:
    """Data sets, as experiments would find them; nothing is downloaded."""
    from dpbandit.worlds import data as sets

    given = os.environ.get("DPBANDIT_DATA")
    is_folder = bool(given) and Path(str(given)).expanduser().is_dir()
    if given and not is_folder:
        yield Finding(
            "DPBANDIT_DATA",
            "absent",
            f"{given} is not a folder",
            "set it to the folder that holds lastfm/ and obd/",
        )
    else:
        words = given or f"not set; looked in {sets.cache_folder()}"
        yield Finding("DPBANDIT_DATA", "fine" if given else "unset", words)
    folders = [Path(given).expanduser()] if given and is_folder else []
    folders.append(sets.cache_folder())
    for (kind, place), name in zip(
        sets.available().items(), ("LastFM", "Open Bandit"), strict=True
    ):
        source = sets.SOURCES[kind]
        damaged = next(
            (path for folder in folders if (path := folder / source.file).is_file()), None
        )
        if place is not None:
            yield Finding(name, "fine", str(place))
        else:
            words = "not found" if damaged is None else f"{damaged} is not the released file"
            yield Finding(name, "absent", words, f"{source.origin}, as {folders[0] / source.file}")


def optional() -> Findings:
    """The extras."""
    for extra, modules in extras.EXTRAS.items():
        if extra == "gpu":  # has a line of its own
            continue
        lacking = extras.missing(extra)
        present = [module for module in modules if module not in lacking]
        if not lacking:
            yield Finding(extra, "fine", extras.WHAT_FOR[extra])
        elif extra == "bench" and present:
            yield Finding(
                extra,
                "absent",
                f"{', '.join(present)}; without {', '.join(lacking)}",
                extras.pip_install(extra),
            )
        else:
            words = f"{extras.WHAT_FOR[extra]}; missing: {', '.join(lacking)}"
            yield Finding(extra, "absent", words, extras.pip_install(extra))


def tools() -> Findings:
    """Programs that tests use."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    fix = "" if chromium else "apt-get install chromium"
    yield Finding(
        "Chromium",
        "fine" if chromium else "absent",
        chromium or "not found: browser tests are skipped",
        fix,
    )
    compiler = shutil.which("g++")
    fix = "" if compiler else "apt-get install g++"
    words = compiler or "not found: tests of the CUDA source on this processor are skipped"
    yield Finding("g++", "fine" if compiler else "absent", words, fix)


SECTIONS: dict[str, Callable[[], Findings]] = {
    "Library": library,
    "Privacy": privacy,
    "Core": core,
    "Machine": machine,
    "GPU": gpu,
    "Data": data,
    "Extras": optional,
    "For tests": tools,
}


def everything() -> dict[str, list[Finding]]:
    """All findings by section. Where a section itself fails, that is what was found."""
    found: dict[str, list[Finding]] = {}
    for title, check in SECTIONS.items():
        found[title] = []
        try:
            for finding in check():
                found[title].append(finding)
        except Exception as error:
            found[title].append(
                Finding(
                    title.lower(), "broken", _brief(error), "pip install --force-reinstall dpbandit"
                )
            )
    return found


def _tried(name: str, check: Callable[[], str], fix: str) -> Finding:
    try:
        return Finding(name, "fine", check())
    except Exception as error:
        return Finding(name, "broken", _brief(error), fix)


def _brief(error: BaseException) -> str:
    words = str(error).strip().splitlines()
    return f"{type(error).__name__}: {words[0]}" if words else type(error).__name__


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def as_record(found: dict[str, list[Finding]]) -> dict[str, Any]:
    """For JSON."""
    sections = {
        title: {
            f.name: {"state": f.state, "found": f.words, "fix": f.fix or None} for f in findings
        }
        for title, findings in found.items()
    }
    return {"works": works(found), "sections": sections}


def works(found: dict[str, list[Finding]]) -> bool:
    """Whether nothing essential is broken."""
    return all(finding.state != "broken" for findings in found.values() for finding in findings)
