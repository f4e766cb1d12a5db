"""What decides numbers on a node: versions of libraries, dpbandit and its core, the processor.

The compiled core gives the same bits on all processors of a kind, whatever their vectors. It is
sent along with the rest where a node has another one, but no core runs on another kind.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

from dpbandit.errors import ClusterError, ClusterWarning


def look() -> Callable[[], dict[str, Any]]:
    """A function that says what a process has.

    It is sent as it stands, to nodes that may not have dpbandit.
    """

    def inner() -> dict[str, Any]:
        import hashlib
        import platform
        from importlib.metadata import PackageNotFoundError, version
        from importlib.util import find_spec
        from pathlib import Path

        python = ".".join(platform.python_version_tuple()[:2])
        found: dict[str, Any] = {
            "Python": python,
            "dpbandit": None,
            "core": None,
            "processor": platform.machine(),
        }
        for name in ("ray", "numpy", "scipy", "opendp", "pyarrow"):
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = None
        spec = find_spec("dpbandit")
        if spec is not None and spec.origin is not None:
            source, folder = hashlib.sha256(), Path(spec.origin).parent
            for path in sorted(folder.rglob("*.py")):
                source.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
            found["dpbandit"] = source.hexdigest()[:16]
            core = find_spec("dpbandit._core")
            if core is not None and core.origin is not None:
                found["core"] = hashlib.sha256(Path(core.origin).read_bytes()).hexdigest()[:16]
        return found

    return inner


@cache
def here() -> dict[str, Any]:
    return look()()


def same_code(here: dict[str, Any], there: dict[str, Any]) -> bool:
    """Whether a node has this dpbandit, and this core if it is of this kind."""
    if there["dpbandit"] != here["dpbandit"]:
        return False
    if there["processor"] == here["processor"]:
        return bool(there["core"] == here["core"])
    # A core of its own, and not the one that was sent from here.
    has_own = there["core"] is not None and there["core"] != here["core"]
    return has_own == (here["core"] is not None)


def refuse_other_versions(
    here: dict[str, Any], there: dict[str, Any], where: str, *, code: bool = False
) -> None:
    """Raise if a node could give other numbers; warn if they could differ in the last digits."""
    for name in here.keys() - {"dpbandit", "core", "processor"}:
        if there[name] is None:
            raise ClusterError(f"{where} has no {name}: install {name}=={here[name]} there")
        if there[name] != here[name]:
            raise ClusterError(
                f"{where} has {name} {there[name]}, here is {here[name]}: results could differ; "
                "install the same"
            )
    other_kind = there["processor"] != here["processor"]
    if other_kind and not same_code(here, there):
        raise ClusterError(
            f"{where} has a processor of another kind, which the core from here cannot run on: "
            "install the same dpbandit there"
        )
    if code and not same_code(here, there):
        raise ClusterError(
            f"{where}, which joined later, has no dpbandit or another one: install the same, or "
            "start again"
        )
    if other_kind:
        warnings.warn(
            f"{where} has a processor of another kind ({there['processor']}, here "
            f"{here['processor']}): results may differ in the last digits",
            ClusterWarning,
            stacklevel=2,
        )
