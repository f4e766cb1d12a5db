"""What a GPU must know to attack a bandit on a frozen stream: made once, by the engine that ships.

Clean values under both streams come from the bandit's own engine (`auditor.frozen`); a run then
only draws noise. That is exact where no clean value depends on earlier noise. The anytime bandit
takes the released prediction off each reward, so its values do; but contexts are fixed, so
everything else about it (instruments, gains, covariances) is the same in every run, and is read off
its engine here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpbandit.algorithms.anytime import not_plain
from dpbandit.auditor.frozen import Frozen
from dpbandit.engine import NO_RELEASE, Engine
from dpbandit.errors import OptionError
from dpbandit.gpu.attack import Attack, Shifts, Trajectory
from dpbandit.gpu.plans import NOISES
from dpbandit.privacy.noise import CERTAIN
from dpbandit.release import Anytime, PanPrivate
from dpbandit.release.anytime import kept, next_time
from dpbandit.release.anytime import shown as share_shown

Matrix = NDArray[np.float64]
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
    if bandit.design.learner == "pair":
        raise OptionError(
            f"device='cuda' does not attack {bandit.name}: whiteners, directions and θ follow from its "
            "releases by eigenvalues, anew in every run; use device='cpu'"
        )
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
