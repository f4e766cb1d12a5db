"""Compile the kernels of some families before the tests need them: `python tests/warm.py ridge` or `others`.

Compiled code is cached on disk, so this is a matter of minutes saved, never of results.
"""

import sys
import warnings

import numpy as np

import dpbandit as dpb

FAMILIES = {"ridge": ["linucb", "tree-gauss"], "others": ["anytime", "joint", "private-ucb"]}


def warm(name: str) -> None:
    options = {"epsilon": 1.0, "delta": 1e-3}
    bandit, slate = dpb.make(name, dim=3, seed=0, **options), np.eye(3)
    for _ in range(3):
        bandit.update(slate[bandit.select(slate)], 0.5)
    if name == "linucb":  # not private: nothing to verify, and its rounds are those of tree-gauss
        return
    world = dpb.worlds.Bernoulli(arms=3) if name == "private-ucb" else dpb.worlds.Synthetic(arms=20, dim=3, shown=4)
    dpb.run(world, [name], horizon=8, seeds=1, workers=1, **options)
    if name == "anytime":
        options["first_release"] = 2
    dpb.verify(name, horizon=8, dim=2, tries=0, **options)
    dpb.audit(name, horizon=4, runs=100, dim=2, **options)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for family in FAMILIES[sys.argv[1]]:
        warm(family)
