"""Every command: it has examples, it speaks JSON, and what it prints elsewhere than on a terminal is plain."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
import typer

from dpbandit.cli import app

QUICK_RUN = ["run", "linucb", "tree-gauss", "--horizon", "200", "--seeds", "2"]
STORE = ["--store", "sqlite:///bandits.db"]

# command → arguments, and exit status if not 0. `store` commands that decide need a learner's witness: they come below.
COMMANDS = {
    "doctor": (["doctor"], 0),
    "algorithms": (["algorithms"], 0),
    "run": (QUICK_RUN, 0),
    "proofs": (["proofs"], 0),
    "verify": (["verify", "tree-gauss", "--horizon", "32", "--dim", "2", "--runs", "5"], 0),
    "audit": (["audit", "dgs-figure", "--delta", "0.1", "--horizon", "32", "--runs", "2000"], 3),
    "fuzz": (["fuzz", "tree-gauss", "local", "--cases", "10", "--workers", "1"], 0),
    "claim": (["claim", "local", "--epsilon", "1", "--person-clicks", "1"], 0),
    "plan": (["plan", "tree-gauss", "--dim", "2", "--arms", "3", "--horizon", "200"], 0),
    "warm-start": (["warm-start", "log.parquet", "--reward-range", "0", "1", "--delta", "1e-6", "--seed", "1", "--algorithm", "tree-gauss", "--out", "b.npz"], 0),
    "evaluate": (["evaluate", "log.parquet", "--reward-range", "0", "1", "--delta", "1e-6", "--seed", "1", "--release-epsilon", "1", "--release-delta", "1e-6"], 0),
    "keys create": (["keys", "create", "--role", "admin", *STORE], 0),
    "keys list": (["keys", "list", *STORE], 0),
    "keys revoke": (["keys", "revoke", "KEY", *STORE], 0),
    "store status": (["store", "status", *STORE], 0),
}  # fmt: skip
# These are tried with a real service in tests/service (restores, and `serve` below), and in tests/experiments.
ELSEWHERE = {"serve", "store accept-restore", "store trust", "store resume"}
ELSEWHERE |= {"store backup", "store migrate", "store import"}
ELSEWHERE |= {"reproduce", "bench privacy-cost", "bench default", "bench speed"}


def leaves(command, path=()):
    """Every command that does something, with its name."""
    inner = getattr(command, "commands", None)
    if not inner:
        yield " ".join(path), command
        return
    for name, one in inner.items():
        yield from leaves(one, (*path, name))


ALL = dict(leaves(typer.main.get_command(app)))


def only_json(text):
    """One document, without the numbers that JSON does not have."""

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_no_command_was_forgotten():
    assert set(ALL) == set(COMMANDS) | ELSEWHERE


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_command_takes_json_and_has_an_example(name):
    command = ALL[name]
    assert any("--json" in option.opts for option in command.params)
    assert f"dpbandit {name}" in command.help, "an example begins with the command"
    options = {word for option in command.params for word in (*option.opts, *option.secondary_opts)}
    for line in command.help.splitlines():
        if line.strip().startswith(f"dpbandit {name}"):
            assert set(re.findall(r"(?<= )--[a-z-]+", line)) <= options, (
                f"{line} names an option that is not there"
            )


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_one_document_and_nothing_else(name, dpbandit_, log):
    arguments, status = COMMANDS[name]
    if name.startswith(("keys", "store")) and name != "keys create":
        key = only_json(dpbandit_("keys", "create", "--role", "rank", *STORE, "--json").out)["key"]
        arguments = [key if word == "KEY" else word for word in arguments]
    said = dpbandit_(*arguments, "--json")
    assert said.status == status, said
    assert only_json(said.out)
    assert "\x1b" not in said.out + said.err


def test_what_is_piped_is_plain_and_each_row_is_one_line(dpbandit_):
    said = dpbandit_(*QUICK_RUN, "--delta", "1e-5")
    assert "\x1b" not in said.out + said.err
    row = next(line for line in said.out.splitlines() if line.startswith("tree-gauss"))
    assert "proven: ε = 1, δ = 1e-05" in row
    assert all(line == line.rstrip() for line in said.out.splitlines())
    assert said.err == ""


def test_no_colours_where_they_are_not_wanted_and_colours_on_a_terminal(tmp_path):
    plain = on_terminal(["algorithms"], NO_COLOR="1")
    assert "\x1b[3" not in plain
    assert "tree-gauss" in plain
    assert "\x1b[1m" in on_terminal(["algorithms"])


def test_a_bar_on_a_narrow_terminal_fits_and_says_how_long(tmp_path):
    text = on_terminal(
        ["run", "linucb", "dgs", "--horizon", "20000", "--seeds", "10", "--workers", "1"],
        columns=60,
    )
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part) for part in re.split(r"[\r\n]+", text)]
    bars = [line for line in lines if line.startswith("playing")]
    assert any(re.search(r"\d+%.*\d:\d\d left", line) for line in bars), lines
    assert max(map(len, bars)) <= 60


def on_terminal(arguments, columns=80, **env):
    """What the command writes when it believes that a person is looking."""
    import fcntl
    import pty
    import struct
    import termios

    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    given = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")} | {
        "TERM": "xterm-256color",
        **env,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "dpbandit.cli", *arguments],
        stdout=side,
        stderr=side,
        stdin=side,
        env=given,
    )
    os.close(side)
    text = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        text += part
    assert process.wait(60) == 0, text
    os.close(main)
    return text.decode()


def test_serve_says_in_json_when_it_listens_and_logs_in_json(tmp_path):
    command = [
        sys.executable,
        "-m",
        "dpbandit.cli",
        "serve",
        "--store",
        f"sqlite:///{tmp_path}/s.db",
    ]
    command += ["--role", "ranker", "--port", "0", "--witness", str(tmp_path / "witness"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        started = only_json(process.stdout.readline())
        assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d+", started["listening"])
        assert started["pid"] == process.pid
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        rest, log = process.communicate(timeout=30)
    finally:
        process.kill()
    assert rest == ""
    assert process.returncode == 0
    lines = [line for line in log.splitlines() if not line.startswith("note:")]
    assert lines
    assert all({"time", "level", "logger", "message"} <= set(only_json(line)) for line in lines)


def test_a_port_that_is_taken_is_a_mistake_and_not_a_broken_promise(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [
            sys.executable,
            "-m",
            "dpbandit.cli",
            "serve",
            "--store",
            f"sqlite:///{tmp_path}/s.db",
            "--json",
        ]
        command += ["--role", "ranker", "--port", port, "--witness", str(tmp_path / "witness")]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "choose another with --port" in ran.stderr


def test_the_start_is_light():
    """Help, lists and completion import nothing that takes long."""
    heavy = ("numpy", "scipy", "opendp", "pandas", "matplotlib", "pyarrow", "uvicorn")
    code = f"""
import sys
sys.argv = ["dpbandit", "algorithms"]
from dpbandit.cli import main
try:
    main()
except SystemExit:
    print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"


def test_a_pipe_that_closes_is_no_accident():
    ran = subprocess.run(
        f"{sys.executable} -m dpbandit.cli algorithms | head -1",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.startswith("random")
    assert ran.stderr == ""
