// The binary tree (Dwork et al. 2010; Chan et al. 2011), its hybrid form for an unknown horizon, its
// pan-private form, and Honaker's estimate (2015). Round t completes the node (t − lowbit(t), t]; its
// noise is drawn once and serves while the node is part of a prefix. Clean sums are whole numbers.
#pragma once
#include "../fields.hpp"
#include "../fixed.hpp"

namespace dpb::DPB_ARCH {
// Where a round stands: its number within its block, the level of the node that it completes, and
// how many levels share the budget there. With an unknown horizon blocks double in length.
struct Place {
    i64 index;
    int level, levels;
    DPB_INLINE Place(i64 t, bool unknown_horizon, i64 all_levels) : index(t), levels((int)all_levels) {
        if (unknown_horizon) {
            int block = bit_length((u64)t) - 1;
            index = t - ((i64)1 << block) + 1;
            levels = block + 1;
        }
        level = lowest_bit((u64)index);
    }
    // The level of the node that the prefix goes on with, or −1.
    DPB_INLINE int above() const {
        u64 rest = ((u64)index >> level) ^ 1;
        return rest ? level + lowest_bit(rest) : -1;
    }
};
DPB_INLINE i64 rows_for(const Spec& o) { return o.unknown_horizon ? MOST_LEVELS : o.levels; }

struct Tree {
    // Sums of a node of so few items fit into 64 bits.
    static constexpr int NARROW = 22;
    Size z;  // numbers in an item
    bool unknown_horizon;
    i64 rows;
    // Of the latest node of each level (pan-private: of the node in progress, with noise), in two
    // words; those of narrow levels are the low ones alone.
    i64 *low, *high;
    double *noisy, *carry;  // noisy prefix at the latest node's end; noisy total of finished blocks

