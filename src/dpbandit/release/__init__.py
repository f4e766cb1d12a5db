"""How private sums are shown over time: what each way costs, how good it is, and its reference in
NumPy."""

from dpbandit.release.anytime import Anytime
from dpbandit.release.base import MAX_LEVELS, Charge, Clock, PythonRelease, Release, Sums
from dpbandit.release.episodes import Episodes
from dpbandit.release.honaker import Honaker
from dpbandit.release.once import Nothing, Once
from dpbandit.release.pair import Pair
from dpbandit.release.pan_private import PanPrivate
from dpbandit.release.toeplitz import Toeplitz
from dpbandit.release.tree import ArmTrees, GramTree, Tree, WishartTree, levels_for
from dpbandit.release.whole import WholeRows

# Those that the compiled core has. Any other is a `PythonRelease`, and needs no line here.
RELEASES: dict[str, type[Release]] = {
    release.name: release
    for release in (
        Anytime,
        ArmTrees,
        Episodes,
        GramTree,
        Honaker,
        Nothing,
        Once,
        Pair,
        PanPrivate,
        Toeplitz,
        Tree,
        WishartTree,
    )
}

__all__ = [
    "Anytime",
    "ArmTrees",
    "Charge",
    "Clock",
    "Episodes",
    "GramTree",
    "Honaker",
    "MAX_LEVELS",
    "Nothing",
    "Once",
    "Pair",
    "PanPrivate",
    "PythonRelease",
    "RELEASES",
    "Release",
    "Sums",
    "Toeplitz",
    "Tree",
    "WholeRows",
    "WishartTree",
    "levels_for",
]
