"""A process that has everything imported, and forks learners and rankers on demand.

Killing a hundred of them would otherwise be a test of how fast Python imports OpenDP. The children
are ordinary processes with connections, leases and threads of their own, which nobody tells that
they are about to die.
"""

import json
import os
import signal
import sys
from pathlib import Path


def main():
    import psycopg  # noqa: F401
    import uvicorn  # noqa: F401
    import uvloop  # noqa: F401

    from dpbandit.service import blueprint, learner, server  # noqa: F401 - for a learner
    from dpbandit.service.settings import Settings

    config = json.loads(sys.argv[1])
    bandit = blueprint.build(config)
    for _ in range(1000):  # loads the sampler; nothing of this copy is kept
        bandit.update(
            [0.0] * config["dim"], 0.0, **({} if config["unit"] == "reward" else {"user": "nobody"})
        )
        if bandit.ledger.releases:
            break
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            log = os.open(order.pop("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # or a socket would have this number
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            settings = Settings(**{**order, "witness": Path(order["witness"])})
            try:
                if settings.role == "learner":
                    server.serve(settings, health_port=False)
                else:
                    server.serve(settings)
            finally:
                os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
