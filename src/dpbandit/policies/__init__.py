"""What picks an arm. One object for each policy, by name: what is not here is refused.

One of your own is a class of `Policy` and one line: `policies.add(Mine())`.
"""

from __future__ import annotations

from dpbandit.policies.bounds import CentredUcb, Index, Ucb
from dpbandit.policies.policy import BoundPolicy as BoundPolicy
from dpbandit.policies.policy import Decision as Decision
from dpbandit.policies.policy import Policy as Policy
from dpbandit.policies.policy import Propensities as Propensities
from dpbandit.policies.policy import View as View
from dpbandit.policies.policy import tie_at as tie_at
from dpbandit.policies.sampled import Sampled
from dpbandit.policies.thompson import Thompson
from dpbandit.policies.uniform import Uniform
from dpbandit.tables import add_to, find_in

UCB, CENTRED_UCB, INDEX = Ucb(), CentredUcb(), Index()
THOMPSON, SAMPLED, UNIFORM = Thompson(), Sampled(), Uniform()

POLICIES: dict[str, Policy] = {
    policy.name: policy for policy in (UCB, CENTRED_UCB, THOMPSON, SAMPLED, UNIFORM, INDEX)
}
_OURS = frozenset(POLICIES)


def add(policy: Policy, *, replace: bool = False) -> Policy:
    """Make a policy of your own known in this process; a design may then name it.

    Parameters
    ----------
    policy : Policy
        An object of your class.
    replace : bool, default False
        Whether one that was added before may have its name; ours are never replaced.

    Returns
    -------
    Policy
        The same object.

    Raises
    ------
    OptionError
        If it is no policy, or its name is taken.
    """
    return add_to(POLICIES, policy, Policy, "policy", ours=_OURS, replace=replace)  # type: ignore[type-abstract]


def find_policy(wanted: str | Policy) -> Policy:
    """The policy of this name, or an error by name.

    >>> find_policy("ucb").description
    'x·θ + α√(xᵀMx)'
    """
    return find_in(POLICIES, wanted, Policy, "policy")  # type: ignore[type-abstract]
