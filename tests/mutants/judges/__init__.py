"""Who judges a mutant: fast checks that know nothing of the code as it was.

Each judge asserts what must hold (a formula of docs/privacy.md, an exact sum of costs, what the
other engine does) and returns the numbers that it saw. A mutant that no judge refuses, and whose
numbers are all as they were, changes nothing that is released. The judges run in `make test` on the
code as it ships, too. A file for each subject, and importing this module imports them all.
"""

import importlib
import pkgutil

from judges.bandits import BANDITS
from judges.common import JUDGES

for found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"judges.{found.name}")

__all__ = ["BANDITS", "JUDGES"]
