"""Runs mutants: each in a process of its own, before the judges that its function concerns.

    python tests/mutants/runner.py                   every mutant, and the table of survivors
    python tests/mutants/runner.py --sample 20       a fixed sample
    python tests/mutants/runner.py --only release    those whose names begin so
    python tests/mutants/runner.py --short           those of sample.py, as `make test` does

One process imports everything, runs nothing, and forks for every mutant. The child gives the function
its mutated code and asks the judges that run it, the quickest first, as many as there is time for; if a
number changed, every judge that runs it. What is outside functions, and what runs while modules are
imported, is imported anew instead, by a child of a process that has imported nothing of ours. With
`--out`, what was found is kept: started again there, the runner tries what is missing, and what may be
judged otherwise since. A judge's answer is kept while the mutant's function, what its module has outside
of functions, and the judge are word for word as they were, and the judge sees the same of the code as it
ships, to the last bit. Verdicts:

    killed      a judge refused it, it could not be imported, or it did not end
    equivalent  no judge refused it, and every number that the judges saw is as it was
    last digits no judge refused it, and no number changed by more than 10⁻⁸ of itself
    survived    no judge refused it, and a number changed
    unreached   no judge ever runs the function
"""

from __future__ import annotations

import argparse
import functools
import gc
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import math
import os
import pickle
import random
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
import operators
import targets
from operators import Mutant

LONGEST = 10.0  # seconds of a processor for one mutant: a loop without end
SLOWER = 5  # times as long as its judges take may a mutant take, and two seconds more
SEED = 20_240
SHARE, FEWEST = 0.15, 12  # of the judges' work that one mutant gets, and of judges
OPEN = ("survived", "unreached")  # verdicts that somebody must explain
LOT = 12  # mutants of one function that one worker tries before others may
LAST_DIGITS = 1e-8  # of a number: what rounding and the tolerance of a solver decide


class Verdict(NamedTuple):
    where: str  # module:function, or a file of the core
    change: str  # before → after
    words: str
    verdict: str
    by: str  # the judge, or what happened
    seconds: float = 0.0  # of a processor
    seen: tuple[str, ...] = ()  # a hash for each answer that it follows from


@dataclass(eq=False)
class Baseline:
    """What the judges see of the code as it ships."""

    digests: dict[str, Seen]
    costs: dict[str, float]
    seconds: dict[str, float]  # how long each took, which decides in what order they are asked
    reached: dict[str, set[str]]  # by judge: module:function
    imported: set[str]  # what runs while modules are imported
    prints: dict[str, str]  # by judge: a hash of its words, and of what it saw

    @functools.cached_property
    def by_name(self) -> dict[str, list[str]]:
        """Those that run a function or what is in it, by its name; or anything of a module, by
        `module:`; or anything. Those first that are quick and run little else."""
        costs = {judge: self.costs[judge] * len(ran) ** 2 for judge, ran in self.reached.items()}
        found: dict[str, list[str]] = {"": []}
        for judge in sorted(costs, key=lambda judge: costs[judge]):
            names = {""}
            for each in self.reached[judge]:
                module, _, function = each.partition(":")
                parts = function.split(".")
                names |= {f"{module}:{'.'.join(parts[:n])}" for n in range(len(parts) + 1)}
            for name in names:
                found.setdefault(name, []).append(judge)
        return found


class Seeing(NamedTuple):
    """What one judge sees of the code as it ships: a row of the baseline."""

    judge: str
    seen: Seen
    cost: float
    seconds: float
    reached: set[Any]  # module:function, or numbers of places of the core
    print_: str


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
    """Import what others wrote, and nothing of ours. A process that forks must have one thread."""
    assert "numpy" not in sys.modules, "NumPy's threads are there already"
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # The same last digits on every machine: a verdict that one found is one on another.
    os.environ["OPENBLAS_CORETYPE"] = "Haswell"
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


class Seen(NamedTuple):
    """What a judge saw: words with their numbers taken out, and all numbers in order."""

    bits: str  # a hash of everything, to the last bit
    words: str
    numbers: Any

    def is_nearly(self, other: Seen) -> bool:
        """Whether only the last digits of numbers differ."""
        import numpy as np

        return (
            self.words == other.words
            and self.numbers.shape == other.numbers.shape
            and np.allclose(self.numbers, other.numbers, rtol=LAST_DIGITS, atol=0, equal_nan=True)
        )


NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")


def digest(seen: Any) -> Seen:
    """The same for the same numbers."""
    import numpy as np

    bits, words, numbers = hashlib.sha256(), hashlib.sha256(), []

    def text(value: str) -> None:
        bits.update(value.encode())
        words.update(NUMBER.sub("#", value).encode())
        numbers.append(np.array([float(n) for n in NUMBER.findall(value)]))

    def walk(value: Any) -> None:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            bits.update(value.tobytes())
            words.update(repr(value.shape).encode())
            numbers.append(value.ravel().astype(np.float64))
        elif isinstance(value, (list, tuple, np.ndarray)):
            words.update(f"[{len(value)}".encode())
            for part in value:
                walk(part)
        elif isinstance(value, dict):
            walk(sorted(value.items(), key=str))
        elif isinstance(value, (float, np.floating)):
            bits.update(float(value).hex().encode())
            numbers.append(np.array([float(value)]))
        else:
            text(f"{type(value).__name__}:{value!r}")

    walk(seen)
    return Seen(bits.hexdigest(), words.hexdigest(), np.concatenate([np.zeros(0), *numbers]))


def in_child(work: Callable[[], Any], longest: float) -> Any:
    """What work returns in a forked process, or words on how that process ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read)
            signal.setitimer(signal.ITIMER_PROF, longest)  # of a processor: others may need it too
            signal.alarm(math.ceil(40 * longest))  # it waits for what never comes
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
    return collect_timed(pid, read)[0]


def collect_timed(pid: int, read: int) -> tuple[Any, float]:
    """And the seconds of a processor that it took."""
    with os.fdopen(read, "rb") as source:
        data = source.read()
    _, status, used = os.wait4(pid, 0)
    seconds = round(used.ru_utime + used.ru_stime, 3)
    if data:
        return pickle.loads(data), seconds
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGPROF):
        return "it does not end", seconds
    return f"the process ended with status {status}", seconds


def root() -> Path:
    spec = importlib.util.find_spec(targets.PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def file_of(module: str) -> Path:
    path = root().joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


HERE = str(Path(__file__).parent) + os.sep


class Profile:
    """Which of our functions run, as module:function; the judges' own begin with a slash."""

    def __init__(self) -> None:
        self.prefix = str(root()) + os.sep
        self.names: dict[CodeType, str] = {}
        self.running: set[str] = set()
        self.calls = 0

    def name_of(self, code: CodeType) -> str:
        if code.co_filename.startswith(self.prefix):
            parts = Path(code.co_filename[len(self.prefix) :]).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        elif code.co_filename.startswith(HERE):
            module = f"/{code.co_filename[len(HERE) :]}"
        else:
            return ""
        path = [p for p in code.co_qualname.split(".") if not p.startswith("<")]
        return f"{module}:{'.'.join(path) or '<module>'}"

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        self.calls += 1
        if event == "call":
            code = frame.f_code
            if code not in self.names:
                self.names[code] = self.name_of(code)
            self.running.add(self.names[code])

    def of(self, work: Callable[[], Any]) -> tuple[Any, set[str]]:
        """What work returns, and what it ran."""
        self.running, self.calls = set(), 0
        sys.setprofile(self)
        try:
            result = work()
        finally:
            sys.setprofile(None)
        return result, self.running - {""}


def fingerprint(*what: Any) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:24]


class Rest(NamedTuple):
    """Judges who are asked only of a mutant that changed a number, and what they may take."""

    judges: list[str]
    seconds: float


NOBODY = Rest([], 0.0)


