// Noise on the parameter (Wang, Zhao & Wang 2022). `Own` is the sound form: a node shows what its own
// rewards contribute to θ̂, A⁻¹·Σ x·r, with noise for the reach that the public A⁻¹ shows; sums of
// these give θ̂ back, because A is public. `Increments` is the paper's: noise on θ̂_e − θ̂_s, scaled by
// its Lemma 1; kept as published, not proven.
#pragma once
#include "../learner/bound.hpp"
#include "../release/tree.hpp"
#include "clear.hpp"

namespace dpb::DPB_ARCH {
constexpr i64 MOST_WAITING = 6;  // contexts not in A yet: every round's product with A pays for each
constexpr double VANISHED = 1e-150;  // no square of a number above it underflows

struct Own : Regression {  // A⁻¹·(whole sum) is not whole: what rounding adds is charged
    Tree tree;
    Reach reach;
    double unit, per_norm, middle, entries;  // entries: how large a vector of ones is
    i64* item;
    double *scaled, *moved, *prefix, *context_sum, *context_sum_low;
    Own(Block& b, const Spec& spec)
        : Regression(b, spec, spec.dim),
          tree(b, spec.dim, spec.unknown_horizon, rows_for(spec)),
          reach(b, spec.dim, spec.public_arms, spec.max_norm, spec.noise == NoiseKind::laplace),
          unit(width() * spec.max_norm),
          per_norm(1 / spec.max_norm),
          middle(centre()),
          entries(spec.noise == NoiseKind::laplace ? (double)spec.dim : root((double)spec.dim)) {
        item = b.take<i64>(z.s);
        scaled = b.vector(z);
        moved = b.vector(z);
        prefix = b.vector(z);
        context_sum = b.vector(z);
        context_sum_low = b.vector(z);
        if (b.at) loaded();
    }
    void loaded() { reach.look_anew(); }
    // out = A·v. The regression's A is behind by the contexts that wait: a function of what is saved,
    // so that a bandit that was loaded goes on with the same bits.
    DPB_INLINE void apply_gram(const double* v, double* out) const {
        const int count = (int)*ridge.waiting, s = z.s;
        const double* recent = ridge.recent;
        double along[RECENT];
        for (int t = 0; t < count; t++) along[t] = dot(z, recent + t * s, v);
        multiply(z, ridge.gram, v, out);
        in_strips(0, s, [=, &along](auto width, int j) __attribute__((always_inline)) {
            constexpr int N = decltype(width)::count;
            four sum[N];
            DPB_UNROLL for (int v = 0; v < N; v++) sum[v] = load(out + j + 4 * v);
            for (int t = 0; t < count; t++)
                DPB_UNROLL for (int v = 0; v < N; v++)
                    sum[v] += splat(along[t]) * load(recent + t * s + j + 4 * v);
            DPB_UNROLL for (int v = 0; v < N; v++) store(out + j + 4 * v, sum[v]);
        });
    }
    DPB_CALL double prepare(const double* x, double reward, bool in_public_set) {
        i64 t = ++clock->rounds;
        if (!in_public_set && !clock->outside) {
            clock->outside = 1;  // from now on over the ball
            reach.forget();
        }
        double quadratic = ridge.add_context(x);
        if (*ridge.waiting >= MOST_WAITING) ridge.settle();
        // Refreshed first: the bound must be that of the very matrix that is multiplied below.
        if (ridge.due(quadratic)) {
            reach.keep(ridge.inverse);
            ridge.refresh_inverse();
            reach.distrust(ridge.inverse);
        }
        if (middle != 0) add_kept(z, context_sum, context_sum_low, 1, x);
        Place at(t, o.unknown_horizon, o.levels);
        for (int i = 0; i < z.s; i += 4) store(scaled + i, load(x + i) * splat(per_norm));
        to_grid(z, (reward - middle) / width(), scaled, item);
        tree.add(at, t, item, node);
        node.show(z.n, moved);
        for (int i = 0; i < z.s; i += 4) store(moved + i, load(moved + i) * splat(unit));
        clear(z, node.steps);
        clear(z, item);
        for (int i = 0; node.wide && i < z.n; i++) node.wides[i] = 0;
        multiply(z, ridge.inverse, moved, pending);
        clear(moved, z.s);
        const double trace = trace_of(z, ridge.inverse), extra = rounding(trace, (double)((i64)1 << at.level));
        // Last: the noise can be drawn meanwhile, and is scaled at the end.
        const double bound = reach.after(ridge.inverse, x, ridge.step, quadratic, trace, clock->outside);
        return o.multipliers[at.levels] * o.sensitivity * (bound + extra);
    }
    // What rounding can add to the distance between neighbours, over that of one reward: of an item
    // to the grid, of A⁻¹·s for a node of n items in floats, and of A⁻¹ since it was bounded, all
    // through the trace of A⁻¹, no less than its norm; and of lengths whose squares vanish, which is
    // no share of anything.
    DPB_INLINE double rounding(double trace, double items) const {
        double ulps = (2.0 * (z.n + 4) * items + 512) * 0x1p-53;
        return trace * o.max_norm * entries * (STEP + ulps) + VANISHED * entries;
    }
    DPB_CALL void commit(const double* value) {
        apply_gram(value, moved);  // back to moments: old nodes' noise shrinks with A⁻¹ too
        tree.publish(Place(clock->rounds, o.unknown_horizon, o.levels), moved, prefix);
        if (middle != 0)
            for (int i = 0; i < z.s; i++) prefix[i] += middle * (context_sum[i] + context_sum_low[i]);
        multiply(z, ridge.inverse, prefix, released);
    }
    bool conclude_again() {
        ridge.refresh_inverse();
        loaded();
        reach.forget();
        for (int i = 0; i < z.s; i++)
            prefix[i] = tree.carry[i] + middle * (context_sum[i] + context_sum_low[i]);
        multiply(z, ridge.inverse, prefix, released);
        return true;
    }
    void fields(Fields& f) {
        common_fields(f);
        ridge.fields(f, false);
        tree.fields(f);
        f.vector("context_sum", context_sum, z.n);
        f.vector("context_sum_low", context_sum_low, z.n);
        reach.fields(f);
    }
};

struct Increments : Regression {
    i64 rows;
    double *sums, *published, *carry, *item;
    Increments(Block& b, const Spec& spec)
        : Regression(b, spec, spec.dim), rows(rows_for(spec)) {
        sums = b.take<double>(rows * z.s);
        published = b.take<double>(rows * z.s);
        carry = b.vector(z);
        item = b.vector(z);
    }
    DPB_CALL double prepare(const double* x, double reward, bool) {
        i64 t = ++clock->rounds;
        for (int i = 0; i < z.s; i++) item[i] = -ridge.theta[i];
        learn(x, reward);
        for (int i = 0; i < z.s; i++) item[i] += ridge.theta[i];
        Place at(t, o.unknown_horizon, o.levels);
        if (o.unknown_horizon && at.index == 1 && t > 1) {
            int top = bit_length((u64)(t - 1)) - 1;
            for (int i = 0; i < z.n; i++) carry[i] += published[(i64)top * z.s + i];
            clear(published, rows * z.s);
            clear(sums, rows * z.s);
        }
        for (int below = 0; below < at.level; below++)
            for (int i = 0; i < z.s; i++) {
                item[i] += sums[(i64)below * z.s + i];
                sums[(i64)below * z.s + i] = 0;
            }
        copy(item, sums + (i64)at.level * z.s, z.s);
        copy(item, pending, z.s);
        i64 end = o.printed_index ? t - ((i64)1 << at.level) + 1 : t;
        return o.multipliers[at.levels] * lemma((double)end);
    }
    // Δ_t as published: never above the cap W·L/λ that always holds. `figure` is 1/t.
    double lemma(double t) const {
        double cap = o.sensitivity / o.ridge, log_of = 0, eigenvalue = 0;
        switch (o.form) {
            case Lemma::figure: return 1 / t;
            case Lemma::full:
                log_of = log1((t + 3) / o.lemma_delta);
                eigenvalue = o.smallest_eigenvalue * t / 4 - 8 * log_of - 2 * root(t * log_of);
                break;
            case Lemma::simplified:
                if (t > 32 * log1(1 / o.lemma_delta) / o.smallest_eigenvalue)
                    eigenvalue = o.smallest_eigenvalue * t / 16;
                break;
        }
        return eigenvalue <= o.ridge ? cap : o.sensitivity / eigenvalue;
    }
    DPB_CALL void commit(const double* value) {
        Place at(clock->rounds, o.unknown_horizon, o.levels);
        int above = at.above();
        for (int i = 0; i < z.n; i++) {
            double sum = value[i] + (above >= 0 ? published[(i64)above * z.s + i] : 0);
            published[(i64)at.level * z.s + i] = sum;
            released[i] = carry[i] + sum;
        }
    }
    void fields(Fields& f) {
        Regression::fields(f);
        f.table("sums", sums, rows, z);
        f.table("noisy", published, rows, z);
        f.vector("carry", carry, z.n);
    }
};
}  // namespace dpb::DPB_ARCH
