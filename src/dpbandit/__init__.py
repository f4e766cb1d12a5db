"""dpbandit: contextual bandits with differential privacy that you can check.

>>> import dpbandit as dpb
>>> bandit = dpb.make("tree-gauss", dim=2, epsilon=2.0, delta=1e-5, horizon=100, seed=7)
>>> arm = bandit.select([[1.0, 0.0], [0.0, 1.0]])
>>> bandit.update([[1.0, 0.0], [0.0, 1.0]][arm], 0.5)
>>> bandit.claim.status
'proven'

Heavy dependencies are imported only when a name first needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# public name → where it lives
_PLACES = {
    "make": "dpbandit.algorithms.registry",
    "algorithms": "dpbandit.algorithms.registry",
    "register": "dpbandit.algorithms.registry",
    "load": "dpbandit.files",
    "warm_start": "dpbandit.warmstart.start",
    "replay": "dpbandit.evaluate.replay",
    "Evaluation": "dpbandit.evaluate.replay",
    "run": "dpbandit.simulate.run",
    "Results": "dpbandit.simulate.results",
    "verify": "dpbandit.auditor.verify",
    "audit": "dpbandit.auditor.attack",
    "fuzz": "dpbandit.auditor.fuzz",
    "plan": "dpbandit.planner.ask",
    "recommend": "dpbandit.planner.recommend",
    "affordable_epsilon": "dpbandit.planner.affordable",
    "protections": "dpbandit.planner.protection",
    "clipping": "dpbandit.planner.clipping",
    "Bandit": "dpbandit.bandit",
    "Claim": "dpbandit.privacy.claim",
    "Ledger": "dpbandit.privacy.ledger",
    "estimate_bounds": "dpbandit.privacy.sensitivity",
    "Encoder": "dpbandit.encoder.encode",
    "Number": "dpbandit.encoder.features",
    "Category": "dpbandit.encoder.features",
    "Hashed": "dpbandit.encoder.features",
    "sizing": "dpbandit.planner.sizing",
    "Client": "dpbandit.client.blocking",
    "AsyncClient": "dpbandit.client.concurrent",
    "Decision": "dpbandit.client.calls",
}
_MODULES = ("worlds", "theory", "errors", "budget", "adapters")

# spelled out, because type checkers read it and do not run it
__all__ = [
    "__version__",
    "make",
    "algorithms",
    "register",
    "load",
    "warm_start",
    "replay",
    "Evaluation",
    "run",
    "Results",
    "verify",
    "audit",
    "fuzz",
    "plan",
    "recommend",
    "affordable_epsilon",
    "protections",
    "clipping",
    "Bandit",
    "Claim",
    "Ledger",
    "estimate_bounds",
    "Encoder",
    "Number",
    "Category",
    "Hashed",
    "sizing",
    "Client",
    "AsyncClient",
    "Decision",
    "worlds",
    "theory",
    "errors",
    "budget",
    "adapters",
]

if TYPE_CHECKING:
    from dpbandit import adapters, budget, errors, theory, worlds
    from dpbandit.algorithms.registry import algorithms, make, register
    from dpbandit.auditor.attack import audit
    from dpbandit.auditor.fuzz import fuzz
    from dpbandit.auditor.verify import verify
    from dpbandit.bandit import Bandit
    from dpbandit.client import AsyncClient, Client, Decision
    from dpbandit.encoder import Category, Encoder, Hashed, Number
    from dpbandit.evaluate.replay import Evaluation, replay
    from dpbandit.files import load
    from dpbandit.planner.affordable import affordable_epsilon
    from dpbandit.planner.ask import plan
    from dpbandit.planner.clipping import clipping
    from dpbandit.planner.protection import protections
    from dpbandit.planner.recommend import recommend
    from dpbandit.planner.sizing import sizing
    from dpbandit.privacy.claim import Claim
    from dpbandit.privacy.ledger import Ledger
    from dpbandit.privacy.sensitivity import estimate_bounds
    from dpbandit.simulate.results import Results
    from dpbandit.simulate.run import run
    from dpbandit.warmstart.start import warm_start


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name in _MODULES:
        return import_module(f"dpbandit.{name}")
    from dpbandit.errors import nearest

    raise AttributeError(f"dpbandit has no {name!r}: {nearest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
