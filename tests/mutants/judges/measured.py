"""Judges of what is measured of rewards: estimates from a log, and stretches of the service."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from judges.bandits import mu_worth
from judges.budgets import exact_delta
from judges.common import close, judge, refused

PRIVACY = str(Path(__file__).parents[2] / "privacy")
SHARE = 0.01  # of δ, which grids may take


def helpers(name: str) -> Any:
    """A module that tests/privacy has for its own tests."""
    import importlib

    if PRIVACY not in sys.path:
        sys.path.append(PRIVACY)
    return importlib.import_module(name)


def claim_of(epsilon: float, delta: float, mu: float | None, notion: str, **more: Any) -> Any:
    from dpbandit.privacy.claim import Claim

    given = {"unit": "one reward", "status": "proven", "noise": "simulation", "assumptions": ("a",)}
    return Claim(
        notion=notion,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        **{**given, **more},
    )


def player(label: str, claim: Any, **more: Any) -> Any:
    """Of whom `release` asks what it may show."""
    return SimpleNamespace(label=label, claim=claim, learns=False, policy=None, **more)


# ------------------------------------------------------------------ estimates from a log


@judge
def evaluations_cost_no_more_than_they_claim() -> Any:
    """Learning and estimate together, exactly, for a unit all of whose rewards are others."""
    evaluations = helpers("bugs.evaluations")
    seen: list[Any] = []
    for name, unit, release in (
        ("anytime", "reward", (1.0, 1e-4)),
        ("anytime", ("person", 2), (1.0, 1e-4)),
        ("tree-gauss", ("user", 3), (0.3, 1e-4)),
        ("private-linucb", ("user", 2), 0.5),
        ("random", ("user", 3), (1.0, 1e-4)),
        ("random", "reward", 1.0),
    ):
        more = {"horizon": 64} if name == "tree-gauss" else {}
        ratio, why = evaluations.evaluation_ratio(name, release=release, unit=unit, **more)
        assert ratio <= 1 + 1e-9, (name, why)
        if name == "random":
            assert ratio >= 1 - 1e-6, "noise is wasted"
        seen.append(ratio)
    return seen


@judge
def terms_of_an_evaluation_add_up() -> Any:
    from dpbandit.evaluate import release as module
    from dpbandit.privacy.ledger import Ledger
    from dpbandit.privacy.unit import find_unit

    seen: list[Any] = []
    one = find_unit("reward")

    def times(ledger: Any) -> Any:
        return {(at.first, at.last) for lanes in ledger.groups.values() for at in lanes.values()}

    def enough(claim: Any, epsilons: list[float], deltas: list[float]) -> None:
        """μ's δ and what each grid adds to it at the ε of all together."""
        grids = sum(
            SHARE * d * (1 + math.exp(claim.epsilon)) / (1 + math.exp(e))
            for e, d in zip(epsilons, deltas, strict=True)
        )
        assert grids + float(exact_delta(claim.epsilon, claim.mu)) <= claim.delta * (1 + 1e-9)

    def agree(release: Any, players: Any, unit: Any = one, **more: Any) -> Any:
        given = {"user": None, "seed": 3, "ledger": None, **more}
        return module.agree(release, players, unit, (0.0, 2.0), **given)

    gaussian = player("g", claim_of(1.0, 1e-5, 0.25, "gdp"))
    pure = player("p", claim_of(0.5, 0.0, None, "pure"))
    both = player("b", claim_of(1.5, 1e-6, None, "parallel"))
    fixed = player("f", None)
    mu_of_pure = 2 * float(normal_quantile(math.exp(0.5) / (1 + math.exp(0.5))))
    answered = 2 * float(normal_quantile(math.exp(1.5) / (1 + math.exp(1.5))))
    for players, learned in (
        ([gaussian], 0.25**2),
        ([gaussian, pure, fixed], 0.25**2 + mu_of_pure**2),
        ([both, fixed], max(answered, mu_worth(1.5, 1e-6)) ** 2),
        ([fixed], 0.0),
    ):
        terms = agree((0.7, 1e-5), players)
        whole = mu_worth(0.7, 1e-5 * (1 - SHARE))
        close(terms.budget, whole / math.sqrt(len(players)), 1e-8)
        close(sum(terms.learning.values()), learned, 1e-8)
        close(terms.claim.mu, math.sqrt(whole**2 + learned), 1e-8)
        close(terms.ledger.limit, terms.claim.mu**2, 1e-12)
        assert (terms.claim.notion, terms.ledger.currency) == ("gdp", "mu²")
        deltas = [1e-5, *(p.claim.delta for p in players if p.claim is not None)]
        epsilons = [0.7, *(p.claim.epsilon for p in players if p.claim is not None)]
        close(terms.claim.delta, math.fsum(deltas), 1e-12)
        assert terms.claim.epsilon <= math.fsum(epsilons) * (1 + 1e-12)
        if terms.claim.epsilon < math.fsum(epsilons):
            enough(terms.claim, epsilons, deltas)
        ledger = module._charge(terms, [p.label for p in players])
        assert times(ledger) == {(1, 1)}
        close(ledger.total, terms.ledger.limit, 1e-8)
        assert ledger.releases == len(players) + len(terms.learning)
        assert terms.ledger.total == 0.0
        seen += [terms.budget, terms.claim.epsilon, str(ledger.table())]
    small = agree(0.6, [pure, fixed])
    assert (small.budget, small.claim.epsilon) == (0.3, 1.1)
    assert (small.claim.delta, small.claim.mu, small.claim.notion) == (0.0, None, "pure")
    assert (small.ledger.limit, small.ledger.currency) == (1.1, "epsilon")
    # Where the sum of all ε is the larger number, μ decides.
    many = [player(f"{n}", claim_of(1.0, 1e-6, 0.24, "gdp")) for n in range(9)]
    terms = agree((1.0, 1e-6), many)
    assert terms.claim.epsilon < 6 < 10
    enough(terms.claim, [1.0] * 10, [1e-6] * 10)
    seen.append(terms.claim.epsilon)
    words = terms.claim.assumptions
    assert sum("[0, 2]" in each for each in words) == 1
    assert sum("do not learn here" in each for each in words) == 1
    assert [words.count("a"), len(set(words))] == [1, len(words)]
    # A ledger that is handed on pays for what came before, too.
    whole = mu_worth(1.0, 1e-6 * (1 - SHARE)) ** 2
    ledger = Ledger(limit=2.5 * whole, currency="mu²")
    for count in (1, 2):
        ledger = module._charge(agree((1.0, 1e-6), [fixed], ledger=ledger), ["f"])
        close(ledger.total, count * whole, 1e-8)
        assert times(ledger) == {(1, count)}
    refused("BudgetError", lambda: agree((1.0, 1e-6), [fixed], ledger=ledger))
    refused("OptionError", lambda: agree(1.0, [fixed], ledger=ledger))
    for release, players in (
        (1.0, [gaussian]),
        (math.inf, [fixed]),
        ((1.0, 1e-6, 2), [fixed]),
        (0.0, [fixed]),
        ((1.0, 1.0), [fixed]),
        ((1.0, 0.9999), [gaussian, player("d", claim_of(1.0, 0.5, 0.1, "gdp"))]),
        ((1.0, 1e-6), [player("w", claim_of(1.0, 1e-6, None, "approximate"))]),
    ):
        refused("OptionError", lambda r=release, p=players: agree(r, p))
    for option in (("user", 2), ("person", 2)):
        refused("OptionError", lambda o=option: agree(1.0, [fixed], find_unit(o)))
        agree(1.0, [fixed], find_unit(option), user="who")
    refused("OptionError", lambda: agree(1.0, [fixed], find_unit(("spread", 2)), user="who"))
    for claim in (claim_of(800.0, 0.0, None, "pure"), claim_of(0.0, 0.0, None, "pure")):
        found = module._mu(claim)
        assert math.isfinite(found)
        assert (found == 0.0) == (claim.epsilon == 0.0)
        seen.append(found)
    pure_one = 2 * float(normal_quantile(math.e / (1 + math.e)))
    close(module._mu(claim_of(1.0, 0.0, None, "pure")), pure_one, 1e-9)
    close([module._ratio(1.0, 1.0), module._ratio(0.5, 1.0)], [1.0, 1.0])
    assert module._ratio(3.0, 1.0) >= (1 + math.exp(3.0)) / (1 + math.e)
    return seen


