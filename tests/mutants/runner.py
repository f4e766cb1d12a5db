"""Runs mutants: each in a process of its own, before the judges that its function concerns.

    python tests/mutants/runner.py                   every mutant, and the table of survivors
    python tests/mutants/runner.py --sample 20       a fixed sample
    python tests/mutants/runner.py --only release    those whose names begin so

One process imports what others wrote (NumPy, SciPy, OpenDP) and forks for every mutant; the child
imports dpbandit with one module changed, and asks the judges, the quickest first. Verdicts:

    killed      a judge refused it, it could not be imported, or it did not end
    equivalent  no judge refused it, and every number that the judges saw is as it was
    survived    no judge refused it, and a number changed
    unreached   no judge ever runs the function
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import pickle
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
# One thread: a process that forks must have no others.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import operators
import targets
from operators import Mutant

LONGEST = 60  # seconds for one mutant: a loop without end
SEED = 20_240


class Verdict(NamedTuple):
    mutant: str  # its name
    words: str
    verdict: str
    by: str  # the judge, or what happened
    seconds: float = 0.0


class Baseline(NamedTuple):
    """What the judges see of the code as it ships."""

    digests: dict[str, str]
    seconds: dict[str, float]
    reached: dict[str, set[str]]  # by judge: module:function


class Changed(importlib.abc.Loader, importlib.abc.MetaPathFinder):
    """Imports one module from another tree."""

    def __init__(self, name: str, code: CodeType) -> None:
        self.name, self.code = name, code

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.name:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        assert found is not None
        found.loader = self
        return found

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.code, module.__dict__)


def prepare() -> None:
    """Import what others wrote, and nothing of ours."""
    import mpmath  # noqa: F401
    import opendp.domains
    import opendp.measurements
    import opendp.metrics
    import opendp.mod
    import scipy.integrate
    import scipy.special
    import scipy.stats  # noqa: F401

    opendp.mod.enable_features("contrib")
    ours = [name for name in sys.modules if name.split(".")[0] == targets.PACKAGE]
    assert not ours, f"{ours[0]} is imported already: mutants of it would not be seen"


def digest(seen: Any) -> str:
    """The same for the same numbers, to the last bit."""
    import numpy as np

    def walk(value: Any) -> Iterator[bytes]:
        if isinstance(value, np.ndarray) and value.dtype != object:
            yield repr((value.shape, value.dtype.str)).encode() + value.tobytes()
        elif isinstance(value, (list, tuple, np.ndarray)):
            yield b"["
            for part in value:
                yield from walk(part)
            yield b"]"
        elif isinstance(value, dict):
            yield from walk(sorted(value.items(), key=str))
        else:
            yield f"{type(value).__name__}:{value!r}".encode()

    total = hashlib.sha256()
    for part in walk(seen):
        total.update(part)
    return total.hexdigest()


def in_child(work: Callable[[], Any], longest: int) -> Any:
    """What work returns in a forked process, or words on how that process ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(longest)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            result = pickle.dumps(work())
            with os.fdopen(write, "wb") as out:
                out.write(result)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    return pid, read


def collect(pid: int, read: int) -> Any:
    with os.fdopen(read, "rb") as source:
        data = source.read()
    _, status = os.waitpid(pid, 0)
    if data:
        return pickle.loads(data)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return "it does not end"
    return f"the process ended with status {status}"


def take_baseline() -> Baseline:
    """Run every judge on the code as it ships, noting which functions it runs."""

    def work() -> Baseline:
        import judges

        prefix = str(Path(importlib.util.find_spec(targets.PACKAGE).origin).parent) + os.sep  # type: ignore[union-attr, arg-type]
        names: dict[CodeType, str | None] = {}
        running: set[str] = set()

        def name_of(code: CodeType) -> str | None:
            if not code.co_filename.startswith(prefix):
                return None
            parts = Path(code.co_filename[len(prefix) :]).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            path = [p for p in code.co_qualname.split(".") if not p.startswith("<")]
            return f"{module}:{'.'.join(path) or '<module>'}"

        def profile(frame: Any, event: str, argument: Any) -> None:
            if event == "call":
                code = frame.f_code
                if code not in names:
                    names[code] = name_of(code)
                if names[code] is not None:
                    running.add(names[code])  # type: ignore[arg-type]

        judges.JUDGES["claims_say_what_is_promised"]()  # imports everything
        digests, seconds, reached = {}, {}, {}
        for name, judge in judges.JUDGES.items():
            forget()
            running.clear()
            sys.setprofile(profile)
            try:
                judge()
            finally:
                sys.setprofile(None)
            reached[name] = set(running)
            forget()
            start = time.perf_counter()
            digests[name] = digest(judge())
            seconds[name] = time.perf_counter() - start
            forget()
            if digest(judge()) != digests[name]:
                raise AssertionError(f"the judge {name!r} sees other numbers each time")
        return Baseline(digests, seconds, reached)

    # Errors are wanted here.
    found = collect(*in_child(lambda: _or_words(work), 900))
    if not isinstance(found, Baseline):
        raise RuntimeError(f"the judges refuse the code as it ships: {found}")
    return found


