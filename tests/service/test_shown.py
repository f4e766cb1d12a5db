"""docs/operate.md says of everything that the service shows whether a reward changes it: here the
tables of that section are read, and the code is looked through for what they lack."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from test_leases import make_bandit

from dpbandit.service import dashboard, schema, telemetry
from dpbandit.service.database import connect
from dpbandit.service.learner import Learner
from dpbandit.service.metrics import Metrics
from dpbandit.service.openapi import ROUTES
from dpbandit.service.settings import Settings

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs/operate.md").read_text().split("## What a reward changes\n")[1]
SECTION = SECTION.split("\n## ")[0]
# What the HTTP server adds by itself.
SERVERS_OWN = {"date", "connection"}
# Lines whose words are another's: a reason that any key may read, or an error of our own.
PASSED_ON = {
    "line.name, reason",
    "line.name, words",
    "line.name, ended",
    "line.name, error",
    "error",
}


def told(of, column=0):
    """What is named in backticks in a column of the table whose head begins like this."""
    table = SECTION.split(f"\n| {of}")[1].split("\n\n")[0]
    rows = [row.split(" | ")[column] for row in table.splitlines()[2:]]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def calls():
    """(module, call) of everything that the service's code calls."""
    for path in sorted((ROOT / "src/dpbandit/service").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield path.name, node


def named(module, name):
    """What a name of this module stands for."""
    tree = ast.parse((ROOT / "src/dpbandit/service" / module).read_text())
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    (found,) = [node.value for node in assigned if ast.unparse(node.targets[0]) == name]
    return found


def dotted(node):
    """A text of the code with … for all that is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(dotted(part) for part in node.values)
    if isinstance(node, ast.Constant):
        return re.sub(r"%[sdg]", "…", node.value)
    assert isinstance(node, ast.FormattedValue), ast.unparse(node)
    return "…"


def test_every_endpoint():
    paths = {f"{method} {path}" for path, methods in ROUTES.items() for method in methods}
    paths |= {"GET /healthz", "GET /readyz", *(f"GET {path}" for path in dashboard._FILES)}
    assert told("endpoint") == paths


def test_every_header():
    found = set(SERVERS_OWN)
    for path in (ROOT / "src/dpbandit/service").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            first = node.elts[0] if isinstance(node, ast.Tuple) and node.elts else None
            if isinstance(first, ast.Constant) and isinstance(first.value, bytes):
                found.add(first.value.decode())
    assert told("header") == found - {""}


def test_every_metric_and_what_is_sent_over_opentelemetry():
    catalog = SimpleNamespace(restored=None, ready=True, bandits={}, store_now=0)
    text = Metrics().render(catalog).decode()
    metrics = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    assert told("metric") == metrics
    sent, attributes = set(), set()
    for module, call in calls():
        if module == "telemetry.py" and call.func.attr.startswith("create_"):
            sent.add(dotted(call.args[0]))
    for node in ast.walk(ast.parse(Path(telemetry.__file__).read_text())):
        if isinstance(node, ast.Constant) and re.fullmatch(
            r"(dpbandit|http)\.[a-z_.]+", str(node.value)
        ):
            attributes.add(node.value)
    shown = {
        name.removeprefix("dpbandit_").removesuffix("_total").replace("_", ".") for name in metrics
    }
    sent -= {"dpbandit.…"}  # those of a bandit, and those of the store: by the names of `/metrics`
    assert {name.removeprefix("dpbandit.") for name in sent} <= shown
    spans = SECTION.split("OpenTelemetry's spans (")[1].split(")")[0]
    assert set(re.findall(r"`([^`]+)`", spans)) == attributes - sent


def test_every_log_line():
    lines, passed = set(), set()
    for module, call in calls():
        where, does = call.func.value, call.func.attr
        if does == "_say" and module == "learner.py":
            lines.add(f"…: {dotted(call.args[1])}")
        elif isinstance(where, ast.Name) and where.id == "log":
            if does == "log":
                call.args.pop(0)
            words, *filled = call.args
            if isinstance(words, ast.Name):  # too long for its line
                words = named(module, words.id)
            line, of = dotted(words), ", ".join(map(ast.unparse, filled))
            if line in ("…: …", "…") and of in PASSED_ON:
                passed.add(of)
            else:
                lines.add(line)
    # What ends learning for good is said with a reason.
    lines |= {"…: learning stopped by …", "…: …"}
    lines -= {"…; not said again"}
    lines |= {"unexpected … in … at …; not said again"}
    assert told("log line") == lines
    assert passed == PASSED_ON


def test_every_table_of_the_store(tmp_path):
    store = connect(f"sqlite:///{tmp_path}/store.db")
    schema.migrate(store)
    tables = {name for (name,) in store.all("SELECT name FROM sqlite_master WHERE type = 'table'")}
    tables = {name for name in tables if not name.startswith("sqlite_")}
    store.close()
    names = {name for name in told("file or table") if re.fullmatch("[a-z_]+", name)}
    assert {name for name in names if not name.startswith("pg_stat")} == tables


def test_every_file(tmp_path):
    (tmp_path / "store").mkdir()
    url = f"sqlite:///{tmp_path}/store/bandits.db"
    make_bandit(url)
    store = connect(url)
    learner = Learner(Settings(store=url, witness=tmp_path / "witness"))
    learner.turn()
    identity = store.all("SELECT identity FROM bandits")[0][0]
    found = [*(tmp_path / "store").iterdir(), *(tmp_path / "witness").iterdir()]
    files = {path.name.replace(identity, "<identity>") for path in found}
    learner.stop()
    store.close()
    assert {name for name in told("file or table") if "." in name} == files | {"bandit.npz.moved"}


def test_a_process_that_ends_holding_a_bandit_writes_nothing_of_it():
    """A learner that is ended in the middle of its work holds some: their number is nobody's."""
    code = """
import threading
import dpbandit as dpb

bandit = dpb.make("tree-gauss", dim=1, epsilon=1.0, delta=1e-6, reward_range=(0, 1))
bandit.update([[1.0]], [1.0])
threading.Thread(target=lambda _: threading.Event().wait(), args=(bandit,), daemon=True).start()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert ended.stderr == b""
