"""The anytime learner: one sum of instruments × residuals, and a Kalman filter over its releases.

A release is y = q·S + z. S = Σ ω·u·(r − p) is private. With the public offset O = Σ ω·u·p it is
the sum of ω·u·r, and that is N·θ⁺ + E, where θ⁺ holds θ and an intercept, x⁺ = (x, 1), N = Σ
ω·u·x⁺ᵀ is public and E is the sum of reward noises. E is carried from release to release, so it is
part of the state: given θ⁺ and the releases so far it is Gaussian with mean ξ + Ξθ⁺ and covariance
Π. After each release all sums shrink by ρ. What a release says about θ⁺ alone comes out as equations,
for the bank to keep (`learners.bank`).
"""

from __future__ import annotations

import math

import numpy as np

from dpbandit.learners.bank import Bank, Joined
from dpbandit.learners.learner import Clock, Learner, Pending, Spec
from dpbandit.learners.local import LocalPhase
from dpbandit.learners.prior import DIFFERENCES, LOOKED_AT, Prior
from dpbandit.learners.scale import BY_DISTANCE, FREE, Scale
from dpbandit.policies import SAMPLED
from dpbandit.privacy.grid import to_whole
from dpbandit.reference.algebra import below, factor, inverse_if_positive, solved
from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.release.anytime import AnytimeSums, kept, next_time, shown
from dpbandit.types import Matrix, Vector

# Scales tried on the prior's variance; what a step away from 1 must explain, in nats; and what weight
# is worth the work.
SCALES = (1 / 16, 1 / 4, 1.0, 4.0, 16.0, 64.0)
STEP_IN_NATS = 1.5
LEAST_WEIGHT = 1e-3
# What play teaches anyway: so many times what is known, shaped like what was played of late. Of that,
# round j counts (j/t)²⁰, and of answers (j/t)⁵.
TAUGHT = 100.0
OF_LATE, OF_ANSWERS = 20, 5
# Lots need so much of the posterior's deviation where contexts differ from round to round: whatever
# is played then teaches about all arms.
NARROWER = 0.2
# Residuals are at the window's edge if they reach so much of the way to it, on average.
AT_EDGE = 0.95
# Without privacy noise (ε = ∞) a little is assumed, so that few rewards do not say everything
# about some direction.
LEAST_NOISE = 1e-6
# Of clicks: the standard deviation of differences between arms, in rates, and the least that the
# rate and the reward's variance are taken to be, in W and W².
DIFFERENCES_OF_RATE = 0.5
LEAST_RATE = 1e-4
LEAST_VARIANCE = 1e-5
# The core adds rounds to N in batches of this many.
WAITING = 16


# Whether variances follow the rate that releases show, for each kind of rewards.
FOLLOWS_RATE = {"numbers": False, "clicks": True}


class Filter(Holder):
    """What is known of E, given θ⁺. All of it is public. Sizes are n = d + 1."""

    arrays = "design offset spread mean slope covariance played rows_u rows_x"
    seen_waiting = Number(int)  # rounds that the core lets wait before it adds them; here none does

    def __init__(self, size: int) -> None:
        self.design = np.zeros((size, size))  # N
        self.offset = np.zeros(size)  # O
        self.spread = np.zeros((size, size))  # Σ ω²·u·uᵀ since the last release
        self.mean = np.zeros(size)  # ξ
        self.slope = np.zeros((size, size))  # Ξ
        self.covariance = np.zeros((size, size))  # Π
        self.played = np.zeros((size, size))  # Σ x⁺x⁺ᵀ of what was played of late
        self.rows_u, self.rows_x = np.zeros((2, WAITING, size))
        self.seen_waiting = 0

    def see(self, longer: Vector, u: Vector, weight: float, prediction: float) -> None:
        """A round whose item is weight·u·(r − prediction); `longer` is (x, 1)."""
        self.offset += weight * prediction * u
        self.design += weight * np.outer(u, longer)
        self.spread += weight * weight * np.outer(u, u)
        self.played += np.outer(longer, longer)

    def doubt(self, by: float) -> None:
        """What the sum holds may be off by this, in every direction."""
        self.covariance += by * by * np.eye(len(self.mean))

    def learn(
        self, noisy: Vector, q: float, rho: float, scale: float, reward_variance: float
    ) -> tuple[Matrix, Vector]:
        """Take a release y = q·S + noise of this scale, made before all sums shrink by ρ.

        Returns what it says: equations rows·θ⁺ = values, each of variance 1.
        """
        n = len(noisy)
        self.covariance += reward_variance * self.spread
        self.spread[:] = 0.0
        noise = q * q * self.covariance + scale * scale * np.eye(n)  # F, of what is seen given θ⁺
        gain = q * solved(noise, self.covariance).T  # K = qΠF⁻¹
        # What is seen is seen·θ⁺ + noise, once what was expected is taken off.
        seen = q * (self.design + self.slope)
        surprise = noisy + q * (self.offset - self.mean)
        self.mean += gain @ surprise
        self.slope -= gain @ seen
        left = np.eye(n) - q * gain  # Joseph's form, which rounding cannot make negative
        self.covariance[:] = left @ self.covariance @ left.T + scale * scale * gain @ gain.T
        half = factor(noise)
        rows, values = below(half, seen), below(half, surprise)
        for sums in (self.offset, self.mean, self.design, self.slope):
            sums *= rho
        self.covariance *= rho * rho
        return rows, values

    def settle(self) -> None:
        """Take in the rounds that the core lets wait."""
        us, xs = self.rows_u[: self.seen_waiting], self.rows_x[: self.seen_waiting]
        self.design += us.T @ xs
        self.spread += us.T @ us
        self.played += xs.T @ xs
        self.seen_waiting = 0


