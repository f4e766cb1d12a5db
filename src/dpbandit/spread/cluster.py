"""A Ray cluster: every task is one core of some node; Ray does a task again if its worker or node is lost.

Results and what tasks share travel as pickled bytes: arrays that Ray unpacks itself are read-only, and the core
writes into its own. Nodes must have this Python, this Ray and the libraries that decide numbers, in the same versions; dpbandit
itself is sent along where it is missing or another one.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from dpbandit.errors import ClusterError, OptionError
from dpbandit.spread import Advance, Place, R, Task, Work, dataset, in_order
from dpbandit.spread.versions import here, look, refuse_other_versions, same_code

PACKAGE = Path(__file__).parents[1]
# Lost nodes are nothing unusual; a task that ends its worker eleven times does so by itself.
RETRIES = 10
POLL = 0.3  # seconds between looks at what is finished
REPORT = 0.5  # seconds between a task's reports of its progress
PATIENCE = 120.0  # seconds for a node to start its first worker
REACH = 5.0  # seconds for an address to answer
KEPT = 4  # things that tasks share, kept ready on either side: an audit's tasks take turns with two
TRIES = 3  # a head that is busy takes longer than Ray waits to start what serves a client: the next time it is there
SLOW_START = "Starting Ray client server failed"
AHEAD = 64  # at least so many tasks are handed over, so that a cluster that grows on demand sees the demand


class Cluster(Place):
    """A connection to a Ray cluster, made here or already there."""

    elsewhere = True

    def __init__(self, address: str, workers: int | None = None) -> None:
        if address not in ("local", "auto"):
            _host_and_port(address)
        self.ray = _import_ray()
        self.here = here()
        self.workers = workers
        self._own = not self.ray.is_initialized()
        self._close: Callable[[], None] = lambda: None
        if not self._own:
            self._check_same(address)
        self._join(address, ship=False)
        try:
            if address != "local" and self._needs_code():
                if not self._own:
                    raise ClusterError(
                        "the cluster has no dpbandit, or another one, and this process was connected before: install it there, or connect "
                        "with ray.init(runtime_env={'py_modules': [dpbandit]})"
                    )
                self._close()
                self._join(address, ship=True)
            self._nodes = {node["NodeID"] for node in self._alive()}
            self.cores = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
            if workers:
                self.cores = min(workers, self.cores)
            actor = self.ray.remote(num_cpus=0, max_restarts=-1)(_Notes)
            self._notes = actor.remote()
            self._do = self.ray.remote(
                num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD"
            )(_do)
        except BaseException:
            self.close()
            raise
        self._words, self._words_at = "playing", 0.0

    # ---------------------------------------------------------------------------------------------------------- connecting

    def _join(self, address: str, *, ship: bool) -> None:
        if not self._own:
            return
        ray = self.ray
        given: dict[str, Any] = {
            "address": address,
            "log_to_driver": False,
            "logging_level": "ERROR",
        }
        if ship:
            given["runtime_env"] = {"py_modules": [str(PACKAGE)], "excludes": ["**/__pycache__/**"]}
        if address == "local":
            given |= {"include_dashboard": False, "num_cpus": self.workers}
        elif address != "auto":
            _reach(address)
        for left in range(TRIES - 1, -1, -1):
            try:
                context = ray.init(**given)
                break
            except (
                ConnectionError,
                RuntimeError,
                ValueError,
                TimeoutError,
                ray.exceptions.RayError,
            ) as error:
                if left and SLOW_START in str(error):
                    continue
                raise ClusterError(
                    f"cannot join the Ray cluster {address!r}: {_said(error)}; {_versions(self.here)}"
                ) from None
        self._close = context.disconnect if address.startswith("ray://") else ray.shutdown

    def _check_same(self, address: str) -> None:
        """A process has one connection: it must not be to another cluster than the one asked for."""
        if address in ("local", "auto") or address.startswith("ray://"):
            return
        there = str(self.ray.get_runtime_context().gcs_address)
        if there != address:
            raise ClusterError(
                f"this process is already connected to the Ray cluster {there}, not to {address}"
            )

    def _alive(self) -> list[dict[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _needs_code(self) -> bool:
        """Ask every node what it has; refuse what would give other numbers; say whether dpbandit must be sent along."""
        ray = self.ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ask = ray.remote(num_cpus=0)(look())
        refs = {
            node["NodeManagerAddress"]: ask.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
            ).remote()
            for node in self._alive()
        }
        try:
            found = dict(zip(refs, ray.get(list(refs.values()), timeout=PATIENCE), strict=True))
        except ray.exceptions.GetTimeoutError:
            raise ClusterError(
                f"the cluster did not answer within {PATIENCE:g} seconds: has it free workers?"
            ) from None
        except ray.exceptions.RayError as error:
            raise ClusterError(f"the cluster cannot run tasks: {_said(error)}") from None
        for node, there in found.items():
            refuse_other_versions(self.here, there, f"node {node}")
        return not all(same_code(self.here, there) for there in found.values())

    def close(self) -> None:
        """Leave the cluster, if it was joined here; a local one ends."""
        self._close()
        self._close = lambda: None

    # ------------------------------------------------------------------------------------------------------------- working

    @property
    def playing(self) -> str:
        """How many nodes and cores there are, and what was lost."""
        if time.monotonic() - self._words_at > 2.0:
            nodes = self._alive()
            cores = int(sum(node["Resources"].get("CPU", 0) for node in nodes))
            lost = len(self._nodes - {node["NodeID"] for node in nodes})
            words = f"{len(nodes)} node{'s' * (len(nodes) != 1)}, {cores} core{'s' * (cores != 1)}"
            self._words = f"playing on {words}" + (
                f" ({lost} lost, its tasks are done again)" if lost else ""
            )
            self._words_at = time.monotonic()
        return self._words

    def each(
        self, work: Work[R], tasks: Iterable[Task], advance: Advance
    ) -> Generator[tuple[int, R], None, None]:
        """The results, as they come. One that has come is never computed again, whatever is lost later."""
        ray = self.ray
        room = self.workers or max(AHEAD, 2 * self.cores)
        coming = enumerate(tasks)
        running: dict[Any, tuple[int, int]] = {}
        known: dict[int, int] = {}  # how much of each unfinished task has been told
        run = uuid.uuid4().hex  # so that late reports of an earlier call are not taken for ours
        sent: dict[int, tuple[Any, str, Any]] = {}
        asked: Any = None

        def tell(number: int, amount: int) -> None:
            if amount > known[number]:
                advance(number, amount - known[number])
                known[number] = amount

        try:
            while True:
                for number, task in islice(coming, room - len(running)):
                    if id(task.common) not in sent:
                        _make_room(sent)
                        sent[id(task.common)] = (
                            task.common,
                            uuid.uuid4().hex,
                            ray.put(_packed(work, task.common)),
                        )
                    _, key, parcel = sent[id(task.common)]
                    ref = self._do.remote(
                        key, parcel, task.own, run, number, self._notes, self.here
                    )
                    running[ref], known[number] = (number, task.size), 0
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1, timeout=POLL)
                if ready:
                    ready, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
                for ref in ready:
                    number, size = running.pop(ref)
                    result = self.fetch(ref)
                    tell(number, size)
                    del known[number]
                    yield number, result
                if asked is not None and ray.wait([asked], timeout=0)[0]:
                    for number, amount in self._heard(asked).items():
                        if number in known:
                            tell(number, amount)
                    asked = None
                if asked is None:
                    asked = self._notes.read.remote(run)
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise ClusterError(f"the cluster was lost: {_said(error)}") from error
        finally:
            for ref in running:
                try:
                    ray.cancel(ref)
                except Exception:  # finished by now, or nobody there any more
                    break

    def stream(
        self, work: Work[R], tasks: Iterable[Task], advance: Advance
    ) -> Generator[R, None, None]:
        """The results in order, over Ray Data: for many tasks that have all in common but what they read."""
        tasks = list(tasks)
        return in_order(dataset.each(self, work, tasks, advance), len(tasks))

    def fetch(self, ref: Any) -> Any:
        """What a task has sent, or its error in our words."""
        from ray import cloudpickle, exceptions

        try:
            return cloudpickle.loads(self.ray.get(ref))
        except exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, ModuleNotFoundError):
                raise ClusterError(
                    f"a node cannot import what it was sent: {cause}. Your own modules must be there too: see docs/cluster.md"
                ) from None
            if isinstance(cause, Exception):
                raise cause from None  # the same error as on one machine
            raise ClusterError(_said(error)) from None
        except (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.OutOfMemoryError,
        ) as error:
            raise ClusterError(
                f"a task ended its worker {RETRIES + 1} times: {_said(error)}"
            ) from None
        except exceptions.RuntimeEnvSetupError as error:
            raise ClusterError(f"a node could not set up dpbandit: {_said(error)}") from None

    def _heard(self, ref: Any) -> dict[int, int]:
        try:
            heard: dict[int, int] = self.ray.get(ref)
        except self.ray.exceptions.RayError:
            return {}  # its node was lost; it starts anew elsewhere, and tasks report all they have done
        return heard


class _Notes:
    """How far unfinished tasks are. An actor: tasks write, the driver reads."""

    def __init__(self) -> None:
        self._run, self._done = "", dict[int, int]()

    def write(self, run: str, number: int, done: int) -> None:
        if run == self._run:
            self._done[number] = done

    def read(self, run: str) -> dict[int, int]:
        if run != self._run:
            self._run, self._done = run, {}
        found, self._done = self._done, {}
        return found


def _packed(work: Work[Any], common: Any) -> bytes:
    from ray import cloudpickle

    try:
        parcel: bytes = cloudpickle.dumps((work, common))
    except (TypeError, AttributeError) as error:  # how pickle says that it cannot
        raise ClusterError(
            f"a world, option or algorithm of yours cannot be sent to a cluster: {error}"
        ) from error
    return parcel


def _make_room(kept: dict[Any, Any]) -> None:
    """Neighbouring tasks share what is sent; what was sent longest ago is not needed again."""
    while len(kept) >= KEPT:
        del kept[next(iter(kept))]


_opened: dict[str, tuple[Work[Any], Any]] = {}


def _do(
    key: str, parcel: bytes, own: Any, run: str, number: int, notes: Any, wanted: dict[str, Any]
) -> bytes:
    """One task, on a node."""
    from ray import cloudpickle

    refuse_other_versions(wanted, here(), f"node {socket.gethostname()}", code=True)
    if key not in _opened:
        _make_room(_opened)
        _opened[key] = cloudpickle.loads(parcel)
    work, common = _opened[key]
    done, told_at = 0, time.monotonic()

    def tell(amount: int) -> None:
        nonlocal done, told_at
        done += amount
        if time.monotonic() - told_at > REPORT:
            notes.write.remote(run, number, done)
            told_at = time.monotonic()

    found: bytes = cloudpickle.dumps(work(common, own, tell))
    return found


def _import_ray() -> Any:
    # Ray reports its use to its makers unless told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ClusterError(
            "cluster= and --cluster need the extra 'cluster': pip install 'dpbandit[cluster]'"
        ) from None
    return ray


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise OptionError(
            f"a cluster is 'local', 'auto', 'ray://host:10001' or 'host:6379', not {address!r}"
        )
    return host.strip("[]"), int(port)


def _reach(address: str) -> None:
    """An address that nobody answers is said at once: Ray itself tries for minutes."""
    try:
        socket.create_connection(_host_and_port(address), REACH).close()
    except OSError as error:
        raise ClusterError(f"nobody answers at {address!r}: {error}") from None


def _said(error: BaseException) -> str:
    """An error's own words on one line: Ray's messages are pages."""
    words = " ".join(str(error).split())
    return words if len(words) <= 400 else words[:400] + " …"


def _versions(here: dict[str, Any]) -> str:
    return f"here are Ray {here['ray']} and Python {sys.version.split()[0]}"
