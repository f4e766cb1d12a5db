"""Traces and metrics over OpenTelemetry, for operators who collect them (extra `otel`).

It sends the contents of `/metrics`, and one span for each request that is counted there and came
with a valid key. Reports of rewards and erasures have no span and no point in any series, so they
change nothing that is sent. Learners send no times, since the time learning takes may depend on
rewards. No span holds a request's content.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dpbandit import __version__
from dpbandit.errors import OptionError
from dpbandit.service.catalog import Catalog
from dpbandit.service.metrics import BUCKETS, OF_A_BANDIT, UNCOUNTED, Metrics

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace import SpanProcessor

MISSING = "OpenTelemetry needs the extra 'otel': pip install 'dpbandit[otel]'"


class Telemetry(ABC):
    """Who is told of requests as they are answered."""

    @abstractmethod
    def answered(
        self,
        action: str,
        status: int,
        *,
        known: bool,
        began: int,
        method: str,
        bandit: str,
        parent: bytes,
    ) -> None:
        """One request: whether its key was in force, and when it began, in nanoseconds. `parent`
        is the caller's `traceparent`."""

    @abstractmethod
    async def stop(self, seconds: float) -> None:
        """Send what is left, for so long at most."""


class Silent(Telemetry):
    """Nobody is told."""

    def answered(self, action: str, status: int, **_: Any) -> None:
        pass

    async def stop(self, seconds: float) -> None:
        pass


class Told(Telemetry):
    """A collector is told, where OpenTelemetry's own variables say. Not the process's global
    providers: what other libraries send there is not ours to answer for."""

    def __init__(
        self,
        metrics: Metrics,
        catalog: Catalog,
        *,
        spans: SpanProcessor | None = None,
        reader: MetricReader | None = None,
    ) -> None:
        try:
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.trace import SpanKind, Status, StatusCode
            from opentelemetry.trace.propagation.tracecontext import (
                TraceContextTextMapPropagator,
            )

            spans, reader = spans or _batches(), reader or _intervals()
        except ImportError:
            raise OptionError(MISSING) from None
        named = {"service.name": "dpbandit", "service.version": __version__}
        resource = Resource(named | {"service.instance.id": str(uuid.uuid4())})
        resource = resource.merge(OTELResourceDetector().detect())  # what the operator says holds
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._traces.add_span_processor(spans)
        self._tracer = self._traces.get_tracer("dpbandit", __version__)
        self._parent = TraceContextTextMapPropagator()
        self._kind, self._failed = SpanKind.SERVER, Status(StatusCode.ERROR)
        self._series = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        meter = self._series.get_meter("dpbandit", __version__)
        seconds = meter.create_histogram(
            "dpbandit.decision.seconds",
            "s",
            "From request to durable decision.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        metrics.told = seconds.record
        _observed(meter, metrics, catalog)

    def answered(
        self,
        action: str,
        status: int,
        *,
        known: bool,
        began: int,
        method: str,
        bandit: str,
        parent: bytes,
    ) -> None:
        # A stranger is counted and has no span: they would choose its trace.
        if action in UNCOUNTED or not known:
            return
        carried = {"traceparent": parent.decode("latin-1")} if parent else {}
        said: dict[str, Any] = {"dpbandit.action": action, "http.request.method": method}
        said["http.response.status_code"] = status
        span = self._tracer.start_span(
            action,
            self._parent.extract(carried),
            self._kind,
            said | ({"dpbandit.bandit": bandit} if bandit else {}),
            start_time=began,
        )
        if status >= 500:
            span.set_status(self._failed)
        span.end(time.time_ns())

    async def stop(self, seconds: float) -> None:
        # Nobody waits for a thread that waits for a collector that is away.
        ending = threading.Thread(target=self._shut_down, name="telemetry", daemon=True)
        ending.start()
        until = time.monotonic() + seconds
        while ending.is_alive() and time.monotonic() < until:
            await asyncio.sleep(0.02)

    def _shut_down(self) -> None:
        self._traces.shutdown()
        self._series.shutdown()


def _batches() -> SpanProcessor:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter())


def _intervals() -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(OTLPMetricExporter())


def _observed(meter: Any, metrics: Metrics, catalog: Catalog) -> None:
    """The series of `/metrics`, read when they are sent."""
    from opentelemetry.metrics import Observation

    def of_bandits(number_of: Callable[[Any, int], float]) -> Callable[..., Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            now = catalog.store_now
            for name, served in [*catalog.bandits.items()]:
                yield Observation(float(number_of(served, now)), {"bandit": name})

        return read

    def requests(_: CallbackOptions) -> Iterable[Observation]:
        for (action, status), count in [*metrics.requests.items()]:
            yield Observation(count, {"action": action, "status": status})

    meter.create_observable_counter("dpbandit.requests", [requests], "1", "Answers.")
    for name, (words, number_of) in OF_A_BANDIT.items():
        total = name.endswith("_total")
        make = meter.create_observable_counter if total else meter.create_observable_gauge
        make(f"dpbandit.{name.removesuffix('_total')}", [of_bandits(number_of)], "1", words)
    for name, words, value in (
        ("store_up", "1 if the store was reached lately.", lambda: catalog.ready),
        (
            "store_restored",
            "1 if the store lacks bandits that were seen.",
            lambda: catalog.restored is not None,
        ),
    ):
        one = lambda _, value=value: [Observation(float(value()))]  # noqa: E731 - one line each
        meter.create_observable_gauge(f"dpbandit.{name}", [one], "1", words)
