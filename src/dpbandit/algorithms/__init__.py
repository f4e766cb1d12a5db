"""The algorithms: one file each, with its parts, its claim and its options.

`dpb.algorithms` is this package, and called it is the list of what is in it: a package's attribute
of that name would otherwise hide the function as soon as one of these files is imported.

>>> import dpbandit as dpb
>>> dpb.algorithms()["linucb"].claim
'none'
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpbandit.algorithms.registry import Algorithm


class _Algorithms(ModuleType):
    def __call__(self) -> dict[str, Algorithm]:
        """All algorithms by name."""
        from dpbandit.algorithms import registry

        return registry.algorithms()


sys.modules[__name__].__class__ = _Algorithms
