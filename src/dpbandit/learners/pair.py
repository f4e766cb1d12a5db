"""The anytime learner for private contexts: what two noisy sums say about directions and about θ.

A round has the item (a, g) of `release.pair`: u is the direction of Px⁺, x⁺ = (x/L, 1), under the
whitener P of today's version; e is the residual against the released prediction, brought to
instruments of typical length h₀ and clipped to ±c. With Γ = E[uuᵀ] the sum of a's is
Σ_m B_m(W_m·θ − V_m) + noise, B_m = (h₀/2Rs)·Γ_m·P_m⁻ᵀ, one term for each version m; R, the reach, is
all that one unit's residuals may add up to: c where it is one round. W_m and V_m count
rounds and predictions: they are public. Γ comes from the noisy sum of g's, so it may be revised
later, and θ with it: all that is kept of the releases are sums that no Γ is in yet.

Nothing here looks at a slate, or at a context other than through a release.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from dpbandit.learners.joint import pack
from dpbandit.learners.learner import Clock, Learner, Pending, Spec
from dpbandit.privacy.grid import to_whole
from dpbandit.privacy.matrices import unpack
from dpbandit.privacy.unit import REWARD_BITS
from dpbandit.reference.algebra import below, eigen, factor, inverse, inverse_of_lower, solved
from dpbandit.reference.fields import Fields, Holder, Number
from dpbandit.release.anytime import shown
from dpbandit.release.pair import PairSums, most_move
from dpbandit.types import Matrix, Vector

# An instrument much shorter than is typical would blow its residual up.
LONGEST_FACTOR = 2.0
# While nobody new has come: so little that Γ stays as it was expected.
NOTHING_KNOWN = 1e-200
# Without privacy noise (ε = ∞) a little is assumed.
LEAST_NOISE = 1e-6
# Information on θ fades as (t/t′) to this power: play was worse then, and designs were guesses.
FADING = 0.5
# Eigenvalues of the noisy design: how much of what may be noise is taken to be noise.
CAUTION = 1.5
SURELY = 1.0
# Variances of differences between arms and of the intercept, in W² (as in `learners.prior`).
DIFFERENCES = 1.0 / 256.0
INTERCEPT = 0.01
# Factors on the former that compete, 4 to these powers; far ones are less likely from the start.
POWERS = (-1, 0, 1, 2)
# A ridge for the linear function of contexts that comes closest to a constant, in mean squares.
RIDGE = 0.5
# Where a prior looks for what all rewards have in common: in an intercept, or along contexts.
IN_INTERCEPT, ALONG_CONTEXTS = 0, 1
# Whether contexts are alike. That is decided after so many rounds per unit of noise, when the Gram
# matrix is shown whole. If they are, a constant is along them; if not, both priors compete.
UNDECIDED, DIFFERENT, ALIKE = 0, 1, 2
SURE = 50.0
# Until then so many nats speak against a constant along contexts: their mean is that of few, played arms.
DOUBT = 2.0
# Contexts that differ have no prior along them if they come no closer to a constant than this, as R².
CLOSE = 0.5
# How much wider posterior samples are unless contexts are alike: play teaches less there.
EXPLORES = 2.5


class Directions(Holder):
    """What the releases say about Γ, under one whitener: a scalar Kalman filter in sums."""

    arrays = "mean target"
    seen = Number(float)  # W: rounds, faded as the sum is
    slope = Number(float)  # how much of W the filter has accounted for
    variance = Number(float)  # of an entry of the sum about its mean, given the releases
    information = Number(float)

    def __init__(self, n: int) -> None:
        self.mean = np.zeros((n, n))
        self.target = np.zeros((n, n))
        self.seen = self.slope = self.variance = self.information = 0.0

    def learn(
        self, noisy: Matrix, rounds: float, eta: float, q: float, rho: float, scale: float
    ) -> float:
        """How much this release says."""
        n = len(noisy)
        self.seen += rounds
        self.variance += rounds * eta * eta / (n * (n + 1) / 2)
        of_noise = q * q * self.variance + scale * scale
        gain, factor = q * self.variance / of_noise, q * (self.seen - self.slope)
        surprise = noisy - q * self.mean
        self.target += factor * surprise / of_noise
        more = factor * factor / of_noise
        self.information = max(self.information + more, NOTHING_KNOWN)
        self.mean[:] = (self.mean + gain * surprise) * rho
        self.slope = (self.slope + gain * factor) * rho
        self.variance *= (1 - q * gain) * rho * rho
        self.seen *= rho
        return more


def traceless(matrix: Matrix) -> Matrix:
    """The matrix less its mean eigenvalue."""
    centred: Matrix = matrix - np.trace(matrix) / len(matrix) * np.eye(len(matrix))
    return centred


def of_trace_one(values: Vector, vectors: Matrix) -> Matrix:
    """The matrix of these eigenvalues, brought to trace 1."""
    found: Matrix = (vectors * (values / values.sum())) @ vectors.T
    return found


def clear_of_noise(noisy: Matrix, expected: Matrix, sd: float) -> Matrix:
    """Γ: what was expected, and of the difference what noise of this size does not explain.

    Large eigenvalues of the difference that stand out from the noise's edge, 2σ√n, are kept, less
    what noise adds to them. The others shrink towards their mean.
    """
    n = len(noisy)
    values, vectors = eigen(traceless(noisy - expected))
    edge, outstanding = 2.0 * sd * math.sqrt(n), 0
    while outstanding < n - 2:
        below = values[: n - outstanding]
        if below[-1] - below.mean() <= max(1.05 * edge, 0.3 / n):
            break
        outstanding += 1
    rest = n - outstanding
    middle = float(values[:rest].mean())
    large = values[rest:]
    large -= sd * sd * n / np.maximum(large - middle, edge)
    spread = float(((values[:rest] - middle) ** 2).mean())
    share = max(0.0, 1.0 - CAUTION * rest * sd * sd / max(spread, 1e-300))
    values[:rest] = -float(large.sum()) / rest + share * (values[:rest] - middle)
    found = expected + (vectors * values) @ vectors.T
    values, vectors = eigen(found)
    middle = float(np.maximum(values[:rest], 0.0).mean())
    # Small eigenvalues are not believed, unless noise could not have made them.
    least = max(min(0.5 * middle, SURELY * edge), min(0.01 / n, edge))
    return of_trace_one(np.maximum(values, least), vectors)


def own_design(noisy: Matrix, pooled: Matrix, sd: float) -> Matrix:
    """Γ of one version: the pooled one, moved towards its own as far as they differ beyond noise."""
    n = len(noisy)
    difference = traceless(noisy - pooled)
    square = float((difference * difference).sum())
    share = max(0.0, 1.0 - sd * sd * (n * (n + 1) - 2) / max(square, 1e-300))
    values, vectors = eigen(pooled + share * difference)
    return of_trace_one(np.maximum(values, max(0.5 * sd, 0.002 / n)), vectors)


class PairLearner(Learner, Holder):
    """One round: a direction and a residual, sometimes a release of both sums."""

    arrays = (
        "theta estimate posterior whiteners factors own_targets own_information mean weight "
        "weight_seen offset offset_seen information towards against expected second prior_second "
        "constant"
    )
    releases = Number(int)
    rounds_shown = Number(int)  # the round of the last release
    alike = Number(int)  # whether contexts are
    people = Number(int)  # who came so far, and by the last release: public
    people_shown = Number(int)
    before = Number(float)  # rounds of a log, before round 1

    noise_variance = Number(
        float
    )  # of an entry of the moments about their mean, given the releases

    def __init__(self, spec: Spec, clock: Clock) -> None:
        super().__init__(spec, clock)
        n = self.n = self.dim + 1
        versions = int(spec["versions"])
        self.pending_size = n + n * (n + 1) // 2
        self.sum = PairSums(
            n,
            knee=float(spec["knee"]),
            ratio=float(spec["ratio"]),
            first=int(spec["first"]),
            change=int(spec["change"]),
            growth=float(spec["growth"]),
            versions=versions,
        )
        self.window, self.noise_scale = float(spec["window"]), float(spec["scale"])
        self.reach, self.persons = float(spec["reach"]), bool(spec["persons"])
        # Of each version: whitener, its inverse, what its designs said alone.
        self.whiteners = np.zeros((versions, n, n))
        self.factors = np.zeros((versions, n, n))
        self.own_targets = np.zeros((versions, n, n))
        self.own_information = np.zeros(versions)
        self.whiteners[0] = self.factors[0] = np.eye(n)
        # The filter of the moments: a scalar gain, and for each version what is known of it.
        self.mean = np.zeros(n)
        self.weight, self.weight_seen = np.zeros((2, versions))
        self.offset, self.offset_seen = np.zeros((2, versions, n))
        self.information = np.zeros((versions, versions))
        self.towards = np.zeros((versions, n))
        self.against = np.zeros((versions, versions, n))
        self.noise_variance = 0.0
        self.directions = Directions(n)
        self.expected = np.eye(n) / n  # Γ under today's whitener, when it came
        # Second moments of x⁺, their last entry 1: now, and as the prior takes them.
        self.second = np.diag(np.append(np.full(self.dim, 1.0 / self.dim), 1.0))
        if len(spec["known_second"]):
            self.second[:] = spec["known_second"]
            self._whiten(0)
        self.prior_second = self.second.copy()
        self.constant = np.zeros(self.dim)  # w, with w·x ≈ 1
        self.releases = self.rounds_shown = self.alike = 0
        self.people = self.people_shown = 0
        self.before = 0.0
        self.estimate, self.posterior = np.zeros(n), np.zeros((n, n))
        precision, pull = self._prior(1.0, IN_INTERCEPT)
        self.posterior[:] = inverse(precision)
        self.estimate[:] = self.posterior @ pull
        self._show()

    # ------------------------------------------------------------------ one round

    @property
    def version(self) -> int:
        """Which whitener is in use."""
        return int(self.sum.version[0])

    def eta2(self, version: int) -> float:
        """η² of a version."""
        return float(self.spec["first_eta2" if version == 0 else "later_eta2"])

    def size(self, version: int) -> float:
        """s: how far an item of that version could move if it were not divided by this."""
        etas = self.eta2(version), self.eta2(0), self.eta2(1)
        return math.sqrt(most_move(*etas, persons=self.persons))

    def eta(self, version: int) -> float:
        """η/s."""
        return math.sqrt(self.eta2(version)) / self.size(version)

    def length(self, version: int) -> float:
        """h₀, the typical length of Px⁺."""
        whitened = version > 0 or len(self.spec["known_second"]) > 0
        return math.sqrt(self.n if whitened else 2.0)

    def matrix(self, alpha: float) -> Matrix:
        wider = 1.0 if self.alike == ALIKE else EXPLORES
        found: Matrix = self.posterior[: self.dim, : self.dim]
        return found * (wider / float(self.spec["max_norm"])) ** 2

    def quiet(self, x: Vector) -> bool:
        return self.clock.rounds + 1 < int(self.sum.due[0])

    def prepare(self, x: Vector, reward: float) -> Pending | None:
        t, v, c = self.clock.rounds, self.version, self.window
        longer = np.append(x / float(self.spec["max_norm"]), 1.0)
        w = self.whiteners[v] @ longer
        h = float(np.linalg.norm(w))
        u = w / h
        prediction = min(max(float(longer @ self.estimate), self.low), self.high)
        residual = (reward - prediction) * min(self.length(v) / h, LONGEST_FACTOR)
        e = min(max(residual, -c), c)
        if self.persons:
            e = self._within_reach(e / self.reach) * self.reach
        e /= 2 * self.reach * self.size(v)
        shows = self.eta(v) if self._is_new() else 0.0
        self.people += self._is_new()
        item = np.concatenate([e * u, shows * pack(u)])
        numbers = self.sum.add(t, to_whole(item))
        return None if numbers is None else Pending(numbers, self.noise_scale)

    def _is_new(self) -> bool:
        """Whether nothing was learned of this person before: of one round, always."""
        return not self.persons or self.counted == 0

    def _within_reach(self, e: float) -> float:
        """What this person has left of a residual, in whole numbers of steps; their count grows.

        The count is 1 and the steps that were learned, or 0 before the first visit.
        """
        left = (1 << REWARD_BITS) - max(self.counted - 1, 0)
        steps = min(int(abs(e) * 2.0**REWARD_BITS), left)
        self.counts = steps + self._is_new()
        return math.copysign(steps * 2.0**-REWARD_BITS, e)

    # ------------------------------------------------------------------ a release

    def commit(self, noisy: Vector) -> None:
        t = self.clock.rounds
        turns = self.sum.shows_whole(t)
        self._learn(noisy, t - self.rounds_shown, self.sum.shares(t), self.noise_scale, turns)

    def start(self, noisy: Vector, scale: float) -> bool:
        # All of a log's sums is shown and nothing kept, and another whitener comes, if there is one.
        if not self.before > 0:
            return False
        turns = self.version + 1 < self.sum.versions
        self._learn(noisy, self.before, (0.0, 0.0), scale, turns)
        return True

    def _learn(
        self,
        noisy: Vector,
        rounds: float,
        shares: tuple[float, float],
        scale: float,
        turns: bool,
    ) -> None:
        t, n, v, scale = self.clock.rounds, self.n, self.version, max(scale, LEAST_NOISE)
        rho, rho_of_directions = shares
        self._learn_moments(noisy[:n], t, rounds, shown(rho), rho, scale)
        directions, found = unpack(noisy[n:]), self.directions
        target = found.target.copy()
        of_directions = float(self.people - self.people_shown) if self.persons else rounds
        self.people_shown = self.people
        more = found.learn(
            directions,
            of_directions,
            self.eta(v),
            shown(rho_of_directions),
            rho_of_directions,
            scale,
        )
        self.own_targets[v] += found.target - target
        self.own_information[v] += more
        if t == 0:
            # Of a log the Gram matrix itself is known, but for noise, not a mean that it samples.
            self.own_information[v] = (of_directions / scale) ** 2
            self.own_targets[v] = of_directions / scale**2 * directions
        self.rounds_shown = t
        self.releases += 1
        self._conclude(turns)
        if turns:
            self._turn(t)

    def _learn_moments(
        self, noisy: Vector, t: int, rounds: float, q: float, rho: float, scale: float
    ) -> None:
        v, c, n = self.version, self.reach, self.n
        self.weight[v] += rounds
        self.offset[v] += rounds * self.estimate
        variance = float(self.spec["reward_variance"]) / (4 * c * c) / n / self.size(v) ** 2
        self.noise_variance += rounds * variance
        of_noise = q * q * self.noise_variance + scale * scale
        gain = q * self.noise_variance / of_noise
        surprise = noisy - q * self.mean
        weight = q * (self.weight - self.weight_seen)
        offset = q * (self.offset - self.offset_seen)
        self.mean[:] = (self.mean + gain * surprise) * rho
        self.weight_seen[:] = (self.weight_seen + gain * weight) * rho
        self.offset_seen[:] = (self.offset_seen + gain * offset) * rho
        self.weight *= rho
        self.offset *= rho
        self.noise_variance *= (1 - q * gain) * rho * rho
        if self.releases:
            fades = ((self.before + self.rounds_shown) / (self.before + t)) ** FADING
            for kept in (self.information, self.towards, self.against):
                kept *= fades
        self.information += np.outer(weight, weight) / of_noise
        self.towards += np.outer(weight, surprise) / of_noise
        self.against += weight[:, None, None] * offset[None, :, :] / of_noise

    def _conclude(self, turns: bool) -> None:
        """Γ, then the second moments of contexts, then θ and what is not known of it."""
        v, d = self.version, self.dim
        found = self.directions
        sd = math.sqrt(0.5 / found.information) / self.eta(v)
        noisy = found.target / found.information / self.eta(v)
        design = clear_of_noise(noisy, self.expected, sd)
        second = self.factors[v] @ design @ self.factors[v].T
        self.second[:] = second / second[d, d]
        if self.alike != DIFFERENT:
            self.prior_second[:] = self.second
        size, mean = float(np.trace(self.prior_second)) - 1.0, self.prior_second[:d, d]
        within = self.prior_second[:d, :d] + RIDGE * size / d * np.eye(d)
        self.constant[:] = solved(within, mean)
        seen = self.people if self.persons else self.before + self.clock.rounds
        sure = turns and seen > SURE * self.noise_scale
        if sure and self.alike == UNDECIDED:
            # Decided once: later, those arms that are played would decide which contexts are alike.
            self.alike = ALIKE if float(mean @ mean) > 0.5 * size else DIFFERENT
        designs = np.array([self._design(m) for m in range(v + 1)])
        # B_m, and the information on θ that the releases have with them.
        matrices = np.array(
            [self._coefficient(m) * designs[m] @ self.factors[m].T for m in range(v + 1)]
        )
        known = self.information[: v + 1, : v + 1]
        mixed = np.tensordot(known, matrices, axes=(1, 0))
        information = sum(matrices[m].T @ mixed[m] for m in range(v + 1))
        information = (information + information.T) / 2
        pull = np.zeros(self.n)
        for m in range(v + 1):
            towards = self.towards[m].copy()
            for other in range(v + 1):
                towards += matrices[other] @ self.against[m, other]
            pull += matrices[m].T @ towards
        wrong = self._own_sd(0) if v == 0 and self.before > 0 else sd
        error = min(wrong, 0.3 / self.n) ** 2 * self._coefficient(v) ** 2 * known[v, v]
        for _ in range(2):
            # A wrong Γ multiplies how far θ is from what was predicted: noise as well.
            off = self.factors[v].T @ (self.estimate - self.against[v, v] / known[v, v])
            inflated = 1.0 + error * float(off @ off)
            self._average(information / inflated, pull / inflated)
        self._show()

    def _coefficient(self, version: int) -> float:
        return self.length(version) / (2 * self.reach * self.size(version))

    def _design(self, version: int) -> Matrix:
        """Γ of a version, as it looks now."""
        pooled: Matrix = self.whiteners[version] @ self.second @ self.whiteners[version].T
        pooled = pooled / np.trace(pooled)
        if self.version == 0 and not self.before > 0:
            return pooled
        if not self.own_information[version] > 0:  # nobody new came under it
            return pooled
        noisy = self.own_targets[version] / self.own_information[version] / self.eta(version)
        return own_design(noisy, pooled, self._own_sd(version))

    def _own_sd(self, version: int) -> float:
        """Noise of an entry of a version's own Γ."""
        return math.sqrt(0.5 / float(self.own_information[version])) / self.eta(version)

    def _average(self, information: Matrix, pull: Vector) -> None:
        """θ under several priors, averaged by how well they expected the releases."""
        logs, means, covariances = [], [], []
        kinds = self._kinds()
        for kind, power in itertools.product(kinds, POWERS):
            precision, prior_pull = self._prior(4.0**power, kind)
            root = factor(information + precision)
            upward = inverse_of_lower(root)
            towards = upward @ (pull + prior_pull)
            prior_root = factor(precision)
            expected = below(prior_root, prior_pull)
            logs.append(
                float(np.log(np.diag(prior_root)).sum() - np.log(np.diag(root)).sum())
                + 0.5 * float(towards @ towards)
                - 0.5 * float(expected @ expected)
                - 0.5 * power * power
                - kinds[kind]
            )
            means.append(upward.T @ towards)
            covariances.append(upward.T @ upward)
        weights = np.exp(np.array(logs) - max(logs))
        weights /= weights.sum()
        self.estimate[:] = weights @ np.array(means)
        self.posterior[:] = 0.0
        for weight, mean, covariance in zip(weights, means, covariances, strict=True):
            off = mean - self.estimate
            self.posterior += weight * (covariance + np.outer(off, off))

    def _kinds(self) -> dict[int, float]:
        """Where a constant is looked for, and how many nats speak against it from the start."""
        if self.alike == ALIKE:
            return {ALONG_CONTEXTS: 0.0}
        if self.alike == UNDECIDED:
            return {IN_INTERCEPT: 0.0, ALONG_CONTEXTS: DOUBT}
        if self.alike == DIFFERENT:
            close = float(self.prior_second[: self.dim, self.dim] @ self.constant) > CLOSE
            return {IN_INTERCEPT: 0.0, **({ALONG_CONTEXTS: 0.0} if close else {})}
        raise ValueError(f"contexts are alike or not, or that is undecided, not {self.alike!r}")

    def _prior(self, factor: float, kind: int) -> tuple[Matrix, Vector]:
        """Precision and pull of (θ, intercept): arms differ little, and rewards lie around the middle
        of their range.
        """
        d, width, middle = self.dim, self.width, self.centre
        mean, w = self.prior_second[:d, d], self.constant
        size = np.trace(self.prior_second) - 1.0  # NumPy's: 1/0 is infinite, not an error
        scatter = max(size - float(mean @ mean), 1e-3 * size)
        variance = factor * DIFFERENCES * width * width / scatter
        intercept, level = INTERCEPT * width * width, 0.25 * width * width
        precision, pull = np.zeros((d + 1, d + 1)), np.zeros(d + 1)
        precision[:d, :d] = np.eye(d) / variance
        if kind == ALONG_CONTEXTS:
            stiffness = variance + level * float(w @ w)
            precision[:d, :d] -= level / stiffness * np.outer(w, w) / variance
            pull[:d] = middle * w / stiffness
        elif kind == IN_INTERCEPT:
            intercept += level
            pull[d] = middle / intercept
        else:
            raise ValueError(f"a constant is in an intercept or along contexts, not {kind!r}")
        precision[d, d] = 1.0 / intercept
        return precision, pull

    def _whiten(self, version: int) -> float:
        """The whitener of a version, from the second moments as they look now, and the Γ to expect
        of it. Returns the mean square of Px⁺.
        """
        ridge = float(eigen(self.second)[0][:-1].mean())
        self.factors[version] = factor(self.second + ridge * np.eye(self.n))
        self.whiteners[version] = inverse_of_lower(self.factors[version])
        expected = self.whiteners[version] @ self.second @ self.whiteners[version].T
        square = float(np.trace(expected))
        self.expected[:] = expected / square
        return square

    def _turn(self, t: int) -> None:
        """Another whitener, from the second moments as they look now; Γ is carried over to it."""
        old = self.version
        self.sum.turn(t)
        new = self.version
        was = self.whiteners[old] @ self.second @ self.whiteners[old].T
        growth = self._whiten(new) / float(np.trace(was))
        turned = self.whiteners[new] @ self.factors[old]
        square = turned @ turned.T
        n, found = self.n, self.directions
        # What turning does to the noise of an entry, on average.
        louder = (float(np.trace(square)) ** 2 + float((square * square).sum())) / (n * n + n)
        carried = turned @ (found.target / found.information / self.eta(old)) @ turned.T / growth
        found.information *= (self.eta(old) / self.eta(new) * growth) ** 2 / louder
        found.target[:] = carried * self.eta(new) * found.information
        found.mean[:] = 0.0
        found.seen = found.slope = found.variance = 0.0

    def _show(self) -> None:
        self.theta[:] = self.estimate[: self.dim] / float(self.spec["max_norm"])

    def fields(self) -> Fields:
        own = Holder.fields(self)
        if not self.persons:
            del own["people"], own["people_shown"]
        flat = {name: field.reshape(-1, self.n) for name, field in own.items() if field.ndim == 3}
        directions = {f"directions_{k}": field for k, field in self.directions.fields().items()}
        return {**own, **flat, **directions, **self.sum.fields()}
