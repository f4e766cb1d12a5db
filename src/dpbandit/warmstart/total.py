"""The sums of a whole log: parts are spread over threads or a cluster, and merged in its order."""

from __future__ import annotations

from contextlib import closing

from dpbandit.errors import LogError
from dpbandit.logs.sums import Sums, merge, new_sums
from dpbandit.logs.users import Persons, Tally
from dpbandit.spread import Place, Task
from dpbandit.warmstart import caps
from dpbandit.warmstart.scan import Reading, Seen, scan_part
from dpbandit.warmstart.source import Source


def scan_all(
    place: Place, source: Source, reading: Reading, *, tally: Tally | Persons | None, seen: Seen
) -> Sums:
    """The sums, the same wherever they are added up.

    `tally` counts users' rows, or adds up persons' rewards, and is left as the log leaves it.
    """
    if tally is None:
        tasks = [Task(reading, part, part.rows or 0) for part in source.parts]
        parts = place.stream(scan_part, tasks, lambda _, rows: seen(rows))
    elif place.elsewhere:
        parts = caps.scan_twice(place, source.parts, reading, tally, seen)
    else:
        parts = caps.scan_in_order(source.parts, reading, tally, seen, threads=place.cores > 1)
    total = new_sums(reading.recipe)
    with closing(parts):
        for sums in parts:
            merge(total, sums)
    if source.rows is not None and total.rows != source.rows:
        # A part left out or added twice: the noise would be that of another sum.
        raise LogError(
            f"{total.rows:,} rows were added up, and the log has {source.rows:,}. Nothing was "
            "released"
        )
    return total