class FilterLearner(Learner, Holder):
    """One round: an instrument for the context, a residual for the reward, sometimes a release."""

    arrays = "theta estimate posterior bonus instrument"
    releases = Number(int)
    released_at = Number(int)  # the round of the last one
    refresh_due = Number(
        int
    )  # the round in which the contexts offered so far change the whitener next

    rate = Number(
        float
    )  # of clicks: their released mean plus one standard deviation, 0 before the first release
    prior_scale = Number(float)  # the likeliest

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        d = self.dim
        # Two free numbers tell how far rewards are from predictions.
        self.free = FREE if spec["find_scale"] else 0
        self.pending_size = d + 1 + self.free
        self.knee, self.ratio, self.life = (float(spec[it]) for it in ("knee", "ratio", "life"))
        self.sum = AnytimeSums(
            self.pending_size,
            knee=self.knee,
            ratio=self.ratio,
            life=self.life,
            first=int(spec["first"]),
        )
        self.local = LocalPhase(d + 1, spec)
        self.filter = Filter(d + 1)
        memories = np.asarray(spec["memories"], dtype=np.float64)
        self.bank = Bank(d + 1, memories, alone=bool(spec["memory_alone"]))
        self.prior = Prior(d, np.asarray(spec["public_contexts"], dtype=np.float64).reshape(-1, d))
        self.estimate, self.posterior = np.zeros(d + 1), np.zeros((d + 1, d + 1))
        self.bonus = np.zeros((d, d))
        self.instrument = np.zeros(d + 1)  # of the last round
        self.window, self.widest = float(spec["window"]), float(spec["widest"])
        self.noise_scale = float(spec["scale"])
        self.follows_rate = FOLLOWS_RATE[spec["rewards"]]
        self.scale_of = Scale(math.sqrt(float(spec["reward_variance"])), self.window, self.width)
        self.releases = self.released_at = self.refresh_due = 0
        self.rate, self.prior_scale = 0.0, 1.0
        self._conclude()

    def look(self, contexts: Matrix, decision: int) -> None:
        looks = self.local.looks(self.clock.rounds) and len(contexts) > 1
        if looks and not self.local.look(contexts):
            self.local.central_from = self.clock.rounds
        if not self.prior.fixed and (decision < LOOKED_AT or decision % 8 == 0):
            self.prior.look(contexts)

    def matrix(self, alpha: float) -> Matrix:
        return self.bonus

    def quiet(self, x: Vector) -> bool:
        t = self.clock.rounds + 1
        return not self.local.takes(t) and self.local.summed(t) < int(self.sum.due[0])

    def prepare(self, x: Vector, reward: float) -> Pending | None:
        t = self.clock.rounds
        if self.clock.decisions < t:
            # No slate was seen for this reward: a batch of delayed ones, or arms picked elsewhere.
            self.clock.decisions = t
            if not self.prior.fixed:
                self.prior.look_at_one(x)
        if self.local.has(t) and not self.local.takes(t):
            self.local.central_from = t - 1  # it is over
        self._refresh_when_due(t)
        u = self.instrument[:] = self._instrument(x)
        longer = np.append(x, 1.0)
        # The residual, clipped to the window and brought to a width of 1. No θ can make it wider.
        # The window is of contexts and of releases: the same for every neighbour.
        half, variance = self.window, 0.0
        if self.free and not self.local.has(t):
            variance = max(float(longer @ self.posterior @ longer), 0.0)
            half = self._half_window(variance)
        weight = 0.5 / half
        prediction = min(max(float(longer @ self.estimate), self.low + half), self.high - half)
        residual = min(max(reward - prediction, -half), half)
        if self.local.has(t):
            self.filter.played += np.outer(longer, longer)
            self.local.ask(longer, prediction)
            answer = to_whole(np.array([residual * weight]))
            return Pending(answer, self.local.scale, "response")
        item = residual * weight * u
        if self.free:
            item = np.append(item, self.scale_of.see(abs(residual), half, variance))
        numbers = self.sum.add(self.local.summed(t), to_whole(item))
        self.filter.see(longer, u, weight, prediction)
        return None if numbers is None else Pending(numbers, self.noise_scale)

    def _at_edge(self) -> bool:
        """Whether all residuals reach the edge of their windows, by what was released of them.

        Those of clicks do. Any window would then only cut them off.
        """
        known = self.scale_of.share_information
        if not (self.widest > self.window and known > 0.0):
            return False
        error = 1.0 / (BY_DISTANCE * math.sqrt(known))
        return self.scale_of.share_target / known - error > AT_EDGE

    def _half_window(self, variance: float) -> float:
        """Half the window of a residual whose prediction has this variance."""
        return self.widest if self._at_edge() else self.scale_of.window(variance)

    def _instrument(self, x: Vector) -> Vector:
        """The context and a constant, whitened, at norm 1. Zeros say nothing about θ."""
        u: Vector = self.prior.whitener.T @ np.append(
            x / self.prior.context_size, 1.0 if x.any() else 0.0
        )
        length = float(np.linalg.norm(u))
        return u / length if length > 0.0 else u

    def commit(self, noisy: Vector) -> None:
        t = self.clock.rounds
        if self.local.has(t):
            if self.local.add(t, float(noisy[0]) * 2 * self.window):
                self._read_answers()
            return
        t = self.local.summed(t)
        rho = kept(t, next_time(t, self.ratio, self.life), self.knee, self.life)
        q, n = shown(rho), self.dim + 1
        if self.free:
            off = self.width * self.scale_of.distance_design  # by what windows cut off, at most
            known = self.scale_of.learn(noisy[n:], q, rho, max(self.noise_scale, LEAST_NOISE))
            if known < 1.0:
                self.filter.doubt(off)
                self.bank.doubt(known)
        self._learn(noisy[:n], q, rho, self.noise_scale)

    def start(self, noisy: Vector, scale: float) -> bool:
        # All of a log's sum is shown and nothing kept. The filter saw its rows; a log has no free
        # numbers, so zeros stand for them.
        self.local.central_from = 0
        self._learn(noisy[: self.dim + 1], 1.0, 0.0, scale)
        return True

    def conclude(self) -> bool:
        self._refresh_prior(self.prior_scale)
        return True

    # Clicks are 0 or 1: how often they come says how much they vary, and how far arms can differ.
    # The rate is what releases say of it: all of this is post-processing.

    def _reward_variance(self) -> float:
        if self.free:
            # What is not cut off varies more.
            wider = self.widest / self.window if self._at_edge() else 1.0
            return (self.scale_of.residual_deviation * wider) ** 2
        if not self.follows_rate or self.releases == 0:
            return float(self.spec["reward_variance"])
        return max(self.rate * (self.width - self.rate), LEAST_VARIANCE * self.width**2)

    def _refresh_prior(self, scale: float) -> None:
        differences = DIFFERENCES
        # Arms without features do not tell of each other: a narrow prior would end their trial.
        if self.follows_rate and self.releases > 0 and self.prior.has_features():
            sd = DIFFERENCES_OF_RATE * max(self.rate / self.width, LEAST_RATE)
            differences = min(differences, sd * sd)
        self.prior.refresh(self.centre, self.width, scale * differences)

    def _note_rate(self) -> None:
        mean, sd = self.prior.level(self.estimate, self.posterior)
        self.rate = min(max(mean - self.low, 0.0) + sd, 0.5 * self.width)

    def _learn(self, noisy: Vector, q: float, rho: float, scale: float) -> None:
        if self.local.local_waiting:  # a slate ended their phase
            self._read_answers()
        said = self.filter.learn(noisy, q, rho, max(scale, LEAST_NOISE), self._reward_variance())
        self._read_anew(*said)

    def _read_answers(self) -> None:
        self._read_anew(self.local.rows, self.local.values)
        self.local.forget()

    def _read_anew(self, rows: Matrix, values: Vector) -> None:
        t = self.clock.rounds
        prior, shared = (self.prior.precision, self.prior.pull), self.prior.shares_features()
        first, elapsed = self.releases == 0, t - self.released_at
        self.bank.learn(rows, values, elapsed, prior, first=first, shared=shared)
        if self.released_at:
            power = OF_ANSWERS if self.local.has(t) else OF_LATE
            self.filter.played *= (self.released_at / t) ** power
        self.released_at = t
        self.releases += 1
        self._conclude()

    def _refresh_when_due(self, t: int) -> None:
        """Contexts offered change the whitener: every round, then as they grow by a twentieth.

        In high dimension, where that takes long, more rarely.
        """
        if self.prior.fixed or t < self.refresh_due:
            return
        later = 1 if t < 50 else t // 20
        self.refresh_due = t + (max(later, t * self.dim // 1000) if self.dim > 64 else later)
        if self.releases == 0:
            self._conclude()
        else:
            self._refresh_prior(self.prior_scale)

    def _conclude(self) -> None:
        """Read the posterior, with the prior that today's contexts suggest."""
        averages = self.spec["empirical_bayes"] or self.bank.weights.max() < 1.0
        if self.releases > 0 and averages:
            self._average()
        else:
            # With public contexts, a prior that is not fitted is what it was at the last release.
            if self.follows_rate or not self.prior.fixed or self.releases == 0:
                self._refresh_prior(1.0)
            self.estimate[:], self.posterior[:] = self._join(self.bank.acting).read()
        self.theta[:] = self.estimate[: self.dim]
        if self.follows_rate and self.releases > 0:
            self._note_rate()
        self.bonus[:] = self.posterior[: self.dim, : self.dim]
        if self.spec["policy"] == SAMPLED.name and self.prior.has_features():
            self.bonus *= NARROWER**2
        if self.spec["neglected"] and self.releases > 0:
            self._forget_what_play_teaches()

    def _join(self, memory: int) -> Joined:
        return self.bank.join(memory, self.prior.precision, self.prior.pull)

    def _average(self) -> None:
        """Moments over scales of the prior's variance, weighed by what the releases say of them, and
        over memories.

        While θ moves, where contexts share all features, the scale is 1: others only blur it.
        """
        moves = self.bank.acting > 0 and self.prior.shares_features()
        # Answers say at once what sums say late.
        step = 0.0 if self.local.has(self.clock.rounds) else STEP_IN_NATS
        likely = np.full(len(SCALES), -math.inf)
        for k, scale in enumerate(SCALES):
            if scale == 1.0 or (self.spec["empirical_bayes"] and not moves):
                self._refresh_prior(scale)
                found = self._join(self.bank.acting).likely
                likely[k] = found - step * abs(k - SCALES.index(1.0))
        weights = np.exp(likely - likely.max())
        weights[weights < LEAST_WEIGHT] = 0.0
        self.prior_scale = SCALES[int(likely.argmax())]
        self.estimate[:], self.posterior[:] = 0.0, 0.0
        for weight, scale in zip(weights / weights.sum(), SCALES, strict=True):
            if weight > 0.0:
                self._refresh_prior(scale)
                for memory in np.flatnonzero(self.bank.weights).tolist():
                    mean, covariance = self._join(memory).read()
                    share = weight * self.bank.weights[memory]
                    self.estimate += share * mean
                    self.posterior += share * (covariance + np.outer(mean, mean))
        self.posterior -= np.outer(self.estimate, self.estimate)
        self._refresh_prior(self.prior_scale)

    def _forget_what_play_teaches(self) -> None:
        """A bonus for what play will not teach anyway: 2·ln(2 + t)·(Σ⁻¹ + s·A)⁻¹.

        A is what was played of late, and s·A what it will teach. Diverse contexts make play nearly
        greedy; arms and features that are neglected keep their bonus.
        """
        played = self.filter.played[: self.dim, : self.dim]
        traced = float(np.trace(played))
        if traced > 0.0:
            share = TAUGHT * self.bank.known() / traced
            if self.local.has(self.clock.rounds):
                share = self.local.taught(self.clock.rounds, self.bank.known(), traced)
            known = inverse_if_positive(self.bonus)
            taught = None if known is None else inverse_if_positive(known + share * played)
            if taught is not None:
                self.bonus[:] = 2.0 * math.log(2.0 + self.clock.rounds) * taught

    def fields(self) -> Fields:
        inside = {**self.sum.fields(), **self.filter.fields(), **self.prior.fields()}
        if self.free:
            inside |= self.scale_of.fields()
        return {**Holder.fields(self), **inside, **self.bank.fields(), **self.local.fields()}

    def loaded(self) -> None:
        self.filter.settle()
