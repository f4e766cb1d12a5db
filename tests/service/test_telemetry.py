"""What is sent over OpenTelemetry: spans and series of what may be seen, and nothing of a reward."""

import gzip
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from harness import ARMS, BANDIT, decide, dpbandit, make_key, reward, until
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from test_unseen import life

from dpbandit.service.metrics import Metrics
from dpbandit.service.telemetry import Told

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
# Their numbers are times, or how often a test looked.
TIMED = {("dpbandit.decision.seconds", ())}
LOOKED = ("dpbandit.requests", (("action", "metrics"), ("status", 200)))


class Collector:
    """Takes what a service sends, as a collector does."""

    def __init__(self):
        self.spans, self.series, self.resources = [], {}, []
        collector = self

        class Takes(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Takes)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "100",
        }

    def take(self, path, body):
        if path == "/v1/traces":
            for found in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(plain(found.resource.attributes))
                self.spans += [span for scope in found.scope_spans for span in scope.spans]
        else:
            assert path == "/v1/metrics"
            for found in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in found.scope_metrics:
                    for metric in scope.metrics:
                        kind = metric.WhichOneof("data")
                        for point in getattr(metric, kind).data_points:
                            number = point.count if kind == "histogram" else point.as_double
                            number = number or getattr(point, "as_int", 0)
                            self.series[metric.name, plain(point.attributes)] = number

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def seen(self):
        """All that was sent, without times."""
        spans = Counter(
            (span.name, span.kind, span.status.code, plain(span.attributes), len(span.events))
            for span in self.spans
            if span.name != "metrics"
        )
        series = {which: n for which, n in self.series.items() if which != LOOKED}
        return spans, series, {name for name, _ in self.series}


def plain(attributes):
    return tuple(
        sorted((one.key, getattr(one.value, one.value.WhichOneof("value"))) for one in attributes)
    )


@pytest.fixture
def collector():
    one = Collector()
    yield one
    one.close()


def test_two_services_one_with_rewards_send_the_same(tmp_path, caplog):
    found = []
    for name in ("without", "with"):
        collector = Collector()
        life(tmp_path / name, rewards=name == "with", caplog=caplog, env=collector.env)
        collector.close()
        found.append(collector.seen())
    without, with_rewards = found
    assert without == with_rewards
    spans, series, names = without
    assert any(span[0] == "decisions" for span in spans)
    assert series["dpbandit.decision.seconds", ()] == 30  # 9 of them events
    assert {"dpbandit.requests", "dpbandit.learned", "dpbandit.store_up"} <= names
    assert "reward" not in str(found)


def test_what_is_sent_and_to_whom_it_belongs(tmp_path, serve, collector):
    url = f"sqlite:///{tmp_path}/store.db"
    key = make_key(url)
    more = {"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test"}
    service = serve(url, "--otel", role="ranker", env={**collector.env, **more})
    call = service.caller(key)
    assert call("POST", "/v1/bandits", {**BANDIT, "reward_window": 600})[0] == 201
    assert reward(call, decide(call, user="ann"), 1.0)[0] == 200
    assert call("DELETE", "/v1/bandits/shop/users/ann")[0] == 200
    parent = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    path, asked = "/v1/bandits/shop/decisions", {"contexts": ARMS}
    assert call("POST", path, asked, headers=parent)[0] == 201
    assert service.caller("")("POST", path, asked, headers=parent)[0] == 401
    assert call("POST", path, {"contexts": [[9.0, 9.0, 9.0]]})[0] == 422
    shop = ("dpbandit.decisions", (("bandit", "shop"),))
    until(lambda: collector.series.get(shop) == 2)
    service.stop()  # sends what is left
    spans = [(span.name, dict(plain(span.attributes))) for span in collector.spans]
    statuses = [told["http.response.status_code"] for name, told in spans if name == "decisions"]
    assert statuses == [201, 201, 422]
    assert not [name for name, _ in spans if name in ("rewards", "erasures", "other")]
    (child,) = [span for span in collector.spans if span.trace_id.hex() == TRACE]
    assert child.parent_span_id.hex() == PARENT
    assert child.end_time_unix_nano > child.start_time_unix_nano
    assert "ann" not in str(spans)
    resource = dict(collector.resources[0])
    assert resource["service.name"] == "dpbandit"
    assert resource["deployment.environment"] == "test"
    requests = {dict(at)["action"] for name, at in collector.series if name == "dpbandit.requests"}
    assert not {"rewards", "erasures"} & requests


def test_no_span_and_no_point_of_a_reward_or_an_erasure():
    spans, reader, metrics = InMemorySpanExporter(), InMemoryMetricReader(), Metrics()
    catalog = SimpleNamespace(bandits={}, store_now=0, ready=True, restored=None)
    told = Told(metrics, catalog, spans=SimpleSpanProcessor(spans), reader=reader)
    for action in ("rewards", "erasures", "decisions"):
        for known in (True, False):
            metrics.count(action, 503)
            told.answered(
                action, 503, known=known, began=1, method="POST", bandit="", parent=b"00-x-\xff"
            )
    (one,) = spans.get_finished_spans()
    assert (one.name, one.parent, one.status.is_ok) == ("decisions", None, False)
    metrics.decided(0.25)
    sent = reader.get_metrics_data().to_json()
    assert '"decisions"' in sent
    assert "rewards" not in sent
    assert "erasures" not in sent


def test_a_collector_that_is_away_hinders_nobody(tmp_path, serve):
    url = f"sqlite:///{tmp_path}/store.db"
    key = make_key(url)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    service = serve(url, "--otel", "--shutdown-seconds", "8", role="ranker", env=env)
    call = service.caller(key)
    assert call("POST", "/v1/bandits", BANDIT)[0] == 201
    for _ in range(20):
        decide(call)
    until(lambda: call("GET", "/readyz")[0] == 200, 5)
    assert service.stop() in (0, -15)


def test_without_the_extra_it_says_what_to_do(tmp_path):
    """As where it is not installed."""
    program = "import sys; sys.modules['opentelemetry.sdk'] = None; "
    program += (
        "sys.modules['opentelemetry.sdk.metrics'] = None; from dpbandit.cli import main; main()"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, "serve", "--otel", "--store", f"sqlite:///{tmp_path}/s.db"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 2
    assert "dpbandit[otel]" in said.stderr
    assert "Traceback" not in said.stderr
    assert dpbandit("serve", "--help").stdout.count("--otel") >= 1
