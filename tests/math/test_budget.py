"""Exchange rates, check points, and the ledger."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erfcx

from dpbandit import budget
from dpbandit.errors import BudgetError, OptionError
from dpbandit.privacy import wishart
from dpbandit.privacy.accounting import scaled_erfc

EPSILON = st.floats(1e-3, 50.0)
DELTA = st.floats(1e-12, 0.5)


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"), [(2, 0.1, 1.36620), (2, 1e-5, 0.501552), (1, 1e-6, 0.236704)]
)
def test_the_check_points_hold(epsilon, delta, mu):
    assert budget.mu_of(epsilon=epsilon, delta=delta) == pytest.approx(mu, rel=5e-6)
    assert budget.epsilon_of(mu=mu, delta=delta) == pytest.approx(epsilon, rel=2e-5)


@given(EPSILON, DELTA)
def test_mu_is_rounded_down_and_barely(epsilon, delta):
    mu = budget.mu_of(epsilon=epsilon, delta=delta)
    assert budget.delta_of(epsilon=epsilon, mu=mu) <= delta
    assert budget.delta_of(epsilon=epsilon, mu=mu * (1 + 1e-8)) > delta * (1 - 1e-12)


@given(st.floats(1e-3, 8.0), DELTA)
def test_epsilon_is_rounded_up_and_barely(mu, delta):
    epsilon = budget.epsilon_of(mu=mu, delta=delta)
    assert budget.delta_of(epsilon=epsilon, mu=mu) <= delta
    if epsilon > 1e-6:
        assert budget.delta_of(epsilon=epsilon * (1 - 1e-8) - 1e-10, mu=mu) > delta * (1 - 1e-10)


@given(EPSILON, DELTA)
def test_there_and_back_never_gains(epsilon, delta):
    assert budget.epsilon_of(
        mu=budget.mu_of(epsilon=epsilon, delta=delta), delta=delta
    ) <= epsilon * (1 + 1e-9)


@given(st.floats(1e-4, 5.0), DELTA)
def test_the_general_zcdp_exchange_is_never_better_than_the_gaussian_one(rho, delta):
    mu = math.sqrt(2 * rho)
    assert budget.epsilon_of_rho(rho=rho, delta=delta) >= budget.epsilon_of(mu=mu, delta=delta) * (
        1 - 1e-9
    )
    assert (
        budget.epsilon_of_rho(rho=rho, delta=delta)
        <= rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-9
    )


def test_the_price_of_going_through_zcdp_is_the_one_measured_before():
    # 1.08 times the noise at (2, 1e-5), 1.21 times at (2, 0.1)
    for delta, factor in ((1e-5, 1.08), (0.1, 1.21)):
        mu = budget.mu_of(epsilon=2, delta=delta)
        low, high = 1e-6, mu**2 / 2
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (
                (middle, high)
                if budget.epsilon_of_rho(rho=middle, delta=delta) < 2
                else (low, middle)
            )
        assert mu / math.sqrt(2 * low) == pytest.approx(factor, abs=0.01)


def test_extreme_budgets_do_not_overflow():
    assert budget.mu_of(epsilon=math.inf, delta=0.1) == math.inf
    assert budget.mu_of(epsilon=1e300, delta=1e-12) == pytest.approx(math.sqrt(2e300), rel=1e-6)
    assert budget.epsilon_of(mu=0.0, delta=0.1) == 0.0
    assert budget.delta_of(epsilon=1.0, mu=math.inf) == 1.0


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, True, "2"])
def test_a_bad_epsilon_is_named(epsilon):
    with pytest.raises(OptionError, match="epsilon must be a number above 0"):
        budget.mu_of(epsilon=epsilon, delta=0.1)


@pytest.mark.parametrize("delta", [0, 1, -0.1, 1.5, math.nan, "x"])
def test_a_bad_delta_is_named(delta):
    with pytest.raises(OptionError, match="delta must lie strictly between 0 and 1"):
        budget.mu_of(epsilon=1.0, delta=delta)


def test_a_refused_charge_changes_nothing():
    ledger = budget.Ledger(limit=1.0, currency="epsilon")
    ledger.charge(0.7, when=1, what="a")
    before = ledger.to_dict()
    for cost in (0.4, math.inf, math.nan, -0.1):
        with pytest.raises(BudgetError):
            ledger.charge(cost, when=2, what="b")
    assert ledger.to_dict() == before


def test_rewards_pay_the_dearest_release_of_a_lane_and_the_sum_over_lanes():
    ledger = budget.Ledger(limit=10.0, currency="epsilon")
    for cost in (1.0, 3.0, 2.0):
        ledger.charge(cost, when=1, what="level 0")
    ledger.charge(4.0, when=2, what="level 1")
    ledger.charge(5.0, when=3, what="level 0", group=1)
    assert ledger.total == 7.0
    assert ledger.remaining == 3.0
    assert [row["total"] for row in ledger.table()] == [3.0, 7.0, 5.0]


@given(st.lists(st.tuples(st.floats(0, 0.3), st.integers(0, 3), st.integers(0, 2)), max_size=40))
def test_the_ledger_never_exceeds_its_limit_and_survives_a_save(charges):
    ledger = budget.Ledger(limit=1.0, currency="mu²")
    for when, (cost, lane, group) in enumerate(charges):
        with contextlib.suppress(BudgetError):
            ledger.charge(cost, when=when, what=f"lane {lane}", group=group)
    assert ledger.total <= 1.0 + 1e-9
    assert budget.Ledger.from_dict(ledger.to_dict()) == ledger


def test_claims_say_whether_they_are_claims():
    claim = budget.Claim("one reward", "none", 2.0, 0.1, None, "none", "simulation")
    assert "no privacy is claimed" in str(claim)
    assert "does not achieve" in str(claim)


@given(st.floats(0.0, 1e6))
def test_the_scaled_error_function_is_scipys(x):
    assert scaled_erfc(x) == pytest.approx(float(erfcx(x)), rel=2e-15)


def test_claims_say_what_noise_protects_them():
    claim = budget.Claim("one reward", "gdp", 2.0, 1e-5, 0.5, "proven", "none")
    assert claim.brief() == "proven: ε = 2, δ = 1e-05 for one reward (no noise)"


@pytest.mark.parametrize("rewards", [1, 3])
def test_calibrations_of_wishart_noise_stay_within_a_groups_budget(rewards):
    found = wishart.calibrate_all(epsilon=2.0, delta=1e-5, rewards_per_unit=rewards, levels=[1, 7])
    for levels, cost in found.items():
        assert cost.first + levels * cost.each <= 2.0 / rewards
    # one degree fewer would not do
    each, log = 2.0 / rewards, math.log(1e-5 / rewards) - (rewards - 1) * 2.0 / rewards
    less = wishart.losses(found[7].degrees - 1, delta=math.exp(log), levels=7)
    assert less.first + 7 * less.each > each
    assert wishart.calibrate_all(epsilon=math.inf, delta=1e-5, rewards_per_unit=1, levels=[1]) == {}
