"""Judges of trees, Toeplitz sums and what is released once: against dense matrices."""

from __future__ import annotations

import fractions
import itertools
import math
from typing import Any

import numpy as np

from judges.common import between, close, judge, refused


def dense_tree(release: Any, horizon: int) -> tuple[Any, Any]:
    """Which rounds each node holds, and which nodes each sum reads."""
    strategy, reads = np.zeros((horizon, horizon)), np.zeros((horizon, horizon))
    for t in range(1, horizon + 1):
        block = 1 << (t.bit_length() - 1) if release.horizon is None else 1
        inside = t - block + 1
        strategy[t - 1, t - (inside & -inside) : t] = 1.0
        for end, _levels in release.nodes(t):
            reads[t - 1, end - 1] = 1.0
    return strategy, reads


def sums_of(release: Any, dim: int) -> Any:
    """The reference's state of a release, made as the learners make it."""
    from dpbandit.release import anytime, episodes, honaker, pan_private, toeplitz, tree

    if isinstance(release, toeplitz.Toeplitz):
        rates, weights = toeplitz.decays_for(release.horizon)
        return toeplitz.ToeplitzSums(dim, rates=rates, weights=weights)
    if isinstance(release, episodes.Episodes):
        return episodes.EpisodeSums(dim)
    if isinstance(release, anytime.Anytime):
        given = {name: getattr(release, name) for name in ("knee", "ratio", "first", "life")}
        return anytime.AnytimeSums(dim, **given)
    kinds = {"honaker": honaker.HonakerSums, "pan-private": pan_private.PanPrivateSums}
    kind = kinds.get(release.name, tree.TreeSums)
    return kind(dim, levels=release.levels, unknown_horizon=release.unknown_horizon)


def run_sums(release: Any, horizon: int, noise: Any) -> tuple[list[Any], list[Any]]:
    """What a release's own state shows of unit items, and the sums it makes of it."""
    sums = sums_of(release, 1)
    shown, made = [], []
    for t in range(1, horizon + 1):
        for level in getattr(sums, "starts", lambda t: [])(t):
            sums.begin(level, np.array([int(1000 * level + t) << 40], dtype=object))
        clean = sums.add(t, np.array([(t * t) << 40], dtype=object))
        if clean is not None:
            clean = clean.astype(float) / (2.0**40 if clean.dtype == object else 1.0)
        shown.append(clean)
        if clean is not None:
            made.append(np.array(sums.publish(t, clean + noise[t - 1])))
    return shown, made


@judge
def trees_in_dense_matrices() -> Any:
    from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
    from dpbandit.release import Tree
    from dpbandit.release.tree import levels_for, place

    seen: list[Any] = []
    for horizon in (1, 2, 3, 7, 8, 1000, 1024):
        assert levels_for(horizon) == math.floor(math.log2(horizon)) + 1
    assert levels_for(None) == 62
    refused("OptionError", lambda: levels_for(0))
    for horizon, noise in itertools.product((None, 1, 6, 8, 21), (GAUSSIAN, LAPLACE)):
        rounds = 21 if horizon is None else horizon
        tree = Tree(noise, horizon, 1.5, 0.8)
        strategy, reads = dense_tree(tree, rounds)
        prefix = np.tril(np.ones((rounds, rounds)))
        close(reads @ strategy, prefix)
        power = 2 if noise is GAUSSIAN else 1
        scales = np.array([tree.scale(t) for t in range(1, rounds + 1)])
        share = (1.5 * strategy / scales[:, None]) ** power
        most = share.sum(axis=0).max()
        assert most <= 0.8**power * (1 + 1e-12), "a reward pays more than the budget"
        if horizon in (1, 8):
            close(most, 0.8**power, 1e-12)
        variance = reads**2 @ scales**2
        close(tree.squares(np.arange(1, rounds + 1)), variance, 1e-12)
        close(tree.variance(rounds, 2), variance[-1] * noise.standard_deviation(2) ** 2, 1e-12)
        if horizon is not None:
            close(tree.squares(rounds + 5), variance[-1], 1e-12)
        assert tree.draws(4, horizon) == 4 * (levels_for(horizon) + 1)
        # What its state shows and makes of it.
        items = np.arange(1, rounds + 1) ** 2.0
        rng = np.random.default_rng(rounds)
        noises_ = rng.normal(size=rounds)
        shown, made = run_sums(tree, rounds, noises_)
        close(np.ravel(shown), strategy @ items, 1e-12)
        close(np.ravel(made), reads @ (strategy @ items + noises_), 1e-9)
        group, paid = {}, {}
        for t in range(1, rounds + 1):
            charge = tree.charge(None, t)
            node = np.flatnonzero(strategy[t - 1])
            for k in node:
                # No reward is twice in a lane, and in one group only.
                assert (k, charge.what) not in paid
                paid[k, charge.what] = charge.share
                assert group.setdefault(k, charge.group) == charge.group
            assert not charge.adds
            close(charge.share, (1.5 / scales[t - 1]) ** power, 1e-12)
            at = place(t, unknown_horizon=horizon is None, levels=tree.levels)
            assert at == tree.place(t)
            assert f"{at.level}" in charge.what
            assert charge.group == (t.bit_length() - 1 if horizon is None else 0)
        clock = Ticks(rounds - 1)
        tree.room(clock)
        seen += [scales, variance, str(sorted(paid.items()))]
        if horizon is not None:
            refused("BudgetError", lambda tree=tree: tree.room(Ticks((1 << tree.levels) - 1)))
            tree.room(Ticks((1 << tree.levels) - 2))
    return seen


