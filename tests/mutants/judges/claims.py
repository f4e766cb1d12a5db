"""Judges of claims, and of what is learned of a unit."""

from __future__ import annotations

import fractions
import math
from typing import Any

import numpy as np

from judges.bandits import BANDITS, KNOWN, PERSONS, made, play, slates
from judges.budgets import exact_delta
from judges.common import DELTA, EPSILON, between, close, judge, refused
from judges.rounds import twins


@judge
def claims_say_what_is_promised() -> Any:
    seen = []
    for label, (name, options, _attained) in BANDITS.items():
        bandit = made(label)
        claim, epsilon = bandit.claim, options.get("epsilon", EPSILON)
        status = "proven"
        if math.isinf(epsilon) or name in ("linucb", "dgs-figure"):
            status = "none"
        elif name.endswith("published"):
            status = "as-published"
        assert claim.status == status, (label, claim.status)
        assert claim.noise == ("none" if name in ("linucb", "random") else "simulation")
        if status == "proven" and name != "random":
            assert claim.epsilon == epsilon
            gaussian = bandit.noise.name == "gaussian"
            joint = name in ("joint", "anytime-joint")
            pure = not gaussian and not joint
            assert claim.delta == (0.0 if pure else DELTA)
            answers = bool(bandit.spec.get("local"))  # some rewards may pay pure ε instead
            usual = "parallel" if answers else "gdp"
            assert claim.notion == ("joint" if joint else "pure" if pure else usual)
            assert (claim.mu is not None) == (gaussian and not answers)
            kind, most = options.get("unit", ("user", 1))
            if kind == "person":  # as much here in one stream as there in the other
                most = 1 if joint else 2 * most / options["reward_range"][1]
            if gaussian:  # μ of the pair, where some rewards pay pure ε, is the ledger's
                mu = most * math.sqrt(bandit.ledger.limit) if answers else claim.mu
                exact = exact_delta(claim.epsilon, mu)
                between(DELTA * (1 - 1e-6), float(exact), DELTA)
                close(bandit.ledger.limit, (mu / most) ** 2, 1e-12)
            else:
                close(bandit.ledger.limit, epsilon / most, 1e-12)
            who = "one person" if kind == "person" else "one user"
            if "unit" not in options:
                who = "one context with its reward" if joint else "one reward"
            assert claim.unit.startswith(who)
            private = any(words in claim.unit for words in ("contexts", "context with"))
            assert private == joint
            assert len(claim.assumptions) >= 3
        seen.append(str(claim))
        seen.append(str(bandit.ledger.to_dict()))
    return seen


@judge
def claims_assume_what_their_units_need() -> Any:
    """Each assumption where it is needed and nowhere else."""
    own, clicks, visits, sample = (
        "their own visits and contexts do not depend on their rewards",
        "counts as 0: rewards are clicks or none",
        "who comes when, and how often, is public",
        "public_contexts come from nobody who is protected",
    )
    for label, options, expected in (
        ("gauss", {}, ()),
        ("gauss", {"unit": ("user", 1)}, ()),
        ("gauss", {"unit": ("user", 2)}, (own,)),
        ("gauss, persons", {}, (own,)),
        ("anytime, spread", {"unit": ("spread", 1)}, (own,)),
        ("dgs", {}, ()),
        ("dgs", {**PERSONS}, (own, clicks)),
        ("pair", {}, ()),
        ("pair", KNOWN, (sample,)),
        ("pair, persons", {}, (visits,)),
    ):
        said = made(label, **options).claim.assumptions
        for words in (own, clicks, visits, sample):
            found = sum(words in each for each in said)
            assert found == (words in expected), (label, options, words)
    for columns, said in (
        ([1], "where feature 1 is private"),
        ([2, 0, 2], "where features [0, 2] are private"),
        ([False, True, False], "where feature 1 is private"),
        ([True, True], ""),
        ([], ""),
        ([3], ""),
        ([-1], ""),
        ([0.0], ""),
        ([[0, 1]], ""),
        ([[0], [1, 2]], ""),
        (1, ""),
    ):
        if said:
            assert made("pair", private_features=columns).claim.unit.endswith(f", {said}")
        else:
            refused("OptionError", lambda c=columns: made("pair", private_features=c))
    return []


