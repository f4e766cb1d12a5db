"""Processes: the API, the learner beside it, and their shutdown.

With role 'all' the learner is a child process: drawing noise never delays a request, and the
process that answers requests never holds a reward after it has written it down.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpbandit.errors import StoreError
from dpbandit.service.answers import place_of
from dpbandit.service.settings import Settings

if TYPE_CHECKING:
    from dpbandit.service.learner import Learner

log = logging.getLogger("dpbandit.service")

# Lines of the server below, one for each request or with their number: a report of a reward is one.
COUNTS_REQUESTS = ("Exception in ASGI application", "Cancel ")

# Seconds; set by `serve_http`, for the loop that the HTTP server makes.
_TLS = {"handshake": 10.0}


def serve(settings: Settings, *, health_port: bool = True) -> None:
    """Run until told to stop. `health_port` False: a learner that listens nowhere."""
    _log_to_stderr(settings)
    if settings.role == "learner" and not health_port:
        if settings.json:
            _announce(settings, None)
        run_learner(settings)
        return
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # The HTTP server takes these over while it runs, and raises them again when it has ended.
        signal.signal(number, lambda *_: stop.set())
    helper = _Helper(settings, stop)
    helper.start()
    try:
        serve_http(settings, healthy=helper.healthy, stop=stop)
    finally:
        stop.set()
        helper.over.set()
        helper.join(settings.shutdown_seconds)
    if helper.failed:
        raise StoreError("the learner has ended: see the lines above")


def _end_soon(settings: Settings) -> None:
    """Whatever hangs, the process ends. What was not acknowledged by then is asked for again."""

    def end() -> None:
        log.error("ended after %g s: something hangs", settings.shutdown_seconds)
        os._exit(1)

    backstop = threading.Timer(settings.shutdown_seconds, end)
    backstop.daemon = True
    backstop.start()


def one_thread() -> None:
    """Products of matrices on one thread: a second one waits for the first, and on a busy machine
    that takes ten times as long as the product. Before NumPy is loaded, or it does nothing."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def serve_http(
    settings: Settings,
    *,
    healthy: Callable[[], bool] = lambda: True,
    stop: threading.Event | None = None,
) -> None:
    """The API in this process; `healthy` is what else must be so for it to be ready, and `stop` is
    set when it begins to end."""
    one_thread()
    import numpy as np
    import uvicorn

    from dpbandit.service.api import App
    from dpbandit.service.connection import LimitedConnection, Limits, end_overdue, room_for

    app = App(settings, healthy=healthy)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        lifespan="on",
        access_log=False,  # who asked what is in the store, where rewards are not counted
        log_config=None,
        log_level="error",  # warnings are about strangers, one line for each attempt
        server_header=False,
        proxy_headers=False,  # nothing here asks where a request came from
        backlog=2048,
        timeout_keep_alive=int(settings.idle_seconds),
        timeout_graceful_shutdown=int(settings.shutdown_seconds / 2),
        http=LimitedConnection,
        ws="none",
        loop="dpbandit.service.server:deadlined_loop",
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        # A key that needs a password is refused: nobody is there to be asked for one.
        ssl_keyfile_password="-",
    )
    try:
        config.load()  # what cannot be read is said before anything starts
    except OSError as error:  # of files, or of what is in them
        if not config.is_ssl:
            raise
        why = error.strerror or type(error).__name__
        raise StoreError(f"the TLS certificate and its key cannot be used: {why}") from None
    _TLS["handshake"] = settings.body_seconds
    LimitedConnection.limits = Limits(
        connections=room_for(settings.max_connections),
        sending=settings.body_seconds,
        answer=settings.write_seconds,
        rest=settings.idle_seconds,
    )

    class Server(uvicorn.Server):
        async def startup(self, *arguments: Any, **more: Any) -> None:
            await super().startup(*arguments, **more)
            if not self.started:
                return
            port = self.servers[0].sockets[0].getsockname()[1]
            log.info("listening on %s", where(settings, port))
            if settings.json:
                _announce(settings, port)

        async def on_tick(self, counter: int) -> bool:
            if counter % 10 == 0:
                end_overdue(self.server_state.connections, asyncio.get_running_loop().time())
            return await super().on_tick(counter)

        async def shutdown(self, *arguments: Any, **more: Any) -> None:
            _end_soon(settings)
            if stop is not None:
                stop.set()
            # Sooner than the server below gives them up.
            asyncio.get_running_loop().call_later(settings.shutdown_seconds * 0.4, app.end_pending)
            await super().shutdown(*arguments, **more)

    np.seterr(all="ignore")  # squares of huge contexts overflow: the norm check then sees that
    server = Server(config)
    # The writer's thread asks for Python's lock a few times a batch; it should not wait 5 ms for it
    # each time.
    sys.setswitchinterval(0.0005)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    with contextlib.suppress(SystemExit):  # its own status, after a line that says what failed
        server.run()
    if not server.started:
        raise StoreError(
            f"the service did not start on {settings.host}:{settings.port}: see the line above; if "
            "the port is taken, choose another with --port"
        )


