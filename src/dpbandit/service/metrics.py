"""Metrics for operators, in Prometheus' format.

Never counts rewards: where an application reports clicks only, the number of reports is the number
of clicks, a clean statistic. Nothing here may change because a reward came: no time of a commit
either, since some commits hold rewards alone, no memory, which a list of them takes, and no answer
to a report, refused ones included. Decisions, models, budgets and the times of decisions are public
(docs/operate.md says what each may show).
"""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate

from dpbandit import __version__
from dpbandit.service.catalog import Catalog, Served
from dpbandit.service.store import LEARNING, RESTORED

# Neither that rewards were reported nor that somebody asked for erasure is for graphs.
ERASURE = "erasures"
UNCOUNTED = ("rewards", ERASURE)

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


# name → words, and the number for a bandit at the store's time
OF_A_BANDIT: dict[str, tuple[str, Callable[[Served, int], float]]] = {
    "decisions_total": ("Decisions made.", lambda one, _: one.line.decisions),
    "learned_total": ("Decisions learned from.", lambda one, _: one.line.learned),
    "waiting": (
        "Decisions not yet learned from.",
        lambda one, _: one.line.decisions - one.line.learned,
    ),
    "model_version": ("The model this process ranks with.", lambda one, _: one.version),
    "learning": (
        "1 if the bandit learns, 0 if its budget is spent or learning was stopped.",
        lambda one, _: one.line.status == LEARNING,
    ),
    "learner_up": (
        "1 if a learner holds the lease and prolongs it.",
        lambda one, now: one.learner_up(now),
    ),
    "restored": (
        "1 if the store has an old copy of this bandit.",
        lambda one, _: one.line.status == RESTORED,
    ),
}


class Metrics:
    """Plain numbers on the hot path; families are made when somebody asks."""

    def __init__(self) -> None:
        self.started = time.time()
        self.requests: Counter[tuple[str, int]] = Counter()
        self._counts = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0
        self.told: Callable[[float], None] = lambda _: None  # who else hears how long they took

    def count(self, action: str, status: int) -> None:
        if action not in UNCOUNTED:
            self.requests[action, status] += 1

    def decided(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        self._sum += seconds
        self.told(seconds)

    def render(self, catalog: Catalog) -> bytes:
        """All of them. Names of bandits and actions need no escapes."""
        return "".join(f"{line}\n" for line in self._lines(catalog)).encode()

    def _lines(self, catalog: Catalog) -> Iterator[str]:
        yield from _head("info", "gauge", "The program.")
        yield f'dpbandit_info{{version="{__version__}"}} 1.0'
        words = "Answers by action and status; rewards are not counted."
        yield from _head("requests_total", "counter", words)
        for (action, status), count in sorted(self.requests.items()):
            yield f'dpbandit_requests_total{{action="{action}",status="{status}"}} {float(count)}'
        yield from _head("decision_seconds", "histogram", "From request to durable decision.")
        total = 0
        for bound, total in zip((*BUCKETS, "+Inf"), accumulate(self._counts), strict=True):
            yield f'dpbandit_decision_seconds_bucket{{le="{bound}"}} {float(total)}'
        yield f"dpbandit_decision_seconds_count {float(total)}"
        yield f"dpbandit_decision_seconds_sum {self._sum}"
        lacks = catalog.restored is not None
        for name, words, value in (
            ("store_up", "1 if the store was reached lately.", catalog.ready),
            ("store_restored", "1 if the store lacks bandits that were seen.", lacks),
            ("start_time_seconds", "When this process started.", self.started),
        ):
            yield from _head(name, "gauge", words)
            yield f"dpbandit_{name} {float(value)}"
        bandits, now = sorted(catalog.bandits.items()), catalog.store_now
        for name, (words, number_of) in OF_A_BANDIT.items():
            yield from _head(name, "counter" if name.endswith("_total") else "gauge", words)
            for bandit, served in bandits:
                yield f'dpbandit_{name}{{bandit="{bandit}"}} {float(number_of(served, now))}'


def _head(name: str, kind: str, words: str) -> tuple[str, str]:
    return f"# HELP dpbandit_{name} {words}", f"# TYPE dpbandit_{name} {kind}"
