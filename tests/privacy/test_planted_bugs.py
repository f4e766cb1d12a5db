"""Every planted bug is caught, and the documentation shows the table that these tests make."""

import planted
import pytest
from bugs.bent import ones
from bugs.trees import per_node

pytestmark = pytest.mark.filterwarnings("ignore::dpbandit.errors.PrivacyWarning")


@pytest.mark.parametrize("bug", planted.BUGS, ids=lambda bug: bug.name)
def test_the_planted_bug_is_caught(bug):
    assert planted.evidence(bug)
    assert planted.row(bug) in planted.written(), "run: python tests/privacy/planted.py --write"


def test_the_table_in_the_documentation_has_these_bugs_in_this_order():
    names = [line.split(" | ")[0].removeprefix("| ") for line in planted.written()]
    assert names == [bug.name for bug in planted.BUGS]


def test_checking_each_node_alone_would_pass_the_per_node_mutant():
    """Why the joint sum is needed: every single release of that mutant is within its share."""
    from dpbandit.auditor.watch import record

    horizon = 256
    rewards = [-100.0] * horizon
    changed = [100.0, *rewards[1:]]

    def make():
        return per_node(horizon, "laplace", 9.0)

    one = record(make, ones(horizon), rewards)
    two = record(make, ones(horizon), changed, script=one)
    pairs = zip(one.releases, two.releases, strict=True)
    shares = [a.noise.cost(b.value - a.value, a.scale) for a, b in pairs]
    assert max(shares) <= 2.0 / 9 * (1 + 1e-9)
    assert sum(shares) > 2.0 * 2.2
