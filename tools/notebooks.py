"""Run the notebooks in examples/ and keep what they show: `python tools/notebooks.py [name ...]` (`make notebooks`).

The notebooks are the source: edit them in Jupyter, then run this, so that what is saved is what the code gives from top to bottom.
The tests run them too, and throw the output away.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


def execute(path: Path, folder: Path | str = EXAMPLES) -> Any:
    """The notebook with fresh output, run in a folder from the first cell to the last."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}, record_timing=False)
    client.execute()
    return notebook


def main(names: list[str]) -> None:
    for path in [EXAMPLES / f"{name}.ipynb" for name in names] or sorted(EXAMPLES.glob("*.ipynb")):
        notebook = execute(path)
        # which Python it was is nobody's business: it would change with every machine
        notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
