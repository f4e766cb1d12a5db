"""Judges of what else a bandit does: files, forks, copies, ranks, propensities."""

from __future__ import annotations

import copy
import itertools
import os
import pathlib
import pickle
import tempfile
import types
from typing import Any

import numpy as np

from judges.bandits import made, play, slates, state_of
from judges.common import close, judge, refused
from judges.designs import STEP
from judges.noises import Drawn, with_drawn


@judge
def files_go_on_as_if_nothing_had_happened() -> Any:
    import dpbandit as dpb

    seen: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        for label in ("gauss", "linucb perturbed", "anytime", "laplace, users"):
            path = str(pathlib.Path(folder) / "bandit.npz")
            part, offered = made(label), None
            if "perturbed" in label:
                offered = slates(part, 1)[0]
                part.select(offered)
            else:
                play(part, 6)
            part.save(path)
            back = dpb.load(path, receipt=part.receipt())
            assert state_of(back) == state_of(part)
            assert back.ledger.to_dict() == part.ledger.to_dict()
            assert back.user_counts == part.user_counts
            x = slates(part, 1)[0][1] if offered is None else offered[part.select(offered)]
            if offered is not None:
                back.select(offered)
            for bandit in (back, part):
                bandit.update(x, 0.7, **({"user": "u9"} if "users" in label else {}))
            close(back.theta, part.theta, 1e-12, 1e-13)
            if label == "gauss":
                refused("RollbackError", lambda b=back, p=path: dpb.load(p, receipt=b.receipt()))
            back.export(path + ".json")
            close(dpb.load(path + ".json").view.theta, back.theta, 0.0)
            seen.append(back.theta)
    return seen


@judge
def a_forked_copy_does_not_learn() -> Any:
    bandit, quiet = made("gauss", backend="core"), made("linucb", backend="core")
    quiet.update([0.1, 0.2, 0.3], 0.5)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for copy in (bandit, quiet):
                refused("BudgetError", lambda c=copy: c.update([0.1, 0.2, 0.3], 0.5))
            refused("BudgetError", lambda: bandit.update([[0.1, 0.2, 0.3]] * 2, [0.5] * 2))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    bandit.update([0.1, 0.2, 0.3], 0.5)
    return bandit.theta


# What runs in the child alone, where nobody watches.
a_forked_copy_does_not_learn.reaches = {"bandit:_in_a_forked_child"}  # type: ignore[attr-defined]


@judge
def pan_private_nodes_begin_with_real_noise() -> Any:
    """What lies in memory after a context of zeros is the first noise of every node."""
    seen: list[Any] = []
    for label, backend in itertools.product(
        ("gauss, pan-private", "laplace, pan-private"), ("core", "reference")
    ):

        def run(label: str = label, backend: str = backend) -> Any:
            bandit, drawn = made(label, seed=None, backend=backend), []
            for t in range(1, 7):
                bandit.update(np.zeros(3), 0.3)
                starts = bandit.release.place(t)
                begun = [n for n in range(starts.levels) if (starts.position - 1) % (1 << n) == 0]
                rows = np.asarray(bandit.engine.fields()["sums_low"])
                for level in begun:
                    assert rows[level].tolist() == [3, 2, 1], (label, t, level)
                asked = [one[2] * STEP for one in Drawn.asked[sum(drawn) :][: len(begun)]]
                close(asked, [bandit.release.scale(t)] * len(begun), 1e-6)
                drawn.append(len(begun) + 1)
            assert len(Drawn.asked) == sum(drawn)
            scales = [asked[2] for asked in Drawn.asked]
            return scales, np.array(bandit.theta)

        seen.append(with_drawn(run))
    return seen


@judge
def nobody_copies_a_bandit() -> Any:
    bandit = made("gauss")
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        refused("BudgetError", lambda c=call: c(bandit))
    log, people = types.SimpleNamespace(learned=5), bandit.people
    assumed = len(bandit.claim.assumptions)
    bandit.remember(log, people)
    assert bandit.log is log
    assert bandit.people is people
    assert len(bandit.claim.assumptions) == assumed + 1
    return bandit.theta


