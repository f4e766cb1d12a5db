"""What picks an arm. One object for each policy, by name: what is not here is refused."""

from __future__ import annotations

from dpbandit.policies.centred_ucb import CentredUcb
from dpbandit.policies.index import Index
from dpbandit.policies.policy import TIE, Policy, Propensities, View
from dpbandit.policies.thompson import Thompson
from dpbandit.policies.ucb import Ucb
from dpbandit.policies.uniform import Uniform

UCB, CENTRED_UCB, THOMPSON, UNIFORM, INDEX = Ucb(), CentredUcb(), Thompson(), Uniform(), Index()

# One line for each policy.
POLICIES: dict[str, Policy] = {
    UCB.name: UCB,
    CENTRED_UCB.name: CENTRED_UCB,
    THOMPSON.name: THOMPSON,
    UNIFORM.name: UNIFORM,
    INDEX.name: INDEX,
}

__all__ = [
    "CENTRED_UCB",
    "INDEX",
    "POLICIES",
    "THOMPSON",
    "TIE",
    "UCB",
    "UNIFORM",
    "Policy",
    "Propensities",
    "View",
]