class Texts:
    """The words of a function with what its module has outside of functions, by module:function."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[dict[str, str], str]] = {}

    def of(self, name: str) -> str:
        module, _, function = name.partition(":")
        if module not in self.files:
            file = Path(HERE) / module[1:] if module.startswith("/") else file_of(module)
            self.files[module] = operators.texts_of(file.read_text(encoding="utf-8"))
        functions, outside = self.files[module]
        words = functions.get(function, functions.get(function.partition(".")[0], ""))
        return f"{name}\n{words}\n{outside if not module.startswith('/') else ''}"


def cost_of(calls: int) -> float:
    """What a judge costs: seconds would be others each time, and so would be who is asked."""
    return 2.0 ** (round(4 * math.log2(calls)) / 4)


def print_of(judge: str, ran: set[str], saw: Seen, texts: Texts) -> str:
    """What a verdict of this judge follows from: another print, and it must be asked again."""
    from judges import BANDITS

    own = sorted(texts.of(name) for name in ran if name.startswith("/"))
    return fingerprint(own, BANDITS.get(judge.partition(": ")[2]), saw.bits)


def baseline_for(file: Path | None, workers: int) -> Baseline:
    """The baseline, or the one that is kept beside the verdicts, if not a letter has changed."""
    paths = sorted([*root().rglob("*.py"), *root().glob("_core*"), *Path(HERE).rglob("*.py")])
    print_ = fingerprint([(path.name, path.read_bytes()) for path in paths])
    kept = file and file.with_suffix(".baseline")
    if kept is not None and kept.exists():
        was, found = pickle.loads(kept.read_bytes())
        if was == print_:
            return found  # type: ignore[no-any-return]
    found = take_baseline(workers)
    if kept is not None:
        kept.write_bytes(pickle.dumps((print_, found)))
    return found


def take_baseline(workers: int) -> Baseline:
    """Run every judge on the code as it ships, noting which functions it runs."""
    texts = Texts()

    def work(part: int) -> tuple[list[Seeing], set[str]]:
        profile = Profile()
        _, imported = profile.of(import_ours)
        import judges

        found = []
        for name, judge in [*judges.JUDGES.items()][part::workers]:
            forget()
            begun = time.process_time()
            saw, ran = profile.of(judge)
            seconds = time.process_time() - begun
            ran |= getattr(judge, "reaches", set())
            ours = {each for each in ran if not each.startswith("/")}
            seen = digest(saw)
            print_ = print_of(name, ran, seen, texts)
            found.append(Seeing(name, seen, cost_of(profile.calls), seconds, ours, print_))
        return found, imported

    taken = [_accepted(found) for found in in_parts(work, workers)]
    each = interleaved([found for found, _ in taken])
    return Baseline(
        {one.judge: one.seen for one in each},
        {one.judge: one.cost for one in each},
        {one.judge: one.seconds for one in each},
        {one.judge: one.reached for one in each},
        taken[0][1],
        {one.judge: one.print_ for one in each},
    )


def in_parts(work: Callable[[int], Any], workers: int) -> list[Any]:
    """What work returns for each part, each in a process of its own, or words on how that ended."""
    parts = [
        in_child(lambda part=part: _or_words(lambda: work(part)), 900)  # type: ignore[misc]
        for part in range(workers)
    ]
    return [collect(*part) for part in parts]


def interleaved(parts: list[list[Any]]) -> list[Any]:
    """The first of each, the second of each, and so on: what `every[part::len(parts)]` took apart."""
    return [one for row in itertools.zip_longest(*parts) for one in row if one is not None]


def _accepted(found: Any) -> tuple[list[Seeing], set[str]]:
    if not isinstance(found, tuple):
        raise RuntimeError(f"the judges refuse the code as it ships: {found}")
    return found


def import_ours() -> None:
    """All covered modules, and the judges."""
    import judges  # noqa: F401

    for module in targets.sources():
        importlib.import_module(f"{targets.PACKAGE}.{module}".rstrip("."))
    for module in ("auditor.verify", "privacy.noises.check", "auditor.warm"):
        importlib.import_module(f"{targets.PACKAGE}.{module}")


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


def concerned(mutant: Mutant, baseline: Baseline, share: float) -> list[str]:
    """The nearest judges that run the mutant's function. What nearly every bandit runs is tried on a
    bandit of each algorithm, not on every form of it."""
    return nearest(fewer(reaching(mutant, baseline)), baseline.costs, share)


def reaching(mutant: Mutant, baseline: Baseline) -> list[str]:
    """The judges that run the mutant's function; first those that are quick and run little else.

    Outside functions all do, those first that run something of its module.
    """
    by_name = baseline.by_name
    name = place_of(mutant)
    if mutant.outside or name in baseline.imported:
        near = by_name.get(f"{mutant.module}:", [])
        return near if len(near) >= 10 else by_name[""]
    return by_name.get(name, [])


def rest(every: list[str], wanted: list[str], seconds: dict[str, float]) -> Rest:
    """Those of the judges that are not among the wanted."""
    others = [judge for judge in every if judge not in set(wanted)]
    return Rest(others, 2.0 + SLOWER * sum(seconds[judge] for judge in others))


def nearest(judges: list[str], costs: dict[str, float], share: float) -> list[str]:
    """The first of them, as many as there is time for: what nearly every bandit runs is not put
    before all judges of bandits."""
    kept: list[str] = []
    left = share * sum(costs.values())
    for judge in judges:
        left -= costs[judge]
        if left < 0 and len(kept) >= FEWEST:
            break
        kept.append(judge)
    return kept


def fewer(judges: list[str]) -> list[str]:
    """Of judges that look at one bandit each: those with an algorithm, a noise or an option that no
    bandit before had, for each kind of judge."""
    from judges import BANDITS

    had: dict[str, set[str]] = {}
    kept = []
    for judge in judges:
        kind, colon, label = judge.partition(": ")
        if colon:
            algorithm, options, _attained = BANDITS[label]
            named = (str(options.get(name)) for name in ("noise", "horizon", "unit"))
            parts = {algorithm, *options, *named}
            if parts <= had.setdefault(kind, set()):
                continue
            had[kind] |= parts
        kept.append(judge)
    return kept


class Before:
    """What earlier runs found, by the answers that it follows from."""

    def __init__(self, found: Iterable[Verdict] = ()) -> None:
        self.found: dict[tuple[str, ...], Verdict] = {}
        self.passed: set[str] = set()  # answers that noticed nothing
        self.open: set[str] = set()  # mutants that a number changed by, or that nothing reached
        for verdict in found:
            self.found[tuple(verdict.seen)] = verdict
            (self.open.add if verdict.verdict in OPEN else self.open.discard)(verdict.words)
            if verdict.verdict == "equivalent":
                self.passed |= set(verdict.seen)

    def verdict(self, answers: dict[str, str]) -> Verdict | None:
        """On a mutant that would get these answers, by judge."""
        everybody = tuple(answers.values())
        for each in (everybody, *((answer,) for answer in everybody)):
            verdict = self.found.get(each)
            if verdict is not None and (each == everybody or verdict.verdict == "killed"):
                return verdict
        if answers and self.passed.issuperset(everybody):
            return Verdict("", "", "", "equivalent", "", 0.0, everybody)
        return None

    def left(self, answers: dict[str, str]) -> list[str]:
        """The judges who have not said that they notice nothing."""
        return [judge for judge, answer in answers.items() if answer not in self.passed]


def answers_of(what: str, wanted: list[str], prints: dict[str, str]) -> dict[str, str]:
    """By judge: a hash of all that its answer on a mutant follows from."""
    return {judge: fingerprint(what, judge, prints[judge]) for judge in sorted(wanted)}


def followed(verdict: str, by: str, answers: dict[str, str]) -> tuple[str, ...]:
    """The answers that a verdict follows from: where one refuses, the others do not matter."""
    judge = by.rpartition(": ")[0]
    if verdict == "killed" and judge in answers:
        return (answers[judge],)
    return tuple(answers.values())


def ask(
    judges: dict[str, Any], wanted: list[str], others: Rest, before: dict[str, Seen]
) -> tuple[str, str]:
    """The verdict of these judges, and whose it is; of the others too where a number changed."""
    changed = nearly = ""
    for name in wanted:
        try:
            seen = digest(judges[name]())
        except BaseException as error:
            return "killed", f"{name}: {type(error).__name__}"
        if seen.bits == before[name].bits:
            continue
        if seen.is_nearly(before[name]):
            nearly = nearly or name
        else:
            changed = changed or name
    if changed and others.judges:
        signal.setitimer(signal.ITIMER_PROF, others.seconds)
        signal.alarm(math.ceil(40 * others.seconds))
        verdict, by = ask(judges, others.judges, NOBODY, before)
        if verdict == "killed":
            return verdict, by
    if changed:
        return "survived", changed
    return ("last digits", nearly) if nearly else ("equivalent", "")


def put_in(mutant: Mutant, source: str) -> bool:
    """Give a function that is imported already its mutated code. False: it is not to be found."""
    file = str(file_of(mutant.module))
    tree = compile(operators.mutated(source, mutant), file, "exec")
    codes = {(c.co_qualname, c.co_firstlineno): c for c in _codes(tree)}
    found = False
    for function in FUNCTIONS.get(file, []):
        old = function.__code__
        new = codes.get((old.co_qualname, old.co_firstlineno))
        if new is not None and new.co_freevars == old.co_freevars and new != old:
            function.__code__ = new
            found = True
    return found


# Our functions by file, once they are imported: looked for once, not in every child.
FUNCTIONS: dict[str, list[FunctionType]] = {}


def note_functions() -> None:
    prefix = str(root()) + os.sep
    for found in gc.get_objects():
        if not isinstance(found, FunctionType) or "<locals>" in found.__code__.co_qualname:
            continue
        if found.__code__.co_filename.startswith(prefix):
            FUNCTIONS.setdefault(found.__code__.co_filename, []).append(found)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def import_mutant(mutant: Mutant, source: str) -> None:
    """Import everything, with that one module changed."""
    name = f"{targets.PACKAGE}.{mutant.module}".rstrip(".")
    code = compile(operators.mutated(source, mutant), str(file_of(mutant.module)), "exec")
    sys.meta_path.insert(0, Changed(name, code))
    import_ours()


def try_mutant(mutant: Mutant, source: str, wanted: list[str], baseline: Baseline) -> Any:
    """In a child: put the mutant in, and ask the judges."""
    warnings.simplefilter("ignore")
    if f"{targets.PACKAGE}.{mutant.module}".rstrip(".") in sys.modules:
        if not put_in(mutant, source):
            return "again", ""
    else:
        try:
            import_mutant(mutant, source)
        except BaseException as error:
            return "killed", f"import: {type(error).__name__}"
    import judges

    others = rest(reaching(mutant, baseline), wanted, baseline.seconds)
    return ask(judges.JUDGES, wanted, others, baseline.digests)


def run(
    mutants: list[Mutant],
    workers: int,
    before: Before,
    share: float,
    out: Path | None,
    say: Callable[[str], None],
) -> Iterator[Verdict]:
    """The verdict on each, in the order in which they end; first those that were found before."""
    sources, baseline = targets.sources(), baseline_for(out, workers)
    texts, answers, again, wanted = Texts(), {}, [], {}
    for mutant in mutants:
        asked = concerned(mutant, baseline, share)
        answers[str(mutant)] = found = answers_of(_identity(mutant, texts), asked, baseline.prints)
        if verdict := before.verdict(found):
            yield _verdict(mutant, verdict.verdict, verdict.by, verdict.seconds)._replace(
                seen=verdict.seen
            )
        else:
            again.append(mutant)
            left = set(before.left(found))
            wanted[mutant.name] = [judge for judge in asked if judge in left]
    say(
        f"{len(baseline.digests)} judges; {len(mutants)} mutants, of which "
        f"{len(mutants) - len(again)} have their verdict"
    )
    for found_ in _all(again, workers, sources, baseline, wanted):
        seen = followed(found_.verdict, found_.by, answers[found_.words])
        yield found_._replace(seen=seen)


def _identity(mutant: Mutant, texts: Texts) -> str:
    """A mutant by what it changes, wherever that stands."""
    return fingerprint(mutant.name, mutant.before, mutant.after, texts.of(place_of(mutant)))


def _all(
    mutants: list[Mutant],
    workers: int,
    sources: dict[str, str],
    baseline: Baseline,
    wanted: dict[str, list[str]],
) -> Iterator[Verdict]:

    def anew(mutant: Mutant) -> bool:
        return mutant.outside or place_of(mutant) in baseline.imported

    # What must be imported anew, and code that cannot be swapped (it needs other variables from
    # outside), waits for a process that has imported nothing of ours: a child that sleeps meanwhile.
    pid, names, verdicts = _aside(workers, sources, baseline, {m.name: m for m in mutants}, wanted)
    import_ours()
    note_functions()
    gc.freeze()
    again = [m for m in mutants if anew(m)]
    at_once = [m for m in mutants if not anew(m)]
    yield from _run(at_once, workers, sources, baseline, wanted, again)
    with os.fdopen(names, "wb") as out:
        out.write(pickle.dumps([mutant.name for mutant in again]))
    with os.fdopen(verdicts, encoding="utf-8") as back:
        for line in back:
            yield Verdict(**json.loads(line))
    os.waitpid(pid, 0)


def _aside(
    workers: int,
    sources: dict[str, str],
    baseline: Baseline,
    mutants: dict[str, Mutant],
    judges: dict[str, list[str]],
) -> tuple[int, int, int]:
    """A child that waits for names of mutants, imports each anew and says the verdicts."""
    names_in, names_out = os.pipe()
    verdicts_in, verdicts_out = os.pipe()
    pid = os.fork()
    if pid:
        os.close(names_in)
        os.close(verdicts_out)
        return pid, names_out, verdicts_in
    os.close(names_out)
    os.close(verdicts_in)
    try:
        with os.fdopen(names_in, "rb") as source:
            names = source.read()  # nothing: the parent has ended
            wanted = [mutants[name] for name in pickle.loads(names)] if names else []
        with os.fdopen(verdicts_out, "w", encoding="utf-8") as out:
            for verdict in _run(wanted, workers, sources, baseline, judges, []):
                out.write(json.dumps(verdict._asdict()) + "\n")
                out.flush()
    finally:
        os._exit(0)


def _verdict(mutant: Mutant, verdict: str, by: str, seconds: float) -> Verdict:
    return Verdict(
        place_of(mutant), f"{mutant.before} → {mutant.after}", str(mutant), verdict, by, seconds
    )


def _run(
    mutants: list[Mutant],
    workers: int,
    sources: dict[str, str],
    baseline: Baseline,
    wanted: dict[str, list[str]],
    again: list[Mutant],
) -> Iterator[Verdict]:
    for mutant in mutants:
        if not wanted[mutant.name]:
            yield _verdict(mutant, "unreached", "", 0.0)

    killers: dict[str, Counter[str]] = {}  # what killed others of a function asks first
    late = {name: s * len(baseline.reached[name]) ** 2 for name, s in baseline.seconds.items()}

    def work(mutant: Mutant) -> Any:
        first = killers[place_of(mutant)]
        judges = sorted(wanted[mutant.name], key=lambda judge: (-first[judge], late[judge]))
        return try_mutant(mutant, sources[mutant.module], judges, baseline)

    reached = [mutant for mutant in mutants if wanted[mutant.name]]
    for mutant in reached:
        killers[place_of(mutant)] = Counter()

    def longest(mutant: Mutant) -> float:
        return long_enough(baseline.seconds[judge] for judge in wanted[mutant.name])

    def note(mutant: Mutant, verdict: str, by: str) -> None:
        killers[place_of(mutant)][by.rpartition(": ")[0]] += verdict == "killed"

    found = in_children(reached, work, workers, longest, place_of, note)
    for mutant, verdict, by, seconds in found:
        if verdict == "again":
            again.append(mutant)
        else:
            yield _verdict(mutant, verdict, by, seconds)


def place_of(mutant: Mutant) -> str:
    return f"{mutant.module}:{mutant.function}"


def long_enough(seconds: Iterable[float]) -> float:
    """What a mutant may take, of a processor, where its judges take so long: importing takes one."""
    return min(2.0 + SLOWER * sum(seconds), LONGEST)


def in_children(
    given: Iterable[Any],
    work: Callable[[Any], Any],
    workers: int,
    longest: Callable[[Any], float],
    near: Callable[[Any], Hashable],
    note: Callable[[Any, str, str], None],
) -> Iterator[tuple[Any, str, str, float]]:
    """What work says of each, in a process of its own: verdict, by whom, and how long it worked.

    Each worker is a process that forks in turn, so that no two wait for one to fork. It takes a few
    that are near each other at a time, and notes what was said of each before it goes on.
    """
    every = list(given)
    lots: dict[Hashable, list[int]] = {}
    for number, one in enumerate(every):
        lots.setdefault(near(one), []).append(number)
    jobs = [lot[at : at + LOT] for lot in lots.values() for at in range(0, len(lot), LOT)]
    # What is next, four bytes each: a pipe holds 2¹⁶, and gives to one reader at a time.
    assert len(jobs) < 2**14
    next_, tokens = os.pipe()
    os.write(tokens, b"".join(number.to_bytes(4, "little") for number in range(len(jobs))))
    os.close(tokens)
    said, say = os.pipe()

    def take() -> None:
        while token := os.read(next_, 4):
            for number in jobs[int.from_bytes(token, "little")]:
                one = every[number]
                found, seconds = collect_timed(*in_child(lambda one=one: work(one), longest(one)))  # type: ignore[misc]
                verdict, by = found if isinstance(found, tuple) else ("killed", found)
                note(one, verdict, by)
                # Lines shorter than 4,096 bytes are never mixed.
                os.write(say, f"{json.dumps([number, verdict, by[:2_000], seconds])}\n".encode())

    pids = []
    for _ in range(min(workers, len(jobs))):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(said)
                take()
                status = 0
            finally:
                os._exit(status)
        pids.append(pid)
    os.close(say)
    os.close(next_)
    with os.fdopen(said, encoding="utf-8") as lines:
        for line in lines:
            number, verdict, by, seconds = json.loads(line)
            yield every[number], verdict, by, seconds
    ended = [os.waitpid(pid, 0)[1] for pid in pids]
    if any(ended):
        raise RuntimeError(f"workers ended with {ended}")


def try_sample() -> list[str]:
    """Try the mutants of sample.py, each before the one judge that must refuse it; what is wrong."""
    from sample import sample

    prepare()
    sources = targets.sources()
    mutants: dict[str, list[Mutant]] = {}
    for module, source in sources.items():
        for mutant in operators.mutants_of(module, source):
            mutants.setdefault(f"{module}:{mutant.function}", []).append(mutant)
    import_ours()
    note_functions()
    gc.freeze()
    import judges

    wrong = []
    for line in sample():
        same = [
            m
            for m in mutants.get(line.function, [])
            if (m.before, m.after) == (line.before, line.after)
        ]
        if not same or line.judge not in judges.JUDGES:
            wrong.append(
                f"{line.function}: {line.before} → {line.after} before {line.judge!r} is not there "
                "any more: say in tests/mutants/sample.py what it is now"
            )
            continue
        for mutant in same:

            def work(mutant: Mutant = mutant, judge: str = line.judge) -> str:
                warnings.simplefilter("ignore")
                if not put_in(mutant, sources[mutant.module]):
                    return "its code could not be put in"
                try:
                    judges.JUDGES[judge]()
                except Exception:
                    return ""
                return f"the judge {judge!r} does not refuse it"

            found = collect(*in_child(work, LONGEST))
            if found:
                wrong.append(f"{line.what}: {mutant}: {found}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sample", type=int, help="only so many, always the same ones")
    parser.add_argument("--only", default="", help="only those whose names begin so, in this order")
    parser.add_argument(
        "--share",
        type=float,
        default=SHARE,
        help="of the judges' work that a mutant gets; a later run with more asks those left",
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--out", type=Path, help="add verdicts here as they come, a line each; go on there"
    )
    parser.add_argument(
        "--open", action="store_true", help="only those that the run before leaves to be explained"
    )
    parser.add_argument("--short", action="store_true", help="the mutants of sample.py alone")
    given = parser.parse_args()
    if given.short:
        wrong = try_sample()
        print("\n".join(wrong) or "all refused")
        return 1 if wrong else 0
    prepare()
    mutants = targets.all_mutants()
    random.Random(SEED).shuffle(mutants)
    mutants = mutants[: given.sample]
    rooms = given.only.split(",")
    mutants = [m for m in mutants if m.name.startswith(tuple(rooms))]
    mutants.sort(key=lambda m: next(n for n, room in enumerate(rooms) if m.name.startswith(room)))
    start = time.perf_counter()
    found: list[Verdict] = []
    before = begin_anew(given.out)
    if given.open:
        mutants = [mutant for mutant in mutants if str(mutant) in before.open]
    say = functools.partial(print, flush=True)
    for verdict in run(mutants, given.workers, before, given.share, given.out, say):
        found.append(verdict)
        report(verdict, given.out, len(found), start)
    count = Counter(verdict.verdict for verdict in found)
    print(f"{dict(count)} in {time.perf_counter() - start:.0f} s")
    return 1 if count["survived"] else 0


def begin_anew(file: Path | None) -> Before:
    """What earlier runs found. The file begins anew; what was in it is beside it, in `.before`."""
    if file is None:
        return Before()
    kept = file.with_suffix(".before")
    if file.exists():
        with kept.open("a", encoding="utf-8") as out:
            out.write(file.read_text(encoding="utf-8"))
        file.unlink()
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    return Before(Verdict(**json.loads(line)) for line in lines)


def report(verdict: Verdict, file: Path | None, number: int, start: float) -> None:
    if verdict.verdict in ("survived", "unreached"):
        print(f"{verdict.verdict}: {verdict.words}  [{verdict.by}]", flush=True)
    if number % 500 == 0:
        print(f"… {number}, {time.perf_counter() - start:.0f} s", flush=True)
    if file is not None:
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(verdict._asdict(), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