@judge
def a_log_and_rounds_count_together() -> Any:
    """What a log counted of a person is what a round begins with, in a round with a release too."""
    from dpbandit.logs.record import People, hash_name

    hashes, whole = np.array([hash_name("anna")], dtype=np.uint64), 1 << 20
    seen = []
    for backend, left in itertools.product(("core", "reference"), (0, 5, whole)):
        bandit = made("pair, persons", backend=backend)
        log, counts = types.SimpleNamespace(learned=5), np.array([1 + whole - left])
        bandit.remember(log, People(hashes, counts))
        before = bandit.engine.fields()["people"][0]
        for _ in range(6):
            bandit.update(np.eye(bandit.dim)[0], bandit.options.reward_range[1], user="anna")
        steps = sum(bandit.counters.values())
        assert steps == left if left < whole else 0 < steps <= whole, (backend, left, steps)
        assert bandit.engine.fields()["people"][0] == before  # nobody new came
        seen.append(steps)
    return seen


@judge
def propensities_are_of_what_is_played() -> Any:
    bandit = made("thompson")
    play(bandit, 5)
    slate = slates(bandit, 1)[0]
    found = bandit.propensities(slate[:2], seed=1).probabilities
    close(found.sum(), 1.0, 1e-12)
    picked = np.bincount([bandit.select(slate[:2]) for _ in range(600)], minlength=2) / 600
    close(picked, found, 0.0, 0.09)
    refused("PropensityError", lambda: made("gauss").propensities(slate))
    refused("PropensityError", lambda: made("thompson", context_noise=0.1).propensities(slate))
    assert made("anytime").values_depend_on_releases
    assert not made("gauss").values_depend_on_releases
    return found


@judge
def ways_of_a_bandit() -> Any:
    """Its keys, its short way, what it counts, and the width of its bonus."""
    from dpbandit.design import keys_for
    from dpbandit.reference.random import CONTEXTS, START, TIES, derive_key

    assert keys_for(4) == {purpose: derive_key(4, purpose) for purpose in (TIES, CONTEXTS, START)}
    for label, short in (("gauss", True), ("gauss, users", False), ("linucb", False)):
        assert made(label, backend="core").short_way == short
        assert not made(label, backend="reference").short_way
    clear, counted, told = made("linucb", backend="core"), made("gauss"), made("gauss, theory")
    clear.update([0.1, 0.2, 0.3], 0.5)
    assert clear.short_way
    counted.update([[0.1, 0.2, 0.3]] * 3, [9.0, 0.5, -9.0])
    assert counted.clipped == 2
    told.update([0.1, 0.2, 0.3], 0.5)
    slate, width = slates(told, 1)[0], float(told.alphas(2, 1)[0])
    assert width == told.design.theory(np.array([2.0]))[0]
    scores = told.policy.scores(told.model().view, slate, width, told.keys[TIES], 0)
    assert told.select(slate, k=4).tolist() == np.argsort(-scores).tolist()
    assert told.select(slate) == int(np.argmax(scores))
    assert told.model().alpha == width
    for wrong in (0, 5, 1.5, True, "2"):
        refused("OptionError", lambda w=wrong: told.select(slate, k=w))
    return [width, scores]


@judge
def ranks_are_scores_in_order() -> Any:
    """The best first; those within a hair of each other by lot; no more than were asked for."""
    seen: list[Any] = []
    for label in ("gauss", "arms"):
        bandit = made(label)
        play(bandit, 6)
        model, slate = bandit.model(), slates(bandit, 1)[0]
        expected = bandit.policy.scores(model.view, slate, model.alpha, 1, 0)
        for most in range(1, len(slate) + 1):
            order, scores = model.rank(slate, most)
            close(scores, expected, 0.0)
            assert order == np.argsort(-expected, kind="stable").tolist()[:most]
        seen.append(expected)
    model = made("gauss").model()
    twice = np.array([[0.1, 0.2, 0.3], [0.6, 0.6, 0.1], [0.6, 0.6, 0.1], [0.2, 0.1, 0.0]])
    scores = model.policy.scores(model.view, twice, model.alpha, 1, 0)
    assert scores[1] == scores[2] > scores[0] > scores[3]
    orders = {tuple(model.rank(twice, 4)[0]) for _ in range(60)}
    assert orders == {(1, 2, 0, 3), (2, 1, 0, 3)}
    assert {tuple(model.rank(twice, 1)[0]) for _ in range(60)} == {(1,), (2,)}
    alike = {tuple(model.rank(np.full((3, 3), 0.2), 3)[0]) for _ in range(200)}
    assert len(alike) == 6
    return seen
