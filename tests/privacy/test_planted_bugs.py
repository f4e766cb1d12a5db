"""Every planted bug is caught, and the documentation shows the table that these tests make."""

import warnings

import planted
import pytest
from bugs.bent import ones
from bugs.trees import per_node

pytestmark = pytest.mark.filterwarnings("ignore::dpbandit.errors.PrivacyWarning")


@pytest.mark.parametrize("bug", planted.BUGS, ids=lambda bug: bug.name)
def test_the_planted_bug_is_caught(bug):
    assert planted.evidence(bug)


def test_the_table_in_the_documentation_is_the_one_made_here():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = planted.table()
    written = planted.DOCS.read_text().split(planted.START)[1].split(planted.END)[0].strip()
    assert written == expected, "run: python tests/privacy/planted.py --write"


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
