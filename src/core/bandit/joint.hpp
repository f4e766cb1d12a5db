// Contexts private too (Shariff & Sheffet 2018): noise on sums of vvᵀ, v = (x; weighted reward)/√size.
// A symmetric matrix is packed: its upper triangle row by row, √2 off the diagonal, so that the L2 norm
// is the Frobenius norm. Everything but the tree's sums is made of noisy sums.
#pragma once
#include "../release/tree.hpp"
#include "common.hpp"

namespace dpb::DPB_ARCH {
DPB_INLINE i64 packed_entries(i64 dim) { return (dim + 1) * (dim + 2) / 2; }

struct Joint : Common {
    static constexpr bool is_whole = true;
    Tree tree;
    // Of the Gram matrix the upper half alone is kept up, until someone looks at it.
    double *inverse, *gram, *moments, *row, *packed, *prefix, *work, *vectors;
    i64 *item, *raised;
    Joint(Block& b, const Spec& spec)
        : Common(b, spec, packed_entries(spec.dim)),
          tree(b, packed_entries(spec.dim), spec.unknown_horizon, rows_for(spec)) {
        inverse = b.matrix(z);
        gram = b.matrix(z);
        moments = b.vector(z);
        row = b.take<double>(z.n + 8);
        packed = b.take<double>(tree.z.s + 4);
        prefix = b.vector(tree.z);
        work = b.take<double>(z.square() + 2 * z.s);
        vectors = b.matrix(z);
        item = b.take<i64>(tree.z.s);
        raised = b.take<i64>(1);
        if (!b.at) return;
        for (int i = 0; i < z.n; i++) {
            inverse[(i64)i * z.s + i] = 1 / o.ridge;
            gram[(i64)i * z.s + i] = o.ridge;
        }
    }
    i64 numbers() const { return packed_entries(o.dim); }
    const double* matrix() const { return inverse; }
    DPB_CALL double prepare(const double* x, double reward, bool) {
        i64 t = ++clock->rounds;
        const int d = z.n;
        double unit = 1 / root(o.size);
        for (int i = 0; i < d; i++) row[i] = x[i] * unit;
        row[d] = (reward - o.reward_centre) * o.reward_weight * unit;
        i64 at = 0;
        for (int i = 0; i <= d; i++) {  // whole fours: what is behind a row's end is overwritten
            packed[at++] = row[i] * row[i];
            four scaled = splat(root(2.0) * row[i]);
            for (int k = i + 1; k <= d; k += 4) store(packed + at + k - i - 1, scaled * load(row + k));
            at += d - i;
        }
        clear(packed + at, tree.z.s + 4 - at);
        to_grid(tree.z, 1, packed, item);
        Place place(t, o.unknown_horizon, o.levels);
        tree.add(place, t, item, node);
        clear(tree.z, item);  // no clean term stays in memory
        clear(packed, tree.z.s);
        clear(row, d + 1);
        show_pending(numbers());
        return o.multipliers[place.levels] * o.sensitivity;
    }
    // How much noise the sum at round t carries: the variance of a packed entry, or the degrees of
    // freedom for Wishart noise. Public: it follows from the round and the choices alone.
    double amount(i64 t) const {
        Place at(t, o.unknown_horizon, o.levels);
        auto one = [&](int levels) {
            double scale = o.multipliers[levels] * o.sensitivity;
            return o.noise == NoiseKind::wishart ? scale : scale * scale;
        };
        double total = __builtin_popcountll((u64)at.index) * one(at.levels);
        for (int block = 0; o.unknown_horizon && block < at.levels - 1; block++) total += one(block + 1);
        return total;
    }
    // The noise on Σxxᵀ (its mean removed, in units of `size`) has no eigenvalue below minus this, but
    // with probability ζ_t/4: Gaussian σ(√(2d) + √(2 log)), Wishart with K degrees
    // K − (√K − √d − √(2 log))² (docs/privacy.md).
    double lowest(i64 t) const {
        double log_of = o.log_rounds;
        if (o.unknown_horizon) log_of += log1((double)t) + log1((double)t + 1);
        double total = amount(t), tail = root(2 * log_of), side = root((double)z.n);
        if (o.noise == NoiseKind::wishart) {
            double left = larger(root(total) - side - tail, 0);
            return total - left * left;
        }
        return root(total) * (root(2.0) * side + tail);
    }
    DPB_CALL void commit(const double* value) {
        i64 t = clock->rounds;
        tree.publish(Place(t, o.unknown_horizon, o.levels), value, prefix);
        double added = o.ridge + o.size * o.shift * lowest(t);
        if (o.noise == NoiseKind::wishart) added -= o.size * amount(t);  // its mean is known
        double off = o.size / root(2.0);
        i64 at = 0;
        for (int i = 0; i < z.n; i++) {
            double* row_of = gram + (i64)i * z.s;
            row_of[i] = o.size * prefix[at++] + added;
            int k = i + 1;
            for (; k + 4 <= z.n; k += 4, at += 4) store(row_of + k, splat(off) * load(prefix + at));
            for (; k < z.n; k++) row_of[k] = off * prefix[at++];
            moments[i] = off * prefix[at++] / o.reward_weight;
        }
        // Eigenvalues that the noise took below ridge/2 are raised to it.
        if (!inverted(0.5 * o.ridge)) {
            ++*raised;
            raise_eigenvalues(0.5 * o.ridge);
        }
        multiply(z, inverse, moments, released);
    }
    bool inverted(double least) {
        if (!invert(z, gram, inverse, work)) return false;
        // 1/trace is a lower bound on all eigenvalues, and nearly always enough.
        return trace_of(z, inverse) * least < 1 || has_factor(z, gram, 1, -least, work);
    }
    DPB_CALL void raise_eigenvalues(double least) {
        const int d = z.n, s = z.s;
        double size = 0;
        mirror(z, gram);
        copy(gram, work, z.square());
        clear(vectors, z.square());
        for (int i = 0; i < d; i++) {
            vectors[(i64)i * s + i] = 1;
            for (int k = 0; k < d; k++) size += gram[(i64)i * s + k] * gram[(i64)i * s + k];
        }
        diagonalise(z, work, vectors, 1e-30 * size);
        for (int i = 0; i < d; i++)
            for (int j = 0; j <= i; j++) {
                double total = 0, reciprocal = 0;
                for (int k = 0; k < d; k++) {
                    double eigenvalue = larger(work[(i64)k * s + k], least);
                    double product = vectors[(i64)i * s + k] * vectors[(i64)j * s + k];
                    total += product * eigenvalue;
                    reciprocal += product / eigenvalue;
                }
                gram[(i64)i * s + j] = gram[(i64)j * s + i] = total;
                inverse[(i64)i * s + j] = inverse[(i64)j * s + i] = reciprocal;
            }
    }
    void fields(Fields& f) {
        mirror(z, gram);
        common_fields(f);
        tree.fields(f);
        f.matrix("inverse", inverse, z);
        f.matrix("gram", gram, z);
        f.vector("moments", moments, z.n);
        f.number("raised", raised);
    }
};
}  // namespace dpb::DPB_ARCH
