"""The planted bugs are a module that several files here import."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
