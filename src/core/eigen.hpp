// Eigenvalues and eigenvectors of a symmetric matrix: reflections make it tridiagonal, rotations then
// make it diagonal (Householder; QL with implicit shifts). Vectors are rows, so that both run along them.
#pragma once
#include "linalg.hpp"

namespace dpb {
namespace DPB_ARCH {
// Reflect m to a tridiagonal matrix: its diagonal and what is beside it. Row k of m then holds the
// reflection that cleared column k, and `factors` its factor.
inline void to_tridiagonal(Size z, double* m, double* diagonal, double* beside, double* factors, double* work) {
    const int n = z.n;
    for (int k = 0; k < n; k++) {
        double* row = m + (i64)k * z.s;
        diagonal[k] = row[k];
        factors[k] = beside[k] = 0;
        if (k + 1 == n) break;
        double square = 0;
        for (int i = k + 2; i < n; i++) square += row[i] * row[i];
        if (square < 1e-300) {
            beside[k] = row[k + 1];
            continue;
        }
        double length = root(row[k + 1] * row[k + 1] + square);
        beside[k] = row[k + 1] > 0 ? -length : length;
        row[k + 1] -= beside[k];
        const double factor = factors[k] = 2 / (row[k + 1] * row[k + 1] + square);
        double along = 0;
        for (int i = k + 1; i < n; i++) {
            double sum = 0;
            for (int j = k + 1; j < n; j++) sum += m[(i64)i * z.s + j] * row[j];
            work[i] = factor * sum;
            along += work[i] * row[i];
        }
        for (int i = k + 1; i < n; i++) work[i] -= 0.5 * factor * along * row[i];
        for (int i = k + 1; i < n; i++)
            for (int j = k + 1; j < n; j++) m[(i64)i * z.s + j] -= row[i] * work[j] + work[i] * row[j];
    }
}
// m = Σ_k values_k·v_k·v_kᵀ with v_k row k of `vectors`, values in ascending order. Destroys m;
// `work` has room for three vectors.
DPB_CALL inline void eigen(Size z, double* m, double* values, double* vectors, double* work) {
    const int n = z.n;
    double *beside = work, *factors = work + z.s, *scratch = work + 2 * z.s;
    to_tridiagonal(z, m, values, beside, factors, scratch);
    clear(vectors, z.square());
    for (int i = 0; i < n; i++) vectors[(i64)i * z.s + i] = 1;
    for (int k = n - 3; k >= 0; k--) {  // rows of H_0·H_1·…, from the last
        const double* v = m + (i64)k * z.s;
        for (int i = k + 1; factors[k] != 0 && i < n; i++) {
            double* row = vectors + (i64)i * z.s;
            double sum = 0;
            for (int j = k + 1; j < n; j++) sum += row[j] * v[j];
            sum *= factors[k];
            for (int j = k + 1; j < n; j++) row[j] -= sum * v[j];
        }
    }
    for (int first = 0; first < n; first++)
        for (int tries = 0; tries < 60; tries++) {
            int last = first;
            for (; last + 1 < n; last++) {
                double size = magnitude(values[last]) + magnitude(values[last + 1]);
                if (magnitude(beside[last]) <= 1e-16 * size) break;
            }
            if (last == first) break;
            double half = (values[first + 1] - values[first]) / (2 * beside[first]);
            double slope = root(half * half + 1);
            double g = values[last] - values[first] + beside[first] / (half + (half < 0 ? -slope : slope));
            double sine = 1, cosine = 1, moved = 0;
            int i = last - 1;
            for (; i >= first; i--) {
                double f = sine * beside[i], b = cosine * beside[i], r = root(f * f + g * g);
                beside[i + 1] = r;
                if (r == 0) {
                    values[i + 1] -= moved;
                    beside[last] = 0;
                    break;
                }
                sine = f / r;
                cosine = g / r;
                g = values[i + 1] - moved;
                r = (values[i] - g) * sine + 2 * cosine * b;
                moved = sine * r;
                values[i + 1] = g + moved;
                g = cosine * r - b;
                double *p = vectors + (i64)i * z.s, *q = p + z.s;
                for (int k = 0; k < z.s; k += 4) {
                    four low = load(p + k), high = load(q + k);
                    store(q + k, splat(sine) * low + splat(cosine) * high);
                    store(p + k, splat(cosine) * low - splat(sine) * high);
                }
            }
            if (i >= first) continue;
            values[first] -= moved;
            beside[first] = g;
            beside[last] = 0;
        }
    for (int i = 0; i < n; i++) {
        int least = i;
        for (int k = i + 1; k < n; k++)
            if (values[k] < values[least]) least = k;
        double value = values[i];
        values[i] = values[least];
        values[least] = value;
        for (int k = 0; least != i && k < z.s; k++) {
            double entry = vectors[(i64)i * z.s + k];
            vectors[(i64)i * z.s + k] = vectors[(i64)least * z.s + k];
            vectors[(i64)least * z.s + k] = entry;
        }
    }
}
// out ← out + Σ_k values_k·v_k·v_kᵀ; `scaled` is scratch.
DPB_CALL inline void add_eigen(Size z, const double* values, const double* vectors, double* scaled, double* out) {
    for (int k = 0; k < z.n; k++)
        for (int j = 0; j < z.s; j++) scaled[(i64)k * z.s + j] = values[k] * vectors[(i64)k * z.s + j];
    add_rows(z, out, scaled, vectors, z.n);
}
}  // namespace DPB_ARCH
}  // namespace dpb