@judge
def units_take_what_they_allow() -> Any:
    """What is learned of people, in fractions and singular values."""
    from dpbandit.privacy import unit

    seen: list[Any] = []
    for most, width, bits in ((2.5, 1.25, 20), (1.0, 0.75, 3), (7.0, 7.0, 20), (3.0, 1.0, 0)):
        who, step = unit.person(most), fractions.Fraction(width) / 2**bits
        cap, before = int(fractions.Fraction(most) / step), 0
        assert (who.moves(width), who.together(width)) == (2 * most / width, 2 * int(most / width))
        for reward in (-1.0, 0.3 * width, 9 * width, 0.7 * width, width, width, 9.0, 0.0, width):
            inside = fractions.Fraction(min(max(reward, 0.0), width))
            steps = min(int(inside / step), cap - before)
            taken = who.take(reward, before, width, bits)
            assert taken == (float(steps * step), steps, True), (most, reward, taken)
            before += taken.counts
            seen.append(taken)
        assert before <= cap
        assert who.take(width, cap + 3, width, bits).counts == 0
    # What a claim says of whom: how many clicks, and whether their contexts are meant.
    assert "at most 4 of their clicks (or rewards of 2 in total) are" in unit.person(2.0, 0.5).words
    assert "at most 2 of their clicks (or rewards of 2 in total) are" in unit.person(2.0).words
    assert "at most 1 of their clicks (or rewards of 1 in total) is" in unit.person(1.0).words
    for number, rewards in ((1, "1 reward"), (3, "3 rewards")):
        assert unit.user(number).words.endswith(f"with at most {rewards}")
        both = unit.user(number).words_with_contexts
        assert both.endswith(f"with at most {number} contexts and rewards")
    who = unit.person(2.0)
    private = who.with_contexts()
    assert private.words == who.words_with_contexts
    assert private.take(0.3, 5, 1.0, 20) == (0.3, 0, True)
    shape = (private.moves(1.0), private.together(1.0), private.items_per_move)
    assert shape == (1, 1, 1)
    assert (private.counted_by_engine, private.here_or_there) == (True, False)
    assert (who.counted_by_engine, who.here_or_there, who.items_per_move) == (False, True, 2**20)
    assert who.counts_are_public == private.counts_are_public is False
    for each in (who, private):
        each.check((0.0, 2.0))
        refused("OptionError", lambda e=each: e.check((0.1, 1.0)))
        refused("OptionError", lambda e=each: e.check((-0.1, 1.0)))
        refused("OptionError", lambda e=each: e.check((0.0, 2.0001)))
    who.check((0.0, 2e-6))
    private.check((0.0, 2e-3))
    refused("OptionError", lambda: who.check((0.0, 1.9e-6)))
    refused("OptionError", lambda: private.check((0.0, 1.9e-3)))
    assert unit.ONE_REWARD.take(0.3, 0, 1.0, 20) == unit.user(3).take(0.3, 2, 1.0, 20)
    assert unit.ONE_REWARD.take(0.3, 0, 1.0, 20) == (0.3, 1, True)
    assert (unit.user(3).moves(2.0), unit.user(3).together(2.0), unit.ONE_REWARD.moves(2.0)) == (
        3,
        3,
        1,
    )
    rng = np.random.default_rng(2)
    for most, dim, one_way in ((2.5, 3, False), (3.0, 2, True), (1.0, 4, False), (1.0, 2, True)):
        who, counted, learned = unit.spread(most), "", np.empty((0, dim))
        assert (who.moves(0.5), who.items_per_move) == (most, math.ceil(most))
        for _ in range(12):
            u = np.eye(dim)[0] if one_way else rng.normal(size=dim)
            u = u / np.linalg.norm(u)
            both = np.vstack([learned, u])
            fits = len(both) * np.linalg.norm(both, 2) ** 2 <= most**2 * (1 + 1e-9)
            taken = who.take(0.3, counted, 1.0, 20, u)
            assert (taken.reward, taken.learns) == (0.3, fits)
            assert taken.counts == (u.tobytes().hex() if fits else "")
            counted += taken.counts
            learned = both if fits else learned
            assert who.number(counted, dim) == len(learned)
        close(unit.rows_of(counted, dim), learned, 0.0)
        seen.append(len(learned))
        # Nothing beyond what rounding of floats explains.
        longer = unit.spread(1).take(0.3, "", 1.0, 20, np.array([1 + 4e-9, 0.0]))
        assert not longer.learns
        refused("OptionError", lambda w=who: w.take(0.3, "", 1.0, 20))
    assert seen[-1] == 1
    assert seen[-3] == 3
    for given in (
        "reward",
        ("reward",),
        ["user", 2],
        ("user", 3.0),
        ("spread", 1),
        ("spread", 1000),
    ):
        found = unit.find_unit(given)
        assert unit.find_unit(found) is found
        seen.append([found.words, found.option, found.cap, found.flags])
    for kind in ("spread", "person"):
        for most in (2.5, np.float64(2.5), 2, 2.0, np.int64(2)):
            found = unit.find_unit((kind, most)).option
            assert found == (kind, most)
            assert type(found[1]) is (float if most > 2 else int)
    for wrong in (
        "user",
        ("user",),
        ("reward", 1),
        ("user", 0),
        ("user", 1.5),
        ("user", True),
        ("user", "2"),
        ("spread", 0.99),
        ("spread", 1000.1),
        ("spread", True),
        ("person", 0.0),
        ("person", -1),
        ("person", 1e100),
        ("person", math.nan),
        ("person", "1"),
        ("persons", 1),
        ("user", 1, 1),
        (),
        7,
    ):
        refused("OptionError", lambda w=wrong: unit.find_unit(w))
    return seen


