"""What a GPU must know to attack a bandit on a frozen stream: made once, by the engine that ships.

Clean values under both streams come from the bandit's own engine (`auditor.frozen`); a run then
only draws noise. That is exact where no clean value depends on earlier noise. The anytime bandit
takes the released prediction off each reward, so its values do; but contexts are fixed, so
everything else about it (instruments, gains, covariances) is the same in every run, and is read off
its engine here. Of `anytime-joint` even that follows from noise: each run learns for itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpbandit.algorithms.anytime import not_plain
from dpbandit.auditor.frozen import Frozen
from dpbandit.codes import NO_RELEASE
from dpbandit.engine import Engine
from dpbandit.errors import OptionError
from dpbandit.gpu.attack import Attack, PairTrajectory, Shifts, Trajectory
from dpbandit.gpu.plans import NOISES
from dpbandit.learners.pair import FADING, LEAST_NOISE
from dpbandit.privacy.noise import CERTAIN
from dpbandit.release import Anytime, PanPrivate
from dpbandit.release.anytime import kept, next_time, times
from dpbandit.release.anytime import shown as share_shown
from dpbandit.release.pair import Pair

# What pair.cu knows of `anytime-joint`: a choice that is new elsewhere is refused here.
PAIR_KNOWS = (
    "learner policy noise dim max_norm l1_limit one_hot low high clips horizon alpha ties_key "
    "contexts_key context_noise holdout scale knee ratio first change growth versions first_eta2 "
    "later_eta2 persons window reach reward_variance known_second"
)
PAIR_DIM = 8  # its matrices lie in a thread's own memory
Fields = dict[str, NDArray[np.float64]]


def trajectory(frozen: Frozen, positions: NDArray[np.int64]) -> Attack:
    """The attack that tells the frozen stream from the one changed at these positions."""
    bandit = frozen.bandit
    if isinstance(bandit.release, PanPrivate):
        raise OptionError(
            "device='cuda' does not attack the pan-private form, whose sums carry noise of their "
            "own: use device='cpu'"
        )
    if not bandit.values_depend_on_releases:
        return shifts(frozen, positions)
    if bandit.design.learner == "pair" and isinstance(bandit.release, Pair):
        return _pair(frozen, bandit.release, positions)
    if bandit.design.learner != "filter" or not isinstance(bandit.release, Anytime):
        raise OptionError(
            f"device='cuda' does not know how the values of {bandit.name} depend on its releases: "
            "use device='cpu'"
        )
    return _anytime(frozen, bandit.release, positions)


def shifts(frozen: Frozen, positions: NDArray[np.int64]) -> Shifts:
    """How far the releases of the two streams are apart, in units of their noise."""
    bandit = frozen.bandit
    noise = bandit.noise.name
    if noise not in NOISES:
        raise OptionError(f"device='cuda' has no {noise!r} noise: use device='cpu'")
    apart = frozen.neighbour(positions).values - frozen.values
    moved = (frozen.scales != NO_RELEASE) & apart.any(axis=1)
    noisy = moved & (frozen.scales > 0.0)
    units = apart[noisy] / frozen.scales[noisy, None]
    certain = CERTAIN * int((moved & ~noisy).sum())
    if noise == "laplace-l2":
        return Shifts(noise, np.linalg.norm(units, axis=1), apart.shape[1], certain)
    return Shifts(noise, np.abs(units[units != 0.0]), 1, certain)


def _anytime(frozen: Frozen, release: Anytime, positions: NDArray[np.int64]) -> Trajectory:
    bandit = frozen.bandit
    spec = bandit.spec
    if why := not_plain(spec):
        raise OptionError(f"device='cuda' does not attack this anytime: {why}. Use device='cpu'")
    if spec["rewards"] != "numbers":
        raise OptionError(
            f"device='cuda' does not attack rewards={spec['rewards']!r}, whose prior follows the "
            "releases: use device='cpu'"
        )
    if release.scale == 0.0:
        raise OptionError(
            "device='cuda' does not attack anytime without noise (epsilon = inf): use device='cpu'"
        )
    both = np.clip([frozen.rs, frozen.neighbour(positions).rs], spec["low"], spec["high"])
    engine = bandit.engine.copy()
    engine.reset()
    fields = engine.fields()  # live
    rows, steps, moments = [], [], []
    for t, (x, reward, changed) in enumerate(zip(frozen.xs, *both, strict=True)):
        scale = engine.prepare(x, float(reward), bool(frozen.known[t]))
        # `prepare` may have renewed the prior: the estimate now is the one it predicted with.
        rows.append([*fields["instrument"], *x, 1.0, *fields["estimate"], reward, changed])
        if scale != NO_RELEASE:
            steps.append(_release(engine, fields, release, spec["reward_variance"]))
            engine.commit(frozen.noisy[t])
            steps[-1] += [*fields["posterior"].ravel(), *fields["pull"]]
            moments.append(t + 1)
    settings = np.zeros(14)  # in kernels.cu's order
    settings[8:13] = [
        *(spec[word] for word in ("window", "scale", "reward_variance", "low", "high"))
    ]
    n = bandit.dim + 1
    return Trajectory(
        bandit.dim,
        np.array(rows),
        np.array(steps).reshape(-1, 2 + 3 * n * n + n),
        np.array(moments, dtype=np.int32),
        settings,
    )


def _pair(frozen: Frozen, release: Pair, positions: NDArray[np.int64]) -> PairTrajectory:
    bandit = frozen.bandit
    spec, n = bandit.spec, bandit.dim + 1
    if unknown := sorted(set(spec) ^ set(PAIR_KNOWS.split())):
        raise OptionError(
            f"device='cuda' knows nothing of {bandit.name}'s choice {unknown[0]!r}: use device='cpu'"
        )
    if spec["persons"]:
        raise OptionError(
            f"device='cuda' does not attack persons of {bandit.name}, who come more than once: use "
            "device='cpu'"
        )
    if release.scale < LEAST_NOISE:
        raise OptionError(
            f"device='cuda' does not attack {bandit.name} without noise (epsilon = inf): use "
            "device='cpu'"
        )
    if bandit.dim > PAIR_DIM:
        raise OptionError(
            f"device='cuda' attacks {bandit.name} in at most {PAIR_DIM} dimensions: use device='cpu'"
        )
    other = frozen.neighbour(positions)
    streams = (frozen.xs, frozen.rs), (other.xs, other.rs)
    longer = [
        np.column_stack(
            [xs / spec["max_norm"], np.ones(len(xs)), np.clip(rs, spec["low"], spec["high"])]
        )
        for xs, rs in streams
    ]
    steps, before = [], 0
    for t in times(release.first, release.ratio, len(frozen.xs)).tolist():
        rho, turns = kept(t, next_time(t, release.ratio), release.knee), t in release.shown_whole
        directions = 0.0 if turns else rho
        shares = [share_shown(rho), rho, share_shown(directions), directions]
        fades = (before / t) ** FADING if before else 1.0
        steps.append([t, t - before, *shares, turns, fades])
        before = t
    known = spec["known_second"]
    start = known if len(known) else np.diag(np.append(np.full(n - 1, 1.0 / (n - 1)), 1.0))
    settings = np.zeros(18 + n * n)  # in the order of kernels.cu and pair.cu
    words = ("window", "scale", "reward_variance", "low", "high")
    settings[8:13] = [spec[word] for word in words]
    settings[14:18] = [*(spec[w] for w in ("reach", "first_eta2", "later_eta2")), len(known) > 0]
    settings[18:] = start.ravel()
    return PairTrajectory(
        bandit.dim,
        1 + sum(step[6] != 0.0 for step in steps),
        np.hstack(longer),
        np.array(steps, dtype=np.float64).reshape(-1, 8),
        settings,
    )


def _release(
    engine: Engine, fields: Fields, release: Anytime, reward_variance: float
) -> list[float]:
    """Shares shown and kept, and the gains of the filter; none depends on a noisy value."""
    t = engine.rounds
    rho = kept(t, next_time(t, release.ratio), release.knee)
    q = share_shown(rho)
    waiting = int(fields["seen_waiting"][0])  # rounds that the filter has yet to add
    us, xs = fields["rows_u"][:waiting], fields["rows_x"][:waiting]
    design = fields["design"] + us.T @ xs
    covariance = fields["covariance"] + reward_variance * (fields["spread"] + us.T @ us)
    noise = q * q * covariance + release.scale**2 * np.eye(len(covariance))
    inverse = np.linalg.inv(noise)
    on_offset = q * covariance @ inverse
    on_pull = q * (design + fields["slope"]).T @ inverse
    return [q, rho, *on_offset.ravel(), *on_pull.ravel()]
