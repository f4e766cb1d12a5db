"""The checks of `dpbandit doctor`. Each reports what was found and, if something is missing, how to
get it.

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
    """One line. An `absent` part is optional; a `broken` one is not."""

    name: str
    state: State
    words: str
    fix: str = ""


Findings = Iterator[Finding]


def _either(name: str, found: str | None, lacking: str, fix: str) -> Finding:
    """A finding, or what is missing and how to get it."""
    return Finding(name, "fine", found) if found else Finding(name, "absent", lacking, fix)


def library() -> Findings:
    """Python, dpbandit and its required packages."""
    words, enough = f"{platform.python_version()} at {sys.executable}", sys.version_info >= (3, 11)
    fix = "" if enough else "dpbandit needs Python 3.11 or newer"
    yield Finding("Python", "fine" if enough else "broken", words, fix)
    yield Finding("dpbandit", "fine", f"{dpbandit.__version__} in {Path(dpbandit.__file__).parent}")
    for name in extras.ESSENTIAL:
        try:
            __import__(name)
        except ImportError as error:
            found = _version(name)
            words = f"{found} cannot be imported: {error}" if found else "not installed"
            fix = f"pip install --force-reinstall {name}" if found else "pip install dpbandit"
            yield Finding(name, "broken", words, fix)
        else:
            yield Finding(name, "fine", _version(name) or "of unknown version")


def privacy() -> Findings:
    """Draw real noise once of each kind, as a bandit without a seed does."""
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
    """The engine: the compiled core, or the reference in its place."""
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
        ours = noise.simulate(7, 4, 5.0, np.zeros(3))
        theirs = _core.noise(noise.name, 7, 4, 5.0, np.zeros(3))
        if not np.isfinite(ours).all() or not np.allclose(ours, theirs, rtol=1e-12):
            raise ArithmeticError(f"seeded {noise.name} noise is not that of the reference")
    return f"{core_status()}; seeded noise is that of the reference"


def machine() -> Findings:
    """Processor, memory, and limits on threads."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    yield Finding("processor", "fine", f"{_processor()}, {cores} cores")
    if memory := _memory():
        yield Finding("memory", "fine", memory)
    given = ", ".join(f"{name}={os.environ[name]}" for name in THREADS if name in os.environ)
    words = given or "all cores (none of the limits is set)"
    yield Finding("threads", "fine" if given else "unset", words)


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
    # Available memory includes caches that can be freed.
    with suppress(OSError), open("/proc/meminfo") as file:
        available = [line.split()[1] for line in file if line.startswith("MemAvailable")]
        free = int(available[0]) / 2**20 if available else free
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
        fix = "install the NVIDIA driver, or omit --device cuda"
        yield Finding("GPU", "absent", f"{error}; {seen}", fix)
    except Exception as error:  # a CuPy for another CUDA fails in many ways
        words = f"CuPy cannot be used ({_brief(error)})"
        yield Finding("GPU", "absent", words, "install the CuPy of your CUDA version")


def data() -> Findings:
    """Data sets, as experiments would find them; nothing is downloaded."""
    from dpbandit.worlds import data as sets

    given = os.environ.get("DPBANDIT_DATA")
    is_folder = bool(given) and Path(str(given)).expanduser().is_dir()
    if given and not is_folder:
        fix = "set it to the folder that holds lastfm/ and obd/"
        yield Finding("DPBANDIT_DATA", "absent", f"{given} is not a folder", fix)
    else:
        words = given or f"not set; looked in {sets.cache_folder()}"
        yield Finding("DPBANDIT_DATA", "fine" if given else "unset", words)
    folders = [Path(given).expanduser()] if given and is_folder else []
    folders.append(sets.cache_folder())
    names = ("LastFM", "Open Bandit")
    for (kind, place), name in zip(sets.available().items(), names, strict=True):
        source = sets.SOURCES[kind]
        damaged = [path for folder in folders if (path := folder / source.file).is_file()]
        words = f"{damaged[0]} is not the released file" if damaged else "not found"
        fix = f"{source.origin}, as {folders[0] / source.file}"
        yield _either(name, str(place) if place else None, words, fix)


def optional() -> Findings:
    """The extras."""
    for extra, modules in extras.EXTRAS.items():
        if extra == "gpu":  # has a line of its own
            continue
        lacking, purpose = extras.missing(extra), extras.WHAT_FOR[extra]
        present = [module for module in modules if module not in lacking]
        words = f"{purpose}; missing: {', '.join(lacking)}"
        if extra == "bench" and present:
            words = f"{', '.join(present)}; without {', '.join(lacking)}"
        yield _either(extra, None if lacking else purpose, words, extras.pip_install(extra))


def tools() -> Findings:
    """Programs that tests use."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    words = "not found: browser tests are skipped"
    yield _either("Chromium", chromium, words, "apt-get install chromium")
    words = "not found: tests of the CUDA source on this processor are skipped"
    yield _either("g++", shutil.which("g++"), words, "apt-get install g++")


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
    """All findings by section. If a section itself fails, that is its finding."""
    found: dict[str, list[Finding]] = {}
    for title, check in SECTIONS.items():
        found[title] = []
        try:
            found[title].extend(check())
        except Exception as error:
            fix = "pip install --force-reinstall dpbandit"
            found[title].append(Finding(title.lower(), "broken", _brief(error), fix))
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
    sections: dict[str, Any] = {title: {} for title in found}
    for title, findings in found.items():
        for one in findings:
            row = {"state": one.state, "found": one.words, "fix": one.fix or None}
            sections[title][one.name] = row
    return {"works": works(found), "sections": sections}


def works(found: dict[str, list[Finding]]) -> bool:
    """Whether nothing essential is broken."""
    return all(finding.state != "broken" for findings in found.values() for finding in findings)
