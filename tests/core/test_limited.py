"""From Python 3.12 on, one binary serves every version: it may use the stable part of Python's C API
alone. Python 3.11 compiles more than that part, so its compiler does not tell."""

import re
from pathlib import Path

MODULE = Path(__file__).parents[2] / "src" / "core"
# Macros that look into Python's objects: their layout is not stable.
UNSTABLE = re.compile(
    r"\bPy[A-Za-z]+_(?:GET|SET|AS|READ|WRITE)_[A-Z_]+\b|\bPyUnicode_(?:DATA|KIND)\b"
)


def test_the_core_looks_into_no_object_of_python():
    found = {
        path.name: names
        for path in sorted(MODULE.rglob("*.[ch]pp"))
        if (names := UNSTABLE.findall(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_such_a_look_would_be_found():
    assert UNSTABLE.findall("PyList_GET_SIZE(x) PyFloat_AS_DOUBLE(y)") == [
        "PyList_GET_SIZE",
        "PyFloat_AS_DOUBLE",
    ]
    assert not UNSTABLE.findall("PyList_Size(x) PyFloat_AsDouble(y) PyBUF_FORMAT")
