"""The container's files: what can be looked at without building an image, and the same commands, the
same environment and the same restrictions in a plain folder."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from harness import BANDIT, Caller, SilentProxy, decide, free_port, learned, make_key, until
from test_start import SOURCE, is_ready, not_below_tmp, read_only

from dpbandit.service import settings
from dpbandit.service.api import action_of
from dpbandit.service.openapi import ROUTES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
# The Python of an installation made by the Dockerfile's steps, where there is one.
INSTALLED = os.environ.get("INSTALLED_PYTHON")
PYTHON = INSTALLED or sys.executable
OURS = ("ranker-1", "ranker-2", "learner-1", "learner-2")


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def steps():
    """(instruction, rest) of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.M)
    text = text.replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def variables():
    said = " ".join(rest for word, rest in steps() if word == "ENV")
    return dict(pair.split("=", 1) for pair in shlex.split(said))


def test_the_dockerfile():
    found = steps()
    words = [word for word, _ in found]
    assert words.count("FROM") == 2
    assert "ADD" not in words
    last = len(words) - words[::-1].index("FROM")
    final = dict(found[last:])
    assert final["USER"] == "10001:10001"
    assert "HEALTHCHECK" in final
    assert words.index("USER") > max(n for n, word in enumerate(words) if word == "RUN")
    assert all(":" in rest and ":latest" not in rest for word, rest in found if word == "FROM")
    assert json.loads(final["ENTRYPOINT"]) == ["dpbandit"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (asked,) = re.findall(r'"\.\[(.*?)\]"', (DEPLOY / "Dockerfile").read_text())
    assert set(asked.split(",")) <= set(extras)
    settings.check_environment(variables())
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text()
    kept = re.findall(r"^!(\S+)$", kept, re.M)
    for name in kept:
        assert (ROOT / name).exists(), name
    # What the build installs is let through.
    for name in re.findall(r"install\(FILES (\S+)", (ROOT / "CMakeLists.txt").read_text()):
        assert any(name == one or name.startswith(f"{one}/") for one in kept), name


def test_the_compose_file(compose):
    services = compose["services"]
    assert set(services) == {"db", "proxy", *OURS}
    for name in (*OURS, "proxy"):
        one = services[name]
        assert one["read_only"] is True
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]
        assert not one["user"].startswith("0")
    for name in OURS:
        settings.check_environment(services[name]["environment"])
        assert "ports" not in services[name]
        assert services[name]["environment"]["DPBANDIT_ROLE"] == name.split("-")[0]
    witnesses = [services[name]["volumes"] for name in ("learner-1", "learner-2")]
    assert witnesses[0] != witnesses[1]
    for (where,) in witnesses:
        volume, place = where.split(":")
        assert volume in compose["volumes"]
        assert place == variables()["DPBANDIT_WITNESS"]
    assert services["db"]["networks"] == ["inside"]
    assert compose["networks"]["inside"]["internal"] is True
    used = {secret for one in services.values() for secret in one.get("secrets", ())}
    assert used == set(compose["secrets"])
    assert {"healthcheck"} <= set(services["db"]) & set(services["proxy"])
    proxy = (DEPLOY / "proxy.conf").read_text()
    assert proxy.count("{") == proxy.count("}")
    # Nothing is logged of these, their errors included, and nothing of them is written to a file.
    quiet = r"location ~\* (\S+) \{\s+access_log off;\s+error_log /dev/null crit;\s+"
    quiet += r"client_body_buffer_size 4m;"
    for text in (proxy, (ROOT / "docs/operate.md").read_text()):
        assert "client_max_body_size 4m;" in text
        (what,) = re.findall(quiet, text)
        kept = {path for path in ROUTES if re.search(what, path)}
        assert kept == {path for path in ROUTES if action_of(path) != "other"}


def test_the_same_commands_as_restricted_in_a_plain_folder(compose, new_database, tmp_path):
    """Read-only, a user of its own, no capabilities, an empty /tmp, settings from a secret's file."""
    read_only(tmp_path)  # or skip
    if not INSTALLED:
        not_below_tmp()
    run = ["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", "--no-new-privs"]
    run += ["--bounding-set=-all", "--inh-caps=-all"]
    tried = subprocess.run([*run, PYTHON, "-c", ""], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("this Python cannot be run by another user")
    proxy = SilentProxy(new_database())
    key, running = make_key(proxy.url), {}
    place = variables()["DPBANDIT_WITNESS"]
    mounts = (
        "mount -t tmpfs none /var/lib && mkdir -p {place} /var/lib/secrets && "
        "chown 10001:10001 {place} && chmod 700 {place} && "
        "printf '%s\\n' \"store = '$STORE'\" > /var/lib/secrets/dpbandit.toml && "
        "mount -t tmpfs none /tmp && mount -o remount,bind,ro / && mount -o remount,ro /var/lib"
    )
    try:
        for name in OURS:
            one, port = compose["services"][name], free_port()
            # The witness is the volume: of the rest nothing can be written.
            own = f" && mount -t tmpfs -o uid=10001,mode=700 none {place}"
            script = mounts.format(place=place) + (own if "volumes" in one else "")
            env = {"PATH": os.environ["PATH"], "STORE": proxy.url}
            env |= {} if INSTALLED else {"PYTHONPATH": str(SOURCE)}
            env |= {k: v for k, v in variables().items() if k != "PATH"} | one["environment"]
            env |= {"DPBANDIT_CONFIG": "/var/lib/secrets/dpbandit.toml", "DPBANDIT_PORT": str(port)}
            env |= {"DPBANDIT_HOST": "127.0.0.1"}
            whole = ["unshare", "--mount", "sh", "-ec", f'{script}; exec "$@"', "sh", *run]
            command = [json.loads(dict(steps())["CMD"])[0]]
            with (tmp_path / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [*whole, PYTHON, "-m", "dpbandit.cli", *command],
                    env=env,
                    stdout=log,
                    stderr=log,
                )
            running[name] = (port, process)
        for name, (port, process) in running.items():
            said = (tmp_path / f"{name}.log").read_text
            until(lambda port=port, process=process: is_ready(port, process), 60)
            assert Path(f"/proc/{process.pid}/status").read_text().split("Uid:")[1].split()[0] == (
                "10001"
            ), said()
        call = Caller(running["ranker-1"][0], key)
        assert call("POST", "/v1/bandits", {**BANDIT, "reward_window": 0.2})[0] == 201
        decide(Caller(running["ranker-2"][0], key))
        learned(call, 1)
        # What the health check of the image asks.
        health = json.loads(dict(steps())["HEALTHCHECK"].split("CMD", 1)[1])
        port = str(running["learner-2"][0])
        asked = [PYTHON, *(word.replace("8080", port) for word in health[1:])]
        assert subprocess.run(asked, check=False).returncode == 0
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            assert process.wait(40) in (0, -15)
        proxy.close()
