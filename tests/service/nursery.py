"""A process that has everything imported and compiled, and forks learners and rankers on demand.

Killing a hundred of them would otherwise be a test of how fast Python imports SciPy. The children are ordinary processes with
connections, leases and threads of their own, which nobody tells that they are about to die.
"""

import json
import os
import signal
import sys
from pathlib import Path


def main():
    import numpy as np
    import psycopg  # noqa: F401
    import uvicorn  # noqa: F401
    import uvloop  # noqa: F401

    from dpbandit.bandits.files import pack
    from dpbandit.service import blueprint, learner, server  # noqa: F401 - the learner, for whoever is born to be one
    from dpbandit.service.lessons import warm_up
    from dpbandit.service.settings import Settings

    config = json.loads(sys.argv[1])
    bandit = blueprint.build(config)
    bandit.source.release("gaussian", np.zeros(config["dim"]), scale=1.0, shift=1.0, index=0)  # loads the sampler
    warm_up(config, pack(bandit))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            log = os.open(order.pop("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(0)
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
