"""One table of settings: the command line, the environment and a file all know every one of them."""

import json
import logging
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from harness import HERE, dpbandit, free_port, make_key
from typer.testing import CliRunner

from dpbandit.cli import app
from dpbandit.errors import OptionError
from dpbandit.service import server, settings
from dpbandit.service.settings import TABLE, Settings

OTHER = {str: "elsewhere", int: 77, float: 7.5, bool: True, Path: Path("/w"), list: ("a", "b")}


def other(one):
    """A value that is not the default."""
    return one.choices[-2] if one.choices else OTHER[one.kind]


def as_text(one):
    value = other(one)
    return " ".join(value) if one.kind is list else str(value).lower()


def as_toml(one):
    value = other(one)
    return json.dumps(str(value) if one.kind is Path else value)


@pytest.fixture
def told(monkeypatch):
    """What `dpbandit serve` was told, by its arguments and environment."""

    def run(*arguments, env=None):
        found = []
        monkeypatch.setattr(server, "serve", lambda said, **more: found.append((said, more)))
        monkeypatch.setattr("dpbandit.cli.service._opened", Opened)
        result = CliRunner().invoke(app, ["serve", *arguments], env=env or {})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert found, result.output
        return found[0]

    return run


class Opened:
    def __init__(self, url, create):
        self.url = url
        self.connection = self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def all(self, *_):
        return [(1,)]

    def set_cap(self, *_):
        pass


PAIR = {"cap_epsilon": "cap_delta", "cap_delta": "cap_epsilon"}
PAIR |= {"tls_cert": "tls_key", "tls_key": "tls_cert"}


@pytest.mark.parametrize("one", TABLE, ids=[one.name for one in TABLE])
def test_every_setting_is_an_option_a_variable_and_a_line(told, tmp_path, one):
    store = [] if one.name == "store" else ["--store", "sqlite:///x.db"]
    pair = next((o for o in TABLE if o.field == PAIR.get(one.field)), None)
    if pair is not None:
        store += [pair.flag, "7.5"]
    wanted = other(one)
    assert wanted != one.default
    values = other(one) if one.kind is list else [as_text(one)]
    flags = [one.flag] if one.kind is bool else [w for v in values for w in (one.flag, v)]
    assert getattr(told(*store, *flags)[0], one.field) == wanted
    env = {one.variable: as_text(one)}
    assert getattr(told(*store, env=env)[0], one.field) == wanted
    file = tmp_path / "settings.toml"
    file.write_text(f"{one.name} = {as_toml(one)}\n")
    assert getattr(told(*store, "--config", str(file))[0], one.field) == wanted
    assert getattr(told(*store, env={"DPBANDIT_CONFIG": str(file)})[0], one.field) == wanted


def test_every_field_is_in_the_table():
    assert {one.name for one in fields(Settings)} == {one.field for one in TABLE}
    assert len({one.variable for one in TABLE} | set(settings.OTHERS)) == len(TABLE) + 4