def _announce(settings: Settings, port: int | None) -> None:
    """One line: ready, and where. The store is not named: its URL may hold a password."""
    listening = None if port is None else where(settings, port)
    print(
        json.dumps({"listening": listening, "role": settings.role, "pid": os.getpid()}), flush=True
    )


def where(settings: Settings, port: int) -> str:
    """The address that callers use."""
    return f"http{'' if settings.tls_cert is None else 's'}://{settings.host}:{port}"


def deadlined_loop() -> asyncio.AbstractEventLoop:
    """The event loop that is installed. Over TLS a connection begins with a greeting, which takes no
    longer than a head."""
    if fastest() == "uvloop":
        import uvloop

        base: Any = uvloop.Loop
    else:
        base = asyncio.SelectorEventLoop
    seconds = _TLS["handshake"]

    class Deadlined(base):  # type: ignore[misc]
        async def create_server(
            self, make: Any, host: str = "", port: int = 0, *, ssl: Any = None, **more: Any
        ) -> Any:
            if ssl is None:
                return await super().create_server(make, host, port, **more)
            from dpbandit.service.connection import Greetings

            kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
            found = await self.getaddrinfo(host or None, port, type=kind, flags=flags)
            sockets = [
                socket.create_server(place, family=family, backlog=more["backlog"])
                for family, place in sorted({(family, place) for family, *_, place in found})
            ]
            for one in sockets:
                one.setblocking(False)
            return Greetings(sockets, ssl, make, seconds)

    loop: asyncio.AbstractEventLoop = Deadlined()
    return loop


def fastest() -> Literal["uvloop", "asyncio"]:
    """The event loop that is installed."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return "asyncio"
    return "uvloop"


# ---------------------------------------------------------------------- the learner's process


class _Helper(threading.Thread):
    """Beside the HTTP server: a learner, or what keeps its process alive. They end together."""

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        super().__init__(name="learner", daemon=True)
        self.settings, self.stop = settings, stop
        self.over = threading.Event()  # the HTTP server has ended
        self.failed = False
        self._learner: Learner | None = None
        self._child = _Child(settings)

    def healthy(self) -> bool:
        """Whether the learner of this process, or its child's, does what it should."""
        if self.settings.role == "all" and not self._child.healthy:
            return False
        return not self.failed and (self._learner is None or self._learner.healthy)

    def run(self) -> None:
        try:
            if self.settings.role == "all":
                self._child.keep(self.stop)
            elif self.settings.role == "learner":
                from dpbandit.service.learner import Learner

                self._learner = Learner(self.settings)
                self._learner.run(self.stop)
            else:
                self.stop.wait()
        except BaseException as error:
            # Type and place alone, unless the words are ours: a message might quote a reward.
            other = f"{type(error).__name__} at {place_of(error)}"
            log.error("the learner: %s", error if isinstance(error, StoreError) else other)
        self.failed = not self.stop.is_set()
        # Told before it listened to signals, the server would not know: until it has ended it is
        # told again.
        while not self.over.wait(0.2):
            os.kill(os.getpid(), signal.SIGTERM)


