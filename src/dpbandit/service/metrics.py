"""What an operator may watch, in Prometheus' format.

Never counts rewards: where an application reports clicks only, the number of reports is the number
of clicks, a clean statistic. Nothing here may change because a reward came: no time of a commit
either, since some commits hold rewards alone. Decisions, models, budgets and timings are public (docs/privacy.md).
"""

from __future__ import annotations

import bisect
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

from dpbandit import __version__
from dpbandit.service.catalog import Catalog
from dpbandit.service.store import LEARNING, RESTORED, Line

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


# name → words, and the number for a bandit and its model's version at the store's time
OF_A_BANDIT: dict[str, tuple[str, Callable[[Line, int, int], float]]] = {
    "decisions": ("Decisions made.", lambda line, *_: line.decisions),
    "learned": ("Decisions learned from.", lambda line, *_: line.learned),
    "waiting": ("Decisions not yet learned from.", lambda line, *_: line.decisions - line.learned),
    "model_version": ("The model this process ranks with.", lambda line, version, now: version),
    "learning": (
        "1 if the bandit learns, 0 if its budget is spent or learning was stopped.",
        lambda line, *_: line.status == LEARNING,
    ),
    "learner_up": ("1 if a learner holds the lease.", lambda line, _, now: line.lease_until > now),
    "restored": (
        "1 if the store has an old copy of this bandit.",
        lambda line, *_: line.status == RESTORED,
    ),
}


class Metrics:
    """Plain numbers on the hot path; families are made when somebody asks."""

    def __init__(self) -> None:
        self.started = time.time()
        self.requests: Counter[tuple[str, int]] = Counter()
        self._counts = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0

    def count(self, action: str, status: int) -> None:
        if action != "rewards":
            self.requests[action, status] += 1

    def decided(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        self._sum += seconds

    def render(self, catalog: Catalog) -> bytes:
        from prometheus_client import generate_latest

        # All that is asked of a registry here.
        registry: Any = SimpleNamespace(collect=lambda: self._families(catalog))
        return bytes(generate_latest(registry))

    def _families(self, catalog: Catalog) -> Iterator[Any]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            InfoMetricFamily,
        )

        yield InfoMetricFamily("dpbandit", "The program.", value={"version": __version__})
        requests = CounterMetricFamily(
            "dpbandit_requests",
            "Answers by action and status; rewards are not counted.",
            labels=["action", "status"],
        )
        for (action, status), count in sorted(self.requests.items()):
            requests.add_metric([action, str(status)], count)
        yield requests
        bounds = (*map(str, BUCKETS), "+Inf")
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        words = "From request to durable decision."
        latency = HistogramMetricFamily("dpbandit_decision_seconds", words)
        latency.add_metric([], buckets=buckets, sum_value=self._sum)
        yield latency
        lacks = catalog.restored is not None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak *= 1 if sys.platform == "darwin" else 1024
        for name, words, value in (
            ("store_up", "1 if the store was reached lately.", catalog.ready),
            ("store_restored", "1 if the store lacks bandits that were seen.", lacks),
            ("start_time_seconds", "When this process started.", self.started),
            ("peak_memory_bytes", "Largest memory of this process.", peak),
        ):
            yield GaugeMetricFamily(f"dpbandit_{name}", words, value=float(value))
        counters = dict.fromkeys(("decisions", "learned"), CounterMetricFamily)
        bandits = sorted(catalog.bandits.items())
        for name, (words, number_of) in OF_A_BANDIT.items():
            kind = counters.get(name, GaugeMetricFamily)
            family = kind(f"dpbandit_{name}", words, labels=["bandit"])
            for bandit, served in bandits:
                number = number_of(served.line, served.version, catalog.store_now)
                family.add_metric([bandit], float(number))
            yield family