@judge
def people_are_counted_by_what_was_learned_of_them() -> Any:
    """Whole steps of a residual up to the reach; of spread users the instruments that were used."""
    from dpbandit.privacy.unit import rows_of

    seen: list[Any] = []
    for prediction, reward in ((0.0, 9.0), (1.25, -9.0), (0.0, 0.3), (1.25, 1.1)):
        for counted in (0, 1, 2, 500, 2**19, 2**20, 2**20 + 1):
            for engine in twins("pair, persons"):
                engine.fields()["estimate"][:] = [0.0, 0.0, 0.0, prediction]
                engine.prepare(np.zeros(3), reward, True, counted)
                # Of length 1 where √2 is usual; the window and the reach are the range, 1.25.
                residual = min(max(reward, 0.0), 1.25) - prediction
                share = min(abs(residual) * math.sqrt(2) / 1.25, 1.0)
                steps = min(int(share * 2**20), 2**20 - max(counted - 1, 0))
                assert engine.growth == steps + (counted == 0), (reward, counted)
                seen.append(engine.growth)
                # Who comes next is a stranger, if nobody says otherwise.
                engine.prepare(np.zeros(3), reward, True)
                assert engine.growth == min(int(share * 2**20), 2**20) + 1
            for engine in twins("pair, persons"):  # in a round that releases nothing, too
                engine.fields()["estimate"][:] = [0.0, 0.0, 0.0, prediction]
                told: list[int] = []
                assert engine.learn(np.zeros(3), reward, told, counted) == 0
                assert told == [1, steps + (counted == 0)]
    for backend in ("core", "reference"):
        bandit, learned = made("anytime, spread", backend=backend), []
        for slate in slates(bandit, 14):
            before = bandit.rounds
            bandit.update(slate[0], 0.4, user="anna")
            if bandit.rounds > before:
                learned.append(np.array(bandit.engine.fields()["instrument"]))
            close(rows_of(bandit.counters["anna"], 4), learned, 0.0)
        assert 2 < len(learned) < 14
        seen.append(len(learned))
    return seen


@judge
def full_counts_leave_nothing_to_learn() -> Any:
    """What stands for somebody who was forgotten: a count that the cap has used up."""
    from dpbandit.privacy import unit

    one, some = unit.User("u", "u", ("user", 3)), unit.User("u", "u", ("user", None))
    assert (one.full(1.0, 20), some.full(1.0, 20)) == (one.cap or 1, some.cap or 1)
    person = unit.Person("p", "p", ("person", 2.5))
    assert person.full(1.0, 20) == int(2.5 * 2**20)
    assert person.room(person.full(1.25, 20), 1.25, 20) == 0
    visitor = unit.Visitor("v", "v", ("person", 2.5))
    assert visitor.full(1.0, 20) == 2**20 + 1
    refused("OptionError", lambda: unit.ONE_REWARD.full(1.0, 20))
    return [person.full(0.5, 20)]


@judge
def encoders_say_what_is_private() -> Any:
    """Columns that an encoder declares private are among those that a bandit protects."""
    import dpbandit as dpb
    from dpbandit.model import encoder_for

    fields = {"age": dpb.Number(18, 80), "plan": dpb.Category(["free", "paid", "team"])}
    encoder = dpb.Encoder(fields, private=["plan"])
    own, dim = set(encoder.private_columns), encoder.dim
    given = {"epsilon": 1.0, "delta": 1e-6, "seed": 0, "encoder": encoder}
    seen: list[Any] = [sorted(own), dim]
    for asked in (None, sorted(own), list(range(dim))):
        more = {} if asked is None else {"private_features": asked}
        bandit = dpb.make("anytime-joint", **given, **more)
        said = (
            "one context" if asked and len(asked) == dim else f"features {sorted(own)} are private"
        )
        assert said in bandit.claim.unit
        seen.append(str(bandit.claim))
    for less in (sorted(own)[1:], [c for c in range(dim) if c not in own]):
        refused(
            "OptionError", lambda n=less: dpb.make("anytime-joint", **given, private_features=n)
        )
    people = [{"age": 20, "plan": "free"}, {"age": 70, "plan": "paid"}]
    for name, one, expected in (
        ("anytime", dpb.Encoder(fields), False),
        ("anytime", dpb.Encoder.from_public(people), True),
        ("linucb", dpb.Encoder.from_public(people), False),  # nothing is claimed
    ):
        options = {"epsilon": 1.0, "delta": 1e-6} if name == "anytime" else {}
        bandit = dpb.make(name, seed=0, encoder=one, **options)
        assert any("read from" in words for words in bandit.claim.assumptions) == expected, name
        seen.append(str(bandit.claim))
    record = encoder.to_record()
    assert encoder_for(record, dim).dim == dim
    refused("SaveError", lambda: encoder_for(record, dim + 1))
    return seen


