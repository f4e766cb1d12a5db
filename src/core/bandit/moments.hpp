// Noise on sums of moments, whichever way the sums are published. An item is the centred reward times
// the context, both brought to size 1: ((r − centre)/width)·(x/max_norm), or a shaped u in place of
// x/max_norm. What centring takes off is public and is added again after the release.
#pragma once
#include "../release/episodes.hpp"
#include "../release/toeplitz.hpp"
#include "../release/tree.hpp"
#include "clear.hpp"

namespace dpb::DPB_ARCH {
constexpr double TINY = 1e-150;  // a context this small after shaping says nothing and is left out

// u = Px/max(‖Px‖, floor), of norm at most 1, and the Gram matrix that goes with such sums.
struct Shape {
    Size z;
    bool used;
    double floor, strength, *whitener, *unshape;
    Ridge weighted;
    double* scaled;
    Shape(Block& b, const Spec& o)
        : z(o.dim),
          used(o.shape.rows > 0),
          floor(o.floor),
          strength(o.ridge / larger(root((double)o.dim), o.floor)),
          weighted(b, used ? o.dim : 0, strength) {
        whitener = b.take<double>(used ? z.square() : 0);
        unshape = b.take<double>(used ? z.square() : 0);
        scaled = b.vector(z);
        if (!b.at || !used) return;
        for (int i = 0; i < z.n; i++)
            for (int k = 0; k < z.n; k++) {
                whitener[(i64)i * z.s + k] = o.shape.at[i * z.n + k];
                unshape[(i64)i * z.s + k] = o.unshape.at[i * z.n + k];
            }
    }
    DPB_CALL void apply(const double* x, double* u) {
        multiply(z, whitener, x, u);
        double largest = 0, square = 0;
        for (int i = 0; i < z.n; i++) largest = larger(largest, magnitude(u[i]));
        // Divided first: squares of tiny numbers vanish, and u would be too long.
        for (int i = 0; largest >= TINY && i < z.n; i++) square += (u[i] / largest) * (u[i] / largest);
        double size = larger(largest * root(square), floor), weight = size >= TINY ? 1 / size : 0;
        for (int i = 0; i < z.s; i++) {
            u[i] *= weight;
            scaled[i] = x[i] * root(weight);
        }
        double quadratic = weighted.add_context(scaled);
        if (weighted.due(quadratic)) weighted.refresh_inverse();
    }
    void fields(Fields& f) {
        if (!used) return;
        f.matrix("weighted_inverse", weighted.inverse, z);
        f.matrix("weighted_gram", weighted.gram, z);
        f.matrix("weighted_gram_low", weighted.gram_low, z);
        f.table("weighted_recent", weighted.recent, RECENT, z);
        f.number("weighted_waiting", weighted.waiting);
        f.number("weighted_age", weighted.age);
    }
};

template <class Release> struct Moments : Regression {
    static constexpr bool is_whole = Release::is_whole;
    static constexpr bool has_episodes = __is_same(Release, EpisodesRelease);
    Release release;
    Shape shape;
    double per_norm, per_width, middle, unit;
    double *instrument, *prefix, *context_sum, *context_sum_low, *anchor, *probe;

    static i64 count(const Spec& o) {
        return __is_same(Release, HonakerRelease) ? o.dim * o.levels : o.dim;
    }
    Moments(Block& b, const Spec& spec)
        : Regression(b, spec, count(spec)),
          release(b, spec),
          shape(b, spec),
          per_norm(1 / spec.max_norm),
          per_width(1 / width()),
          middle(centre()),
          unit(width() * (spec.shape.rows ? 1 : spec.max_norm)) {
        instrument = b.vector(z);
        prefix = b.vector(z);
        context_sum = b.vector(z);
        context_sum_low = b.vector(z);
        anchor = b.take<double>(has_episodes ? z.square() : 0);
        probe = b.vector(z);
        if (b.at && has_episodes) copy(ridge.inverse, anchor, z.square());
    }
    i64 numbers() const { return release.numbers(); }
    const double* matrix() const { return has_episodes ? anchor : ridge.inverse; }
    bool quiet(const double* x) {
        if constexpr (has_episodes) {
            multiply(z, ridge.inverse, x, probe);
            return release.goes_on(dot(z, probe, x));
        }
        return false;
    }
    DPB_CALL double prepare(const double* x, double reward, bool) {
        i64 t = ++clock->rounds;
        double quadratic = ridge.add_context(x);
        if (ridge.due(quadratic)) ridge.refresh_inverse();
        const double* summed = x;
        if (shape.used) {
            shape.apply(x, instrument);
            summed = instrument;
        } else {
            for (int i = 0; i < z.s; i += 4) store(instrument + i, load(x + i) * splat(per_norm));
        }
        if (middle != 0) add_kept(z, context_sum, context_sum_low, 1, summed);
        double factor = (reward - middle) * per_width;
        double scale = release.add(t, factor, instrument, quadratic, node, pending);
        if (is_whole && scale != NO_RELEASE) show_pending(numbers());
        return scale;
    }
    DPB_CALL void commit(const double* value) {
        release.publish(clock->rounds, value, prefix);
        conclude();
        if constexpr (has_episodes) copy(ridge.inverse, anchor, z.square());
    }
    // θ from the released prefix.
    DPB_INLINE void conclude() {
        for (int i = 0; i < z.s; i += 4) {
            four sums = splat(unit) * load(prefix + i);
            if (middle != 0)
                sums += splat(middle) * (load(context_sum + i) + load(context_sum_low + i));
            store(prefix + i, sums);
        }
        if (shape.used) {
            multiply(z, shape.unshape, prefix, instrument);
            multiply(z, shape.weighted.inverse, instrument, released);
        } else {
            multiply(z, ridge.inverse, prefix, released);
        }
    }
    // A log's Gram matrix and noisy moments (a constant part of every sum to come) were put in.
    bool conclude_again() {
        ridge.refresh_inverse();
        if (shape.used) shape.weighted.refresh_inverse();
        release.base(prefix);
        conclude();
        if constexpr (has_episodes) copy(ridge.inverse, anchor, z.square());
        return true;
    }
    i64 starts(i64* levels) const { return release.starts(clock->rounds + 1, levels); }
    void begin(i64 level, const whole* noise) { release.begin(level, noise); }
    void begin_simulated(u64 key) {
        if constexpr (__is_same(Release, PanPrivateRelease)) {
            i64 levels[MOST_LEVELS], t = clock->rounds + 1, many = starts(levels);
            for (i64 k = 0; k < many; k++) {
                clear(prefix, z.s);
                u64 index = (u64)(t * 64 + levels[k]);
                add_noise(o.noise, key, index, z.n, release.scale(t), prefix, noisy);
                for (int i = 0; i < z.n; i++) node.wides[i] = large_to_grid(noisy[i]);
                release.begin(levels[k], node.wides);
            }
        }
    }
    void fields(Fields& f) {
        common_fields(f);
        ridge.fields(f, false);
        release.fields(f);
        shape.fields(f);
        f.vector("context_sum", context_sum, z.n);
        f.vector("context_sum_low", context_sum_low, z.n);
        if (has_episodes) f.matrix("anchor", anchor, z);
    }
};
}  // namespace dpb::DPB_ARCH
