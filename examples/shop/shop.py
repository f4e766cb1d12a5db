"""A tiny shop that learns what to offer from clicks, and nobody who watches it learns who clicked.

    python examples/shop/shop.py --store sqlite:///shop.db                          # open http://127.0.0.1:8000
    python examples/shop/shop.py --store sqlite:///shop.db --visitors 500 --once    # simulate, print, end

The shop starts a service on this machine (or uses one: --service URL, with its key in DPBANDIT_KEY), makes a bandit, asks
it for every visitor what to offer, and reports what was clicked. Simulated visitors come along; you are one when you open the
page. Everything the page shows is public: offers, the model's version, the privacy account. It never shows clicks.
"""

from __future__ import annotations

import argparse
import html
import math
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import dpbandit
from dpbandit.errors import RequestError, UnreachableError

# What is known about a product: sweet, strong, warm, cheap.
PRODUCTS = {
    "espresso": (0.0, 0.9, 0.4, 0.1),
    "hot chocolate": (0.8, 0.1, 0.5, 0.1),
    "iced tea": (0.5, 0.2, -0.7, 0.3),
    "green tea": (-0.2, 0.3, 0.7, 0.5),
    "lemonade": (0.7, -0.2, -0.5, 0.4),
    "water": (-0.3, -0.5, -0.2, 0.7),
}
# When somebody comes is known to the shop; what they then like is not.
HOURS = ("morning", "evening")
TASTES = {"morning": (-0.2, 0.8, 0.3, 0.0), "evening": (0.7, -0.4, 0.3, 0.0)}
BANDIT, DIM = "shop", 8


def contexts(hour: str) -> list[list[float]]:
    """One row for each product: its features, in the half that belongs to the hour. All of length 1, so that before anything
    is learned no product has an advantage."""
    rows, nothing = [[x / math.hypot(*row) for x in row] for row in PRODUCTS.values()], [0.0] * 4
    return [[*row, *nothing] if hour == HOURS[0] else [*nothing, *row] for row in rows]


def chance_of_a_click(hour: str, product: str) -> float:
    """The visitors' secret, which only the simulation knows."""
    return min(
        max(
            0.25 + 0.7 * sum(a * b for a, b in zip(PRODUCTS[product], TASTES[hour], strict=True)),
            0.02,
        ),
        0.98,
    )


class Shop:
    """Offers, reports, and remembers what it has offered lately."""

    def __init__(self, client: dpbandit.Client, *, epsilon: float, window: float) -> None:
        self.client = client
        self.offers: dict[str, deque[str]] = {hour: deque(maxlen=200) for hour in HOURS}
        client.create_bandit(
            BANDIT,
            "anytime",
            dim=DIM,
            epsilon=epsilon,
            delta=1e-6,
            reward_range=(0, 1),
            reward_window=window,
            max_norm=1.000001,
            public_contexts=contexts("morning") + contexts("evening"),
        )

    def offer(self, hour: str) -> dpbandit.Decision:
        shown = self.client.decide(BANDIT, contexts(hour), arms=list(PRODUCTS))
        self.offers[hour].append(str(shown.arm_id))
        return shown

    def clicked(self, decision: str | dpbandit.Decision) -> None:
        """A click. No click needs no report: after `reward_window` seconds a decision counts as not clicked."""
        self.client.reward(BANDIT, decision, 1.0)

    def visit(self, chance: random.Random) -> bool:
        """One simulated visitor; whether they were offered what their kind likes best."""
        hour = chance.choice(HOURS)
        shown = self.offer(hour)
        if chance.random() < chance_of_a_click(hour, str(shown.arm_id)):
            self.clicked(shown)
        return shown.arm_id == max(PRODUCTS, key=lambda product: chance_of_a_click(hour, product))

    def ranking(self, hour: str) -> list[tuple[str, float]]:
        """Products by how often they were offered lately, which anybody could have counted."""
        counts = Counter(list(self.offers[hour]))
        total = max(sum(counts.values()), 1)
        return sorted(
            ((product, counts[product] / total) for product in PRODUCTS), key=lambda pair: -pair[1]
        )


