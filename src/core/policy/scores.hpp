// What an upper confidence bound says of every arm of a slate. Arms lie side by side in vectors,
// twelve at a time, so that nothing is added up across lanes, every arm's sums are taken in the same
// order whatever stands beside it, and only half of the symmetric matrix is read.
#pragma once
#include "../linalg.hpp"
#include "../random.hpp"

namespace dpb::DPB_ARCH {
constexpr int PACK = 12;
// Scores closer to the best than this are a tie: at first all are equal. Of large ones, as of money, it is a
// part: so much, and no less, may rounding differ between engines.
constexpr double TIE = 1e-12, LARGEST_SCORE = 1e300;
DPB_INLINE double tie_at(double best) { return TIE * smaller(larger(magnitude(best), 1), LARGEST_SCORE); }

struct Slate {
    const double* pool;
    const i64* shown;  // rows of the pool; null: 0, 1, 2, …
    i64 arms;
    int n;
    i64 later = 0;  // rows that `shown` names behind these, of slates to come
    DPB_INLINE const double* row(i64 j) const { return pool + (shown ? shown[j] : j) * n; }
    // Rows may come from memory: three that are needed later are called at step i of n, those of the
    // next slate unless this one is so large that they would be gone by then.
    DPB_INLINE void call_ahead(i64 first, int i) const {
        const i64 next = first + (later && arms * n <= 2048 ? arms : PACK), last = arms + later - 1;
        DPB_UNROLL for (int k = 0; k < 3; k++) {
            const i64 arm = next + i % 8 / 2 * 3 + k;
            __builtin_prefetch(row(arm < last ? arm : last) + i / 8 * 8);
        }
    }
};
// Scores are written in whole packs.
DPB_INLINE i64 room_for(i64 arms) { return (arms + PACK - 1) / PACK * PACK; }
DPB_INLINE i64 pack_room(int n) { return (i64)PACK * (n + 4); }

template <int V> DPB_INLINE void pack(const Slate& slate, i64 first, const double* mean, double* work) {
    const int n = slate.n;
    const i64 last = slate.arms - 1;
    DPB_UNROLL for (int v = 0; v < V; v++) {
        const double* p[4];
        DPB_UNROLL for (int lane = 0; lane < 4; lane++) {
            i64 arm = first + 4 * v + lane;
            p[lane] = slate.row(arm < last ? arm : last);
        }
        if (n < 4) {
            for (int i = 0; i < n; i++)
                for (int lane = 0; lane < 4; lane++)
                    work[(i * V + v) * 4 + lane] = p[lane][i] - (mean ? mean[i] : 0);
            continue;
        }
        for (int at = 0; at < n; at += 4) {
            int i = at + 4 <= n ? at : n - 4;  // may overlap: what is written twice is the same
            four a = load(p[0] + i), b = load(p[1] + i), c = load(p[2] + i), d = load(p[3] + i);
            if (mean) {
                four middle = load(mean + i);
                a -= middle;
                b -= middle;
                c -= middle;
                d -= middle;
            }
            transpose(a, b, c, d);
            double* to = work + (i * V + v) * 4;
            store(to, a);
            store(to + 4 * V, b);
            store(to + 8 * V, c);
            store(to + 12 * V, d);
        }
    }
}
// The same sums in the same order as `bounds`, for four arms alone: four rows of M at a time, or each
// addition would wait for the one before. Returns the rows done.
DPB_INLINE int bounds_of_few(Size z, const double* m, const double* theta, const double* x, four& half,
                             four& mean) {
    int i = 0;
    for (; i + 3 < z.n; i += 4) {
        const double *p = m + (i64)i * z.s, *q = p + z.s, *r = q + z.s, *t = r + z.s;
        four a = splat(0), b = a, c = a, d = a;
        for (int k = 0; k < i; k++) {
            four y = load(x + 4 * k);
            a += splat(p[k]) * y;
            b += splat(q[k]) * y;
            c += splat(r[k]) * y;
            d += splat(t[k]) * y;
        }
        four y = load(x + 4 * i), w = load(x + 4 * i + 4), u = load(x + 4 * i + 8), v = load(x + 4 * i + 12);
        b += splat(q[i]) * y;
        c = (c + splat(r[i]) * y) + splat(r[i + 1]) * w;
        d = ((d + splat(t[i]) * y) + splat(t[i + 1]) * w) + splat(t[i + 2]) * u;
        half += (a + splat(0.5 * p[i]) * y) * y;
        half += (b + splat(0.5 * q[i + 1]) * w) * w;
        half += (c + splat(0.5 * r[i + 2]) * u) * u;
        half += (d + splat(0.5 * t[i + 3]) * v) * v;
        mean += splat(theta[i]) * y;
        mean += splat(theta[i + 1]) * w;
        mean += splat(theta[i + 2]) * u;
        mean += splat(theta[i + 3]) * v;
    }
    return i;
}
// constant + x·θ + α√(xᵀMx) of the arms packed from `first` on, two rows of M at a time.
template <int V>
DPB_INLINE void bounds(Size z, const double* m, const double* theta, double alpha, double constant,
                       const Slate& slate, i64 first, const double* x, double* out) {
    four half[V], mean[V];  // half of xᵀMx
    DPB_UNROLL for (int v = 0; v < V; v++) {
        half[v] = splat(0);
        mean[v] = splat(constant);
    }
    int i = 0;
    if constexpr (V == 1) i = bounds_of_few(z, m, theta, x, half[0], mean[0]);
    for (; i + 1 < z.n; i += 2) {
        four a[V], b[V];
        DPB_UNROLL for (int v = 0; v < V; v++) a[v] = b[v] = splat(0);
        const double *p = m + (i64)i * z.s, *q = p + z.s, *at = x;
        if constexpr (V == 3) slate.call_ahead(first, i);
        for (int k = 0; k < i; k++, at += 4 * V) {
            four e = splat(p[k]), f = splat(q[k]);
            DPB_UNROLL for (int v = 0; v < V; v++) {
                four y = load(at + 4 * v);
                a[v] += e * y;
                b[v] += f * y;
            }
        }
        four e = splat(0.5 * p[i]), f = splat(q[i]), g = splat(0.5 * q[i + 1]);
        four s = splat(theta[i]), t = splat(theta[i + 1]);
        DPB_UNROLL for (int v = 0; v < V; v++) {
            four y = load(at + 4 * v), w = load(at + 4 * (V + v));
            half[v] += (a[v] + e * y) * y;
            half[v] += ((b[v] + f * y) + g * w) * w;
            mean[v] += s * y;
            mean[v] += t * w;
        }
    }
    if (i < z.n) {
        four a[V];
        DPB_UNROLL for (int v = 0; v < V; v++) a[v] = splat(0);
        const double *p = m + (i64)i * z.s, *at = x;
        for (int k = 0; k < i; k++, at += 4 * V)
            DPB_UNROLL for (int v = 0; v < V; v++) a[v] += splat(p[k]) * load(at + 4 * v);
        DPB_UNROLL for (int v = 0; v < V; v++) {
            four y = load(at + 4 * v);
            half[v] += (a[v] + splat(0.5 * p[i]) * y) * y;
            mean[v] += splat(theta[i]) * y;
        }
    }
    DPB_UNROLL for (int v = 0; v < V; v++) {
        four width = root(larger(half[v] + half[v], splat(0)));
        store(out + 4 * v, mean[v] + splat(alpha) * width);
    }
}
// Apart, so that the registers of the loop over many arms are not shared with it.
DPB_CALL inline void score_few(Size z, const double* m, const double* theta, const Slate& slate, i64 first,
                               double alpha, double constant, const double* mean, double* work,
                               double* scores) {
    pack<1>(slate, first, mean, work);
    bounds<1>(z, m, theta, alpha, constant, slate, first, work, scores + first);
}
// All scores of a slate, x·θ + α·√((x − mean)ᵀM(x − mean)); mean may be null.
DPB_CALL inline void score(Size z, const double* m, const double* theta, const Slate& slate,
                           double alpha, const double* mean, double* work, double* scores) {
    double constant = mean ? dot(z, mean, theta) : 0;
    for (i64 first = 0; first < slate.arms; first += PACK) {
        if (slate.arms - first <= 4) {
            score_few(z, m, theta, slate, first, alpha, constant, mean, work, scores);
        } else {
            pack<3>(slate, first, mean, work);
            bounds<3>(z, m, theta, alpha, constant, slate, first, work, scores + first);
        }
    }
}
DPB_CALL inline void mean_of(Size z, const Slate& slate, double* out) {
    const double share = 1.0 / (double)slate.arms;
    const int all = z.n / 4 * 4;
    // Rows are read from end to end, and as few times as registers allow: they may come from memory.
    in_strips(0, all, [=](auto width, int i) __attribute__((always_inline)) {
        constexpr int N = decltype(width)::count;
        four sum[N];
        DPB_UNROLL for (int v = 0; v < N; v++) sum[v] = splat(0);
        for (i64 j = 0; j < slate.arms; j++) {
            const double* row = slate.row(j) + i;
            DPB_UNROLL for (int v = 0; v < N; v++) sum[v] += load(row + 4 * v);
        }
        DPB_UNROLL for (int v = 0; v < N; v++) store(out + i + 4 * v, sum[v] * splat(share));
    });
    for (int i = all; i < z.n; i++) {
        double sum = 0;
        for (i64 j = 0; j < slate.arms; j++) sum += slate.row(j)[i];
        out[i] = sum * share;
    }
}
DPB_INLINE double largest_of(const double* a, i64 count) {
    i64 j = 0;
    double best = a[0];
    if (count >= 4) {
        four lanes = load(a);
        for (j = 4; j + 4 <= count; j += 4) lanes = larger(load(a + j), lanes);
        best = larger(larger(lanes[0], lanes[1]), larger(lanes[2], lanes[3]));
    }
    for (; j < count; j++) best = larger(a[j], best);
    return best;
}
// The highest score; among ties one by lot, a function of (key, decision) alone.
DPB_INLINE int pick(const double* scores, i64 arms, u64 key, u64 decision) {
    const double best = largest_of(scores, arms), enough = best - tie_at(best);
    i64 chosen = -1;
    u64 highest = 0;
    for (i64 from = 0; from < arms; from += 64) {
        // Bits, not branches: which arm is highest is what no processor can guess.
        const i64 count = arms - from < 64 ? arms - from : 64;
        u64 high = 0;
        for (i64 j = 0; j < count; j++) high |= (u64)(scores[from + j] >= enough) << j;
        for (; high; high &= high - 1) {
            const i64 arm = from + lowest_bit(high);
            if (chosen < 0) {
                chosen = arm;
                continue;
            }
            if (!highest) highest = lot(key, decision, (u64)chosen);
            const u64 own = lot(key, decision, (u64)arm);
            if (own > highest) {
                chosen = arm;
                highest = own;
            }
        }
    }
    return (int)(chosen < 0 ? 0 : chosen);
}
}  // namespace dpb::DPB_ARCH