class Ticks:
    """An engine as far as a release may know it."""

    def __init__(self, rounds: int, **fields: Any) -> None:
        self.rounds, self._fields = rounds, fields

    def fields(self) -> dict[str, Any]:
        return self._fields


@judge
def honaker_in_dense_matrices() -> Any:
    from dpbandit.privacy.noise import GAUSSIAN
    from dpbandit.release import Honaker

    refused("OptionError", lambda: Honaker(GAUSSIAN, None, 1.0, 1.0))
    seen: list[Any] = []
    for horizon in (1, 5, 8, 16):
        tree, levels = Honaker(GAUSSIAN, horizon, 1.5, 0.8), horizon.bit_length()
        rows = []  # all nodes, in the order in which they are shown
        for t in range(1, horizon + 1):
            for level in range((t & -t).bit_length()):
                row = np.zeros(horizon)
                row[t - (1 << level) : t] = 1.0
                rows.append(row)
        strategy = np.array(rows)
        sigma = float(tree.multipliers[levels]) * tree.sensitivity
        paid = (1.5**2 * strategy / sigma**2).sum(axis=0)
        assert paid.max() <= 0.64 * (1 + 1e-12)
        charge = tree.charge(None, 1)
        close(charge.share, 0.64, 1e-12)
        if horizon in (1, 8, 16):
            close(paid.max(), 0.64, 1e-12)
        # The estimate of a complete subtree is least squares over the nodes shown below it.
        items, rng = np.arange(1, horizon + 1) ** 2.0, np.random.default_rng(horizon)
        sums, read, values = sums_of(tree, 1), 0, strategy @ items + rng.normal(size=len(strategy))
        for t in range(1, horizon + 1):
            count = (t & -t).bit_length()
            clean = (
                np.asarray(sums.add(t, np.array([(t * t) << 40], dtype=object)), dtype=float)
                / 2.0**40
            )
            close(clean[:count], strategy[read : read + count] @ items, 1e-12)
            assert not clean[count:].any()
            noisy = np.zeros(levels)
            noisy[:count] = values[read : read + count]
            made = float(sums.publish(t, noisy)[0])
            read += count
            # Bottom-up: every complete node of t from the shown nodes inside it, by least squares.
            best, end = 0.0, 0
            for bit in reversed(range(t.bit_length())):
                if t >> bit & 1:
                    start, end = end, end + (1 << bit)
                    inside = [
                        i
                        for i in range(read)
                        if strategy[i, start:end].any() and strategy[i].sum() <= 1 << bit
                    ]
                    part = strategy[inside, start:end]
                    solution = np.linalg.lstsq(part, values[inside], rcond=None)[0]
                    best += solution.sum()
            close(made, best, 1e-9, 1e-9)
            seen.append(made)
        at = np.arange(1, horizon + 1)
        variances = []
        for t in at:
            total = 0.0
            for bit in range(int(t).bit_length()):
                if int(t) >> bit & 1:
                    total += 2.0**bit / (2.0 ** (bit + 1) - 1)
            variances.append(total * sigma**2)
        close(tree.squares(at), variances, 1e-12)
        close(tree.squares(horizon + 9), variances[-1], 1e-12)
        seen += [sigma, tree.squares(at)]
    return seen


