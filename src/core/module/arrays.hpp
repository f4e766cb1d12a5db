// Arrays of NumPy, seen in place or handed out; whole numbers as Python's; the core in use.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "../cpu.hpp"
#include "../interface.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using std::string;

namespace {
#if defined(__x86_64__)
const dpb::Arch* const cores[] = {&dpb::arch_v2, &dpb::arch_v3, &dpb::arch_v4};
#else
const dpb::Arch* const cores[] = {&dpb::arch_generic};
#endif
static_assert(sizeof cores / sizeof *cores == dpb::cpu::count, "a core for each name");
const dpb::Arch* core_in_use = nullptr;


// A C-contiguous array, seen in place; `format` is one of d, q and Q (64-bit words), i, B (bytes), ? (flags).
struct View {
    Py_buffer b;
    bool good;
    View(nb::handle h, int ndim, char format = 'd') {
        good = PyObject_GetBuffer(h.ptr(), &b, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0;
        if (!good) {
            PyErr_Clear();
            return;
        }
        char own = b.format && b.format[0] && !b.format[1] ? b.format[0] : 0;
        if (own == 'l' && b.itemsize == 8) own = 'q';
        if (own == 'L' && b.itemsize == 8) own = 'Q';
        bool aligned = (uintptr_t)b.buf % (size_t)b.itemsize == 0;
        if (b.ndim != ndim || own != format || !aligned) {
            PyBuffer_Release(&b);
            good = false;
        }
    }
    ~View() {
        if (good) PyBuffer_Release(&b);
    }
    View(const View&) = delete;
    template <class T = double> const T* data() const { return (const T*)b.buf; }
    template <class T = double> T* writable() const {
        if (b.readonly) throw nb::value_error("an array that is written to is read-only");
        return (T*)b.buf;
    }
    int64_t rows() const { return b.shape[0]; }
    int64_t columns() const { return b.shape[1]; }
};
void require(bool holds, const char* words) {
    if (!holds) throw nb::value_error(words);
}
using Array = nb::ndarray<nb::numpy, double>;
Array array(std::vector<double>&& numbers, std::vector<size_t> shape) {
    auto* own = new std::vector<double>(std::move(numbers));
    nb::capsule owner(own, [](void* p) noexcept { delete (std::vector<double>*)p; });
    return Array(own->data(), shape.size(), shape.data(), owner);
}
Array copied(const double* from, int64_t rows, int64_t columns, int64_t stride) {
    std::vector<double> numbers((size_t)(rows * columns));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) numbers[(size_t)(i * columns + k)] = from[i * stride + k];
    return array(std::move(numbers), {(size_t)rows, (size_t)columns});
}
Array copied(const double* from, int64_t count) {
    return array(std::vector<double>(from, from + count), {(size_t)count});
}
nb::object whole_number(__int128 value) {  // by way of two halves
    bool negative = value < 0;
    unsigned __int128 size = negative ? -(unsigned __int128)value : (unsigned __int128)value;
    nb::object high = nb::int_((uint64_t)(size >> 64)), low = nb::int_((uint64_t)size);
    nb::object all = (high << nb::int_(64)) | low;
    return negative ? nb::object(nb::int_(0) - all) : all;
}
__int128 from_whole_number(nb::handle number) {
    nb::object value = nb::borrow(number), zero = nb::int_(0);
    bool negative = nb::cast<bool>(value.attr("__lt__")(zero));
    if (negative) value = zero - value;
    nb::object mask = nb::int_(UINT64_MAX);
    auto low = nb::cast<uint64_t>(value & mask);
    auto high = nb::cast<uint64_t>((value >> nb::int_(64)) & mask);
    require(nb::cast<bool>((value >> nb::int_(126)).attr("__eq__")(zero)), "a whole number below 2^126");
    auto size = (__int128)((unsigned __int128)high << 64 | low);
    return negative ? -size : size;
}
}  // namespace
