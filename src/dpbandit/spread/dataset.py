"""Tasks as the rows of a Ray dataset: Ray Data hands them out, holds back when results pile up, and does lost ones again.

Ray Data takes no orders from a process outside the cluster (a client, ray://), so an overseer on one of the nodes drives the dataset and
passes results on. If its node is lost, another one goes on with what has not arrived.
"""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from dpbandit.errors import ClusterError
from dpbandit.spread import Advance, R, Task, Work
from dpbandit.spread.versions import here, refuse_other_versions

if TYPE_CHECKING:
    from dpbandit.spread.cluster import Cluster

RETRIES = 10  # of a task whose worker is lost, and of the overseer
POLL = 0.3  # seconds between looks at whether results are there, so that Ctrl-C is heard


def each(
    cluster: Cluster, work: Work[R], tasks: list[Task], advance: Advance
) -> Generator[tuple[int, R], None, None]:
    """The number and the result of each task, about in order. All tasks must have the same `common`."""
    if not tasks:
        return
    _import_data()
    from ray import cloudpickle

    ray = cluster.ray
    parcel = cloudpickle.dumps((work, tasks[0].common, cluster.here))
    left = {number: cloudpickle.dumps(task.own) for number, task in enumerate(tasks)}
    overseer_here = ray.remote(num_cpus=0)(_Overseer)
    lost = 0
    while left:
        overseer = overseer_here.remote(parcel, list(left.items()), cluster.workers)
        try:
            while left:
                coming = overseer.some.remote()
                while not ray.wait([coming], timeout=POLL)[0]:
                    pass
                found = cluster.fetch(coming)
                if not found and left:
                    raise ClusterError(
                        f"Ray Data ended with {len(left)} of {len(tasks)} tasks undone"
                    )
                for number, packed in found:
                    good, result = cloudpickle.loads(packed)
                    if not good:
                        raise result  # the same error as on one machine
                    if number in left:
                        del left[number]
                        advance(number, tasks[number].size)
                        yield number, result
        except ray.exceptions.RayActorError as error:
            lost += 1
            if lost > RETRIES:
                raise ClusterError(
                    f"the overseer of the work was lost {lost} times: {error}"
                ) from None
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise ClusterError(
                f"the cluster was lost: {' '.join(str(error).split())[:400]}"
            ) from error
        finally:
            _end(ray, overseer)


class _Overseer:
    """Drives a dataset from inside the cluster. An actor; its tasks end with it."""

    def __init__(self, parcel: bytes, tasks: list[tuple[int, bytes]], workers: int | None) -> None:
        self._parcel, self._tasks, self._workers = parcel, tasks, workers
        self._blocks: Iterator[Any] | None = None

    def some(self) -> bytes:
        """The results that are there next, by number, as `_do` packed them; none when all are done."""
        from ray import cloudpickle

        if self._blocks is None:
            self._blocks = self._start()
        block = next(self._blocks, None)
        rows = [] if block is None else block.to_pylist()
        found: bytes = cloudpickle.dumps([(row["number"], row["found"]) for row in rows])
        return found

    def _start(self) -> Iterator[Any]:
        data = _import_data()
        context = data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        # Results that wait for earlier ones then wait in the cluster's shared memory, not in the calling process.
        context.execution_options.preserve_order = True
        rows = [{"number": number, "own": own} for number, own in self._tasks]
        given = {"fn_kwargs": {"parcel": self._parcel}, "num_cpus": 1, "max_retries": RETRIES}
        if self._workers:
            given["compute"] = data.TaskPoolStrategy(size=self._workers)
        dataset = data.from_items(rows, override_num_blocks=len(rows)).map(_do, **given)
        return iter(dataset.iter_batches(batch_size=None, batch_format="pyarrow"))


def _do(row: dict[str, Any], parcel: bytes) -> dict[str, Any]:
    """One task, on a node: whether it is good, and its result or its error, which Ray Data would wrap in pages of its own."""
    from ray import cloudpickle

    found: tuple[bool, Any]
    try:
        work, common, wanted = cloudpickle.loads(parcel)
        refuse_other_versions(wanted, here(), f"node {socket.gethostname()}", code=True)
        found = True, work(common, cloudpickle.loads(row["own"]), lambda _: None)
    except Exception as error:
        found = False, error
    return {"number": row["number"], "found": cloudpickle.dumps(found)}


def _import_data() -> Any:
    try:
        from ray import data
    except ImportError as error:
        raise ClusterError(
            f"Ray Data is not whole here ({error}): pip install 'dpbandit[cluster]'"
        ) from None
    return data


def _end(ray: Any, overseer: Any) -> None:
    try:
        ray.kill(overseer)
    except Exception:  # gone already, or nobody there any more
        return