def _or_words(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except BaseException as error:
        import traceback

        return "".join(traceback.format_exception(error)[-3:])


def forget() -> None:
    """Empty every cache of ours."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == targets.PACKAGE:
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if clear is not None and getattr(value, "__module__", "") == name:
                    clear()


def concerned(mutant: Mutant, baseline: Baseline) -> list[str]:
    """The judges that run the mutant's function, the quickest first; all for what is outside
    functions."""
    name = f"{mutant.module}:{mutant.function}"
    found = [
        judge
        for judge, reached in baseline.reached.items()
        if mutant.outside
        or any(r == name or r.startswith(f"{name}.") for r in reached)
    ]
    return sorted(found, key=lambda judge: baseline.seconds[judge])


def try_mutant(mutant: Mutant, source: str, wanted: list[str], baseline: Baseline) -> Any:
    """In a child: import the mutant and ask the judges."""
    import warnings

    warnings.simplefilter("ignore")
    module = f"{targets.PACKAGE}.{mutant.module}" if mutant.module else targets.PACKAGE
    spec = importlib.util.find_spec(targets.PACKAGE)
    path = Path(spec.origin).parent.joinpath(*mutant.module.split("."))  # type: ignore[union-attr, arg-type]
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    code = compile(operators.mutated(source, mutant), str(file), "exec")
    sys.meta_path.insert(0, Changed(module, code))
    same = True
    judges = None
    try:
        import judges
    except BaseException as error:
        return "killed", f"import: {type(error).__name__}"
    changed = ""
    for name in wanted:
        try:
            seen = digest(judges.JUDGES[name]())
        except BaseException as error:
            return "killed", f"{name}: {type(error).__name__}"
        if seen != baseline.digests[name]:
            same, changed = False, changed or name
    return ("equivalent", "") if same else ("survived", changed)


def run(mutants: list[Mutant], workers: int, say: Callable[[str], None]) -> Iterator[Verdict]:
    """The verdict on each, in the order in which they end."""
    sources, baseline = targets.sources(), take_baseline()
    say(
        f"{len(baseline.digests)} judges, {sum(baseline.seconds.values()):.0f} s for all of them; "
        f"{len(mutants)} mutants"
    )
    running: dict[int, tuple[Mutant, int]] = {}
    begun: dict[int, float] = {}

    def finish() -> Verdict:
        import select

        ready, _, _ = select.select([read for _, read in running.values()], [], [])
        pid = next(p for p, (_, read) in running.items() if read == ready[0])
        mutant, read = running.pop(pid)
        found = collect(pid, read)
        verdict, by = found if isinstance(found, tuple) else ("killed", found)
        return Verdict(mutant.name, str(mutant), verdict, by, time.perf_counter() - begun[pid])

    for mutant in mutants:
        wanted = concerned(mutant, baseline)
        if not wanted:
            yield Verdict(mutant.name, str(mutant), "unreached", "")
            continue
        pid, read = in_child(
            lambda m=mutant, w=wanted: try_mutant(m, sources[m.module], w, baseline),  # type: ignore[misc]
            LONGEST,
        )
        running[pid], begun[pid] = (mutant, read), time.perf_counter()
        if len(running) >= workers:
            yield finish()
    while running:
        yield finish()


def sample_of(mutants: list[Mutant], count: int) -> list[Mutant]:
    """Always the same, from all over the rooms: by the hash of a mutant's name."""

    def order(mutant: Mutant) -> str:
        return hashlib.sha256(f"{SEED} {mutant.name}".encode()).hexdigest()

    return sorted(mutants, key=order)[:count]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sample", type=int, help="only so many, always the same ones")
    parser.add_argument("--only", default="", help="only those whose names begin so")
    parser.add_argument("--part", default="0/1", help="i/n: the i-th of n parts, from 0")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="write all verdicts here, as JSON")
    given = parser.parse_args()
    prepare()
    mutants = [m for m in targets.all_mutants() if m.name.startswith(given.only)]
    if given.sample:
        mutants = sample_of(mutants, given.sample)
    random.Random(SEED).shuffle(mutants)
    part, parts = map(int, given.part.split("/"))
    mutants = mutants[part::parts]
    start, found = time.perf_counter(), []
    for number, verdict in enumerate(run(mutants, given.workers, lambda w: print(w, flush=True)), 1):
        found.append(verdict)
        if verdict.verdict in ("survived", "unreached"):
            print(f"{verdict.verdict}: {verdict.words}  [{verdict.by}]", flush=True)
        if number % 500 == 0:
            print(f"… {number}, {time.perf_counter() - start:.0f} s", flush=True)
    count = Counter(verdict.verdict for verdict in found)
    print(f"{dict(count)} in {time.perf_counter() - start:.0f} s")
    if given.out:
        given.out.write_text(json.dumps([v._asdict() for v in sorted(found)], indent=0, ensure_ascii=False))
    return 1 if count["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
