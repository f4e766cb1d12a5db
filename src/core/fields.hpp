// How a bandit tells what it keeps, by name: for saving, warm starts and audits.
#pragma once
#include "interface.hpp"
#include "vector.hpp"

namespace dpb::DPB_ARCH {
struct Fields {
    Field* out;
    i64 count;
    DPB_INLINE void put(const char* name, void* at, bool words, i64 rows, i64 columns, i64 stride,
                        i64 step = 1) {
        out[count++] = Field{name, at, words, rows, columns, stride, step};
    }
    void vector(const char* name, double* at, i64 n) { put(name, at, false, 0, n, n); }
    void matrix(const char* name, double* at, Size z) { put(name, at, false, z.n, z.n, z.s); }
    void table(const char* name, double* at, i64 rows, Size z) { put(name, at, false, rows, z.n, z.s); }
    void number(const char* name, i64* at) { put(name, at, true, 0, 1, 1); }
    void real(const char* name, double* at) { put(name, at, false, 0, 1, 1); }
    void words(const char* name, i64* at, i64 rows, Size z) { put(name, at, true, rows, z.n, z.s); }
    // Whole numbers: their low words, without a sign, and their high ones.
    void wholes(const char* low, const char* high, whole* at, i64 rows, i64 columns) {
        put(low, at, true, rows, columns, 2 * columns, 2);
        put(high, (i64*)at + 1, true, rows, columns, 2 * columns, 2);
    }
};
}  // namespace dpb::DPB_ARCH