def normal_quantile(share: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(share))


@judge
def noise_of_an_estimate_is_for_the_heaviest() -> Any:
    """What the source is asked for: Σ w·y on the grid, and how far a unit can move it."""
    from dpbandit.evaluate import release as module
    from dpbandit.evaluate.release import Terms
    from dpbandit.privacy.ledger import Ledger
    from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
    from dpbandit.privacy.sources import Real
    from dpbandit.privacy.unit import find_unit

    seen: list[Any] = []

    class Asked(Real):
        def release(self, noise, pending, *, scale, shift, index):  # type: ignore[no-untyped-def]
            seen.append([noise.name, pending.whole[0], pending.step, scale, shift, index])
            return pending.values + 0.5

    for noise, budget, unit in (
        (GAUSSIAN, 0.4, "reward"),
        (LAPLACE, 0.7, "reward"),
        (GAUSSIAN, 0.4, ("user", 2)),
    ):
        who = find_unit(unit)
        limit = 10 * noise.share(noise.multiplier(budget, 1))
        claim = claim_of(1.0, 1e-6 if noise is GAUSSIAN else 0.0, None, "gdp")
        terms = Terms(
            who,
            noise,
            budget,
            claim.delta,
            Ledger(limit, noise.currency),
            claim,
            {},
            (Asked(),),
            False,
        )
        for weights, whole, clip in (((2**39, 2**40), 3 * 2**38, 4.0), ((), 0, 1.0)):
            largest = (sum(weights) if unit != "reward" else max(weights, default=0)) or 1

            def shift(by_user: bool, w: Any = weights, u: Any = unit) -> int:
                assert by_user == (u != "reward")
                return sum(w) if by_user else max(w, default=0)

            tally = SimpleNamespace(player=player("a", None), shift=shift, whole=whole, clip=clip)
            if not weights and noise is GAUSSIAN:  # noise of one step would be too coarse
                refused("OptionError", lambda t=terms, y=tally: module.show(t, [y]))
                continue
            totals, spreads, ledger = module.show(terms, [tally])
            name, whole_, step, scale, move, index = seen[-1]
            assert (name, whole_, step) == (noise.name, whole, 2.0**-40)
            assert index > 0
            close(move, largest * 2.0**-40, 1e-15)
            close(scale, largest * 2.0**-40 / budget, 1e-12)
            close(totals[0], (whole * 2.0**-40 + 0.5) * clip, 1e-15)
            spread = scale * clip * (math.sqrt(2) if noise is LAPLACE else 1.0)
            assert spreads[0].laplace == (noise is LAPLACE)
            close(spreads[0].deviation, spread, 1e-12)
            close(ledger.total, noise.share(noise.multiplier(budget, 1)), 1e-12)
            assert ledger.fingerprint != terms.ledger.fingerprint
            assert terms.ledger.total == 0.0
            seen += [totals, ledger.fingerprint]
            shared = replace(terms, shared=True, ledger=Ledger(2.5 * ledger.total, noise.currency))
            for count in (1, 2):
                found = module.show(shared, [tally])[2]
                close(shared.ledger.total, count * ledger.total, 1e-12)
                assert (shared.ledger.total, shared.ledger.fingerprint) == (
                    found.total,
                    found.fingerprint,
                )
            before, drawn = shared.ledger.to_dict(), len(seen)
            refused("BudgetError", lambda s=shared, y=tally: module.show(s, [y]))
            assert (shared.ledger.to_dict(), len(seen)) == (before, drawn)
    # So fine that the grid takes its part of δ and no more.
    claim = claim_of(2.0, 1e-9, None, "gdp")
    for count in (1, 3):
        edge = math.sqrt((1 + math.exp(2.0)) * count / 4 / (SHARE * 1e-9)) * 2.0**-40 * 0.4
        terms = Terms(
            find_unit("reward"),
            GAUSSIAN,
            0.4,
            1e-9,
            Ledger(1.0, "mu²"),
            claim,
            {},
            (Asked(),),
            False,
        )
        module._fine_enough(terms, edge * 1.001, count)
        refused(
            "OptionError", lambda t=terms, e=edge, c=count: module._fine_enough(t, e * 0.999, c)
        )
        simulated = replace(terms, source=(SimpleNamespace(kind="simulation"),))
        module._fine_enough(simulated, edge / 2, count)
    return [s for s in seen if not isinstance(s, list) or s]


