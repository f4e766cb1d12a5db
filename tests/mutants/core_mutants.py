"""Mutants of the compiled core: all of them in one library, and a number says which one is on.

    python tests/mutants/core_mutants.py                the whole core
    python tests/mutants/core_mutants.py --only noise   the files whose names begin so

The headers are copied and their lines changed, so that every place asks `dpb_mutant`: `a * b` becomes
`a *Mul<7>{}* b`, whose operators multiply unless 7 is on and divide if it is; `1` becomes
`(dpb_on(8) ? 2 : 1)`; a statement gets `if (!dpb_on(9))` before it. That keeps precedence
without parsing C++. Lines that do not compile so (constants of templates, array sizes) are found by
the compiler and left as they are. One build for the narrowest width, without much optimisation; each
mutant then runs in a fork, before the judges that compare the core with the reference.

A line is named by its file and its text, never by its number.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import runner
import targets
from runner import Verdict

SOURCE = Path(__file__).parents[2] / "src" / "core"
# What decides what is released, and how much noise it has. By path below src/core.
COVERED = (
    "admit.hpp",
    "fixed.hpp",
    "noise.hpp",
    "release/anytime.hpp",
    "release/episodes.hpp",
    "release/toeplitz.hpp",
    "release/tree.hpp",
    "learner/bound.hpp",
    "learner/local.hpp",
    "bandit/common.hpp",
    "bandit/moments.hpp",
    "bandit/parameter.hpp",
    "bandit/joint.hpp",
    "bandit/arms.hpp",
    "bandit/batches.hpp",
    "bandit/anytime.hpp",
    "bandit/clear.hpp",
    "bandit/pair.hpp",
    "held.hpp",
)
# Parts of those that are left out: from the line with the first text up to the line with the other.
SPARED = {
    ("bandit/batches.hpp", "// 1 − e^−x", "struct Batches"): "the index, of what was released",
    (
        "bandit/batches.hpp",
        "// Chernoff's bound",
        "void fields(",
    ): "the index, of what was released",
    (
        "bandit/anytime.hpp",
        "// Clicks are 0 or 1",
        "// Learn from a log's noisy sum",
    ): "priors, memories and bonuses: of what was released",
    (
        "bandit/pair.hpp",
        "void learn_moments(",
        "void turn_whitener(",
    ): "filters of what was released",
    (
        "bandit/pair.hpp",
        "copy(second, one, l.square());",
        "d.seen = d.slope",
    ): "whitens what was released",
    ("bandit/pair.hpp", "// What `choose` looks at", "void fields("): "reads the filters",
    ("held.hpp", "int play(const Rounds", "// ---"): "plays simulated worlds",
    (
        "learner/local.hpp",
        "// How many times what was played",
        "void forget(",
    ): "how far to explore: answers that were released",
}
LEFT_OUT = {
    "learner, but bound.hpp and local.hpp": "ridge regression, filters, bank, directions, prior, scale: "
    "public numbers and what was released",
    "policy": "picks arms from what was released",
    "module": "hands arrays over to Python",
    "eigen.hpp": "eigenvalues of released matrices",
    "log.hpp": "rows of logs: tests/bandits/test_warm_start.py compares it with its reference",
    "random.hpp": "seeded noise, which protects nobody; its bits are compared with the reference's",
    "worlds.hpp": "draws simulated worlds",
    "cpu.hpp, vector.hpp, linalg.hpp, fields.hpp, interface.hpp": "instructions, algebra and names",
}

SWAPPED = {"*": ("Mul", "/"), "/": ("Div", "*"), "+": ("Add", "-"), "-": ("Sub", "+")}
COMPARED = {"<": ("Lt", "<="), "<=": ("Le", "<"), ">": ("Gt", ">="), ">=": ("Ge", ">")}
COMPARED |= {"==": ("Eq", "!="), "!=": ("Ne", "==")}
BITS = {
    "<<": ("Shl", ">>"),
    ">>": ("Shr", "<<"),
    "&": ("And", "|"),
    "^": ("Xor", "|"),
    "|": ("Or", "&"),
}
OPERATORS = {**SWAPPED, **COMPARED, **BITS}
BINARY = re.compile(r"(?<=[\w)\]]) (\*|/|\+|-|<=|>=|<<|>>|<|>|==|!=|&|\^|\|) (?=[\w(*!~-])")
LITERAL = re.compile(r"(?<![\w.'\"])(0\.5|[0-2])(?![\w.'\"])")
OTHER = {"0": "1", "1": "2", "2": "3", "0.5": "1.0"}
CALLED = re.compile(r"\b(larger|smaller|root|magnitude)\(")
STATEMENT = re.compile(r"^\s+(?:for \(.*\) )?(?:\*?[a-z_]\w*(?:\.|->|\[|\())?.*;\s*(?://.*)?$")
DECLARES = re.compile(
    r"^\s+(?:const |static |constexpr |auto |using |typedef |struct |enum |return\b|break|continue|case |"
    r"default|if |else|switch|friend |template)|^\s+[A-Za-z_][\w:<>]*[*&]* [*&]*[A-Za-z_]\w*\s*(?:[=;,({\[]|$)"
)
UNSAFE = re.compile(
    r"\bfor \(|^\s*(?:#|//|template|enum|static_assert|case |constexpr|using )|operator|__attribute__"
    # Memory, not numbers: no judge sees a block that is too small.
    r"|\bfresh\(|\bfree\(|\bforget\(|__builtin_trap"
)

MOST = 8192  # places
HEADER = """// Written by tests/mutants/core_mutants.py.
#pragma once
extern "C" int dpb_mutant;
extern "C" unsigned char dpb_seen[];
// Whether mutant n is on; that its place was reached is noted.
static inline __attribute__((always_inline)) bool dpb_on(int n) {
    dpb_seen[n] = 1;
    return dpb_mutant == n;
}
namespace dpb_mutants {
template <class A, class T> struct Half { A a; };
"""


class Place(NamedTuple):
    """One change of one line."""

    number: int
    file: str
    line: int
    text: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.file}: {self.kind}: {self.text}"


def header() -> str:
    parts = [HEADER]
    for op, (tag, other) in OPERATORS.items():
        parts.append(
            f"template <int N> struct {tag} {{}};\n"
            f"template <class A, int N> inline __attribute__((always_inline)) "
            f"Half<A, {tag}<N>> operator{op}(A a, {tag}<N>) {{ return {{a}}; }}\n"
            f"template <class A, int N, class B> inline __attribute__((always_inline)) "
            f"auto operator{op}(Half<A, {tag}<N>> h, B b) {{ return dpb_on(N) ? h.a {other} b : h.a {op} b; }}\n"
        )
    return "".join(parts) + "}  // namespace dpb_mutants\n"


def closing(text: str, opening: int) -> int:
    """Where the bracket that opens at `opening` closes; −1: on another line."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return -1


class Writer:
    """Changes lines, and numbers the changes."""

