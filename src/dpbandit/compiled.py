"""How kernels are compiled: once, cached on disk, without reference counting.

Kernels work in place on arrays they are given and allocate nothing, so Numba's reference counting (atomic operations on
every array of every tuple that is passed on) is switched off: it took most of the time of a round, and of compilation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, overload

import numba
from numba import njit

HERE = Path(__file__).parent
CACHE_FOLDER: str = getattr(numba.config, "CACHE_DIR", "")  # set by NUMBA_CACHE_DIR

F = TypeVar("F", bound=Callable[..., Any])
Inline = Literal["never", "late", "always"]


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(*, inline: Inline) -> Callable[[F], F]: ...
def kernel(function: F | None = None, *, inline: Inline = "never") -> F | Callable[[F], F]:
    """Compile a function that allocates nothing.

    Every array that is passed on costs several words, every round. `inline="late"` leaves out the call after compiling;
    `inline="always"` before it, which is needed where what the function returns, or which branch it takes, has to be known.
    """
    options: dict[str, Any] = {
        "cache": True,
        "nogil": True,
        "_nrt": False,
        "inline": "always" if inline == "always" else "never",
        "forceinline": inline == "late",
    }
    compile_: Any = njit(**options)
    return cast(F, compile_(function)) if function is not None else cast(Callable[[F], F], compile_)


def drop_stale_caches() -> None:
    """Remove cached machine code if any source file has changed.

    Numba looks at the file of the outermost function alone: after a change in a function it calls, it would go on
    running the old code. For code that adds noise that is not acceptable.
    """
    # None of these holds kernels, nor anything that kernels call.
    apart = ("adapters", "cli", "client", "gpu", "planner", "service", "spread")
    sources = sorted(p for p in HERE.rglob("*.py") if p.relative_to(HERE).parts[0] not in apart)
    stamps = "".join(f"{path.relative_to(HERE)}:{path.stat().st_mtime_ns}:{path.stat().st_size};" for path in sources)
    now = hashlib.sha256(stamps.encode()).hexdigest()
    record = (Path(CACHE_FOLDER) if CACHE_FOLDER else HERE / "__pycache__") / "dpbandit-kernels.stamp"
    try:
        if record.exists() and record.read_text() == now:
            return
        elsewhere = Path(CACHE_FOLDER).rglob("*.nbi") if CACHE_FOLDER else ()
        ours = tuple(f"{path.stem}." for path in sources)
        for cached in [*HERE.rglob("*.nbi"), *(path for path in elsewhere if path.name.startswith(ours))]:
            cached.unlink(missing_ok=True)
        record.parent.mkdir(exist_ok=True)
        record.write_text(now)
    except OSError:
        return  # a read-only installation: its files do not change either


drop_stale_caches()
