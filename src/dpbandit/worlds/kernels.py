"""What worlds do for every arm of every round, compiled: other threads play meanwhile."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numpy.typing import NDArray

from dpbandit.compiled import kernel
from dpbandit.lanes import intrinsic

_pointer_in: Any = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def address_of(rng: np.random.Generator) -> int:
    """Where NumPy's `bitgen_t` of a generator is; it lasts as long as the generator."""
    return int(_pointer_in(rng.bit_generator.capsule, b"BitGenerator"))


@intrinsic
def _next_word(typing: Any, generator: Any) -> Any:
    """The next 32 random bits: `next_uint32`, the third pointer of a `bitgen_t`, called with the first, its state."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        fields = builder.inttoptr(args[0], word.as_pointer())
        state, function = builder.load(fields), builder.load(builder.gep(fields, [ir.Constant(word, 2)]))
        kind = ir.FunctionType(ir.IntType(32), [word]).as_pointer()
        return builder.zext(builder.call(builder.inttoptr(function, kind), [state]), word)

    return types.uint64(types.int64), code


@kernel
def _below(generator: int, size: np.uint64) -> np.int64:
    """A whole number below `size`, from 2 to 2³²: that of `Generator.integers` (Lemire 2019)."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    product = _next_word(generator) * size
    if product & low < size:
        least = (low - (size - np.uint64(1))) % size
        while product & low < least:
            product = _next_word(generator) * size
    return np.int64(product >> half)


@kernel
def draw_distinct(generator: int, size: int, table: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """Fill the rows of a table with different numbers below `size`; rows with a number twice are drawn again. `rows` is
    scratch, a number for every row."""
    count = table.shape[0]
    for n in range(count):
        rows[n] = n
    while count > 0:
        for n in range(count):
            for j in range(table.shape[1]):
                table[rows[n], j] = _below(generator, np.uint64(size))
        left = 0
        for n in range(count):
            row, twice = rows[n], False
            for i in range(1, table.shape[1]):
                for k in range(i):
                    twice |= table[row, i] == table[row, k]
            rows[left] = row
            left += twice
        count = left


@kernel
def pay(
    arm_means: NDArray[np.float64],
    shown: NDArray[np.int64],
    noise: NDArray[np.float64],
    means: NDArray[np.float64],
    rewards: NDArray[np.float64],
) -> None:
    """The mean reward of every arm shown, and the same with its round's noise."""
    for n in range(shown.shape[0]):
        for j in range(shown.shape[1]):
            mean = arm_means[shown[n, j]]
            means[n, j] = mean
            rewards[n, j] = mean + noise[n]