@judge
def rows_weigh_what_their_chances_say() -> Any:
    """Sums of a log, in fractions: who counts, how much, and what is learned."""
    from dpbandit.evaluate.rounds import Round
    from dpbandit.evaluate.tally import Range, Tally

    seen: list[Any] = []
    rng = np.random.default_rng(5)
    contexts = np.eye(2)
    for protects, most in ((True, None), (False, None), (True, 2), (False, 2)):
        learned: list[Any] = []
        picks = iter(rng.integers(0, 2, 60).tolist())

        class Chooses:
            label = "a"
            picked: list[int]

            def __init__(self, picks: Any, learned: list[Any]) -> None:
                self.picks, self.learned, self.picked = picks, learned, []

            def choose(self, contexts: Any) -> int:
                self.picked.append(next(self.picks))
                return self.picked[-1]

            def expects(self, context: Any, low: float, high: float) -> float:
                assert (low, high) == (-1.0, 3.0)
                return 0.25 + float(context[0])

            def learn(self, row: Any) -> None:
                self.learned.append((row.action, row.reward))

        who = Chooses(picks, learned)
        tally = Tally(who, Range(-1.0, 3.0), 4.0, protects=protects, most=most)  # type: ignore[arg-type]
        expected = dict.fromkeys(("rows", "matched", "weight", "weight2", "chosen"), 0.0)
        expected |= {"clipped": 0.0, "wq": 0.0, "w2q": 0.0, "wqq": 0.0, "w2qq": 0.0, "chosen2": 0.0}
        whole, heaviest, by_user, counts, kept = 0, 0, {}, {}, []
        sums = dict.fromkeys(("wy", "wyq", "w2y", "w2yq", "w2yy"), 0.0)
        ws, qs, kept_y = [], [], []
        for at in range(60):
            chance = [0.1, 0.25, 0.5, 1.0][at % 4]
            reward = [-5.0, 0.5, 9.0, math.nan, 2.9][at % 5]
            user = None if at % 7 == 0 else f"u{at % 3}"
            row = Round(contexts, int(rng.integers(2)), chance, reward, user)
            coin = float(rng.random())
            tally.add(row, coin)
            arm = who.picked[-1]
            w = min(1 / chance, 4.0) if arm == row.action else 0.0
            y = 0.5 if math.isnan(reward) else (min(max(reward, -1.0), 3.0) + 1) / 4
            if w and coin < w / 4:
                kept.append((row.action, 1.0 if math.isnan(reward) else reward))
            counts_now = most is None or user is None or counts.get(user, 0) < most
            if not counts_now:
                continue
            q = 0.25 + float(contexts[arm][0])
            expected["rows"] += 1
            expected["chosen"] += q
            expected["chosen2"] += q * q
            if not w:
                continue
            for name, more in (("matched", 1), ("weight", w), ("weight2", w * w), ("wq", w * q)):
                expected[name] += more
            for name, more in (("wqq", w * q * q), ("w2q", w * w * q), ("w2qq", w * w * q * q)):
                expected[name] += more
            expected["clipped"] += 1 / chance > 4
            for name, more in (("wy", w * y), ("wyq", w * y * q), ("w2y", w * w * y)):
                sums[name] += more
            sums["w2yq"] += w * w * y * q
            sums["w2yy"] += w * w * y * y
            ws.append(w)
            qs.append(q)
            steps = round(w / 4 * 2**40)
            whole += round(w / 4 * y * 2**40)
            heaviest = max(heaviest, steps)
            if coin < w / 4:
                kept_y.append(y)
            if user is not None:
                counts[user] = counts.get(user, 0) + 1
                by_user[user] = by_user.get(user, 0) + steps
        assert learned == kept
        found = {name: float(getattr(tally.public, name)) for name in expected}
        close([found[n] for n in sorted(found)], [expected[n] for n in sorted(expected)], 1e-12)
        close([tally.public.low_w, tally.public.high_w], [min(ws), max(ws)], 0.0)
        close([tally.public.low_q, tally.public.high_q], [min(qs), max(qs)], 0.0)
        if protects:
            assert tally.seen is None
            assert tally.whole == whole
            assert tally.shift(False) == heaviest
            assert tally.shift(True) == max(by_user.values())
        else:
            assert tally.seen is not None
            assert tally.whole == 0
            close([getattr(tally.seen, n) for n in sums], list(sums.values()), 1e-12)
            close([tally.seen.kept_y, tally.seen.kept.rows], [sum(kept_y), len(kept_y)], 1e-12)
            close(tally.seen.kept_yy, sum(y * y for y in kept_y), 1e-12)
        assert Tally(who, Range(-1.0, 3.0), 4.0, protects=True, most=None).shift(True) == 0  # type: ignore[arg-type]
        seen += [sorted(found.items()), whole, heaviest]
    return seen