@judge
def spent_is_what_the_ledger_says() -> Any:
    from dpbandit.bandit import spent_of
    from dpbandit.privacy.claim import Claim
    from dpbandit.privacy.ledger import Ledger

    seen: list[Any] = []

    def spent(claim: Any, paid: float, limit: float, moves: float, currency: str = "mu²") -> Any:
        ledger = Ledger(limit=limit, currency=currency).after(paid, when=1, what="all")
        return spent_of(claim, ledger, moves)

    def claim(epsilon: float, delta: float, mu: float | None, notion: str) -> Claim:
        return Claim("one reward", notion, epsilon, delta, mu, "proven", "real")

    gaussian = claim(1.5, 1e-4, 0.3, "gdp")
    for paid, moves in ((0.01, 1.0), (0.01, 2.5), (0.0, 1.0), (0.04, 1.0)):
        found = spent(gaussian, paid, 0.09, moves)
        mu = moves * math.sqrt(paid)
        close(found.mu, mu, 1e-14)
        assert (found.delta, found.claim) == (1e-4, gaussian)
        assert float(exact_delta(found.epsilon, mu) if mu else 0.0) <= 1e-4
        assert not mu or exact_delta(found.epsilon * (1 - 1e-8), mu) > 1e-4 * (1 - 1e-12)
        assert (found.epsilon == 0.0) == (paid == 0.0)
        seen.append(found.epsilon)
    # Of the claim itself no rounding is spent; what is really more, is.
    assert spent(gaussian, 0.09 * (1 + 1e-13), 1.0, 1.0).mu == 0.3
    close(spent(gaussian, 0.25, 1.0, 1.0).mu, 0.5, 1e-14)
    assert spent(claim(1.5, 0.0, 0.3, "gdp"), 0.01, 1.0, 1.0).epsilon == 0.0
    assert spent(claim(1.5, 1.0, None, "none"), 0.01, 1.0, 1.0).epsilon == 0.0
    both = claim(1.5, 1e-4, None, "parallel")
    assert spent(both, 0.09, 0.09, 1.0).epsilon == 1.5
    assert spent(both, 0.09 * (1 - 1e-10), 0.09, 1.0).epsilon == 1.5
    part = spent(both, 0.01, 0.09, 1.0)
    close(part.epsilon, spent(gaussian, 0.01, 0.09, 1.0).epsilon, 1e-12)
    assert part.mu is None
    assert part.epsilon < 1.5
    pure = spent(claim(1.5, 0.0, None, "pure"), 0.2, 1.5, 3.0, "epsilon")
    assert (pure.epsilon, pure.delta, pure.mu) == (0.2 * 3.0, 0.0, None)
    refused("BudgetError", lambda: spent(gaussian, 0.1, 1.0, 1.0, "shillings"))
    for label, options in (("gauss, persons", {}), ("gauss, users", {}), ("pair, persons", {})):
        bandit = made(label, **options)
        play(bandit, 6)
        close(
            bandit.spent.mu, bandit.options.moves_per_unit * math.sqrt(bandit.ledger.total), 1e-12
        )
        assert bandit.spent.mu <= bandit.claim.mu
        said = bandit.claim.unit.startswith("one person")
        assert said == ("persons" in label)
        assert ("where their contexts lie" in bandit.claim.unit) == (label == "pair, persons")
        seen.append(bandit.spent.epsilon)
    return seen


@judge
def rewards_in_the_clear_are_booked_once() -> Any:
    """Everything is spent with the first of them, whoever learns it, and nothing more after that."""
    for backend in ("core", "reference"):
        for by_user in (False, True):
            bandit = made("linucb", backend=backend, **({"unit": ("user", 9)} if by_user else {}))
            for row in np.eye(3):
                bandit.update(row, 1.0, user="anna" if by_user else None)
                (line,) = bandit.ledger.table()
                assert (line["when"], line["what"]) == ("1", "rewards in the clear")
                assert (line["releases"], line["cost"]) == (1, math.inf)
    return [str(line)]