def test_who_comes_first(told, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('store = "sqlite:///file.db"\nport = 1\nmax_arms = 1\nmax_dim = 1\n')
    env = {"DPBANDIT_CONFIG": str(file), "DPBANDIT_PORT": "2", "DPBANDIT_MAX_ARMS": "2"}
    said, _ = told("--port", "3", env=env)
    assert (said.port, said.max_arms, said.max_dim, said.store) == (3, 2, 1, "sqlite:///file.db")
    assert said.max_body == Settings("").max_body


def test_a_learner_listens_if_a_port_was_said_anywhere(told):
    role = ["--store", "sqlite:///x.db", "--role", "learner"]
    assert told(*role)[1] == {"health_port": False}
    assert told(*role, env={"DPBANDIT_PORT": "8090"})[1] == {"health_port": True}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 8080", "did you mean port"),
        ("[serve]\nport = 1", "not a setting"),
        ('port = "8080"', "whole number"),
        ("port = true", "whole number"),
        ("port = 70000", "from 0 to 65535"),
        ("max_body = 0", "from 1"),
        ("lease_seconds = nan", "from 0.1"),
        ("lease_seconds = -1", "from 0.1"),
        ("lease_seconds = 1" + "0" * 400, "from 0.1"),
        ('role = "king"', "ranker, learner or all"),
        ('learn = "shop"', "list of names"),
        ("json = 1", "true or false"),
        ("cap_epsilon = 1.0", "both"),
        ('tls_key = "key.pem"', "both --tls-cert and --tls-key"),
        ("port 8080", "not TOML"),
        ("port = " + "[" * 5_000, "not TOML"),
        ('host = "a\\u0000b"', "NUL"),
        ('witness = "a\\u0000b"', "NUL"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused(told, tmp_path, text, words):
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=words):
        told("--store", "sqlite:///x.db", "--config", str(file))


def test_unknown_variables_are_refused_and_values_never_quoted(told, tmp_path):
    with pytest.raises(OptionError, match=r"DPBANDIT_MAX_ARM,.*DPBANDIT_MAX_ARMS"):
        told("--store", "sqlite:///x.db", env={"DPBANDIT_MAX_ARM": "5"})
    with pytest.raises(OptionError, match="give the store"):
        told()
    file = tmp_path / "settings.toml"
    file.write_text('store = ["postgresql://app:secret@db/x"]')
    with pytest.raises(OptionError) as caught:
        told("--config", str(file))
    assert "secret" not in str(caught.value)
    with pytest.raises(OptionError, match="cannot read"):
        told("--config", str(tmp_path / "none.toml"))


def test_the_command_says_it_in_one_line(tmp_path):
    said = dpbandit("serve", env={"DPBANDIT_STORE": "sqlite:///x.db", "DPBANDIT_PROT": "1"})
    assert said.returncode == 2
    assert "DPBANDIT_PROT" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_log_levels(level):
    code = (
        "import logging\n"
        "from dpbandit.service import server, settings\n"
        f"server._log_to_stderr(settings.Settings('', json=True, log_level={level!r}))\n"
        "for name in ('dpbandit.service', 'dpbandit.learner', 'someone.else'):\n"
        "    for number in (10, 20, 30, 40):\n"
        "        logging.getLogger(name).log(number, 'x')\n"
    )
    run = [sys.executable, "-c", code]
    found = subprocess.run(run, capture_output=True, text=True, check=True).stderr.splitlines()
    lines = [json.loads(line) for line in found]
    for name in ("dpbandit.service", "dpbandit.learner", "someone.else"):
        least = logging.getLevelName(level.upper())
        # Others' lines for debugging may quote anything.
        least = max(least, logging.INFO) if name == "someone.else" else least
        said = [line["level"] for line in lines if line["logger"] == name]
        assert said == [logging.getLevelName(n).lower() for n in (10, 20, 30, 40) if n >= least]


def test_a_service_from_a_file_and_the_environment_alone(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    make_key(url)
    port = free_port()
    file = tmp_path / "settings.toml"
    file.write_text(f'port = {port}\njson = true\nwitness = "{tmp_path}/witness"\nlearn = ["a"]\n')
    env = {"DPBANDIT_STORE": url, "DPBANDIT_CONFIG": str(file), "DPBANDIT_LOG_LEVEL": "warning"}
    import os

    process = subprocess.Popen(
        [sys.executable, "-m", "dpbandit.cli", "serve"],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "log").open("wb"),
    )
    try:
        assert json.loads(process.stdout.readline())["listening"].endswith(f":{port}")
    finally:
        process.terminate()
        assert process.wait(30) in (0, -15)
    assert "listening" not in (tmp_path / "log").read_text()  # a line for information


def test_the_page_lists_every_variable():
    page = (HERE.parents[1] / "docs" / "operate.md").read_text()
    listed = set(re.findall(r"^\| `([a-z_]+)` \|", page.split("## Configuration")[1], re.M))
    assert {one.name for one in TABLE} <= listed
