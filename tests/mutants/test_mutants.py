"""Every privacy-critical line is changed, and somebody notices.

`make test` runs the judges on the code as it ships, and a fixed sample of mutants before them;
`make test-all` runs all mutants, of Python and of the compiled core. See docs/audits.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import explained
import judges
import operators
import runner
import targets

HERE = Path(__file__).parent
pytestmark = pytest.mark.filterwarnings("ignore::dpbandit.errors.PrivacyWarning")
core = pytest.importorskip(
    "dpbandit._core", reason="the judges compare the reference with the core"
)


@pytest.mark.parametrize("name", sorted(judges.JUDGES))
def test_the_judge_accepts_the_code_as_it_ships(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judges.JUDGES[name]()


def run(script: str, *arguments: str, timeout: int) -> subprocess.CompletedProcess[str]:
    """In a process of its own: it forks, so it must have no threads."""
    paths = [str(HERE.parents[1] / "src"), *sys.path]
    return subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_a_sample_of_mutants_is_refused():
    done = run("runner.py", "--short", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_covered_and_spared_is_there():
    found = targets.all_mutants()
    assert len(found) > 4_000
    assert len({mutant.name for mutant in found}) == len(found)


def test_a_module_that_moved_is_an_error_that_says_where_to_look(monkeypatch):
    monkeypatch.setattr(targets, "COVERED", ("privacy", "gone"))
    with pytest.raises(LookupError, match=r"covers dpbandit\.gone"):
        targets.sources()
    monkeypatch.undo()
    monkeypatch.setitem(targets.SPARED, "privacy.grid:gone", "words")
    with pytest.raises(LookupError, match=r"spares privacy\.grid:gone"):
        targets.sources()
    monkeypatch.undo()
    monkeypatch.setitem(targets.LEFT_OUT, "privacy.gone", "words")
    with pytest.raises(LookupError, match=r"leaves out dpbandit\.privacy\.gone"):
        targets.sources()


def test_every_kind_of_change_is_made():
    source = (
        "def f(a, b):\n    a += 1\n    g(a, b)\n    if not a < b and a:\n        raise E\n"
        "    return max(a, -b) * sqrt(abs(a)) if b else 0.5\n"
    )
    kinds = {mutant.kind for mutant in operators.mutants_of("m", source)}
    assert kinds == {
        "arguments",
        "comparison",
        "condition",
        "connective",
        "constant",
        "dropped",
        "operator",
        "sign",
        "taken off",
        "twin",
    }
    for mutant in operators.mutants_of("m", source):
        compile(operators.mutated(source, mutant), "m", "exec")


def test_an_answer_is_kept_until_what_it_follows_from_changes():
    wanted = ["a", "b", "c"]
    prints = dict.fromkeys(wanted, "as it was")
    first = runner.answers_of("one mutant", wanted, prints)
    other = runner.answers_of("another", wanted, prints)
    old = runner.Verdict("f", "1 → 2", "f 1 → 2", "equivalent", "", 1.0, tuple(first.values()))
    refused = runner.Verdict(
        "g",
        "<",
        "g <",
        "killed",
        "b: AssertionError",
        1.0,
        runner.followed("killed", "b: E", other),
    )
    before = runner.Before([old, refused])
    assert before.verdict(first) == old
    fewer = {judge: first[judge] for judge in "ab"}
    assert before.verdict(fewer).verdict == "equivalent"
    # A judge that changed is asked again, and no other.
    changed = runner.answers_of("one mutant", wanted, {**prints, "c": "another"})
    assert before.verdict(changed) is None
    assert before.left(changed) == ["c"]
    # Of a mutant that one refused, the others may change.
    assert (
        before.verdict(runner.answers_of("another", wanted, {**prints, "c": "another"})) == refused
    )
    assert before.verdict(runner.answers_of("another", wanted, {**prints, "b": "another"})) is None
    assert before.verdict(runner.answers_of("another", wanted, {**prints, "b": "x"})) is None
    # One that ended its process is nobody's: all must be as they were.
    crashed = runner.followed("killed", "the process ended with status 139", other)
    assert crashed == tuple(other.values())


def test_who_changed_a_number_comes_before_every_judge():
    def refuses():
        raise AssertionError

    judges = {"sees 2": lambda: 2.0, "sees 1": lambda: 1.0, "refuses": refuses}
    before = dict.fromkeys(judges, runner.digest(1.0))
    others = runner.rest(["refuses", "sees 2"], ["sees 2"], {"refuses": 0.1})
    assert others == (["refuses"], 2.5)

    def verdict(*asked):
        return runner.collect(
            *runner.in_child(lambda: runner.ask(judges, [*asked], others, before), 5)
        )

    assert verdict("sees 1") == ("equivalent", "")
    assert verdict("sees 1", "sees 2") == ("killed", "refuses: AssertionError")
    assert runner.ask(judges, ["sees 2"], runner.NOBODY, before) == ("survived", "sees 2")


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_try_everything_once_and_note_what_was_said_before_they_go_on(workers):
    said = []
    found = runner.in_children(
        range(7),
        lambda one: ("killed", f"{one} after {said[-1:]}"),
        workers,
        lambda one: 5.0,
        lambda one: one > 3,
        lambda one, verdict, by: said.append(one),
    )
    verdicts = {one: (verdict, by) for one, verdict, by, _ in found}
    assert sorted(verdicts) == list(range(7))
    assert {verdict for verdict, _ in verdicts.values()} == {"killed"}
    assert verdicts[2][1] == "2 after [1]"
    assert not said  # each worker has its own


def test_every_part_of_the_judges_is_asked_in_their_order():
    assert runner.interleaved([[0, 3, 6], [1, 4], [2, 5]]) == list(range(7))


def test_words_of_a_function_are_kept_without_remarks_and_layout():
    one, outside = operators.texts_of('A = 1\n\ndef f(x):\n    """Words."""\n    return x  # so\n')
    two, same = operators.texts_of('A = 1\ndef f(x):\n    "Others."\n    return (x)\n')
    assert (one, outside) == (two, same)
    assert operators.texts_of("A = 2\ndef f(x): return x\n")[1] != outside
    assert operators.texts_of("A = 1\ndef f(x): return 2 * x\n")[0] != one


def unexplained(file: Path, reasons: explained.Reasons) -> list[str]:
    """Survivors that nobody explained, and explanations of nothing."""
    used, wrong = set(), []
    for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        if row["verdict"] in runner.OPEN:
            line = explained.line_for(reasons, row["where"], row["change"])
            used.add(line)
            if not line:
                wrong.append(f"{row['verdict']}: {row['words']} [{row['by']}]")
    stale = {line for lines in reasons.values() for line in lines} - used
    return wrong + [f"explains nothing any more: {line}" for line in sorted(stale)]


def test_the_documentation_lists_the_explained():
    assert explained.written() == explained.table(), (
        "run: python tests/mutants/explained.py --write"
    )


@pytest.mark.slow
def test_no_mutant_of_python_survives_unexplained(tmp_path):
    out = tmp_path / "verdicts.jsonl"
    done = run("runner.py", "--out", str(out), timeout=4 * 3600)
    assert out.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    wrong = unexplained(out, explained.PYTHON)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None,
    reason="mutants of the core need a C++ compiler",
)
def test_no_mutant_of_the_core_survives_unexplained(tmp_path):
    out = tmp_path / "verdicts.jsonl"
    done = run("core_mutants.py", "--out", str(out), timeout=4 * 3600)
    assert out.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    wrong = unexplained(out, explained.CORE)
    assert not wrong, "\n".join(wrong)