def run_learner(settings: Settings, stop: threading.Event | None = None) -> None:
    """Learn in this process until SIGTERM or SIGINT."""
    stop = stop or threading.Event()

    def end(*_: Any) -> None:
        stop.set()
        _end_soon(settings)

    with contextlib.suppress(ValueError):  # not the main thread: whoever is will say when to stop
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
    from dpbandit.service.learner import Learner

    _learn(Learner(settings), stop)


def _learn(
    learner: Learner, stop: threading.Event, tell: Callable[[], None] = lambda: None
) -> None:
    """Learn; `tell` is called every second while that goes well."""

    def beat() -> None:
        while not stop.wait(1.0):
            if learner.healthy:
                tell()

    threading.Thread(target=beat, name="beat", daemon=True).start()
    learner.run(stop)


class _Child:
    """A process that learns, started again when it dies. Settings go through a pipe (a URL may hold
    a password); when the pipe closes, because this process ended in whatever way, so does the
    child. It sends a byte a second while all is well."""

    STARTING_SECONDS, SILENT_SECONDS = 60.0, 10.0

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # The first one has time to start; one that died must show that it lives.
        self._well_until = time.monotonic() + self.STARTING_SECONDS

    @property
    def healthy(self) -> bool:
        return time.monotonic() < self._well_until

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        while process.stdout.read(1):
            self._well_until = time.monotonic() + self.SILENT_SECONDS
        self._well_until = 0.0

    def keep(self, stop: threading.Event) -> None:
        """Until told to stop."""
        wait = 0.2
        while not stop.is_set():
            began = time.monotonic()
            child = subprocess.Popen(
                [sys.executable, "-m", "dpbandit.service.server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
            threading.Thread(target=self._listen, args=(child,), daemon=True).start()
            assert child.stdin is not None
            record = asdict(replace(self.settings, role="learner"))
            with contextlib.suppress(BrokenPipeError):  # it is dead already, and that is seen below
                child.stdin.write(json.dumps(record, default=str).encode() + b"\n")
            while child.poll() is None and not stop.wait(0.1):
                pass
            if stop.is_set():
                child.stdin.close()
                try:
                    child.wait(self.settings.shutdown_seconds * 0.8)
                except subprocess.TimeoutExpired:
                    child.kill()
                return
            log.warning("the learner ended with status %s; starting another", child.returncode)
            wait = 0.2 if time.monotonic() - began > 30 else min(2 * wait, 10.0)
            stop.wait(wait)


def _beat() -> None:
    with contextlib.suppress(OSError):  # the parent is gone, and the pipe will say so
        os.write(1, b".")


def _child() -> None:
    record = json.loads(sys.stdin.readline())
    for name in ("witness", "tls_cert", "tls_key"):
        record[name] = record[name] and Path(record[name])
    record["bandits"] = tuple(record["bandits"])
    settings = Settings(**record)
    _log_to_stderr(settings)
    stop = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stop.set()
        # Longer than any batch; a learner that cannot end by itself must not outlive its parent.
        time.sleep(settings.shutdown_seconds * 0.75)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the parent decides
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    from dpbandit.service.learner import Learner

    try:
        _learn(Learner(settings), stop, tell=_beat)
    except StoreError as error:
        log.error("%s", error)
        sys.exit(2)


def _log_to_stderr(settings: Settings) -> None:
    level = logging.getLevelName(settings.log_level.upper())
    logging.basicConfig(
        # What others have to say for debugging is not ours to judge: it may quote what was sent.
        level=max(level, logging.INFO),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
        force=True,
    )
    logging.getLogger("dpbandit").setLevel(level)
    below = logging.getLogger("uvicorn.error")
    below.filters[:] = [lambda record: not str(record.msg).startswith(COUNTS_REQUESTS)]
    if settings.json:
        logging.getLogger().handlers[0].setFormatter(_JsonLines())


class _JsonLines(logging.Formatter):
    """A log line as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        words = record.getMessage()
        if record.exc_info:
            words += "\n" + self.formatException(record.exc_info)
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"time": f"{second}.{int(record.msecs):03}Z", "level": record.levelname.lower()}
        return json.dumps(line | {"logger": record.name, "message": words}, ensure_ascii=False)


if __name__ == "__main__":
    _child()
