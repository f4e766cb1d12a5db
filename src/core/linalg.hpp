// Products, sums and factors of small vectors and matrices, in a fixed order.
// Rows have s entries, of which the last s − n are 0. Nothing here knows of privacy.
#pragma once
#include "vector.hpp"

namespace dpb {
namespace DPB_ARCH {

DPB_INLINE void clear(double* a, i64 count) {
    for (i64 i = 0; i < count; i++) a[i] = 0;
}
DPB_INLINE void copy(const double* a, double* out, i64 count) {
    for (i64 i = 0; i < count; i++) out[i] = a[i];
}
DPB_INLINE double dot(Size z, const double* a, const double* b) {
    four sum = splat(0);
    for (int i = 0; i < z.s; i += 4) sum += load(a + i) * load(b + i);
    return add_up(sum);
}
// out ← out + factor·a
DPB_INLINE void add_scaled(Size z, double* out, double factor, const double* a) {
    for (int i = 0; i < z.s; i += 4) store(out + i, load(out + i) + splat(factor) * load(a + i));
}

template <int N>
DPB_INLINE void multiply_strip(Size z, const double* m, const double* x, double* out) {
    four even[N], odd[N];
    DPB_UNROLL for (int v = 0; v < N; v++) even[v] = odd[v] = splat(0);
    int k = 0;
    for (; k + 1 < z.n; k += 2) {
        const double *row = m + (i64)k * z.s, *next = row + z.s;
        four first = splat(x[k]), second = splat(x[k + 1]);
        DPB_UNROLL for (int v = 0; v < N; v++) {
            even[v] += first * load(row + 4 * v);
            odd[v] += second * load(next + 4 * v);
        }
    }
    if (k < z.n) {
        const double* row = m + (i64)k * z.s;
        DPB_UNROLL for (int v = 0; v < N; v++) even[v] += splat(x[k]) * load(row + 4 * v);
    }
    DPB_UNROLL for (int v = 0; v < N; v++) store(out + 4 * v, even[v] + odd[v]);
}
// out = Σ_k x_k·(row k of m): m·x for a symmetric m, mᵀ·x in general.
DPB_INLINE void multiply(Size z, const double* m, const double* x, double* out) {
    int j = 0;
    for (; j + 16 <= z.s; j += 16) multiply_strip<4>(z, m + j, x, out + j);
    if (z.s - j == 12) multiply_strip<3>(z, m + j, x, out + j);
    if (z.s - j == 8) multiply_strip<2>(z, m + j, x, out + j);
    if (z.s - j == 4) multiply_strip<1>(z, m + j, x, out + j);
}
// m ← m + factor·a·bᵀ
DPB_INLINE void add_outer(Size z, double* m, double factor, const double* a, const double* b) {
    for (int i = 0; i < z.n; i++) {
        four scaled = splat(factor * a[i]);
        double* row = m + (i64)i * z.s;
        for (int k = 0; k < z.s; k += 4) store(row + k, load(row + k) + scaled * load(b + k));
    }
}
// total ← total + term, with what rounding loses of it in low (Neumaier).
DPB_INLINE void add_kept(double* total, double* low, four term) {
    four old = load(total), sum = old + term, back = sum - old;
    store(total, sum);
    store(low, load(low) + ((old - (sum - back)) + (term - back)));
}
DPB_INLINE void add_kept(Size z, double* total, double* low, double factor, const double* a) {
    for (int i = 0; i < z.s; i += 4) add_kept(total + i, low + i, load(a + i) * splat(factor));
}
// a·b − product, exactly (Veltkamp and Dekker).
template <class T> DPB_INLINE T product_error(T a, T b, T product) {
    T c = a * 134217729.0, a_high = c - (c - a), a_low = a - a_high;
    T e = b * 134217729.0, b_high = e - (e - b), b_low = b - b_high;
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
}

// The sum of factor_t·left_t·right_tᵀ over rows of two tables, added to m. Four rows of m and two
// fours of columns stay in registers while all rows of the tables pass by.
template <int R, int V>
DPB_INLINE void add_rows_tile(Size z, double* m, const double* left, const double* right, int count) {
    four sum[R][V];
    DPB_UNROLL for (int r = 0; r < R; r++)
        DPB_UNROLL for (int v = 0; v < V; v++) sum[r][v] = load(m + (i64)r * z.s + 4 * v);
    for (int t = 0; t < count; t++) {
        const double *a = left + (i64)t * z.s, *b = right + (i64)t * z.s;
        DPB_UNROLL for (int r = 0; r < R; r++)
            DPB_UNROLL for (int v = 0; v < V; v++) sum[r][v] += splat(a[r]) * load(b + 4 * v);
    }
    DPB_UNROLL for (int r = 0; r < R; r++)
        DPB_UNROLL for (int v = 0; v < V; v++) store(m + (i64)r * z.s + 4 * v, sum[r][v]);
}
// m ← m + Σ_t left_t·right_tᵀ; the tables' rows are z.s apart.
DPB_CALL inline void add_rows(Size z, double* m, const double* left, const double* right, int count) {
    int i = 0;
    for (; i + 4 <= z.n; i += 4) {
        int j = 0;
        for (; j + 8 <= z.s; j += 8)
            add_rows_tile<4, 2>(z, m + (i64)i * z.s + j, left + i, right + j, count);
        if (j < z.s) add_rows_tile<4, 1>(z, m + (i64)i * z.s + j, left + i, right + j, count);
    }
    for (; i < z.n; i++)
        for (int j = 0; j < z.s; j += 4)
            add_rows_tile<1, 1>(z, m + (i64)i * z.s + j, left + i, right + j, count);
}

// out ← out + sign·a·b for square matrices; out is another one than either.
DPB_CALL inline void add_product(Size z, double sign, const double* a, const double* b, double* out) {
    for (int i = 0; i < z.n; i += 2) {
        const bool two = i + 1 < z.n;
        const double *row = a + (i64)i * z.s, *next = two ? row + z.s : row;
        for (int j = 0; j < z.s; j += 8) {
            const bool wide = j + 8 <= z.s;
            double *to = out + (i64)i * z.s + j, *below = two ? to + z.s : to;
            four s0 = load(to), s1 = wide ? load(to + 4) : splat(0);
            four t0 = load(below), t1 = wide ? load(below + 4) : splat(0);
            for (int k = 0; k < z.n; k++) {
                const double* from = b + (i64)k * z.s + j;
                four e = splat(sign * row[k]), f = splat(sign * next[k]), x = load(from);
                s0 += e * x;
                t0 += f * x;
                if (wide) {
                    x = load(from + 4);
                    s1 += e * x;
                    t1 += f * x;
                }
            }
            store(to, s0);
            if (wide) store(to + 4, s1);
            if (two) {
                store(below, t0);
                if (wide) store(below + 4, t1);
            }
        }
    }
}

// The upper factor U of m + low = UᵀU; what is left of its diagonal is 0. `low` may be null.
// A pivot that rounding made non-positive is replaced by the smallest sensible one.
DPB_CALL inline void factor(Size z, const double* m, const double* low, double* out) {
    for (int i = 0; i < z.n; i++) {
        double* row = out + (i64)i * z.s;
        for (int j = i / 4 * 4; j < z.s; j += 4) {
            four sum = load(m + (i64)i * z.s + j);
            if (low) sum += load(low + (i64)i * z.s + j);
            for (int k = 0; k < i; k++)
                sum -= splat(out[(i64)k * z.s + i]) * load(out + (i64)k * z.s + j);
            store(row + j, sum);
        }
        double least = larger(m[(i64)i * z.s + i] * 1e-16, 1e-300);
        double pivot = root(larger(row[i], least)), inverse = 1 / pivot;
        for (int j = 0; j < i; j++) row[j] = 0;
        row[i] = pivot;
        for (int j = i + 1; j < z.s; j++) row[j] *= inverse;
    }
}
// Whether sign·m + shift·1 is positive definite; if so, its upper factor is in out.
DPB_CALL inline bool has_factor(Size z, const double* m, double sign, double shift, double* out) {
    for (int i = 0; i < z.n; i++) {
        double* row = out + (i64)i * z.s;
        for (int j = i / 4 * 4; j < z.s; j += 4) {
            four sum = splat(sign) * load(m + (i64)i * z.s + j);
            for (int k = 0; k < i; k++)
                sum -= splat(out[(i64)k * z.s + i]) * load(out + (i64)k * z.s + j);
            store(row + j, sum);
        }
        double pivot = row[i] + shift;
        if (!(pivot > 0)) return false;
        pivot = root(pivot);
        double inverse = 1 / pivot;
        for (int j = 0; j < i; j++) row[j] = 0;
        row[i] = pivot;
        for (int j = i + 1; j < z.s; j++) row[j] *= inverse;
    }
    return true;
}
// out = U⁻ᵀ, lower triangular.
DPB_CALL inline void invert_upper(Size z, const double* u, double* out) {
    for (int i = 0; i < z.n; i++) {
        double inverse = 1 / u[(i64)i * z.s + i];
        double* row = out + (i64)i * z.s;
        for (int j = 0; j < z.s; j += 4) {
            four sum = splat(0);
            for (int k = j; k < i; k++)
                sum -= splat(u[(i64)k * z.s + i]) * load(out + (i64)k * z.s + j);
            store(row + j, sum * splat(inverse));
        }
        row[i] = inverse;
    }
}
// out = (UᵀU)⁻¹, exactly symmetric; destroys U.
DPB_CALL inline void invert_factor(Size z, double* u, double* out) {
    invert_upper(z, u, out);
    for (int i = 0; i < z.n; i++)
        for (int j = i / 4 * 4; j < z.s; j += 4) {
            four sum = splat(0);
            for (int k = j > i ? j : i; k < z.n; k++)  // rows above have zeros there
                sum += splat(out[(i64)k * z.s + i]) * load(out + (i64)k * z.s + j);
            store(u + (i64)i * z.s + j, sum);
        }
    for (int i = 0; i < z.n; i++) {
        for (int k = i; k < z.n; k++)
            out[(i64)i * z.s + k] = out[(i64)k * z.s + i] = u[(i64)i * z.s + k];
        for (int k = z.n; k < z.s; k++) out[(i64)i * z.s + k] = 0;
    }
}
// x ← U⁻¹·x
DPB_INLINE void solve_upper(Size z, const double* u, double* x) {
    for (int i = z.n - 1; i >= 0; i--) {
        double sum = x[i];
        for (int k = i + 1; k < z.n; k++) sum -= u[(i64)i * z.s + k] * x[k];
        x[i] = sum / u[(i64)i * z.s + i];
    }
}
// out = U⁻ᵀ·x; out may be x.
DPB_INLINE void solve_lower(Size z, const double* u, const double* x, double* out) {
    for (int i = 0; i < z.n; i++) {
        double sum = x[i];
        for (int k = 0; k < i; k++) sum -= u[(i64)k * z.s + i] * out[k];
        out[i] = sum / u[(i64)i * z.s + i];
    }
}
// Rotate the equation row·θ = value (of variance 1) into the triangular system r·θ = target.
// Destroys row; returns what is left over, whose square says how much worse the equations fit.
DPB_CALL inline double add_row(Size z, double* r, double* target, double* row, double value) {
    for (int i = 0; i < z.n; i++) {
        double* own = r + (i64)i * z.s;
        if (row[i] == 0) continue;
        double length = root(own[i] * own[i] + row[i] * row[i]);
        if (length == 0) continue;
        double unit = 1 / length, c = own[i] * unit, s = row[i] * unit;
        for (int k = i / 4 * 4; k < z.s; k += 4) {  // what is before i is 0 in both, and stays it
            four old = load(own + k), more = load(row + k);
            store(own + k, splat(c) * old + splat(s) * more);
            store(row + k, splat(c) * more - splat(s) * old);
        }
        row[i] = 0;
        double entry = target[i];
        target[i] = c * entry + s * value;
        value = c * value - s * entry;
    }
    return value;
}
// Rotate a symmetric matrix, in place, until the squares off its diagonal add up to at most `enough`
// (Jacobi). The columns of `vectors`, the identity at first, turn into eigenvectors; it may be null.
// Returns what is left off the diagonal.
DPB_CALL inline double diagonalise(Size z, double* m, double* vectors, double enough) {
    const int d = z.n, s = z.s;
    double off = 0;
    for (int sweep = 0; sweep < 60; sweep++) {
        off = 0;
        for (int p = 0; p < d; p++)
            for (int q = 0; q < p; q++) off += 2 * m[p * s + q] * m[p * s + q];
        if (off <= enough) break;
        for (int p = 0; p < d; p++)
            for (int q = 0; q < p; q++) {
                if (m[p * s + q] == 0) continue;
                double ratio = (m[q * s + q] - m[p * s + p]) / (2 * m[p * s + q]);
                double t = 1 / (magnitude(ratio) + root(ratio * ratio + 1));
                if (ratio < 0) t = -t;
                double c = 1 / root(t * t + 1), e = t * c;
                for (int k = 0; k < d; k++) {
                    double kp = m[k * s + p], kq = m[k * s + q];
                    m[k * s + p] = c * kp - e * kq;
                    m[k * s + q] = e * kp + c * kq;
                }
                for (int k = 0; k < d; k++) {
                    double pk = m[p * s + k], qk = m[q * s + k];
                    m[p * s + k] = c * pk - e * qk;
                    m[q * s + k] = e * pk + c * qk;
                }
                for (int k = 0; vectors && k < d; k++) {
                    double kp = vectors[k * s + p], kq = vectors[k * s + q];
                    vectors[k * s + p] = c * kp - e * kq;
                    vectors[k * s + q] = e * kp + c * kq;
                }
            }
    }
    return off;
}
// An upper bound on the largest eigenvalue of a symmetric matrix, tight to rounding.
DPB_INLINE double largest_eigenvalue(Size z, const double* m, double* work) {
    double trace = 0;
    for (int i = 0; i < z.n; i++) trace += magnitude(m[(i64)i * z.s + i]);
    copy(m, work, z.square());
    double off = diagonalise(z, work, nullptr, (1e-14 * trace) * (1e-14 * trace));
    double largest = work[0];
    for (int i = 1; i < z.n; i++) largest = larger(largest, work[(i64)i * z.s + i]);
    return largest + root(off);  // what is left off the diagonal moves no eigenvalue by more
}
}  // namespace DPB_ARCH
}  // namespace dpb