# ------------------------------------------------------------------ stretches of the service


@judge
def stretches_cost_what_was_set_aside() -> Any:
    """Two neighbours through the learner's own batches, with restarts in between."""
    stretches = helpers("stretches")
    from dpbandit.service.measure import WEIGHT_STEPS

    seen: list[Any] = []
    third = (None, WEIGHT_STEPS // 3)
    for algorithm, unit in (
        ("tree-gauss", "reward"),
        ("private-linucb", "reward"),
        ("tree-gauss", ("user", 4)),
        ("private-linucb", ("user", 4)),
    ):
        given = {} if unit == "reward" else {"unit": unit}
        config = stretches.config_of(algorithm, horizon=64, measure_every=4, **given)
        people = None if unit == "reward" else [b"ann"] * 8
        for weights, attained in ((stretches.FULL, True), (stretches.NONE, True), (third, False)):
            one = stretches.rounds_of([0.0] * 8, kinds=[weights] * 8, people=people)
            changed = [0] if unit == "reward" else range(8)
            other = [
                row._replace(reward=9.0) if at in changed else row for at, row in enumerate(one)
            ]
            paid, may, claim, account = stretches.cost(config, one, other)
            assert paid <= may * (1 + 1e-12)
            assert (paid >= may * (1 - 1e-6)) or not attained, "noise is wasted"
            assert claim["epsilon"] == stretches.EPSILON
            assert account["spent"]["epsilon"] <= stretches.EPSILON * (1 + 1e-12)
            told = account["measured"]["told"]["holdout"]
            released = 2 if unit == "reward" else 1  # of a user, four are learned
            assert (account["measured"]["releases"], told["rounds"]) == (released, 4 * released)
            total = 4 * released * (weights[1] or 0)
            assert (told["weight"], told["stretches"]) == (total, released)
            assert told["hits"] == (4 * released if weights[1] else 0)
            left = WEIGHT_STEPS - weights[1]
            assert (told["squares"], told["others"]) == (
                4 * released * weights[1] ** 2,
                4 * released * left**2,
            )
            last = account["ledger"][-1]
            assert (last["releases"], last["when"]) == (released, "6–8" if released > 1 else "4")
            assert account["remaining"]["left"] >= 0
            seen += [paid, may, claim["mu"], told["squares"], last["cost"], last["total"]]
    return seen


@judge
def budgets_of_stretches_and_learner_compose() -> Any:
    stretches = helpers("stretches")
    from dpbandit.service import measure as module

    seen: list[Any] = []
    assert (module.WHOLE, module.WEIGHT_STEPS) == (2**36, 2**12)
    for share in (0.001, 0.1, 0.9):
        held, claim = stretches.held_of(stretches.config_of(measure_share=share))
        mu = math.hypot(held.bandit.claim.mu, math.sqrt(held.measure.cost))
        whole = mu_worth(stretches.EPSILON, stretches.DELTA * (1 - SHARE))
        assert mu <= whole * (1 + 1e-9)
        close(mu, whole, 1e-6)
        close(held.measure.cost, share * whole**2, 2e-3)
        close(held.measure.scale, 2**36 / math.sqrt(held.measure.cost), 1e-12)
        close(claim["mu"], whole, 1e-9)
        assert (claim["epsilon"], claim["delta"]) == (stretches.EPSILON, stretches.DELTA)
        assert held.measure.shift == 2**36
        close(held.bandit.claim.delta, stretches.DELTA * (1 - 1e-3), 1e-12)
        again = module.Measure.from_text(held.measure.to_text())
        assert again == held.measure
        seen += [mu, held.measure.scale]
        config = stretches.config_of("private-linucb", horizon=64, measure_share=share)
        held, claim = stretches.held_of(config)
        close(held.bandit.claim.epsilon + held.measure.cost, stretches.EPSILON, 1e-8)
        assert held.bandit.claim.epsilon + held.measure.cost <= stretches.EPSILON
        close(held.measure.scale, 2**36 / held.measure.cost, 1e-12)
        close(held.measure.public()["spread"], held.measure.scale * math.sqrt(2), 1e-12)
        close(held.measure.cost, share * stretches.EPSILON, 1e-8)
        assert claim["mu"] is None
        seen.append(held.measure.scale)
    users, _ = stretches.held_of(stretches.config_of(unit=("user", 3), horizon=64))
    close(users.measure.shift, 3 * 2**36, 0.0)
    alone, _ = stretches.held_of(stretches.config_of(horizon=64))
    close(users.measure.scale, 3 * alone.measure.scale, 1e-6)
    for chance, weight in ((None, 4096), (1.0, 410), (0.5, 819), (0.2, 2048), (0.01, 4096)):
        assert module.weight_of(chance) == weight
    gaussian = claim_of(1.0, 1e-5, mu_worth(1.0, 1e-5 * (1 - SHARE)), "gdp")
    for share in (0.1, 0.5):
        epsilon = module.paid_on_top(gaussian, share)
        mu = gaussian.mu / math.sqrt(1 - share)
        assert round(epsilon, 4) == epsilon
        exact = float(exact_delta(epsilon, mu))
        assert exact <= 1e-5 * (1 - SHARE) < float(exact_delta(epsilon - 2e-4, mu))
        pure = module.paid_on_top(claim_of(0.9, 0.0, None, "pure"), share)
        close(pure, math.ceil(0.9 / (1 - share) * 1e4 - 1e-6) / 1e4, 1e-9)
        seen += [epsilon, pure]
    for wrong in (
        claim_of(1.0, 1e-5, None, "parallel"),
        claim_of(1.0, 1e-5, 0.2, "gdp", status="none"),
        claim_of(0.0, 0.0, None, "pure"),
        claim_of(math.inf, 1e-5, math.inf, "gdp"),
        claim_of(1.0, 1e-5, None, "pure"),
        claim_of(1.0, 1e-5, None, "gdp"),
    ):
        refused("OptionError", lambda w=wrong: module.set_aside(w, 0.1, delta=1e-5))
    refused("OptionError", lambda: module.set_aside(gaussian, 0.1, delta=None))
    from dpbandit.privacy.claim import Spent

    spent = Spent(epsilon=0.4, delta=1e-5, mu=0.1, claim=gaussian)
    for paid, moves in ((0.0, 1.0), (0.04, 1.0), (0.04, 3.0)):
        found = module.spent_with(spent, paid, moves)
        close(found.mu, math.hypot(0.1, moves * math.sqrt(paid)), 1e-12)
        assert exact_delta(found.epsilon, found.mu) <= 1e-5
        pure_ = module.spent_with(replace(spent, delta=0.0, mu=None), paid, moves)
        close(pure_.epsilon, 0.4 + moves * paid, 1e-12)
        seen.append(found.epsilon)
    measure = alone.measure
    for wrong_weight in (-1, 4097):
        refused("OptionError", lambda w=wrong_weight: measure.learned("holdout", w, 1.0, 0.0, 1.0))
    assert [measure.learned("holdout", 100, r, -1.0, 3.0) for r in (-9, 0.5, 9, 1, 1)] == [
        False,
        False,
        False,
        False,
        True,
    ]
    steps = sum(round(p * 2**24) for p in (0.0, 0.375, 1.0, 0.5, 0.5))
    assert measure.open["holdout"].sums == [steps * 100, steps * 3996]
    for kind, change in (
        ("person", {"unit": ("person", 2)}),
        ("delta", {"delta": 1e-30}),
    ):
        refused("OptionError", lambda c=change: stretches.held_of(stretches.config_of(**c)))
        seen.append(kind)
    return seen


@judge
def learners_count_people_and_stop_in_order() -> Any:
    """A batch of the service: the cap, the erased, those never shown, and the end."""
    stretches = helpers("stretches")
    from dpbandit.service.batch import HORIZON_REACHED, learn_batch

    seen: list[Any] = []
    config = stretches.config_of(unit=("user", 2), horizon=8, measure_every=1)
    who = [b"ann", b"bob", b"ann", b"ann", b"eve", b"cat", b"bob", b"bob"]
    rows = stretches.rounds_of([1.0] * 8, kinds=[stretches.FULL] * 8, people=who)
    rows[5] = rows[5]._replace(context=b"")  # never shown
    rows[1] = rows[1]._replace(reward=None)
    for lots in (1, 3, 8):
        held, _ = stretches.held_of(config)
        stream = stretches.Stream(rows)
        stream.counts[b"eve"] = -1  # erased on request
        while held.position < len(rows):
            new, ended = learn_batch(
                held, min(held.position + lots, 8), stream, keep_transcript=True
            )
            assert not ended
            assert b"eve" not in new.people
            assert new.number == held.number + 1
            stream.counts.update({p: n - stream.counts[p] for p, n in new.people.items()})
            assert (new.noisy is None) == (not held.recorder.noisy)
            held.position, held.number = new.position, new.number
        assert held.bandit.rounds == 4  # two of Ann's, two of Bob's
        assert held.bandit.counters == {}
        counts = {person: min(count, 3) for person, count in stream.counts.items()}
        assert counts == {b"ann": 3, b"bob": 3, b"eve": -1}
        assert held.measure.told["holdout"].rounds == 4
        assert held.measure.releases == 4
        seen.append([held.number, held.position])
    held, _ = stretches.held_of(stretches.config_of(horizon=4))
    stream = stretches.Stream(stretches.rounds_of([1.0] * 9, kinds=[(None, None)] * 9))
    new, ended = learn_batch(held, 9, stream, keep_transcript=False)
    assert (ended, held.bandit.rounds) == (HORIZON_REACHED, 4)
    assert new.position == 4
    assert new.noisy is None
    for weights in ((1, 1), (4096, 0)):
        held, _ = stretches.held_of(stretches.config_of())
        both = stretches.Stream(stretches.rounds_of([1.0] * 3, kinds=[weights] * 3))
        refused("StreamError", lambda h=held, b=both: learn_batch(h, 3, b, keep_transcript=False))
    # A shadow and a holdout have stretches of their own.
    config = stretches.config_of(measure_every=2)
    kinds = [(10, None), (None, 20), (10, None), (None, 30), (None, None), (None, 40)]
    held, _, _, account = stretches.released(config, stretches.rounds_of([1.0] * 6, kinds=kinds))
    told = account["measured"]["told"]
    assert {kind: (t["rounds"], t["weight"]) for kind, t in told.items()} == {
        "shadow": (2, 20),
        "holdout": (2, 50),
    }
    assert held.measure.open["holdout"].weight == 40
    return seen


@judge
def learners_refuse_states_that_they_cannot_go_on_from() -> Any:
    """Simulated noise, and a log whose users the store does not count."""
    import dpbandit as dpb
    from dpbandit.logs.record import People
    from dpbandit.saving import pack
    from dpbandit.service.batch import LearningBandit
    from dpbandit.service.store import Line

    log = [{"context": [0.6, 0.8], "reward": 1.0, "who": who} for who in ("ann", "bob", "ann")]
    given = {"dim": 2, "epsilon": 1.0, "delta": 1e-5, "horizon": 20, "reward_range": (0.0, 1.0)}
    seen: list[Any] = []
    for seed, forgotten, config, opens in (
        (None, True, {"log": {}}, True),
        (None, False, {"log": {}}, False),
        (None, True, {}, False),
        (3, True, {"log": {}}, False),
    ):
        bandit = dpb.warm_start(log, "tree-gauss", user="who", unit=("user", 2), seed=seed, **given)
        assert len(bandit.people.hashes) == 2
        if forgotten:
            bandit.people = People.nobody()
        line = Line(config, {}, 1, "x", "shop", "learning", "", 1, 0, 0, 0, 0, 0, None, 0)

        def held(line: Any = line, state: bytes = pack(bandit)) -> Any:
            return LearningBandit.open(line, 1, number=0, position=0, state=state)

        if opens:
            seen.append(held().bandit.rounds)
        else:
            refused("StreamError", held)
    return seen
