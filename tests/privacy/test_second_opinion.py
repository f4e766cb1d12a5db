"""dp-accounting (Google) beside our exchange and composition: they agree, and ours is never on the
unsafe side."""

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from dpbandit import budget
from dpbandit.privacy.noise import GAUSSIAN, LAPLACE
from dpbandit.release import Tree

# Discretisation of the second opinion; it rounds up, so its ε is at most about this much too high
# per composition.
STEP = 1e-4


def gaussian(mu, count=1):
    each = pld.from_gaussian_mechanism(
        1 / mu * math.sqrt(count), value_discretization_interval=STEP
    )
    return each.self_compose(count) if count > 1 else each


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(2, 0.1), (2, 1e-5), (1, 1e-6), (0.5, 1e-6), (5, 1e-3)]
)
def test_the_gaussian_exchange_agrees(epsilon, delta):
    mu = budget.mu_of(epsilon=epsilon, delta=delta)
    theirs = gaussian(mu).get_epsilon_for_delta(delta)
    assert theirs == pytest.approx(epsilon, abs=5 * STEP)
    ours = budget.epsilon_of(mu=mu, delta=delta)
    optimistic = pld.from_gaussian_mechanism(
        1 / mu, value_discretization_interval=STEP, pessimistic_estimate=False
    )
    assert ours >= optimistic.get_epsilon_for_delta(delta) - 1e-9


@pytest.mark.parametrize("levels", [2, 7, 14])
def test_composition_of_a_gaussian_trees_levels_agrees(levels):
    """h releases at σ = √h·Δ/μ are one at μ: what `tree-gauss` charges."""
    horizon = 2**levels - 1
    tree = Tree(GAUSSIAN, horizon, 1.0, budget.mu_of(epsilon=2.0, delta=1e-5))
    sd = tree.multipliers[levels] * tree.sensitivity
    each = pld.from_gaussian_mechanism(sd, sensitivity=1.0, value_discretization_interval=STEP)
    theirs = each.self_compose(levels).get_epsilon_for_delta(1e-5)
    assert theirs == pytest.approx(2.0, abs=2 * levels * STEP)


@pytest.mark.parametrize("levels", [1, 3, 11])
def test_composition_of_a_laplace_trees_levels_is_within_its_pure_claim(levels):
    horizon = 2**levels - 1
    tree = Tree(LAPLACE, horizon, 1.0, 2.0)
    scale = tree.multipliers[levels] * tree.sensitivity
    each = pld.from_laplace_mechanism(scale, sensitivity=1.0, value_discretization_interval=STEP)
    composed = each.self_compose(levels)
    # Pure ε is the supremum of the privacy loss: at δ → 0 they meet, and at any δ > 0 ours is the
    # safe one.
    assert composed.get_epsilon_for_delta(1e-12) <= 2.0 + 2 * levels * STEP
    if levels == 1:
        assert composed.get_epsilon_for_delta(1e-12) == pytest.approx(2.0, abs=3 * STEP)


@pytest.mark.parametrize("mu", [0.2, 0.5, 1.3662, 3.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 4.0])
def test_the_gaussian_privacy_profile_agrees(mu, epsilon):
    theirs = gaussian(mu).get_delta_for_epsilon(epsilon)
    ours = budget.delta_of(epsilon=epsilon, mu=mu)
    assert ours == pytest.approx(theirs, rel=5e-3, abs=1e-9)


def test_the_ledgers_total_is_what_a_composition_of_its_charges_gives():
    tree = Tree(GAUSSIAN, 100, 1.0, budget.mu_of(epsilon=2.0, delta=1e-5))
    ledger = GAUSSIAN.ledger(tree.budget)
    for t in range(1, 101):
        charge = tree.charge(None, t)
        ledger.charge(charge.share, when=t, what=charge.what, group=charge.group)
    theirs = None
    for row in ledger.table():
        each = pld.from_gaussian_mechanism(
            1 / math.sqrt(row["cost"]), value_discretization_interval=STEP
        )
        theirs = each if theirs is None else theirs.compose(each)
    spent = GAUSSIAN.epsilon(ledger.total, 1e-5)
    assert theirs.get_epsilon_for_delta(1e-5) == pytest.approx(spent, abs=20 * STEP)


@pytest.mark.parametrize(("rho", "delta"), [(0.1, 1e-5), (0.5, 1e-3), (0.934, 0.1)])
def test_the_general_zcdp_exchange_agrees_with_renyi_accounting(rho, delta):
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    orders = [1 + x / 200 for x in range(1, 40_000)]
    theirs, _ = rdp.compute_epsilon(orders, [rho * a for a in orders], delta)
    ours = budget.epsilon_of_rho(rho=rho, delta=delta)
    assert ours == pytest.approx(theirs, rel=1e-3)
