"""The examples run as their README says."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

from harness import free_port, until

from dpbandit.service.store import Store

SHOP = Path(__file__).parents[2] / "examples" / "shop" / "shop.py"


def environment(tmp_path):
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONUNBUFFERED": "1"}


def test_five_hundred_visitors_come_to_the_shop(tmp_path):
    store = f"sqlite:///{tmp_path}/shop.db"
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, str(SHOP), *f"--store {store} --visitors 500 --once --window 0.2".split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path),
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    assert "visitors 476 to 500" in ran.stdout
    assert "offered in the morning" in ran.stdout
    assert "proven" in ran.stdout
    kept = Store(store)
    (line,) = kept.lines()
    assert (line.decisions, line.learned, line.status) == (500, 500, "learning")
    # the key was the shop's alone, and ended with it
    assert kept.connection.all("SELECT count(*) FROM keys WHERE revoked_at IS NULL") == [(0,)]
    kept.close()
    print(f"{time.monotonic() - began:.1f} seconds")


def test_the_page_offers_takes_a_click_and_shows_the_promise(tmp_path):
    port = free_port()
    shop = subprocess.Popen(
        [
            sys.executable,
            str(SHOP),
            "--store",
            f"sqlite:///{tmp_path}/shop.db",
            "--port",
            str(port),
            "--visitors",
            "20",
        ],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
    )

    def get(path="/", data=None):
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}{path}", data, timeout=30
            ) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    try:
        text = until(get, 120)
        assert "proven" in text
        assert "Offered most in the morning" in text
        assert "evening" in get("/?hour=evening")
        decision = re.search(r'name="decision" value="([^"]+)"', text)[1]
        assert "basket" in get("/click", urllib.parse.urlencode({"decision": decision}).encode())
        assert get("/click", b"decision=%3Cscript%3E") == ""  # 400
        assert "<script" not in get("/?hour=<script>")
    finally:
        shop.send_signal(signal.SIGINT)
        assert shop.wait(60) == 0
