"""What an operator may watch, in Prometheus' format.

Never counts rewards: where an application reports clicks only, the number of reports is the number
of clicks, a clean statistic. Decisions, models, budgets and timings are public (docs/privacy.md).
"""

from __future__ import annotations

import bisect
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

from dpbandit import __version__
from dpbandit.service.catalog import Catalog
from dpbandit.service.journal import Journal

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """Plain numbers on the hot path; families are made when somebody asks."""

    def __init__(self) -> None:
        self.started = time.time()
        self.requests: dict[tuple[str, int], int] = {}
        self._counts = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0

    def count(self, action: str, status: int) -> None:
        if action != "rewards":
            self.requests[action, status] = self.requests.get((action, status), 0) + 1

    def decided(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        self._sum += seconds

    def render(self, catalog: Catalog, journal: Journal) -> bytes:
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(_Families(self, catalog, journal))
        return bytes(generate_latest(registry))

    def families(self, catalog: Catalog, journal: Journal) -> Iterator[Any]:
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
        running, buckets = 0, []
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self._counts, strict=True):
            running += count
            buckets.append((bound, running))
        latency = HistogramMetricFamily(
            "dpbandit_decision_seconds", "From request to durable decision."
        )
        latency.add_metric([], buckets=buckets, sum_value=self._sum)
        yield latency
        yield GaugeMetricFamily(
            "dpbandit_store_up", "1 if the store was reached lately.", value=float(catalog.ready)
        )
        restored = float(catalog.restored is not None)
        yield GaugeMetricFamily(
            "dpbandit_store_restored",
            "1 if the store lacks bandits that were seen.",
            value=restored,
        )
        yield GaugeMetricFamily(
            "dpbandit_journal_seconds", "The last group commit.", value=journal.last_seconds
        )
        yield GaugeMetricFamily(
            "dpbandit_start_time_seconds", "When this process started.", value=self.started
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
        yield GaugeMetricFamily(
            "dpbandit_peak_memory_bytes", "Largest memory of this process.", value=peak
        )
        per_bandit = {
            "dpbandit_decisions": CounterMetricFamily(
                "dpbandit_decisions", "Decisions made.", labels=["bandit"]
            ),
            "dpbandit_learned": CounterMetricFamily(
                "dpbandit_learned", "Decisions learned from.", labels=["bandit"]
            ),
        }
        gauges = {
            name: GaugeMetricFamily(name, words, labels=["bandit"])
            for name, words in (
                ("dpbandit_waiting", "Decisions not yet learned from."),
                ("dpbandit_model_version", "The model this process ranks with."),
                (
                    "dpbandit_learning",
                    "1 if the bandit learns, 0 if its budget is spent or learning was stopped.",
                ),
                ("dpbandit_learner_up", "1 if a learner holds the lease."),
                ("dpbandit_restored", "1 if the store has an old copy of this bandit."),
            )
        }
        for name, served in sorted(catalog.bandits.items()):
            line = served.line
            per_bandit["dpbandit_decisions"].add_metric([name], line.decisions)
            per_bandit["dpbandit_learned"].add_metric([name], line.learned)
            gauges["dpbandit_waiting"].add_metric([name], line.decisions - line.learned)
            gauges["dpbandit_model_version"].add_metric([name], served.version)
            gauges["dpbandit_learning"].add_metric([name], float(line.status == "learning"))
            gauges["dpbandit_learner_up"].add_metric(
                [name], float(line.lease_until > catalog.store_now)
            )
            gauges["dpbandit_restored"].add_metric([name], float(line.status == "restored"))
        yield from per_bandit.values()
        yield from gauges.values()


class _Families:
    def __init__(self, metrics: Metrics, catalog: Catalog, journal: Journal) -> None:
        self._ask = (metrics, catalog, journal)

    def collect(self) -> Iterator[Any]:
        metrics, catalog, journal = self._ask
        return metrics.families(catalog, journal)
