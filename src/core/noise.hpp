// What noise is drawn in simulations, and how likely a release is under it: for audits.
// Real noise is drawn elsewhere (dpbandit/privacy/opendp.py).
#pragma once
#include "interface.hpp"
#include "linalg.hpp"
#include "random.hpp"

namespace dpb::DPB_ARCH {
// What a release without noise adds to a score when it fits one side only: more than any ratio.
constexpr double CERTAIN = 1e6;

// A Gamma(shape, 1) number for shape ≥ 1 (Marsaglia & Tsang 2000). One try in twenty is rejected at
// worst, so that 64 tries never run out.
inline double gamma_number(u64 key, u64 number, double shape) {
    double base = shape - 1.0 / 3, c = 1 / root(9 * base);
    for (u64 attempt = 0; attempt < 64; attempt++) {
        u64 stream = number * 64 + attempt;
        double z = one_normal(key, stream), v = 1 + c * z;
        v = v * v * v;
        if (!(v > 0)) continue;
        double u = one_uniform(key, stream | 1ull << 62);
        if (log1(u) < 0.5 * z * z + base * (1 - v + log1(v))) return base * v;
    }
    return base;
}
// A Wishart matrix W_p(I, degrees), packed: its upper triangle row by row, √2 off the diagonal.
// By Bartlett's decomposition T·Tᵀ, T lower triangular, χ on its diagonal and normals below it.
inline void add_wishart(u64 key, u64 index, i64 count, double degrees, const double* value, double* out) {
    copy(value, out, count);
    if (degrees <= 0) return;
    int p = 0;
    while ((p + 1) * (p + 2) / 2 <= count) p++;
    u64 own = lot(key, index, 0);
    i64 below = (i64)p * (p - 1) / 2;
    double* t = (double*)__builtin_alloca((size_t)(p * p) * 8);
    double* normals = (double*)__builtin_alloca((size_t)(below + 8) * 8);
    if (below) add_normals(own, 1ull << 60, below, 1, nullptr, normals);
    i64 at = 0;
    for (int i = 0; i < p; i++) {
        t[i * p + i] = root(2 * gamma_number(own, (u64)i, 0.5 * (degrees - i)));
        for (int j = i + 1; j < p; j++) t[j * p + i] = normals[at++];  // column i of T
    }
    at = 0;
    for (int i = 0; i < p; i++)
        for (int j = i; j < p; j++) {
            double sum = 0;
            for (int k = 0; k <= i; k++) sum += t[i * p + k] * t[j * p + k];
            out[at++] += i == j ? sum : root(2.0) * sum;
        }
}
inline void add_laplaces(u64 key, u64 index, i64 count, double scale, const double* value, double* out) {
    uniforms(key, index, count, out);
    for (i64 i = 0; i < count; i += 4) {
        four p = load(out + i), above = splat(1) - p;
        word4 lower = (word4)(p < splat(0.5));
        four size = log_of(splat(2) * if_set(lower, p, above));
        four drawn = splat(scale) * if_set(lower, size, -size);
        for (int k = 0; k < 4; k++) out[i + k] = i + k < count ? value[i + k] + drawn[k] : 0;
    }
}
inline void add_knorm(u64 key, u64 index, i64 count, double scale, const double* value, double* out) {
    uniforms(key, index | 1ull << 62, count, out);
    double radius = 0, square = 0;
    for (i64 i = 0; i < count; i++) radius -= log1(out[i]);
    add_normals(key, index, count, 1, nullptr, out);
    for (i64 i = 0; i < count; i++) square += out[i] * out[i];
    double factor = radius / root(square) * scale;
    for (i64 i = 0; i < count; i++) out[i] = value[i] + factor * out[i];
}
// One of two numbers, ±scale/2, whose mean is the value: |value| ≤ ½ (docs/privacy.md).
inline void respond(u64 key, u64 index, i64 count, double scale, const double* value, double* out) {
    uniforms(key, index, count, out);
    for (i64 i = 0; i < count; i++) out[i] = out[i] < 0.5 + value[i] / scale ? 0.5 * scale : -0.5 * scale;
}
// out = value + noise number `index`; out is another array than value, with room for eight more.
DPB_INLINE void add_noise(NoiseKind kind, u64 key, u64 index, i64 count, double scale,
                          const double* value, double* out) {
    switch (kind) {
        case NoiseKind::gaussian: return add_normals(key, index, count, scale, value, out);
        case NoiseKind::laplace: return add_laplaces(key, index, count, scale, value, out);
        case NoiseKind::knorm: return add_knorm(key, index, count, scale, value, out);
        case NoiseKind::wishart: return add_wishart(key, index, count, scale, value, out);
        case NoiseKind::response: return respond(key, index, count, scale, value, out);
        case NoiseKind::none: return copy(value, out, count);
    }
    __builtin_trap();
}

// log density of y − value under packed W_p(I, degrees), up to a constant; −CERTAIN outside its support.
inline double wishart_log_density(i64 count, const double* y, const double* value, double degrees) {
    int p = 0;
    while ((p + 1) * (p + 2) / 2 <= count) p++;
    double* u = (double*)__builtin_alloca((size_t)(p * p) * 8);
    double total = 0;
    i64 at = 0;
    for (int i = 0; i < p; i++)
        for (int j = i; j < p; j++, at++) {
            double entry = y[at] - value[at];
            if (i == j) total -= 0.5 * entry;
            else entry /= root(2.0);
            for (int k = 0; k < i; k++) entry -= u[k * p + i] * u[k * p + j];
            if (i != j) {
                u[i * p + j] = entry / u[i * p + i];
                continue;
            }
            if (!(entry > 0)) return -CERTAIN;
            u[i * p + i] = root(entry);
            total += 0.5 * (degrees - p - 1) * log1(entry);
        }
    return total;
}
// log p(y | value one) − log p(y | value zero).
inline double log_ratio(NoiseKind kind, i64 count, const double* y, const double* zero,
                        const double* one, double scale) {
    double squares0 = 0, squares1 = 0, sizes0 = 0, sizes1 = 0;
    for (i64 i = 0; i < count; i++) {
        double from0 = y[i] - zero[i], from1 = y[i] - one[i];
        squares0 += from0 * from0;
        squares1 += from1 * from1;
        sizes0 += magnitude(from0);
        sizes1 += magnitude(from1);
    }
    if (scale <= 0 || kind == NoiseKind::none)
        return sizes0 == sizes1 ? 0 : sizes1 < sizes0 ? CERTAIN : -CERTAIN;
    switch (kind) {
        case NoiseKind::gaussian: return (squares0 - squares1) / (2 * scale * scale);
        case NoiseKind::laplace: return (sizes0 - sizes1) / scale;
        case NoiseKind::knorm: return (root(squares0) - root(squares1)) / scale;
        case NoiseKind::wishart:
            return wishart_log_density(count, y, one, scale) - wishart_log_density(count, y, zero, scale);
        case NoiseKind::response: {
            double total = 0;
            for (i64 i = 0; i < count; i++) {
                const double sign = y[i] > 0 ? 2 : -2;
                total += log1((scale + sign * one[i]) / (scale + sign * zero[i]));
            }
            return total;
        }
        case NoiseKind::none: break;
    }
    __builtin_trap();
}
}  // namespace dpb::DPB_ARCH
