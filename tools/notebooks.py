"""Run the notebooks in examples/ and keep what they show: `python tools/notebooks.py [name ...]` (`make notebooks`).

The notebooks are the source: edit them in Jupyter, then run this, so that what is saved is what the code gives from top to bottom.
The tests run them too, and throw the output away.
"""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

EXAMPLES = Path(__file__).parents[1] / "examples"


def execute(path: Path, folder: Path | str = EXAMPLES) -> Any:
    """The notebook with fresh output, run in a folder from the first cell to the last."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(folder)}}, record_timing=False
    )
    client.execute()
    return notebook


def smaller(notebook: Any) -> None:
    """Pictures with 64 colours instead of 16 million: a quarter of the size, and nobody sees it."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                packed, image = (
                    io.BytesIO(),
                    Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))),
                )
                image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(
                    packed, "PNG", optimize=True
                )
                output.data["image/png"] = base64.b64encode(packed.getvalue()).decode()


def main(names: list[str]) -> None:
    for path in [EXAMPLES / f"{name}.ipynb" for name in names] or sorted(EXAMPLES.glob("*.ipynb")):
        notebook = execute(path)
        smaller(notebook)
        # which Python it was is nobody's business: it would change with every machine
        notebook.metadata = {
            "kernelspec": notebook.metadata["kernelspec"],
            "language_info": {"name": "python"},
        }
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
