// The rows of a log: whose they are, which can be learned from, and what those add up to.
// A row adds c·z·zᵀ, a second matrix and c·z, which are public, and one item v·u, which is private and
// so in whole numbers: z is x or (x/size, 1), v = (r − middle)/width, u = x/max_norm, or c·P·z of norm
// at most 1 with c = 1/max(‖Pz‖, floor). Where contexts are private too, it adds that item and u·uᵀ alone. Public sums are plain within CHUNK rows and compensated
// beyond; whole ones are exact.
#pragma once
#include "admit.hpp"
#include "fixed.hpp"
#include "held.hpp"

namespace dpb::DPB_ARCH {
constexpr int LANES = 64;  // rows that are whitened side by side
constexpr i64 CHUNK = 4096;
// Fours that are added to side by side: as many as the registers hold. Not a matter of bits.
#if defined(__AVX__)
constexpr int ABREAST = 4;
#else
constexpr int ABREAST = 2;
#endif

// ------------------------------------------------------------------------------------------- users

// FNV-1a, mixed once more (splitmix64). Saved files rely on it: it never changes.
static void hash_names(const unsigned char* text, const i64* offsets, i64 count, u64* out) {
    for (i64 n = 0; n < count; n++) {
        u64 h = 0xCBF29CE484222325;
        for (i64 i = offsets[n]; i < offsets[n + 1]; i++) h = (h ^ text[i]) * 0x100000001B3;
        h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9;
        h = (h ^ (h >> 27)) * 0x94D049BB133111EB;
        h ^= h >> 31;
        out[n] = h ? h : 1;  // 0 marks an empty place in a table
    }
}
DPB_INLINE u64 place_of(const Tally& t, u64 name) {
    u64 mask = (u64)t.places - 1, at = name & mask;
    while (t.keys[at] && t.keys[at] != name) at = (at + 1) & mask;
    return at;
}
// Count good rows by user, in order; a row beyond its user's cap gets the status `over`. Returns the row
// it stopped at because the table is half full and must grow first; `count` when all are done.
static i64 tally(const Tally& t, i64 cap, unsigned char over, const u64* names, unsigned char* status,
                 i64 start, i64 count) {
    for (i64 n = start; n < count; n++) {
        if (status[n] != ROW_GOOD) continue;
        if (2 * (i64)t.counts[t.places] >= t.places) return n;
        u64 at = place_of(t, names[n]);
        if (!t.keys[at]) {
            t.keys[at] = names[n];
            t.counts[t.places]++;
        }
        if (t.counts[at] >= cap) status[n] = over;
        else t.counts[at]++;
    }
    return count;
}
static void move_tally(const Tally& from, const Tally& to) {
    for (i64 i = 0; i < from.places; i++) {
        if (!from.keys[i]) continue;
        u64 at = place_of(to, from.keys[i]);
        to.keys[at] = from.keys[i];
        to.counts[at] = from.counts[i];
    }
    to.counts[to.places] = from.counts[from.places];
}

// -------------------------------------------------------------------------------------------- rows

DPB_INLINE unsigned char status_of(int code) {
    switch (code) {
        case FINE: return ROW_GOOD;
        case NOT_FINITE: return ROW_NOT_FINITE;
        case TOO_LONG: return ROW_LONG;
        case TOO_LONG_L1: return ROW_LONG_L1;
        default: __builtin_trap();  // the gate refuses rows of a log for no other reason
    }
}
DPB_INLINE Gate gate_for(const LogRecipe& o) {
    double most = 1 + o.tolerance;
    return Gate{1 / o.max_norm, most * most, o.l1_limit * most, false, o.clips, o.low, o.high};
}
// Find the rows that the gate would refuse for their contexts. No reward has a say: which rows are
// learned from is public.
static void inspect_rows(const LogRecipe& o, const double* xs, i64 rows, unsigned char* status) {
    const Gate gate = gate_for(o);
    for (i64 n = 0; n < rows; n++) {
        if (status[n] != ROW_GOOD) continue;
        status[n] = status_of(gate.admit(xs + n * o.dim, (int)o.dim));
    }
}

// One pass over some rows. Its scratch holds rewards, and ends with it.
struct Pass {
    const LogRecipe& o;
    const LogSums& sums;
    Gate gate;
    Size z;  // numbers in a row's z
    bool shaped, hides;  // contexts are private
    i64 numbers;         // in an item
    char* memory;
    double *zs, *left, *lanes, *image, *whitener;  // some rows; the same weighted; side by side; P·z; P
    double *values, *weights, *factors;            // v, c, c·v of these rows
    double *gram, *second, *first, *moments;       // the chunk's sums
    u64* items;

