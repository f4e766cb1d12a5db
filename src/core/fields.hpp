// How a bandit tells what it keeps, by name: for saving, warm starts and audits.
#pragma once
#include "interface.hpp"
#include "vector.hpp"

namespace dpb {
namespace DPB_ARCH {
struct Fields {
    Field* out;
    i64 count;
    DPB_INLINE void put(const char* name, void* at, bool words, i64 rows, i64 columns, i64 stride) {
        out[count++] = Field{name, at, words, rows, columns, stride};
    }
    void vector(const char* name, double* at, i64 n) { put(name, at, false, 0, n, n); }
    void matrix(const char* name, double* at, Size z) { put(name, at, false, z.n, z.n, z.s); }
    void table(const char* name, double* at, i64 rows, Size z) { put(name, at, false, rows, z.n, z.s); }
    void number(const char* name, i64* at) { put(name, at, true, 0, 1, 1); }
    void real(const char* name, double* at) { put(name, at, false, 0, 1, 1); }
    // Each whole number is two words, the lower one first.
    void wholes(const char* name, whole* at, i64 rows, i64 columns) {
        put(name, at, true, rows, 2 * columns, 2 * columns);
    }
};
}  // namespace DPB_ARCH
}  // namespace dpb
