"""Reads the fenced blocks of a page and runs them, top to bottom, in an empty folder, as a reader with one terminal would.

- `python` blocks run in one interpreter, so that a block may use what earlier ones made.
- `console` blocks hold nothing but commands, each after "$ "; `sh` blocks are scripts. All run in one bash: what they export is seen by
  later blocks, the Python ones too, and what they leave in the background is ended with the page.
- An `output` block is what the block before it prints; … stands for anything. Below <!-- numbers within 10% --> its numbers may differ by
  so much and one unit of their last digit: other processors round otherwise, and a bandit may then choose another arm.
- Any other block must say why it is not run, right above itself: <!-- not run: the reason -->. So may these.

Nothing is changed but the port 8080, for one that is free.

To take a picture that a page makes: python tests/docs/pages.py docs/tutorial.md FOLDER
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
AT_THE_ROOT = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
RUN = ("python", "console", "sh", "output")
SECONDS = 300  # for one block

FENCE = re.compile(
    r"(?:^[ ]*<!-- (?:not run: (?P<reason>[^>]+)|numbers within (?P<within>\d+)%) -->\n\s*)?^(?P<indent> *)(?P<ticks>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^ *(?P=ticks)[ ]*$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    line: int
    not_run: str | None = None
    within: float = 0.0  # how far the numbers of an output may be off


def pages() -> list[Path]:
    """Every page whose blocks must work."""
    return [ROOT / name for name in AT_THE_ROOT if (ROOT / name).exists()] + sorted(
        (ROOT / "docs").rglob("*.md")
    )


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    source = page.read_text()
    found = []
    for match in FENCE.finditer(source):
        lines = match["text"].splitlines()
        text = "\n".join(line.removeprefix(match["indent"]) for line in lines) + "\n"
        language = match["language"].split(" ")[0].strip()
        line = source.count("\n", 0, match.start("text"))
        found.append(Block(language, text, line, match["reason"], int(match["within"] or 0) / 100))
    return found


def to_run(page: Path) -> list[Block]:
    """Those blocks of a page that are run."""
    return [block for block in blocks(page) if block.not_run is None and block.language in RUN]


# A page's test changes nothing outside its folder.
FOREIGN = re.compile(
    r"^\s*(?:\w+=\S*\s+)*(pip|make|sudo|apt-get|ray|git|systemctl|gunicorn)\b", re.M
)


def commands(block: Block) -> str:
    """The script that a block with commands stands for."""
    foreign = FOREIGN.search(block.text.replace("$ ", ""))
    if foreign:
        raise AssertionError(
            f"line {block.line}: tests do not run {foreign[1]}; mark the block <!-- not run: the reason -->"
        )
    if block.language == "sh":
        return block.text
    script, goes_on = [], False
    for line in block.text.splitlines():
        if not goes_on and not line.startswith("$ "):
            raise AssertionError(
                f"line {block.line}: a console block holds commands after '$ ' alone, not {line!r}"
            )
        script.append(line if goes_on else line[2:])
        goes_on = line.endswith("\\")
    return "\n".join(script) + "\n"


NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"


def matches(expected: str, printed: str, within: float = 0.0) -> bool:
    """Whether this was printed; … stands for anything, and any number of spaces for one where numbers may differ."""

    def tidy(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip().splitlines())

    def pattern(text: str) -> str:
        return ".*?".join(re.escape(part) for part in text.split("…"))

    expected, printed = tidy(expected), tidy(printed)
    if not within:
        return re.fullmatch(pattern(expected), printed, re.S) is not None
    expected, printed = re.sub(r" +", " ", expected), re.sub(r" +", " ", printed)
    words, numbers = re.split(NUMBER, expected), re.findall(NUMBER, expected)
    found = re.fullmatch(f"({NUMBER})".join(pattern(part) for part in words), printed, re.S)
    return found is not None and all(
        _near(a, b, within) for a, b in zip(numbers, found.groups(), strict=True)
    )


def _near(one: str, other: str, within: float) -> bool:
    digits = len(one.partition("e")[0].partition(".")[2])
    a, b = (float(text.replace(",", "")) for text in (one, other))
    unit = 10.0**-digits * (1 if "e" not in one else abs(a))
    return abs(a - b) <= within * abs(a) + unit * (1 + 1e-9)


def play(page: Path, folder: Path) -> None:
    """Run a page in a folder; an AssertionError says which block failed, and how."""
    port = str(_free_port())
    with ExitStack() as stack:
        shell = stack.enter_context(_shell(folder, page))
        python = stack.enter_context(_python(folder, page))
        printed = ""
        for block in to_run(page):
            text = re.sub(r"\b8080\b", port, block.text)
            where = f"{page.relative_to(ROOT)}, line {block.line}"
            if block.language == "output":
                assert matches(text, printed, block.within), (
                    f"{where}: the page says\n{text}\nand it printed\n{printed}"
                )
            elif block.language == "python":
                printed = python(text, block.line, shell.exported)
            else:
                printed = shell(commands(Block(block.language, text, block.line)), where)


# ---------------------------------------------------------------------- one bash

CALL = """
set -eu -o pipefail
. {here}/script </dev/null >{here}/printed 2>{here}/said
set +eu; env -0 > {here}/exported; echo done > {here}/done
"""


class _Shell:
    """A bash that is fed one script at a time."""

    def __init__(
        self, process: subprocess.Popen[str], here: Path, exported: dict[str, str]
    ) -> None:
        self.process, self.here, self.exported = process, here, exported

    def __call__(self, script: str, where: str) -> str:
        done = self.here / "done"
        done.unlink(missing_ok=True)
        (self.here / "script").write_text(script)
        self._send(CALL.format(here=self.here))
        until = time.monotonic() + SECONDS
        while not done.exists() or not done.read_text():
            ended = self.process.poll() is not None
            if ended or time.monotonic() > until:
                said = (self.here / "printed").read_text() + (self.here / "said").read_text()
                raise AssertionError(
                    f"{where}: {'failed' if ended else 'took too long'}\n{script}\n{said}"
                )
            time.sleep(0.02)
        pairs = (self.here / "exported").read_text().split("\0")
        self.exported = dict(pair.split("=", 1) for pair in pairs if pair)
        return (self.here / "printed").read_text()

    def _send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()


@contextmanager
def _shell(folder: Path, page: Path):
    here = Path(tempfile.mkdtemp(prefix="page-"))
    for name, words in (("dpbandit", "-m dpbandit.cli"), ("python", "")):
        program = here / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        program.chmod(0o755)
    known = {
        **os.environ,
        "XDG_STATE_HOME": str(here / "state"),
        "MPLBACKEND": "agg",
        "COLUMNS": "120",
    }
    known["OPENBLAS_NUM_THREADS"] = (
        "1"  # pages run side by side: threads would wait for each other longer than they work
    )
    known["PATH"] = f"{here}:{known.get('PATH', '')}"
    known.pop("DPBANDIT_KEY", None)
    process = subprocess.Popen(
        ["bash", "--noprofile", "--norc"],
        stdin=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=known,
        start_new_session=True,
    )
    shell = _Shell(process, here, known)
    try:
        yield shell
    finally:
        # Its background jobs are its children: it ends them by their numbers and waits for them.
        if process.poll() is None:
            shell._send("for job in $(jobs -p); do kill $job 2>/dev/null; done; wait; exit 0\n")
        process.communicate(timeout=60)


# ---------------------------------------------------------------------- one interpreter

WORKER = """
import contextlib, io, json, os, sys, traceback
answers, space = sys.stdout, {"__name__": "__main__"}
for order in map(json.loads, sys.stdin):
    os.environ.update(order["exported"])
    printed, failed = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile("\\n" * order["line"] + order["text"], order["page"], "exec"), space)
        except BaseException:
            failed = traceback.format_exc()
    print(json.dumps([printed.getvalue(), failed]), file=answers, flush=True)
"""


@contextmanager
def _python(folder: Path, page: Path):
    started: list[subprocess.Popen[str]] = []

    def run(text: str, line: int, exported: dict[str, str]) -> str:
        if not started:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-c", WORKER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=folder,
                    env={**exported, "PYTHONIOENCODING": "utf-8"},
                )
            )
        (worker,) = started
        order = {"text": text, "line": line, "page": str(page), "exported": exported}
        worker.stdin.write(json.dumps(order) + "\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
        assert answer, f"{page.name}, line {line}: the interpreter ended"
        printed, failed = json.loads(answer)
        assert failed is None, f"{printed}{failed}"
        return printed

    try:
        yield run
    finally:
        for worker in started:
            worker.communicate(timeout=60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    place = Path(sys.argv[2])
    place.mkdir(parents=True, exist_ok=True)
    play(Path(sys.argv[1]).resolve(), place)
    print(*sorted(path.name for path in place.iterdir()))
