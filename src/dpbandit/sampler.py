"""OpenDP's exact samplers, one vector in and one vector out, with little in between.

OpenDP's Python wrappers find out types anew at every call, which takes longer than drawing the noise. Here the functions of
its library that the wrappers call are called with the same arguments. How to call them is what the installed wrappers
themselves declare; should a version of OpenDP declare anything else, the wrappers are called: slower, and the same noise.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

NUMBER, NUMBERS = b"f64", b"Vec<f64>"


class Library(NamedTuple):
    """The functions of OpenDP's library that make, apply and free. Each returns a pointer or an error."""

    as_object: Callable[..., Any]  # a slice of numbers, copied into an object
    as_slice: Callable[..., Any]  # what an object holds, where it lies
    invoke: Callable[..., Any]
    map: Callable[..., Any]
    free_object: Callable[..., Any]
    free_slice: Callable[..., Any]


# What the wrappers are expected to declare: arguments by kind. All return an `FfiResult`.
DECLARED = {
    "as_object": ("opendp_data__slice_as_object", ("pointer", "text")),
    "as_slice": ("opendp_data__object_as_slice", ("pointer",)),
    "invoke": ("opendp_core__measurement_invoke", ("pointer", "pointer")),
    "map": ("opendp_core__measurement_map", ("pointer", "pointer")),
    "free_object": ("opendp_data__object_free", ("pointer",)),
    "free_slice": ("opendp_data__slice_free", ("pointer",)),
}
SLICE_FIELDS = [("ptr", ctypes.c_void_p), ("len", ctypes.c_size_t)]
RESULT_FIELDS = {"tag": ctypes.c_uint32, "Ok": ctypes.c_void_p}


class Sampler:
    """One measurement of OpenDP for vectors of `dim` numbers. `weight` times what its map says is what a release costs."""

    def __init__(self, measurement: Any, dim: int, weight: float) -> None:
        self._measurement, self._dim, self._weight = measurement, dim, weight
        self._library = _library(measurement, dim)
        self._address = ctypes.cast(measurement, ctypes.c_void_p).value
        self._last = (-1.0, 0.0)  # a shift and its cost: most releases have the shift of the one before

    def cost(self, shift: float) -> float:
        """What OpenDP proves for neighbours this far apart."""
        known, cost = self._last
        if shift != known:
            cost = self._weight * self._map(shift)
            self._last = (shift, cost)
        return cost

    def _map(self, shift: float) -> float:
        if self._library is None:
            return float(self._measurement.map(float(shift)))
        out = np.empty(1)
        _apply(self._library, self._library.map, self._address, np.array([shift], dtype=np.float64), NUMBER, out)
        return float(out[0])

    def draw(self, value: Vector) -> Vector:
        """The value with noise."""
        if value.shape != (self._dim,):
            raise ValueError(f"a sampler for {self._dim} numbers was given an array of shape {value.shape}")
        if self._library is None:
            return np.array(self._measurement(value.tolist()), dtype=np.float64)
        out = np.empty(self._dim)
        given = np.ascontiguousarray(value, dtype=np.float64)
        _apply(self._library, self._library.invoke, self._address, given, NUMBERS, out)
        return out


def _apply(library: Library, function: Any, address: int | None, given: Vector, kind: bytes, out: Vector) -> None:
    """out = function(measurement, given)."""
    from opendp._lib import FfiSlice

    numbers = FfiSlice(given.ctypes.data, given.size)
    argument = _unwrap(library.as_object(ctypes.addressof(numbers), kind))
    try:
        result = _unwrap(function(address, argument))
        try:
            where = _unwrap(library.as_slice(result))
            held = FfiSlice.from_address(where)
            length, start = held.len, held.ptr
            if length == out.size:
                ctypes.memmove(out.ctypes.data, start, out.nbytes)
            library.free_slice(where)
        finally:
            library.free_object(result)
    finally:
        library.free_object(argument)
    if length != out.size:
        raise AssertionError(f"OpenDP returned {length} numbers, not {out.size}")


def _unwrap(result: Any) -> Any:
    if result.tag != 0:
        from opendp._lib import unwrap

        unwrap(result, ctypes.c_void_p)  # raises what OpenDP has to say
    return result.payload.Ok


_found: list[Library | None] = []


def _library(measurement: Any, dim: int) -> Library | None:
    """The library's functions, or None if this version's wrappers call them in another way than is expected here."""
    if not _found:
        _found.append(_look(measurement, dim))
    return _found[0]


def _look(measurement: Any, dim: int) -> Library | None:
    import opendp._lib

    _lib: Any = opendp._lib
    # The wrappers declare a function when they call it. What is drawn here is nobody's.
    measurement.map(1.0)
    measurement([0.0] * dim)
    result = dict(_lib.FfiResult._fields_)
    payload = dict(getattr(result.get("payload"), "_fields_", ()))
    same = list(_lib.FfiSlice._fields_) == SLICE_FIELDS
    same &= {"tag": result.get("tag"), "Ok": payload.get("Ok")} == RESULT_FIELDS
    found = {}
    for name, (symbol, kinds) in DECLARED.items():
        declared = getattr(_lib.lib, symbol, None)
        arguments = getattr(declared, "argtypes", None) or ()
        same &= getattr(declared, "restype", None) is _lib.FfiResult and tuple(map(_kind, arguments)) == kinds
        if not same:
            return None
        plain = (ctypes.c_void_p if kind == "pointer" else ctypes.c_char_p for kind in kinds)
        # A function of our own: the wrappers set the types of theirs again and again.
        found[name] = ctypes.CFUNCTYPE(_lib.FfiResult, *plain)((symbol, _lib.lib))
    return Library(**found)


def _kind(argument: Any) -> str:
    if argument is ctypes.c_char_p:
        return "text"
    return "pointer" if hasattr(argument, "contents") else "other"


@lru_cache(maxsize=64)
def _space(dim: int) -> tuple[Any, Any, Any]:
    """OpenDP's vectors of this size and their L1 and L2 distances: making these takes longer than making a measurement."""
    # These modules, not the prelude: it imports scikit-learn and polars when they are installed, which takes seconds.
    from opendp.domains import atom_domain, vector_domain
    from opendp.metrics import l1_distance, l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return vector_domain(atom_domain(T=float, nan=False), size=dim), l1_distance(T=float), l2_distance(T=float)


@lru_cache(maxsize=256)
def gaussian(dim: int, scale: float, exponent: int) -> Sampler:
    """Gaussian noise of this standard deviation on multiples of 2^exponent. Costs are μ²: twice the ρ that OpenDP proves."""
    from opendp.measurements import make_gaussian

    space, _l1, l2 = _space(dim)
    return Sampler(make_gaussian(space, l2, scale, k=exponent), dim, 2.0)


@lru_cache(maxsize=256)
def laplace(dim: int, scale: float, exponent: int) -> Sampler:
    """Laplace noise of this scale on multiples of 2^exponent. Costs are ε."""
    from opendp.measurements import make_laplace

    space, l1, _l2 = _space(dim)
    return Sampler(make_laplace(space, l1, scale, k=exponent), dim, 1.0)