    Pass(const LogRecipe& recipe, const LogSums& into)
        : o(recipe), sums(into), gate(gate_for(recipe)), z(recipe.dim + recipe.constant),
          shaped(recipe.whitener.rows > 0), hides(recipe.directions > 0),
          numbers(z.n + (hides ? (i64)z.n * (z.n + 1) / 2 : 0)) {
        Block dry{nullptr, 0};
        lay_out(dry);
        memory = (char*)fresh(dry.used);
        Block block{memory, 0};
        lay_out(block);
        for (int i = 0; shaped && i < z.n; i++)
            for (int k = 0; k < z.n; k++) whitener[(i64)i * z.s + k] = o.whitener.at[i * z.n + k];
    }
    ~Pass() { give_back(memory); }
    void lay_out(Block& b) {
        const i64 full = (i64)z.s * z.s;
        zs = b.take<double>(LANES * z.s);
        left = b.take<double>(LANES * z.s);
        lanes = b.take<double>(shaped ? LANES * z.s : 0);
        image = b.take<double>(shaped ? LANES * z.s : 0);
        whitener = b.take<double>(shaped ? full : 0);
        values = b.take<double>(LANES);
        weights = b.take<double>(LANES);
        factors = b.take<double>(LANES);
        gram = b.take<double>(full);
        second = b.take<double>(o.power >= 0 ? full : 0);
        first = b.vector(z);
        moments = b.vector(z);
        items = b.take<u64>(numbers + 3);
    }
    void run(const double* xs, const double* rs, const unsigned char* status, i64 rows) {
        for (i64 n = 0; n < rows;) {
            i64 end = n + CHUNK < rows ? n + CHUNK : rows;
            while (n < end) {
                int filled = 0;
                for (; n < end && filled < LANES; n++)
                    if (status[n] == ROW_GOOD) take(xs + n * o.dim, rs[n], filled++);
                if (filled) add(filled);
            }
            finish_chunk();
        }
        for (i64 n = 0; n < rows; n++) sums.counts[status[n]]++;
    }
    // One row's z and v, and what is to be known about it.
    DPB_INLINE void take(const double* x, double given, int place) {
        double *row = zs + (i64)place * z.s, square = 0, total = 0, per_size = 1 / o.size;
        for (i64 i = 0; i < o.dim; i++) {
            double scaled = x[i] * gate.per_norm;
            row[i] = x[i] * per_size;
            square += scaled * scaled;
            total += magnitude(scaled);
        }
        if (o.constant) row[o.dim] = total > 0;  // a context of zeros says nothing about θ
        if (!hides) {
            // Squares of tiny numbers vanish; the L1 norm is no shorter.
            sums.longest[0] = larger(sums.longest[0], square > 1e-280 ? root(square) : total);
            sums.longest[1] = larger(sums.longest[1], total);
        }
        // One that is not a number stands in the middle of the range: leaving its row out would show.
        double reward = is_finite(given) ? gate.clip(given) : 0.5 * (o.low + o.high);
        sums.counts[ROW_CLIPPED] += reward != given;
        values[place] = (reward - o.middle) / o.width;
    }
    DPB_CALL void add(int filled) {
        for (int r = 0; r < LANES; r++) weights[r] = r < filled;
        if (shaped) {
            whiten();
            weigh(filled);
            add_shaped_items();
            if (hides) return add_directions();
        } else if (o.whole) {
            add_items(filled);
        } else {
            for (int r = 0; r < filled; r++) add_scaled(z, moments, values[r], zs + (i64)r * z.s);
        }
        for (int r = 0; r < filled; r++) {
            double* own = left + (i64)r * z.s;
            for (int i = 0; i < z.s; i += 4) {
                four weighted = splat(weights[r]) * load(zs + (i64)r * z.s + i);
                store(own + i, weighted);
                store(first + i, load(first + i) + weighted);
            }
        }
        add_lower(gram, left, filled);
        if (o.power == 0) add_lower(second, zs, filled);
        if (o.power == 2) {
            for (int r = 0; r < filled; r++) {
                double* own = left + (i64)r * z.s;
                for (int i = 0; i < z.s; i += 4) store(own + i, splat(weights[r]) * load(own + i));
            }
            add_lower(second, left, filled);
        }
    }
    // m ← m + Σ_r from_r·z_rᵀ, up to the four of columns that the diagonal is in.
    DPB_CALL void add_lower(double* m, const double* from, int filled) {
        for (int i = 0; i < z.s; i += ABREAST) {
            const int end = i / 4 * 4 + 4;
            int j = 0;
            double* row = m + (i64)i * z.s;
            for (; j + 8 <= end; j += 8)
                add_rows_tile<ABREAST, 2>(z, row + j, from + i, zs + j, filled);
            if (j < end) add_rows_tile<ABREAST, 1>(z, row + j, from + i, zs + j, filled);
        }
    }
    // image = P·z, with rows side by side, so that the innermost loops run over rows.
    DPB_CALL void whiten() {
        for (int r = 0; r < LANES; r += 4)
            for (int i = 0; i < z.s; i += 4) {
                const double* from = zs + (i64)r * z.s + i;
                four a = load(from), b = load(from + z.s), c = load(from + 2 * z.s), d = load(from + 3 * z.s);
                transpose(a, b, c, d);
                double* to = lanes + (i64)i * LANES + r;
                store(to, a);
                store(to + LANES, b);
                store(to + 2 * LANES, c);
                store(to + 3 * LANES, d);
            }
        for (int i = 0; i < z.s; i += 2) {
            const double *row = whitener + (i64)i * z.s, *next = row + z.s;
            const int upto = o.triangular && i + 2 < z.n ? i + 2 : z.n;
            for (int r = 0; r < LANES; r += 4 * ABREAST) {
                four a[ABREAST], b[ABREAST];
                DPB_UNROLL for (int v = 0; v < ABREAST; v++) a[v] = b[v] = splat(0);
                for (int j = 0; j < upto; j++) {
                    const double* lane = lanes + (i64)j * LANES + r;
                    DPB_UNROLL for (int v = 0; v < ABREAST; v++) {
                        a[v] += splat(row[j]) * load(lane + 4 * v);
                        b[v] += splat(next[j]) * load(lane + 4 * v);
                    }
                }
                double* to = image + (i64)i * LANES + r;
                DPB_UNROLL for (int v = 0; v < ABREAST; v++) {
                    store(to + 4 * v, a[v]);
                    store(to + LANES + 4 * v, b[v]);
                }
            }
        }
    }
    // c = 1/max(‖Pz‖, floor) for each row; 0 where there is nothing to see.
    DPB_CALL void weigh(int filled) {
        const word4 sizes = splat_word(0x7fffffffffffffff);
        for (int r = 0; r < LANES; r += 4) {
            four largest = splat(0), squares = splat(0);
            for (int i = 0; i < z.n; i++)
                largest = larger(from_bits(bits_of(load(image + (i64)i * LANES + r)) & sizes), largest);
            // Divided first: squares of tiny numbers vanish, and u would be too long.
            four down;
            for (int k = 0; k < 4; k++) down[k] = largest[k] >= TINY ? 1 / largest[k] : 0;
            for (int i = 0; i < z.n; i++) {
                four part = load(image + (i64)i * LANES + r) * down;
                squares += part * part;
            }
            for (int k = 0; k < 4; k++) {
                double size = larger(largest[k] * root(squares[k]), o.floor);
                bool seen = r + k < filled && is_finite(squares[k]) && size >= TINY && size <= 1 / TINY;
                weights[r + k] = seen ? 1 / size : 0;
                factors[r + k] = seen ? values[r + k] / size : 0;
                for (int i = 0; !seen && i < z.n; i++) image[(i64)i * LANES + r + k] = 0;
            }
        }
    }
    DPB_INLINE static word4 on_grid(four item) {
        const four magic = splat(0x1.8p52);
        return bits_of(item * splat(0x1p40) + magic) - bits_of(magic);
    }
    DPB_CALL void add_shaped_items() {
        for (int i = 0; i < z.n; i++) {
            word4 sum = splat_word(0);
            for (int r = 0; r < LANES; r += 4)
                sum += on_grid(load(image + (i64)i * LANES + r) * load(factors + r));
            items[i] += sum[0] + sum[1] + sum[2] + sum[3];
        }
    }
    // Σ u·uᵀ, packed: √2 off the diagonal.
    DPB_CALL void add_directions() {
        u64* to = items + z.n;
        for (int i = 0; i < z.n; i++)
            for (int k = i; k < z.n; k++) {
                const four factor = splat(k == i ? o.directions : o.directions * root(2.0));
                const double *one = image + (i64)i * LANES, *two = image + (i64)k * LANES;
                word4 sum = splat_word(0);
                for (int r = 0; r < LANES; r += 4) {
                    four c = load(weights + r);
                    sum += on_grid(load(one + r) * c * (load(two + r) * c) * factor);
                }
                *to++ += sum[0] + sum[1] + sum[2] + sum[3];
            }
    }
    DPB_CALL void add_items(int filled) {
        for (int r = 0; r < filled; r++)
            for (int i = 0; i < z.s; i += 4) {
                four u = load(zs + (i64)r * z.s + i) * splat(gate.per_norm);
                word4 sum;
                __builtin_memcpy(&sum, items + i, 32);
                sum += on_grid(u * splat(values[r]));
                __builtin_memcpy(items + i, &sum, 32);
            }
    }
    DPB_INLINE static void add_one(double* total, double* low, double term) {
        double old = *total, sum = old + term, back = sum - old;
        *total = sum;
        *low += (old - (sum - back)) + (term - back);
    }
    // A chunk's items are at most CHUNK/2 in size, so they fit 64 bits.
    DPB_CALL void finish_chunk() {
        for (int i = 0; i < z.n; i++) {
            for (int k = 0; k <= i; k++) {
                i64 from = (i64)i * z.s + k, to = (i64)i * z.n + k;
                add_one(sums.gram + to, sums.gram_low + to, gram[from]);
                if (o.power >= 0) add_one(sums.second + to, sums.second_low + to, second[from]);
            }
            add_one(sums.first + i, sums.first_low + i, first[i]);
            add_one(sums.moments + i, sums.moments_low + i, moments[i]);
        }
        for (i64 i = 0; i < numbers; i++) {
            whole total;
            __builtin_memcpy(&total, sums.items + 2 * i, 16);
            total += (i64)items[i];
            __builtin_memcpy(sums.items + 2 * i, &total, 16);
            items[i] = 0;
        }
        clear(gram, (i64)z.s * z.s);
        if (o.power >= 0) clear(second, (i64)z.s * z.s);
        clear(first, z.s);
        clear(moments, z.s);
    }
};
static void absorb_rows(const LogRecipe& o, const double* xs, const double* rs, const unsigned char* status,
                        i64 rows, const LogSums& sums) {
    Pass(o, sums).run(xs, rs, status, rows);
}
}  // namespace dpb::DPB_ARCH
