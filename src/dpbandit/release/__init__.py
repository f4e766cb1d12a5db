"""How private sums are shown over time: what each way costs, how good it is, and its reference in
NumPy."""

from dpbandit.release.anytime import Anytime as Anytime
from dpbandit.release.base import MAX_LEVELS as MAX_LEVELS
from dpbandit.release.base import Charge as Charge
from dpbandit.release.base import Clock as Clock
from dpbandit.release.base import PythonRelease as PythonRelease
from dpbandit.release.base import Release as Release
from dpbandit.release.base import Sums as Sums
from dpbandit.release.batches import ArmBatches as ArmBatches
from dpbandit.release.episodes import Episodes as Episodes
from dpbandit.release.honaker import Honaker as Honaker
from dpbandit.release.once import Nothing as Nothing
from dpbandit.release.once import Once as Once
from dpbandit.release.pair import Pair as Pair
from dpbandit.release.pan_private import PanPrivate as PanPrivate
from dpbandit.release.toeplitz import Toeplitz as Toeplitz
from dpbandit.release.tree import ArmTrees as ArmTrees
from dpbandit.release.tree import GramTree as GramTree
from dpbandit.release.tree import Tree as Tree
from dpbandit.release.tree import WishartTree as WishartTree
from dpbandit.release.tree import levels_for as levels_for
from dpbandit.release.whole import WholeRows as WholeRows

_TREES = (Tree, GramTree, WishartTree, ArmTrees, Honaker, PanPrivate)
_ONCE = (ArmBatches, Episodes, Nothing, Once)
# Those that the compiled core has. Any other is a `PythonRelease`, and needs no line here.
RELEASES: dict[str, type[Release]] = {
    release.name: release for release in (*_TREES, *_ONCE, Anytime, Pair, Toeplitz)
}
