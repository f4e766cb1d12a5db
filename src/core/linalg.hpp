// Products, sums and factors of small vectors and matrices, in a fixed order.
// Rows have s entries, of which the last s − n are 0. Nothing here knows of privacy.
#pragma once
#include "vector.hpp"

namespace dpb::DPB_ARCH {

DPB_INLINE word4 lane_of(int lane) { return (word4)(word4{0, 1, 2, 3} == splat_word((u64)lane)); }
DPB_INLINE word4 lanes_below(int lane) { return (word4)(word4{0, 1, 2, 3} < splat_word((u64)lane)); }
DPB_INLINE void clear(double* a, i64 count) {
    i64 i = 0;
    for (; i + 4 <= count; i += 4) store(a + i, splat(0));
    for (; i < count; i++) a[i] = 0;
}
DPB_INLINE void copy(const double* a, double* out, i64 count) {
    i64 i = 0;
    for (; i + 4 <= count; i += 4) store(out + i, load(a + i));
    for (; i < count; i++) out[i] = a[i];
}
DPB_INLINE double dot(Size z, const double* a, const double* b) {
    four sum = splat(0);
    for (int i = 0; i < z.s; i += 4) sum += load(a + i) * load(b + i);
    return add_up(sum);
}
DPB_INLINE double trace_of(Size z, const double* m) {
    double even = 0, odd = 0;
    int i = 0;
    for (; i + 2 <= z.n; i += 2) {
        even += m[(i64)i * (z.s + 1)];
        odd += m[(i64)(i + 1) * (z.s + 1)];
    }
    return i < z.n ? even + odd + m[(i64)i * (z.s + 1)] : even + odd;
}
// out ← out + factor·a
DPB_INLINE void add_scaled(Size z, double* out, double factor, const double* a) {
    for (int i = 0; i < z.s; i += 4) store(out + i, load(out + i) + splat(factor) * load(a + i));
}

// Calls f(width, j) for strips of columns from, …, to − 1: up to four fours side by side, as many sums
// at once as hide how long each addition takes.
template <int N> struct Fours {
    static constexpr int count = N;
};
template <class F> DPB_INLINE void in_strips(int from, int to, F f) {
    int j = from;
    for (; j + 16 <= to; j += 16) f(Fours<4>{}, j);
    if (to - j == 12) f(Fours<3>{}, j);
    if (to - j == 8) f(Fours<2>{}, j);
    if (to - j == 4) f(Fours<1>{}, j);
}
// out = Σ_k x_k·(row k of m): m·x for a symmetric m, mᵀ·x in general.
DPB_INLINE void multiply(Size z, const double* m, const double* x, double* out) {
    in_strips(0, z.s, [=](auto width, int j) __attribute__((always_inline)) {
        constexpr int N = decltype(width)::count;
        four even[N], odd[N];
        DPB_UNROLL for (int v = 0; v < N; v++) even[v] = odd[v] = splat(0);
        int k = 0;
        for (; k + 1 < z.n; k += 2) {
            const double *row = m + (i64)k * z.s + j, *next = row + z.s;
            four first = splat(x[k]), second = splat(x[k + 1]);
            DPB_UNROLL for (int v = 0; v < N; v++) {
                even[v] += first * load(row + 4 * v);
                odd[v] += second * load(next + 4 * v);
            }
        }
        if (k < z.n) {
            const double* row = m + (i64)k * z.s + j;
            DPB_UNROLL for (int v = 0; v < N; v++) even[v] += splat(x[k]) * load(row + 4 * v);
        }
        DPB_UNROLL for (int v = 0; v < N; v++) store(out + j + 4 * v, even[v] + odd[v]);
    });
}
// m ← m − factor·a·aᵀ. a_i·a_k is a_k·a_i to the last bit, so that m stays exactly symmetric: what
// bounds A⁻¹x looks at rows, what multiplies by A⁻¹ at columns.
DPB_INLINE void take_square(Size z, double* m, double factor, const double* a) {
    in_strips(0, z.s, [=](auto width, int j) __attribute__((always_inline)) {
        constexpr int N = decltype(width)::count;
        four columns[N];
        DPB_UNROLL for (int v = 0; v < N; v++) columns[v] = load(a + j + 4 * v);
        for (int i = 0; i < z.n; i++) {
            double* row = m + (i64)i * z.s + j;
            DPB_UNROLL for (int v = 0; v < N; v++)
                store(row + 4 * v, load(row + 4 * v) - splat(factor) * (splat(a[i]) * columns[v]));
        }
    });
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

template <int R, int V>
DPB_INLINE void product_tile(Size z, double sign, const double* a, const double* b, double* out) {
    four sum[R][V];
    DPB_UNROLL for (int r = 0; r < R; r++)
        DPB_UNROLL for (int v = 0; v < V; v++) sum[r][v] = load(out + (i64)r * z.s + 4 * v);
    for (int k = 0; k < z.n; k++)
        DPB_UNROLL for (int r = 0; r < R; r++) {
            four entry = splat(sign * a[(i64)r * z.s + k]);
            DPB_UNROLL for (int v = 0; v < V; v++) sum[r][v] += entry * load(b + (i64)k * z.s + 4 * v);
        }
    DPB_UNROLL for (int r = 0; r < R; r++)
        DPB_UNROLL for (int v = 0; v < V; v++) store(out + (i64)r * z.s + 4 * v, sum[r][v]);
}
// out ← out + sign·a·b for square matrices; out is another one than either.
DPB_CALL inline void add_product(Size z, double sign, const double* a, const double* b, double* out) {
    int i = 0;
    for (; i + 4 <= z.n; i += 4) {
        const double* rows = a + (i64)i * z.s;
        double* to = out + (i64)i * z.s;
        int j = 0;
        for (; j + 8 <= z.s; j += 8) product_tile<4, 2>(z, sign, rows, b + j, to + j);
        if (j < z.s) product_tile<4, 1>(z, sign, rows, b + j, to + j);
    }
    for (; i < z.n; i++)
        for (int j = 0; j < z.s; j += 4)
            product_tile<1, 1>(z, sign, a + (i64)i * z.s, b + j, out + (i64)i * z.s + j);
}
DPB_CALL inline void turn(Size z, const double* m, double* out) {
    for (int i = 0; i < z.n; i++)
        for (int k = 0; k < z.s; k++) out[(i64)i * z.s + k] = k < z.n ? m[(i64)k * z.s + i] : 0;
}

// What is below the diagonal becomes what is above it.
DPB_CALL inline void mirror(Size z, double* m) {
    for (int i = 0; i < z.n; i += 4) {
        const int rows = z.n - i;  // four, or what is left
        for (int j = 0; j <= i; j += 4) {
            four part[4];
            DPB_UNROLL for (int r = 0; r < 4; r++)
                part[r] = j < i || r < rows ? load(m + (i64)(j + r) * z.s + i) : splat(0);
            transpose(part[0], part[1], part[2], part[3]);
            double* to = m + (i64)i * z.s + j;
            DPB_UNROLL for (int r = 0; r < 4; r++, to += z.s)
                if (r < rows) store(to, j < i ? part[r] : if_set(lanes_below(r), part[r], load(to)));
        }
    }
}

// Row i of a factor, before it is divided by its pivot: what the rows above leave of it.
DPB_INLINE void reduce_row(Size z, int i, const double* factor, double* row) {
    in_strips(i / 4 * 4, z.s, [=](auto width, int j) __attribute__((always_inline)) {
        constexpr int N = decltype(width)::count;
        four sum[N];
        DPB_UNROLL for (int v = 0; v < N; v++) sum[v] = load(row + j + 4 * v);
        for (int k = 0; k < i; k++) {
            const double* above = factor + (i64)k * z.s;
            four entry = splat(above[i]);
            DPB_UNROLL for (int v = 0; v < N; v++) sum[v] -= entry * load(above + j + 4 * v);
        }
        DPB_UNROLL for (int v = 0; v < N; v++) store(row + j + 4 * v, sum[v]);
    });
}
DPB_INLINE void divide_row(Size z, int i, double square, double* row) {
    double pivot = root(square), inverse = 1 / pivot;
    for (int j = i / 4 * 4; j < z.s; j += 4) store(row + j, load(row + j) * splat(inverse));
    for (int j = 0; j < i; j++) row[j] = 0;
    row[i] = pivot;
}
// The upper factor U of m + low = UᵀU; what is left of its diagonal is 0. `low` may be null.
// A pivot that rounding made non-positive is replaced by the smallest sensible one.
DPB_CALL inline void factor(Size z, const double* m, const double* low, double* out) {
    for (int i = 0; i < z.n; i++) {
        const i64 at = (i64)i * z.s;
        double* row = out + at;
        for (int j = i / 4 * 4; j < z.s; j += 4) {
            four entries = load(m + at + j);
            store(row + j, low ? entries + load(low + at + j) : entries);
        }
        reduce_row(z, i, out, row);
        divide_row(z, i, larger(row[i], larger(m[at + i] * 1e-16, 1e-300)), row);
    }
}
// Whether sign·m + shift·1 is positive definite; if so, its upper factor is in out.
DPB_CALL inline bool has_factor(Size z, const double* m, double sign, double shift, double* out) {
    for (int i = 0; i < z.n; i++) {
        const i64 at = (i64)i * z.s;
        double* row = out + at;
        for (int j = i / 4 * 4; j < z.s; j += 4) store(row + j, splat(sign) * load(m + at + j));
        reduce_row(z, i, out, row);
        double pivot = row[i] + shift;
        if (!(pivot > 0)) return false;
        divide_row(z, i, pivot, row);
    }
    return true;
}
// out = U⁻ᵀ, lower triangular.
DPB_CALL inline void invert_upper(Size z, const double* u, double* out) {
    for (int i = 0; i < z.n; i++) {
        const double inverse = 1 / u[(i64)i * z.s + i];
        double* row = out + (i64)i * z.s;
        in_strips(0, i / 4 * 4 + 4, [=](auto width, int j) __attribute__((always_inline)) {
            constexpr int N = decltype(width)::count;
            four sum[N];
            DPB_UNROLL for (int v = 0; v < N; v++) sum[v] = splat(0);
            for (int k = j; k < i; k++) {
                four entry = splat(u[(i64)k * z.s + i]);
                DPB_UNROLL for (int v = 0; v < N; v++) sum[v] -= entry * load(out + (i64)k * z.s + j + 4 * v);
            }
            DPB_UNROLL for (int v = 0; v < N; v++) store(row + j + 4 * v, sum[v] * splat(inverse));
        });
        row[i] = inverse;
        for (int j = i / 4 * 4 + 4; j < z.s; j++) row[j] = 0;
    }
}
// out = (UᵀU)⁻¹, exactly symmetric; destroys U.
DPB_CALL inline void invert_factor(Size z, double* u, double* out) {
    invert_upper(z, u, out);
    for (int i = 0; i < z.n; i++)
        in_strips(i / 4 * 4, z.s, [=](auto width, int j) __attribute__((always_inline)) {
            constexpr int N = decltype(width)::count;
            four sum[N];
            DPB_UNROLL for (int v = 0; v < N; v++) sum[v] = splat(0);
            for (int k = j > i ? j : i; k < z.n; k++) {  // rows above have zeros there
                const double* row = out + (i64)k * z.s;
                DPB_UNROLL for (int v = 0; v < N; v++) sum[v] += splat(row[i]) * load(row + j + 4 * v);
            }
            DPB_UNROLL for (int v = 0; v < N; v++) store(u + (i64)i * z.s + j + 4 * v, sum[v]);
        });
    for (int i = 0; i < z.n; i++)
        for (int j = i / 4 * 4; j < z.s; j += 4)
            store(out + (i64)i * z.s + j, load(u + (i64)i * z.s + j));
    mirror(z, out);
}
// out = m⁻¹, exactly symmetric, for a symmetric m: one pivot after the other is swept (Gauss and
// Jordan), which waits less for each result than a factor does. False: m is not positive definite,
// and out is unknown. `work` has room for two vectors more than a matrix.
DPB_CALL inline bool invert(Size z, const double* m, double* out, double* work) {
    const int n = z.n, s = z.s;
    double *row = work + z.square(), *scaled = row + s;
    copy(m, work, z.square());
    for (int k = 0; k < n; k++) {
        const int own = k / 4 * 4;  // blocks of four columns are kept down to the diagonal's
        const double pivot = work[(i64)k * s + k];
        if (!(pivot > 0)) return false;
        const four inverse = splat(1 / pivot);
        for (int j = 0; j < s; j += 4) {
            const double* above = work + (i64)j * s + k;
            four part = j < own ? four{above[0], above[s], above[2 * s], above[3 * s]}
                                : load(work + (i64)k * s + j);
            if (j == own) part = if_set(lane_of(k - own), splat(-1), part);
            store(row + j, part);
            store(scaled + j, part * inverse);
        }
        for (int j = 0; j < s; j += 4) {
            const four part = load(row + j);
            const word4 kept = j == own ? ~lane_of(k - own) : splat_word(~0ull);
            const int end = j + 4 < n ? j + 4 : n;
            for (int i = 0; i < end; i++) {
                double* at = work + (i64)i * s + j;
                store(at, from_bits(bits_of(load(at)) & kept) - splat(scaled[i]) * part);
            }
        }
        for (int j = own; j < s; j += 4) store(work + (i64)k * s + j, load(scaled + j));
    }
    for (int i = 0; i < n; i++)
        for (int j = i / 4 * 4; j < s; j += 4)
            store(out + (i64)i * s + j, splat(0) - load(work + (i64)i * s + j));
    mirror(z, out);
    return true;
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
// Let equations rows·θ = values (each of variance 1) join the triangular system r·θ = target, whose
// diagonal is not negative, by reflections (Householder). Destroys rows; what is left in values cannot
// be fitted, and its squares say how much worse all fit together. `triangular`: so are the rows.
DPB_CALL inline void add_equations(Size z, double* r, double* target, double* rows, double* values,
                                   bool triangular) {
    for (int i = 0; i < z.n; i++) {
        double* own = r + (i64)i * z.s;
        const int count = triangular ? i + 1 : z.n;
        double square = 0;
        for (int k = 0; k < count; k++) square += rows[(i64)k * z.s + i] * rows[(i64)k * z.s + i];
        if (square < 1e-300) continue;  // says nothing, and what follows divides by it
        const double length = root(own[i] * own[i] + square);
        const double first = -square / (own[i] + length), beta = 2 / (first * first + square);
        double sum = first * target[i];
        for (int k = 0; k < count; k++) sum += rows[(i64)k * z.s + i] * values[k];
        sum *= beta;
        target[i] -= sum * first;
        for (int k = 0; k < count; k++) values[k] -= sum * rows[(i64)k * z.s + i];
        const int next = i / 4 * 4;
        // The strip with column i last: it holds the reflection until then.
        auto reflect = [=](auto width, int j) __attribute__((always_inline)) {
            constexpr int N = decltype(width)::count;
            four w[N];
            DPB_UNROLL for (int v = 0; v < N; v++) w[v] = splat(first) * load(own + j + 4 * v);
            for (int k = 0; k < count; k++) {
                const double* row = rows + (i64)k * z.s;
                DPB_UNROLL for (int v = 0; v < N; v++) w[v] += splat(row[i]) * load(row + j + 4 * v);
            }
            DPB_UNROLL for (int v = 0; v < N; v++) {
                w[v] *= splat(beta);
                store(own + j + 4 * v, load(own + j + 4 * v) - splat(first) * w[v]);
            }
            for (int k = 0; k < count; k++) {
                double* row = rows + (i64)k * z.s;
                four entry = splat(row[i]);
                DPB_UNROLL for (int v = 0; v < N; v++)
                    store(row + j + 4 * v, load(row + j + 4 * v) - entry * w[v]);
            }
        };
        in_strips(next + 4, z.s, reflect);
        reflect(Fours<1>{}, next);
        for (int k = 0; k < i; k++) own[k] = 0;
        own[i] = length;
        for (int k = 0; k < count; k++) rows[(i64)k * z.s + i] = 0;
    }
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
}  // namespace dpb::DPB_ARCH
