"""What a GPU must know to attack a bandit on a frozen stream: made once, by the very functions that ship.

Clean values under both streams come from the bandit's own learner (`joint_cost.Frozen`); a run then only draws noise.
That is exact where no clean value depends on earlier noise. The anytime bandit takes the released prediction off each
reward, so its values do; but contexts are fixed, so everything else about it (instruments, gains, covariances) is the same in
every run, and is read off its learner here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpbandit.auditing.joint_cost import Frozen
from dpbandit.auditing.kernels import CERTAIN
from dpbandit.bandits import anytime_steps, rounds
from dpbandit.errors import OptionError
from dpbandit.gpu.attack import Attack, Shifts, Trajectory
from dpbandit.gpu.plans import NOISES
from dpbandit.release import anytime as releases


def trajectory(frozen: Frozen, positions: NDArray[np.int64]) -> Attack:
    """The attack that tells the frozen stream from the one changed at these positions."""
    bandit = frozen.bandit
    if getattr(bandit.plan, "pan_private", False):
        raise OptionError(
            "device='cuda' does not attack the pan-private form, whose sums carry noise of their own: use device='cpu'"
        )
    if bandit.values_depend_on_releases:
        return _anytime(frozen, positions)
    return shifts(frozen, positions)


def shifts(frozen: Frozen, positions: NDArray[np.int64]) -> Shifts:
    """How far the releases of the two streams are apart, in units of their noise."""
    bandit = frozen.bandit
    noise = bandit.noise
    if noise not in NOISES:
        raise OptionError(f"device='cuda' has no {noise!r} noise: use device='cpu'")
    if bandit.plan.seat == rounds.RANDOM:
        return Shifts("gaussian", np.zeros(0))
    _, _, changed = frozen.neighbour(positions)
    apart = changed - frozen.values
    made = (frozen.scales != rounds.NO_RELEASE) & (apart != 0.0).any(axis=1)
    bare = bandit.plan.seat == rounds.NOTHING
    noiseless = made if bare else made & (frozen.scales <= 0.0)
    noisy = made & ~noiseless
    units = apart[noisy] / frozen.scales[noisy, None]
    certain = CERTAIN * int(noiseless.sum())
    if noise == "laplace-l2":
        return Shifts(noise, np.linalg.norm(units, axis=1), apart.shape[1], certain)
    numbers = np.abs(units[units != 0.0])
    return Shifts(noise, numbers, 1, certain)


def _anytime(frozen: Frozen, positions: NDArray[np.int64]) -> Trajectory:
    bandit = frozen.bandit
    plan = bandit.plan
    if plan.empirical_bayes:
        raise OptionError(
            "device='cuda' does not attack empirical_bayes=True, which fits its prior at every release: use device='cpu'"
        )
    if plan.scale == 0.0:
        raise OptionError("device='cuda' does not attack anytime without noise (epsilon = inf): use device='cpu'")
    _, changed, _ = frozen.neighbour(positions)
    learner = bandit.new_learner()
    n = plan.dim + 1
    rows, steps, moments = [], [], []
    for t, (x, reward) in enumerate(zip(frozen.xs, frozen.rs, strict=True)):
        scale = rounds.prepare_one(learner, plan, x, float(reward), bool(frozen.known[t]))
        # `prepare` may have renewed the prior: the estimate read now is the one it predicted with.
        rows.append([*learner.instrument, *x, 1.0, *learner.estimate, reward, changed[t]])
        if scale != rounds.NO_RELEASE:
            steps.append(_release(learner, plan, t + 1, frozen.noisy[t], n))
            moments.append(t + 1)
    settings = np.zeros(14)  # in kernels.cu's order
    settings[8:13] = (plan.window, plan.scale, plan.reward_variance, plan.low, plan.high)
    width = 2 + 3 * n * n + n
    return Trajectory(
        plan.dim,
        np.array(rows),
        np.array(steps).reshape(-1, width),
        np.array(moments, dtype=np.int32),
        settings,
    )


def _release(
    learner: anytime_steps.Learner, plan: anytime_steps.Plan, t: int, noisy: NDArray[np.float64], n: int
) -> list[float]:
    """Shares shown and kept, the gains of the filter, and the posterior that follows; none depends on the noisy value."""
    rho = releases.kept(t, releases.next_time(t, plan.ratio), plan.knee)
    q = releases.shown(rho)
    state = learner.filter
    lower = np.tril(state.spread)
    own = np.tril(state.covariance) + plan.reward_variance * lower
    covariance = own + np.tril(own, -1).T
    inverse = np.linalg.inv(q * q * covariance + plan.scale**2 * np.eye(n))
    on_offset = q * covariance @ inverse
    on_pull = q * (state.design + state.slope).T @ inverse
    rounds.commit_one(learner, plan, noisy)
    numbers = [on_offset, on_pull, learner.covariance, learner.outlook.pull]
    return [q, rho, *np.concatenate([part.ravel() for part in numbers]).tolist()]
