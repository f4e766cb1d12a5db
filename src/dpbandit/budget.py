"""The currencies of privacy, the Claim and the Ledger, by the names they have always had.

They live in `dpbandit.privacy`: `accounting`, `claim` and `ledger`.
"""

from dpbandit.privacy.accounting import (
    SAFE,
    check_delta,
    check_epsilon,
    delta_of,
    epsilon_of,
    epsilon_of_rho,
    mu_of,
    mu_of_rho,
    rho_of,
)
from dpbandit.privacy.claim import Claim, NoiseKind, Notion, Spent, Status
from dpbandit.privacy.ledger import Lane, Ledger

__all__ = [
    "SAFE",
    "Claim",
    "Lane",
    "Ledger",
    "NoiseKind",
    "Notion",
    "Spent",
    "Status",
    "check_delta",
    "check_epsilon",
    "delta_of",
    "epsilon_of",
    "epsilon_of_rho",
    "mu_of",
    "mu_of_rho",
    "rho_of",
]