    Tree(Block& b, i64 numbers, bool unknown, i64 levels)
        : z(numbers), unknown_horizon(unknown), rows(levels) {
        low = b.take<i64>(rows * z.s);
        high = b.take<i64>(rows * z.s);
        noisy = b.take<double>(rows * z.s);
        carry = b.vector(z);
    }
    DPB_INLINE whole wide(i64 level, int i) const {
        i64 at = level * z.s + i;
        return level < NARROW ? (whole)low[at] : (whole)high[at] << 64 | (whole)(u64)low[at];
    }
    DPB_INLINE void put(i64 level, int i, whole value) {
        low[level * z.s + i] = (i64)value;
        high[level * z.s + i] = (i64)(value >> 64);
    }
    // A finished block is one noisy number from now on: its top node.
    DPB_CALL void close_block(i64 last, bool forget) {
        int top = bit_length((u64)last) - 1;
        for (int i = 0; i < z.n; i++) carry[i] += noisy[(i64)top * z.s + i];
        clear(noisy, rows * z.s);
        for (i64 i = 0; forget && i < rows * z.s; i++) low[i] = high[i] = 0;
    }
    DPB_INLINE void close_when_over(const Place& at, i64 t, bool forget) {
        if (unknown_horizon && at.index == 1 && t > 1) close_block(t - 1, forget);
    }
    // Add round t's item; `node` is then the clean sum of the node that it completes.
    DPB_INLINE void add(const Place& at, i64 t, const i64* item, Node& node) {
        close_when_over(at, t, true);
        if (at.level >= NARROW) return add_wide(at, item, node);
        node.wide = false;
        copy(z, item, node.steps);
        for (int below = 0; below < at.level; below++) {
            add_steps(z, node.steps, low + (i64)below * z.s);
            clear(z, low + (i64)below * z.s);
        }
        copy(z, node.steps, low + (i64)at.level * z.s);
    }
    DPB_CALL void add_wide(const Place& at, const i64* item, Node& node) {
        node.wide = true;
        for (int i = 0; i < z.n; i++) {
            whole sum = item[i];
            for (int below = 0; below < at.level; below++) {
                sum += wide(below, i);
                put(below, i, 0);
            }
            put(at.level, i, sum);
            node.wides[i] = sum;
        }
    }
    // Take the noisy value of round t's node; `prefix` is then the noisy sum of all rounds so far.
    DPB_INLINE void publish(const Place& at, const double* node, double* prefix) {
        int above = at.above();
        double* own = noisy + (i64)at.level * z.s;
        const double* before = noisy + (i64)above * z.s;
        for (int i = 0; i < z.s; i += 4) {
            four sum = load(node + i);
            if (above >= 0) sum += load(before + i);
            store(own + i, sum);
            store(prefix + i, load(carry + i) + sum);
        }
    }
    void fields(Fields& f) {
        for (i64 i = 0; i < rows * z.s; i++)  // so that both words are right wherever they are read
            if (i / z.s < NARROW) high[i] = low[i] < 0 ? -1 : 0;
        f.words("sums_low", low, rows, z);
        f.words("sums_high", high, rows, z);
        f.table("noisy", noisy, rows, z);
        f.vector("carry", carry, z.n);
    }
};

// What `Moments` needs of a release: one item in, now and then a noisy prefix out.
struct TreeRelease : OneByOne {
    static constexpr bool is_whole = true;
    Tree tree;
    i64* item;
    TreeRelease(Block& b, const Spec& spec)
        : OneByOne{spec}, tree(b, spec.dim, spec.unknown_horizon, rows_for(spec)) {
        item = b.take<i64>(tree.z.s);
    }
    DPB_INLINE double add(i64 t, double factor, const double* u, double, Node& pending, double*) {
        Place at(t, o.unknown_horizon, o.levels);
        to_grid(tree.z, factor, u, item);
        tree.add(at, t, item, pending);
        clear(tree.z, item);  // no clean item stays in memory
        return o.multipliers[at.levels] * o.sensitivity;
    }
    DPB_INLINE void publish(i64 t, const double* noisy, double* prefix) {
        tree.publish(Place(t, o.unknown_horizon, o.levels), noisy, prefix);
    }
    void base(double* prefix) const { copy(tree.carry, prefix, tree.z.s); }
    void fields(Fields& f) { tree.fields(f); }
};

// Every node's sum starts with noise of its own, so that a look into memory sees noisy sums only; a
// second noise is added when the node is published, for the rewards that come after the look.
struct PanPrivateRelease : TreeRelease {
    using TreeRelease::TreeRelease;
    // The levels at which a node begins with round t: their first noise is due before its reward.
    i64 starts(i64 t, i64* levels) const {
        Place at(t, o.unknown_horizon, o.levels);
        i64 count = 0;
        for (int level = 0; level < at.levels; level++)
            if (((at.index - 1) & (((i64)1 << level) - 1)) == 0) levels[count++] = level;
        return count;
    }
    void begin(i64 level, const whole* noise) {
        for (int i = 0; i < tree.z.n; i++) tree.put(level, i, noise[i]);
    }
    DPB_INLINE whole wide(i64 level, int i) const {
        i64 at = level * tree.z.s + i;
        return (whole)tree.high[at] << 64 | (whole)(u64)tree.low[at];
    }
    double scale(i64 t) const {
        return o.multipliers[Place(t, o.unknown_horizon, o.levels).levels] * o.sensitivity;
    }
    DPB_INLINE double add(i64 t, double factor, const double* u, double, Node& pending, double*) {
        Place at(t, o.unknown_horizon, o.levels);
        tree.close_when_over(at, t, false);
        to_grid(tree.z, factor, u, item);
        // The noise of a node may be larger than 64 bits: all levels are wide.
        for (int level = 0; level < at.levels; level++)
            for (int i = 0; i < tree.z.n; i++) tree.put(level, i, wide(level, i) + item[i]);
        pending.wide = true;
        for (int i = 0; i < tree.z.n; i++) pending.wides[i] = wide(at.level, i);
        clear(tree.z, item);
        return o.multipliers[at.levels] * o.sensitivity;
    }
    void fields(Fields& f) {
        f.words("sums_low", tree.low, tree.rows, tree.z);
        f.words("sums_high", tree.high, tree.rows, tree.z);
        f.table("noisy", tree.noisy, tree.rows, tree.z);
        f.vector("carry", tree.carry, tree.z.n);
    }
};

// Every node that ends with a round is published, right children too, and a node is estimated from
// its own value and from its children: with equal variances the own value's weight is
// v_l = 2^l/(2^{l+1} − 1). An item is in one node of each level, so the budget is the same.
struct HonakerRelease : TreeRelease {
    double* estimate;
    HonakerRelease(Block& b, const Spec& spec) : TreeRelease(b, spec) { estimate = b.vector(tree.z); }
    i64 numbers() const { return o.dim * o.levels; }  // one row a level; rows that do not end here are 0
    DPB_CALL double add(i64 t, double factor, const double* u, double, Node& pending, double*) {
        Place at(t, o.unknown_horizon, o.levels);
        const int n = tree.z.n;
        whole* nodes = pending.wides;
        pending.wide = true;
        tree.close_when_over(at, t, true);
        to_grid(tree.z, factor, u, item);
        for (i64 i = 0; i < numbers(); i++) nodes[i] = i < n ? (whole)item[i] : 0;
        for (int below = 0; below < at.level; below++)
            for (int i = 0; i < n; i++) {
                nodes[(below + 1) * n + i] = nodes[below * n + i] + tree.wide(below, i);
                tree.put(below, i, 0);
            }
        for (int i = 0; i < n; i++) tree.put(at.level, i, nodes[at.level * n + i]);
        clear(tree.z, item);
        return o.multipliers[at.levels] * o.sensitivity;
    }
    DPB_CALL void publish(i64 t, const double* noisy, double* prefix) {
        Place at(t, o.unknown_horizon, o.levels);
        const int n = tree.z.n, s = tree.z.s, above = at.above();
        for (int i = 0; i < n; i++) estimate[i] = noisy[i];
        double own = 1;
        for (int row = 1; row <= at.level; row++) {
            own = 2 * own / (1 + 2 * own);
            // The left sibling's estimate is what the prefix gained when it was published.
            const double* before = row < at.level ? tree.noisy + (i64)row * s
                                   : above >= 0   ? tree.noisy + (i64)above * s
                                                  : nullptr;
            for (int i = 0; i < n; i++) {
                double left = tree.noisy[(i64)(row - 1) * s + i] - (before ? before[i] : 0);
                estimate[i] = own * noisy[row * n + i] + (1 - own) * (left + estimate[i]);
            }
        }
        tree.publish(at, estimate, prefix);
    }
};
}  // namespace dpb::DPB_ARCH