# ---------------------------------------------------------------------- the page

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>A private shop</title><style>
:root {{ color-scheme: light dark }} body {{ font: 1.05rem/1.5 system-ui; max-width: 44rem; margin: 2rem auto; padding: 0 1rem }}
button {{ font: inherit; padding: .6rem 1.2rem }} table {{ border-collapse: collapse; width: 100% }}
td, th {{ text-align: left; padding: .2rem .6rem .2rem 0 }} meter {{ width: 10rem }} pre {{ white-space: pre-wrap }}
</style><main><h1>Good {hour}!</h1>
<form method="post" action="/click"><input type="hidden" name="decision" value="{decision}">
<p>We suggest: <strong>{offer}</strong> <button>Into the basket</button></p></form>
<p><a href="/?hour=morning">morning</a> · <a href="/?hour=evening">evening</a></p>
<h2>Offered most in the {hour}</h2><table><tr><th scope="col">product<th scope="col">share of recent offers</tr>{rows}</table>
<h2>What we promise about your click</h2><pre>{claim}</pre>
<p>{learned} of {decisions} offers learned from; model {version}; spent: ε = {spent} of {epsilon}
by the click that has paid most. Every click has a budget of its own, so learning goes on.</p></main></html>"""


def page(shop: Shop, hour: str) -> str:
    shown, account, state = (
        shop.offer(hour),
        shop.client.privacy(BANDIT),
        shop.client.bandit(BANDIT),
    )
    rows = "".join(
        f'<tr><td>{html.escape(product)}<td><meter value="{share:.3f}" aria-label="{share:.0%}"></meter> {share:.0%}</tr>'
        for product, share in shop.ranking(hour)
    )
    return PAGE.format(
        hour=hour,
        decision=html.escape(shown.decision),
        offer=html.escape(str(shown.arm_id)),
        rows=rows,
        claim=html.escape(account["claim"]["words"]),
        learned=f"{state['learned']:,}",
        decisions=f"{state['decisions']:,}",
        version=shown.model_version,
        spent=f"{account['spent']['epsilon'] or 0:.3g}",
        epsilon=f"{account['claim']['epsilon']:g}",
    )


def web(shop: Shop, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hour = parse_qs(self.path.partition("?")[2]).get("hour", [HOURS[0]])[0]
            self.answer(200, page(shop, hour if hour in HOURS else HOURS[0]))

        def do_POST(self) -> None:
            length = min(int(self.headers.get("Content-Length") or 0), 1_000)
            decision = parse_qs(self.rfile.read(length).decode(errors="replace")).get(
                "decision", [""]
            )[0]
            try:
                shop.clicked(decision)
            except RequestError:
                self.answer(
                    400, "<p>This offer is not one of ours. <a href='/'>Back to the shop</a>"
                )
                return
            self.answer(200, "<p>It is in your basket. <a href='/'>Back to the shop</a>")

        def answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A log of clicks would be what this shop promises not to show."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


# ---------------------------------------------------------------------- a service on this machine


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "dpbandit.cli", *words]


@contextmanager
def service(store: str):
    """A service over `store`, and a client with a key that ends with it."""
    made = subprocess.run(
        command(
            "keys", "create", "--role", "admin", "--store", store, "--label", "the example shop"
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    key = made.stdout.split()[-1]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = subprocess.Popen(
        command("serve", "--store", store, "--port", str(port)), stderr=subprocess.DEVNULL
    )
    try:
        # The client waits for the service to come up: it tries again until it is answered.
        with dpbandit.Client(f"http://127.0.0.1:{port}", key=key, patience=60) as client:
            print(
                f"the service: http://127.0.0.1:{port} shows its dashboard to this key: {key}",
                flush=True,
            )
            yield client
    finally:
        running.terminate()
        running.wait(30)
        subprocess.run(
            command("keys", "revoke", key, "--store", store), capture_output=True, check=False
        )


def simulate(shop: Shop, visitors: int, seed: int) -> None:
    """Visitors in twenty waves; the shop learns in between."""
    chances = [random.Random(f"{seed}/{number}") for number in range(visitors)]
    before = shop.client.bandit(BANDIT)["decisions"]
    for wave in range(20):
        begin, end = visitors * wave // 20, visitors * (wave + 1) // 20
        with ThreadPoolExecutor(4) as crowd:
            liked = list(crowd.map(shop.visit, chances[begin:end]))
        wait_until_learned(shop, before + end)
        print(
            f"visitors {begin + 1} to {end}: {sum(liked) / max(len(liked), 1):.0%} were offered what their kind likes best"
        )


def wait_until_learned(shop: Shop, decisions: int, seconds: float = 60) -> None:
    """What the service says of itself may be a moment old: so many decisions are waited for."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        state = shop.client.bandit(BANDIT)
        if state["learned"] >= decisions:
            return
        time.sleep(0.1)
    raise SystemExit(f"the learner is behind: {decisions - state['learned']} decisions wait")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--store", default="sqlite:///shop.db", help="where the service keeps what it knows"
    )
    parser.add_argument(
        "--service", help="use a service that runs already; its key is in DPBANDIT_KEY"
    )
    parser.add_argument("--port", type=int, default=8000, help="of the shop's page")
    parser.add_argument(
        "--visitors", type=int, default=500, help="how many simulated visitors come"
    )
    parser.add_argument("--once", action="store_true", help="simulate, print, end")
    parser.add_argument(
        "--epsilon",
        type=float,
        default=4.0,
        help="generous, so that a few hundred visitors show something",
    )
    parser.add_argument(
        "--window", type=float, default=1.0, help="seconds until an offer counts as not clicked"
    )
    parser.add_argument(
        "--seed", type=int, default=7, help="of the simulated visitors; the noise has none"
    )
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # either closes the shop, however it was started
        signal.signal(number, signal.default_int_handler)
    opened = dpbandit.Client(given.service) if given.service else service(given.store)
    with opened as client:
        shop = Shop(client, epsilon=given.epsilon, window=given.window)
        if given.once:
            simulate(shop, given.visitors, given.seed)
            for hour in HOURS:
                print(
                    f"offered in the {hour}: "
                    + ", ".join(f"{name} {share:.0%}" for name, share in shop.ranking(hour))
                )
            print(client.privacy(BANDIT)["claim"]["words"])
            return
        front = web(shop, given.port)
        threading.Thread(target=front.serve_forever, daemon=True).start()
        print(f"the shop is open: http://127.0.0.1:{given.port} (Ctrl-C closes it)", flush=True)
        try:
            simulate(shop, given.visitors, given.seed)
            threading.Event().wait()
        except (KeyboardInterrupt, UnreachableError) as reason:
            print(f"closing: {reason}" if str(reason) else "closing")
        finally:
            front.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore::dpbandit.errors.PrivacyWarning")
    main()