@judge
def toeplitz_in_dense_matrices() -> Any:
    from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
    from dpbandit.release import Toeplitz
    from dpbandit.release import toeplitz as module
    from dpbandit.release.toeplitz_table import TABLE

    seen: list[Any] = []
    refused("OptionError", lambda: Toeplitz(LAPLACE, 10, 1.0, 1.0, 2, False))
    refused("OptionError", lambda: module.decays_for(0))
    for horizon, real in itertools.product((1, 2, 40, 1000, 1001, None), (False, True)):
        rates, weights = module.decays_for(horizon)
        covering = [n for n in TABLE if horizon is not None and n >= horizon]
        assert list(rates) == list(TABLE[min(covering, default=max(TABLE))][0])
        n = min(horizon or 60, 60)
        column = np.concatenate([[1.0], [weights @ (1 - rates) ** k for k in range(n - 1)]])
        gap = np.arange(n)[:, None] - np.arange(n)
        c = np.where(gap >= 0, column[np.maximum(gap, 0)], 0.0)
        b = np.tril(np.ones((n, n))) @ np.linalg.inv(c)
        at = np.arange(1.0, n + 1)
        close(module.squared_column(rates, weights, at), np.cumsum(column**2), 1e-12)
        close(module.squared_column(rates, weights, np.zeros(1)), [0.0])
        close(module.squared_row(rates, weights, at), (b**2).sum(axis=1), 1e-9)
        release = Toeplitz(GAUSSIAN, horizon, 1.1, 0.8, 2, real)
        length = horizon or 1
        k = np.arange(length - 1)
        exact = math.sqrt(
            1 + float(((1 - rates) ** k[:, None] @ weights) @ ((1 - rates) ** k[:, None] @ weights))
        )
        if horizon is None:
            both = rates[:, None] + rates - np.outer(rates, rates)
            exact = math.sqrt(1 + float((np.outer(weights, weights) / both).sum()))
        norm = module.column_norm(horizon)
        between(exact * (1 - 1e-12), norm, exact * (1 + 1e-9))
        rounds = horizon or 2**48
        largest = 1 + (weights / rates).sum()
        slack = 2 * math.sqrt(rounds) * (len(rates) + 9) * 2.0**-53 * largest * 0.51 / 1.1
        close(module.encoding_slack(rounds, horizon=horizon, size=0.51 / 1.1), slack, 1e-12)
        grid = math.sqrt(2 * rounds) * 2.0**-44 / 0.8 if real else 0.0
        close(release.column, (norm + slack) / (1 - grid), 1e-12)
        close(release.scale, release.column * 1.1 / 0.8, 1e-12)
        close(release.core()["sensitivity"], 1.1 * release.column, 1e-14)
        close(release.squares(at), release.scale**2 * (b**2).sum(axis=1), 1e-9)
        assert release.draws(2, horizon) == 2 * (rounds + 1)
        total, first = 0.0, None
        for t in range(1, n + 1):
            charge = release.charge(None, t)
            assert charge.adds
            total += charge.share
            close(charge.share, 0.64 * column[t - 1] ** 2 / norm**2, 1e-9)
            first = first or charge
            assert first.what == charge.what
            # What the sampler is asked to prove covers one release's shift with its rounding.
            close(charge.shift, release.scale * 0.8 / norm, 1e-12)
            assert charge.shift >= 1.1
        assert total <= 0.64 * (1 + 1e-12)
        release.room(Ticks(rounds - 1))
        refused("BudgetError", lambda r=release, m=rounds: r.room(Ticks(m)))
        items, noise = np.arange(1, n + 1) ** 2.0, np.random.default_rng(n).normal(size=n)
        shown, made = run_sums(release, n, noise)
        close(np.ravel(shown), c @ items, 1e-11)
        close(np.ravel(made), np.cumsum(items) + b @ noise, 1e-9)
        seen += [release.column, release.scale, total, np.ravel(made)]
        if horizon is not None:
            close(release.squares(horizon + 1000), release.squares(horizon), 1e-12)
    close(module.column_norm(10**7), module.column_norm(None), 1e-14)
    refused("OptionError", lambda: Toeplitz(GAUSSIAN, None, 1.0, 1e-9, 2, True).column)
    assert Toeplitz(GAUSSIAN, None, 1.0, math.inf, 2, True).column > 2
    close(module.geometric(0.0, np.array([0.0, 5.0])), [0.0, 5.0])
    for rate in (1e-9, 1e-3, 0.4999, 0.5, 0.9, 1.0):
        powers = (1 - rate) ** np.arange(7)
        close(
            module.geometric(rate, np.array([0.0, 1.0, 3.0, 7.0])),
            [0.0, 1.0, powers[:3].sum(), powers.sum()],
            1e-12,
        )
        close(module.geometric(rate, np.array([math.inf])), [1 / rate], 1e-12)
    rates, weights = module.inverse_decays(np.array([0.5]), np.array([0.5]))
    close(rates, [0.0, 1.0], 0.0, 1e-14)
    close(weights, [0.5, 0.5], 1e-12)
    # Rounding is kept beside: a slow buffer over many rounds.
    total, low = np.zeros(1), np.zeros(1)
    for _ in range(3000):
        module._add_up(total, low, np.array([0.1]))
    exact_sum = fractions.Fraction(0.1) * 3000
    off = abs(fractions.Fraction(float(total[0])) + fractions.Fraction(float(low[0])) - exact_sum)
    assert off < fractions.Fraction(1, 10**13), float(off)
    return seen


