"""How compiled code is given nested named tuples by address: one number from Python instead of forty arrays.

Taking a bandit's learner and plan apart costs tens of microseconds at each call from Python. `keep` does it once and
leaves Numba's own form of them in a block of memory; `at` is that form again, inside compiled code, from the block's
address. Arrays are referred to, not copied, so everything still happens in place. The address is a number to Python and
a `Place` of one exact type to Numba: code that was compiled, or cached, for another type is never run on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import typeof, types
from numba.core import cgutils
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, intrinsic, models, register_model, unbox
from numpy.typing import NDArray

from dpbandit.compiled import kernel

# What an array takes in Numba's form, for d dimensions: five words, its shape and its strides. A number takes one word.
_ARRAY_WORDS = 5


class Place(types.Type):
    """The type of an address at which a value of type `kept` lies."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept
        super().__init__(name=f"Place({kept})")

    @property
    def key(self) -> Any:
        return self.kept


register_model(Place)(models.OpaqueModel)


@unbox(Place)
def _unbox(_type: Any, number: Any, context: Any) -> Any:
    return NativeValue(context.pyapi.long_as_voidptr(number))


@infer_getattr
class _Fields(AttributeTemplate):
    """A field of a named tuple at a place: again a place if it is a named tuple, otherwise the value."""

    key = Place

    def generic_resolve(self, place: Any, name: Any) -> Any:  # type: ignore[override]
        if name not in place.kept.fields:
            return None
        kind = place.kept[place.kept.fields.index(name)]
        return Place(kind) if isinstance(kind, types.BaseNamedTuple) else kind


@lower_getattr_generic(Place)
def _field(context: Any, builder: Any, place: Any, address: Any, name: str) -> Any:
    tuple_at = builder.bitcast(address, context.get_value_type(place.kept).as_pointer())
    number = place.kept.fields.index(name)
    field = cgutils.gep_inbounds(builder, tuple_at, 0, number)
    if isinstance(place.kept[number], types.BaseNamedTuple):
        return builder.bitcast(field, address.type)
    value = builder.load(field)
    # What lies there never changes, whatever is written into the arrays: it need not be looked up again.
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


def _put(_context: Any, value: Any, address: Any, room: Any) -> Any:
    def store(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        native, address, room = given
        size = context.get_constant(types.int64, context.get_abi_sizeof(native.type))
        with builder.if_then(builder.icmp_signed("<=", size, room)):
            builder.store(native, builder.inttoptr(address, native.type.as_pointer()))
        return size

    return types.int64(value, types.int64, types.int64), store


_store: Any = intrinsic(_put)  # Numba's own types do not fit how it is called


@kernel
def _keep(value: Any, address: int, room: int) -> int:
    """Leave a value at an address if it has room there; returns how many bytes it takes."""
    return _store(value, address, room)


class Kept:
    """A value in compiled code's own form. It refers to the value's arrays, and keeps them alive."""

    def __init__(self, value: Any) -> None:
        self.value, self._place = value, Place(typeof(value))
        self.block: NDArray[np.int64] = np.zeros(2 * _words(value), dtype=np.int64)
        self.address = int(self.block.ctypes.data)
        size = _keep(value, self.address, self.block.nbytes)
        if size > self.block.nbytes:
            raise AssertionError(f"{size} bytes do not fit into {self.block.nbytes}")

    def entry(self, function: Any, *others: Any) -> Callable[..., Any]:
        """A kernel whose first argument is a place, for this value: to be called with its address.

        Nothing looks at the types of the other arguments any more: they must be what is said here.
        """
        compiled: Callable[..., Any] = function.compile((self._place, *others))
        return compiled


def _words(part: Any) -> int:
    if isinstance(part, np.ndarray):
        return _ARRAY_WORDS + 2 * part.ndim
    return sum(map(_words, part)) if isinstance(part, tuple) else 1


# Arrays begin on lines of the processor's cache.
_LINE = 64


def gathered(part: Any) -> tuple[Any, NDArray[np.uint8]]:
    """The same nested named tuples with all their arrays in one block, and the block: copying it copies everything.

    >>> from dpbandit.numerics import new_ridge
    >>> ridge, block = gathered(new_ridge(2, 4.0))
    >>> before = block.copy(); ridge.inverse[0, 0] = 7.0; block[:] = before
    >>> ridge.inverse.tolist()
    [[0.25, 0.0], [0.0, 0.25]]
    """
    block = np.zeros(_LINE + _bytes(part), dtype=np.uint8)
    block = block[-block.ctypes.data % _LINE :]
    free = block

    def moved(part: Any) -> Any:
        nonlocal free
        if isinstance(part, tuple):
            return type(part)(*map(moved, part))
        if not isinstance(part, np.ndarray) or part.size == 0:
            return part
        mine, free = free[: part.nbytes], free[_bytes(part) :]
        array = mine.view(part.dtype).reshape(part.shape)
        array[...] = part
        return array

    return moved(part), block


def _bytes(part: Any) -> int:
    if isinstance(part, tuple):
        return sum(map(_bytes, part))
    return -(-part.nbytes // _LINE) * _LINE if isinstance(part, np.ndarray) else 0
