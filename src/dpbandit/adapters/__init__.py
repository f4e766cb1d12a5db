"""dpbandit in other frameworks: coba's experiments, river's evaluation, Gymnasium's environments,
obp's simulator.

Each adapter needs its package (`pip install 'dpbandit[adapters]'`), which is imported when the adapter is first named.
docs/how-to/adapters.md shows each of them at work.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PLACES = {
    "CobaLearner": "dpbandit.adapters.coba",
    "CobaWorld": "dpbandit.adapters.coba",
    "ObpPolicy": "dpbandit.adapters.obp",
    "RiverPolicy": "dpbandit.adapters.river",
    "WorldEnv": "dpbandit.adapters.gymnasium",
    "obp_rounds": "dpbandit.adapters.obp",
}

__all__ = ["CobaLearner", "CobaWorld", "ObpPolicy", "RiverPolicy", "WorldEnv", "obp_rounds"]

if TYPE_CHECKING:
    from dpbandit.adapters.coba import CobaLearner, CobaWorld
    from dpbandit.adapters.gymnasium import WorldEnv
    from dpbandit.adapters.obp import ObpPolicy, obp_rounds
    from dpbandit.adapters.river import RiverPolicy


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        from dpbandit.errors import nearest

        raise AttributeError(f"dpbandit.adapters has no {name!r}: {nearest(name, _PLACES)}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def need(package: str) -> None:
    """Import a package, or say how to get it."""
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        words = f"this adapter needs {package}: pip install {package}, or pip install 'dpbandit[adapters]' for all of them"
        raise ModuleNotFoundError(words, name=package) from None