@judge
def releases_shown_once() -> Any:
    from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
    from dpbandit.privacy.wishart import Calibration
    from dpbandit.release import (
        ArmBatches,
        ArmTrees,
        Episodes,
        Nothing,
        Once,
        PanPrivate,
        Tree,
        WishartTree,
    )

    seen: list[Any] = []
    for noise in (GAUSSIAN, LAPLACE):
        power = 2 if noise is GAUSSIAN else 1
        once = Once(noise, None, 1.5, 0.8)
        charge = once.charge(None, 3)
        close(charge.share, 0.8**power, 1e-12)
        assert (charge.adds, charge.group) == (False, 0)
        close(once.squares([1, 9]), [(1.5 / 0.8) ** 2] * 2, 1e-12)
        close(once.core()["multipliers"][1] * once.core()["sensitivity"], 1.5 / 0.8, 1e-12)
        assert once.draws(7, None) == 2
        episodes = Episodes(noise, 50, 1.5, 0.8, math.log(2), 3, 1.2, 1.3)
        close(episodes.scale, 1.5 / 0.8, 1e-12)
        close(episodes.charge(None, 1).share, 0.8**power, 1e-12)
        t = np.array([1.0, 20.0, 50.0, 90.0])
        count = 1 + 3 * np.log(1 + np.minimum(t, 50.0) * 1.69 / 3.6) / math.log(2)
        close(episodes.squares(t), episodes.scale**2 * count, 1e-12)
        assert episodes.draws(3, 50) == 6
        state = sums_of(episodes, 1)
        for item in (3, 4):
            assert state.add(1, np.array([item], dtype=object)) is None
        assert state.end().tolist() == [7]
        assert state.end().tolist() == [0]
        assert state.publish(2, np.array([1.5])).tolist() == [1.5]
        assert state.publish(3, np.array([2.0])).tolist() == [3.5]
        seen += [episodes.scale, charge.share, episodes.squares(t)]
        for release in (once, episodes):
            release.room(Ticks(10**12))
            core = release.core()
            assert core["levels"] == 1
            assert core["unknown_horizon"] == (release.horizon is None)
            close(core["multipliers"][1], 1 / 0.8, 1e-12)
            assert len(core["multipliers"]) == 63
    nothing = Nothing(GAUSSIAN, None, 1.0, math.inf)
    assert nothing.charge(None, 1).share == math.inf
    assert not nothing.multipliers.any()
    assert not nothing.squares([3]).any()
    assert nothing.core()["release"] == "once"
    for horizon in (None, 8):
        plain, pan = Tree(GAUSSIAN, horizon, 1.5, 0.8), PanPrivate(GAUSSIAN, horizon, 1.5, 0.8)
        close(pan.squares([1, 5, 8]), 2 * plain.squares([1, 5, 8]), 1e-12)
        assert pan.draws(3, horizon) == 2 * plain.draws(3, horizon)
        state, begun = sums_of(pan, 1), {}
        for t in range(1, 9):
            block = 1 << (t.bit_length() - 1) if horizon is None else 1
            index = t - block + 1
            levels = t.bit_length() if horizon is None else 4
            starts = state.starts(t)
            assert starts == [lv for lv in range(levels) if (index - 1) % (1 << lv) == 0]
            for level in starts:
                begun[level] = (100 * t + level, t)
                state.begin(level, np.array([begun[level][0] << 40], dtype=object))
            shown = float(state.add(t, np.array([t << 40], dtype=object))[0]) / 2.0**40
            level = (index & -index).bit_length() - 1
            noise0, since = begun[level]
            close(shown, noise0 + sum(range(since, t + 1)), 1e-12)
            made = float(state.publish(t, np.array([float(sum(range(since, t + 1))) + 0.5]))[0])
            nodes = len(pan.nodes(t))
            close(made, sum(range(1, t + 1)) + 0.5 * nodes, 1e-12)
            seen.append(made)
    arms = ArmTrees(LAPLACE, 8, 1.0, 0.8)
    for arm, pulls in ((0, 1), (0, 2), (2, 8), (2, 3)):
        fields = {"arm": np.array([arm]), "pulls": np.array([pulls, 0, pulls])}
        found, plain = (
            arms.charge(Ticks(5, **fields), 5),
            Tree(LAPLACE, 8, 1.0, 0.8).charge(None, pulls),
        )
        assert found.share == plain.share
        assert found.group == 63 * arm
        assert isinstance(found.group, int)
        assert str(arm) in found.what
        assert plain.what in found.what
        seen.append(found.group)
    groups = set()
    ahead = ArmTrees(LAPLACE, None, 1.0, 0.8)
    for arm, pulls in itertools.product(range(3), (1, 2, 4, 2**61)):
        fields = {"arm": np.array([arm]), "pulls": np.full(3, pulls)}
        groups.add(ahead.charge(Ticks(5, **fields), 5).group)
    assert len(groups) == 12, "groups of different arms meet"
    assert groups == {63 * arm + block for arm in range(3) for block in (0, 1, 2, 61)}
    arms.room(Ticks(3, pulls=np.array([14, 2])))
    refused("BudgetError", lambda: arms.room(Ticks(3, pulls=np.array([2, 15]))))
    rounds = [0, 3, 4, 8, 11, 12, 17, 18, 26, 27, 99]
    for horizon, many in ((20, 4), (None, 8)):
        batches = ArmBatches(LAPLACE, horizon, 1.1, 0.8, first=4, ratio=1.5)
        late = [4, 4 if horizon else 5, many]  # ends: 4, 8, 12, 18, 27, 41, 62, 93
        close(batches.squares(rounds) * (0.8 / 1.1) ** 2, [0, 0, 1, 2, 2, 3, 3, 4, *late], 1e-12)
    close(batches.squares([]), [], 1e-12)
    found = {4: Calibration(50, 0.3, 0.2)}
    tree = WishartTree(GAUSSIAN, 8, 1.0, 2.0, dim=3, calibrations=found)
    assert tree.multipliers[4] == 53
    assert tree.multipliers[3] == 0
    close([tree.charge(None, t).share for t in (1, 2, 3, 4)], [0.5, 0.2, 0.5, 0.2], 1e-12)
    assert {tree.charge(None, t).what for t in (1, 2, 4, 8)} == {
        Tree(GAUSSIAN, 8, 1.0, 1.0).charge(None, t).what for t in (1, 2, 4, 8)
    }
    assert WishartTree(GAUSSIAN, 8, 1.0, 2.0, dim=3).charge(None, 1).share == math.inf
    assert {tree.charge(None, t).group for t in (1, 2, 3, 8)} == {0}
    blocks = WishartTree(
        GAUSSIAN,
        None,
        1.0,
        2.0,
        dim=3,
        calibrations={n: Calibration(9, 0.1, 0.1) for n in range(1, 9)},
    )
    assert [blocks.charge(None, t).group for t in (1, 2, 3, 4, 9)] == [0, 1, 1, 2, 3]
    return seen
