"""How private sums are published over time.

Every release follows one interface: `place` says which node a round completes and over how many levels its block's
budget is shared, `add` takes the round's vector and returns the clean value of that node, and `publish` takes the node's
noisy value and returns the noisy prefix sum. Between the two stands the noise source and the ledger, nothing else.
"""

from dpbandit.release.tree import MAX_LEVELS, Tree, levels_for, new_tree

__all__ = ["MAX_LEVELS", "Tree", "levels_for", "new_tree"]