    def __init__(self, refused: set[tuple[str, int, str]]) -> None:
        self.refused, self.places = refused, [Place(0, "", 0, "", "")]

    def number(self, file: str, line: int, text: str, kind: str) -> int | None:
        if (file, line, kind) in self.refused:
            return None
        self.places.append(Place(len(self.places), file, line, text.strip(), kind))
        return len(self.places) - 1

    def change(self, file: str, line: int, text: str, before: str) -> str:
        code, slash, words = text.partition("//")
        if UNSAFE.search(code) or not code.strip():
            return text
        original = code

        def replaced(found: re.Match[str]) -> str:
            other = OTHER.get(found[1]) or OPERATORS[found[1]][1]
            number = self.number(file, line, original, f"{found[1]} → {other} at {found.start()}")
            if number is None:
                return found[0]
            if found[1] in OTHER:
                return f"(dpb_on({number}) ? {other} : {found[1]})"
            return f" {found[1]}dpb_mutants::{OPERATORS[found[1]][0]}<{number}>{{}}{found[1]} "

        # From the end, so that places stay where they were found.
        found_here = [*LITERAL.finditer(code), *BINARY.finditer(code)]
        for found in sorted(found_here, key=lambda each: -each.start()):
            code = code[: found.start()] + replaced(found) + code[found.end() :]
        at = 0
        while found := CALLED.search(code, at):
            end = closing(code, found.end() - 1)
            at = found.end()
            if end < 0:
                continue
            inside = code[found.end() : end]
            twin = {"larger": "smaller", "smaller": "larger"}.get(found[1], "")
            number = self.number(
                file, line, original, f"{found[1]} → {twin or 'nothing'} at {found.start()}"
            )
            if number is not None:
                call = f"(dpb_on({number}) ? {twin}({inside}) : {found[1]}({inside}))"
                code = code[: found.start()] + call + code[end + 1 :]
                at = found.start() + len(call)
        starts = before.rstrip().endswith((";", "{", "}")) or not before.strip()
        if (
            starts
            and STATEMENT.match(original)
            and not DECLARES.match(original)
            and original.count("{") == original.count("}")
        ):
            number = self.number(file, line, original, "dropped")
            if number is not None:
                indent = len(code) - len(code.lstrip())
                code = f"{code[:indent]}if (!dpb_on({number})) {code[indent:]}"
        return code + slash + words


def _spared_lines(name: str, lines: list[str]) -> set[int]:
    """The numbers of lines that are left out."""
    found: set[int] = set()
    for file, first, last in SPARED:
        if file == name:
            starts = [at for at, line in enumerate(lines, 1) if first in line]
            ends = [
                at for at, line in enumerate(lines, 1) if last in line and starts and at > starts[0]
            ]
            if not ends:
                raise LookupError(
                    f"tests/mutants/core_mutants.py spares {name} from {first!r} to {last!r}, which "
                    "is not there: say in SPARED what it is now"
                )
            found |= set(range(starts[0], ends[0]))
    return found


def write(folder: Path, refused: set[tuple[str, int, str]], only: str) -> list[Place]:
    """The sources with every mutant in them."""
    missing = [name for name in COVERED if not (SOURCE / name).is_file()]
    if missing:
        raise LookupError(
            f"tests/mutants/core_mutants.py covers src/core/{missing[0]}, which is not there: say in COVERED "
            "where its lines are now"
        )
    writer = Writer(refused)
    for source in SOURCE.rglob("*"):
        if not source.is_file():
            continue
        name = source.relative_to(SOURCE).as_posix()
        text = source.read_text(encoding="utf-8")
        if name in COVERED and name.startswith(only):
            lines, before = [], ""
            spared = _spared_lines(name, text.split("\n"))
            for at, line in enumerate(text.split("\n"), 1):
                lines.append(line if at in spared else writer.change(name, at, line, before))
                before = line.partition("//")[0] if line.partition("//")[0].strip() else before
            text = "\n".join(lines)
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    (folder / "mutants.hpp").write_text(header(), encoding="utf-8")
    stubs = '#include "interface.hpp"\nextern "C" __attribute__((visibility("default"))) int dpb_mutant = 0;\n'
    stubs += f'extern "C" __attribute__((visibility("default"))) unsigned char dpb_seen[{MOST}] = {{}};\n'
    stubs += "namespace dpb {\nextern const Arch arch_v3, arch_v4;\nconst Arch arch_v3 = {}, arch_v4 = {};\n}\n"
    (folder / "others.cpp").write_text(stubs, encoding="utf-8")
    return writer.places


ERROR = re.compile(r"([\w/.-]+\.hpp):(\d+):(\d+): (?:required from|error|  required)", re.MULTILINE)


def compile_(folder: Path, *arguments: str) -> str:
    """What the compiler says against it; empty: nothing."""
    flags = "-include mutants.hpp -std=c++17 -O1 -g0 -w -fPIC -fvisibility=hidden -fno-fast-math -ffp-contract=off -fno-math-errno"
    done = subprocess.run(
        [
            os.environ.get("CXX", "g++"),
            *flags.split(),
            "-fmax-errors=400",
            "-fno-diagnostics-show-caret",
            *arguments,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode else ""


CORE = ("-DDPB_ARCH=v2", "-march=x86-64-v2", "-fno-exceptions", "-fno-rtti")


def build(folder: Path, only: str) -> tuple[Path, list[Place]]:
    """The library, and the mutants that are in it."""
    import nanobind

    refused: set[tuple[str, int, str]] = set()
    for _ in range(12):
        places = write(folder, refused, only)
        words = compile_(folder, *CORE, "-fsyntax-only", "arch.cpp")
        if not words:
            break
        before = len(refused)
        for file, line, _column in ERROR.findall(words):
            name = os.path.normpath(file)
            known = [p for p in places if p.line == int(line) and p.file == name]
            refused |= {(p.file, p.line, p.kind) for p in known}
        if len(refused) == before:
            raise RuntimeError(
                f"the core with mutants does not compile, and no line is to blame:\n{words[:3000]}"
            )
    else:
        raise RuntimeError("the core with mutants does not compile after 12 tries")
    home = Path(nanobind.include_dir()).parent
    include = [
        f"-I{sysconfig.get_path('include')}",
        f"-I{home / 'include'}",
        f"-I{home / 'ext/robin_map/include'}",
    ]
    units = (
        ("arch.o", [*CORE, "-c", "arch.cpp"]),
        ("others.o", ["-c", "others.cpp"]),
        ("module.o", [*include, "-DNDEBUG", "-c", "module.cpp"]),
        (
            "nanobind.o",
            [*include, "-DNDEBUG", "-fno-strict-aliasing", "-c", str(home / "src/nb_combined.cpp")],
        ),
    )
    with ThreadPoolExecutor() as together:
        said = list(together.map(lambda unit: compile_(folder, *unit[1], "-o", unit[0]), units))
    for (name, _), words in zip(units, said, strict=True):
        if words:
            raise RuntimeError(f"{name} does not compile:\n{words[:3000]}")
    library = folder / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    words = compile_(
        folder, "-shared", *(name for name, _ in units), "-o", str(library), "-lpthread"
    )
    if words:
        raise RuntimeError(f"the library cannot be linked:\n{words[:3000]}")
    (folder / "places.json").write_text(json.dumps(places[1:]), encoding="utf-8")
    return library, places[1:]


def built_before(folder: Path) -> tuple[Path, list[Place]] | None:
    """What an earlier run built here, if it did."""
    library = folder / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not library.exists() or not (folder / "places.json").exists():
        return None
    places = json.loads((folder / "places.json").read_text(encoding="utf-8"))
    return library, [Place(*place) for place in places]


class Replaced(importlib.abc.MetaPathFinder):
    """Imports dpbandit._core from another file."""

    def __init__(self, library: Path) -> None:
        self.library = library

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != f"{targets.PACKAGE}._core":
            return None
        loader = importlib.machinery.ExtensionFileLoader(name, str(self.library))
        return importlib.util.spec_from_file_location(name, self.library, loader=loader)


def judges_of_the_core() -> dict[str, Any]:
    import judges

    wanted = ("both engines", "exact cost", "as shipped", "real noise")
    named = ("random_numbers", "engines_refuse_with_the_same_codes", "horizons_caps_and_failures")
    named += ("perturbed_contexts_keep_their_norm", "core_scores_are_the_references")
    named += ("engines_agree_to_the_last_bit", "shares_of_sums_are_the_same_whole_numbers")
    named += ("rounding_is_paid_for_where_a_is_nearly_singular", "fields_are_all_that_changes")
    named += ("bounds_of_both_engines_over_many_rounds", "long_trees_are_the_same_whole_numbers")
    named += ("logs_cost_what_is_claimed", "densities_of_both_engines")
    named += ("batches_are_learned_row_by_row", "engines_end_and_wait_where_they_must")
    named += ("nothing_is_learned_along_a_context_of_zeros", "engines_take_a_log_alike")
    named += (
        "phases_end_where_slates_say",
        "people_are_counted_by_what_was_learned_of_them",
        "lots_fall_as_propensities_say",
        "answers_cost_what_their_chances_say",
        "windows_open_where_all_residuals_reach_their_edge",
        "a_sudden_crowd_makes_old_sums_doubtful",
        "a_bound_that_no_longer_holds_is_made_anew",
    )
    missing = [name for name in named if name not in judges.JUDGES]
    if missing:
        raise LookupError(
            f"tests/mutants/core_mutants.py names the judge {missing[0]!r}: there is none"
        )
    return {n: j for n, j in judges.JUDGES.items() if n.startswith(wanted) or n in named}


def _verdict(place: Place, verdict: str, by: str, seconds: float) -> Verdict:
    change = f"{place.kind.partition(' at ')[0]}: {place.text}"
    return Verdict(place.file, change, _words(place), verdict, by, seconds)


def _words(place: Place) -> str:
    return f"{place.name} (line {place.line})"


def run(
    library: Path,
    everywhere: list[Place],
    places: list[Place],
    workers: int,
    before: runner.Before,
    share: float,
) -> Iterator[Verdict]:
    """The verdicts on these places; everywhere are all that are in the library."""
    os.environ["DPBANDIT_ARCH"] = "v2"
    sys.meta_path.insert(0, Replaced(library))
    runner.import_ours()
    import warnings

    warnings.simplefilter("ignore")
    loaded = ctypes.CDLL(str(library))
    switch = ctypes.c_int.in_dll(loaded, "dpb_mutant")
    touched = (ctypes.c_ubyte * MOST).in_dll(loaded, "dpb_seen")
    assert len(everywhere) < MOST
    judges = judges_of_the_core()

    def seeing(part: int) -> list[runner.Seeing]:
        found = []
        profile, texts = runner.Profile(), runner.Texts()
        for name, judge in [*judges.items()][part::workers]:
            ctypes.memset(touched, 0, MOST)
            begun = time.process_time()
            saw, ran = profile.of(judge)
            taken_s = time.process_time() - begun
            seen = runner.digest(saw)
            places_seen = {number for number, flag in enumerate(touched) if flag}
            lines = {(p.file, p.text) for p in everywhere if p.number in places_seen}
            python = runner.print_of(name, ran, seen, texts)
            print_ = runner.fingerprint(python, sorted(lines))
            cost = runner.cost_of(profile.calls)
            found.append(runner.Seeing(name, seen, cost, taken_s, places_seen, print_))
        return found

    taken = runner.in_parts(seeing, workers)
    for part in taken:
        if not isinstance(part, list):
            raise RuntimeError(f"the judges refuse the core without any mutant: {part}")
    each = runner.interleaved(taken)
    digests = {one.judge: one.seen for one in each}
    costs = {one.judge: one.cost for one in each}
    seconds = {one.judge: one.seconds for one in each}
    reached = {one.judge: one.reached for one in each}
    prints = {one.judge: one.print_ for one in each}
    order = sorted(judges, key=lambda name: costs[name] * len(reached[name]) ** 2)

    killers: dict[str, float] = defaultdict(float)

    reaching, wanted = {}, {}
    for place in places:
        found = [name for name in order if place.number in reached[name]]
        reaching[place.number] = found
        wanted[place.number] = runner.nearest(runner.fewer(found), costs, share)
    texts = {name: (SOURCE / name).read_text(encoding="utf-8") for name in COVERED}
    answers, tried = {}, []
    for place in places:
        what = runner.fingerprint(texts[place.file], place.line, place.kind)
        answered = runner.answers_of(what, wanted[place.number], prints)
        if not answered:
            yield _verdict(place, "unreached", "", 0.0)
        elif had := before.verdict(answered):
            known = _verdict(place, had.verdict, had.by, had.seconds)
            yield known._replace(seen=had.seen)
        else:
            left = set(before.left(answered))
            wanted[place.number] = [name for name in wanted[place.number] if name in left]
            answers[place.number] = answered
            tried.append(place)

    def work(place: Place) -> Any:
        switch.value = place.number
        asked = sorted(wanted[place.number], key=lambda name: -killers[name])
        others = runner.rest(reaching[place.number], asked, seconds)
        return runner.ask(judges, asked, others, digests)

    def longest(place: Place) -> float:
        return runner.long_enough(seconds[name] for name in wanted[place.number])

    def note(place: Place, verdict: str, by: str) -> None:
        if verdict == "killed":
            for name in killers:
                killers[name] *= 0.9  # neighbouring lines are killed by the same judges
            killers[by.rpartition(": ")[0]] += 1.0

    def near(place: Place) -> tuple[str, int]:
        return place.file, place.line // 8

    for place, verdict, by, taken_s in runner.in_children(
        tried, work, workers, longest, near, note
    ):
        seen = runner.followed(verdict, by, answers[place.number])
        yield _verdict(place, verdict, by, taken_s)._replace(seen=seen)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="only files whose names begin so")
    parser.add_argument("--sample", type=int, help="only so many, always the same ones")
    parser.add_argument("--share", type=float, default=1.0, help="as of runner.py")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--out", type=Path, help="add verdicts here as they come, a line each; go on there"
    )
    parser.add_argument("--open", action="store_true", help="as of runner.py")
    parser.add_argument("--folder", type=Path, help="build here, or use what was built here before")
    given = parser.parse_args()
    runner.prepare()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as passing:
        folder = given.folder or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        library, places = built_before(folder) or build(folder, given.only)
        everywhere = places = [place for place in places if place.file in COVERED]
        print(
            f"{len(places)} mutants in one library, built in {time.perf_counter() - start:.0f} s",
            flush=True,
        )
        if given.sample:
            step = max(1, len(places) // given.sample)
            places = places[::step][: given.sample]
        found: list[Verdict] = []
        before = runner.begin_anew(given.out)
        if given.open:
            places = [place for place in places if _words(place) in before.open]
        for verdict in run(library, everywhere, places, given.workers, before, given.share):
            found.append(verdict)
            runner.report(verdict, given.out, len(found), start)
    count = Counter(verdict.verdict for verdict in found)
    print(f"{dict(count)} in {time.perf_counter() - start:.0f} s")
    return 1 if count["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
