// How far A⁻¹·(one item) can reach: max ‖A⁻¹y‖ over the public arms, or over the ball. A and the arms
// are public, so this needs no assumption on contexts. A valid bound is kept and brought up to date
// when it may have become 5% too large and t has grown by 5%, or when it may be half too large.
#pragma once
#include "../fields.hpp"
#include "../linalg.hpp"
#include "../policy/scores.hpp"

namespace dpb::DPB_ARCH {
constexpr double TOO_LARGE = 0.05, LATER = 1.05, MUCH_TOO_LARGE = 0.5, EARLY = 20;
constexpr double MOST_GROWTH = 1e100;
constexpr double SLACK = 1 + 1e-9;  // more than rounding can take off a computed length

struct Reach {
    struct State {
        double bound, growth;    // when it was last computed, and since
        double times, plus;      // what the arms' sizes are to be multiplied by, and then grow by
        double half_per_square;  // 1/(2·bound²)
        double largest;          // the arm that was largest
        double moved;            // how far any can have moved since the bound was computed
        double rounds, computed; // now, and when it was computed
        double distrusted;       // by how much A⁻¹ changed when it was computed anew, not updated
    };
    Size z;
    Table arms;
    double max_norm;
    bool absolute;  // in L1, else in L2
    State* state;
    // What each arm's size is at most: its length in L1, the square of its length in L2.
    double *sizes, *work, *packed;
    i64* todo;

    Reach(Block& b, i64 dim, Table known, double norm, bool l1)
        : z(dim), arms(known), max_norm(norm), absolute(l1) {
        state = b.take<State>(1);
        sizes = b.take<double>(arms.rows + 4);
        work = b.matrix(z);
        packed = b.take<double>(pack_room(z.n) + PACK);
        todo = b.take<i64>(PACK);
    }
    void forget() {
        *state = State{};
        look_anew();
    }
    // A⁻¹ is about to be computed anew: then it is another one, by rounding.
    void keep(const double* inverse) { copy(inverse, work, z.square()); }
    void distrust(const double* inverse) {
        double square = 0;
        for (i64 i = 0; i < z.square(); i++) square += (inverse[i] - work[i]) * (inverse[i] - work[i]);
        state->distrusted = larger(root(square) * SLACK, 1e-300);
    }
    // Sizes of arms are not saved: all are computed when the bound is next brought up to date.
    void look_anew() {
        state->times = 1;
        state->plus = state->largest = 0;
        state->half_per_square = 0.5 / (state->bound * state->bound);
        for (i64 j = 0; j < arms.rows + 4; j++) sizes[j] = j < arms.rows ? __builtin_inf() : 0;
    }
    void fields(Fields& f) {
        f.real("bound_bound", &state->bound);
        f.real("bound_growth", &state->growth);
        f.real("bound_moved", &state->moved);
        f.real("bound_rounds", &state->rounds);
        f.real("bound_computed", &state->computed);
        f.real("bound_distrusted", &state->distrusted);
    }

    // x is the context added last, step = A_old⁻¹x, quadratic = xᵀA_old⁻¹x, trace that of A⁻¹.
    DPB_CALL double after(const double* inverse, const double* x, const double* step, double quadratic,
                          double trace, bool ball) {
        State& s = *state;
        if (ball || arms.rows == 0) return over_the_ball(inverse, step, quadratic);
        s.rounds += 1;
        grow(inverse, x, step, 1 / (1 + quadratic), trace);
        s.distrusted = 0;
        // Also where they are no numbers: then nothing is known of any arm.
        if (!(s.times < MOST_GROWTH && s.plus < MOST_GROWTH)) look_anew();
        if (s.bound <= 0 || !(s.growth <= 1 + TOO_LARGE) || is_due()) bring_up_to_date(inverse);
        return s.bound * s.growth;
    }

   private:
    bool is_due() const {
        const double moved = state->moved, bound = state->bound;
        return moved > MUCH_TOO_LARGE * bound ||
               (moved > TOO_LARGE * bound && state->rounds >= LATER * state->computed);
    }
    // How much larger sizes can be now that xxᵀ was added, for ‖y‖ ≤ max_norm: A⁻¹ lost vvᵀ·inside,
    // v = step, inside = 1/(1 + quadratic). What rounding did to it is in `apart`.
    void grow(const double* inverse, const double* x, const double* step, double inside, double trace) {
        State& s = *state;
        const double square = dot(z, step, step), all = trace + inside * square;  // all: the old trace
        const double apart = (all * 0x1p-51 + s.distrusted) * max_norm;
        if (absolute) return grow_absolute(x, step, root(square), inside, apart);
        // With w = A_old⁻¹y, ‖A⁻¹y‖² = ‖w‖² − 2·inside·(vᵀy)(vᵀw) + inside²·(vᵀy)²‖v‖². This is ‖w‖² less
        // 2·inside·(vᵀy)(hᵀy), h = A⁻¹v + ½·inside·‖v‖²·v, and −2(vᵀy)(hᵀy) ≤ (‖v‖‖h‖ − vᵀh)·‖y‖².
        multiply(z, inverse, step, work);
        add_scaled(z, work, 0.5 * inside * square, step);
        double lift = root(square * dot(z, work, work)) - dot(z, step, work);
        // What rounding can do to h and to these products.
        lift = larger(lift, 0) + square * (all * (z.n + 8) * 0x1p-50 + 2 * s.distrusted);
        const double plus = max_norm * max_norm * inside * lift + (2 * s.bound * s.growth + apart) * apart;
        s.plus += plus;
        s.growth += plus * s.half_per_square;  // √(1 + a) ≤ 1 + a/2, and growth is at least 1
        s.moved += square * max_norm * inside;
    }
    // The new A⁻¹y is (1 − vxᵀ·inside)·(the old one), and that matrix's norm its largest column's sum.
    DPB_CALL void grow_absolute(const double* x, const double* step, double length, double inside,
                                double apart) {
        State& s = *state;
        double total = 0, factor = 1;
        for (int i = 0; i < z.n; i++) total += magnitude(step[i]);
        for (int i = 0; i < z.n; i++) {
            double diagonal = magnitude(1 - step[i] * inside * x[i]);
            double others = magnitude(x[i]) * inside * (total - magnitude(step[i]));
            factor = larger(factor, diagonal + others);
        }
        const double moved = total * length * max_norm * inside, more = root((double)z.n) * apart;
        s.times *= factor;
        s.plus = s.plus * factor + more;
        s.growth = s.growth * smaller(factor, 1 + moved / (s.bound * s.growth)) + more / s.bound;
        s.moved += moved;
    }
    // The largest size of all arms; those that cannot have become the largest are not looked at.
    void bring_up_to_date(const double* inverse) {
        State& s = *state;
        todo[0] = (i64)s.largest;
        double worst = sizes_of(inverse, 1, 0);
        int count = 0;
        for (i64 from = 0; from < arms.rows; from += 64) {
            const i64 some = arms.rows - from < 64 ? arms.rows - from : 64;
            u64 larger_ones = 0;
            for (i64 j = 0; j < some; j += 4) {
                four now = (load(sizes + from + j) * splat(s.times) + splat(s.plus)) * splat(1 + 0x1p-50);
                store(sizes + from + j, now);
                larger_ones |= lane_bits((word4)(now > splat(worst))) << j;
            }
            if (some < 64) larger_ones &= (1ull << some) - 1;
            for (; larger_ones; larger_ones &= larger_ones - 1) {
                todo[count++] = from + lowest_bit(larger_ones);
                if (count < PACK) continue;
                worst = sizes_of(inverse, count, worst);
                count = 0;
            }
        }
        if (count) worst = sizes_of(inverse, count, worst);
        s.times = 1;
        s.plus = 0;
        s.bound = absolute ? worst : root(worst);
        s.half_per_square = 0.5 / (s.bound * s.bound);
        s.growth = 1;
        s.moved = 0;
        s.computed = s.rounds;
    }
    double sizes_of(const double* inverse, int count, double worst) {
        for (int n = count; n < PACK; n++) todo[n] = todo[0];
        Slate slate{arms.at, todo, PACK, z.n};
        pack<3>(slate, 0, nullptr, packed);
        double* out = packed + pack_room(z.n);
        image_sizes(inverse, out);
        for (int n = 0; n < count; n++) {
            const double size = out[n] * (absolute ? SLACK : SLACK * SLACK);
            sizes[todo[n]] = size;
            if (size > worst) {
                worst = size;
                state->largest = (double)todo[n];
            }
        }
        return worst;
    }
    // ‖A⁻¹y‖ of the packed arms, squared in L2.
    void image_sizes(const double* m, double* out) const {
        four size[3] = {splat(0), splat(0), splat(0)};
        for (int i = 0; i < z.n; i += 2) {  // two rows at a time hide how long an addition takes
            four a[3] = {splat(0), splat(0), splat(0)}, b[3] = {splat(0), splat(0), splat(0)};
            const bool two = i + 1 < z.n;
            const double *row = m + (i64)i * z.s, *next = two ? row + z.s : row;
            for (int k = 0; k < z.n; k++)
                DPB_UNROLL for (int v = 0; v < 3; v++) {
                    four y = load(packed + (k * 3 + v) * 4);
                    a[v] += splat(row[k]) * y;
                    b[v] += splat(next[k]) * y;
                }
            DPB_UNROLL for (int v = 0; v < 3; v++) {
                size[v] += absolute ? larger(a[v], -a[v]) : a[v] * a[v];
                if (two) size[v] += absolute ? larger(b[v], -b[v]) : b[v] * b[v];
            }
        }
        for (int v = 0; v < 3; v++) store(out + 4 * v, size[v]);
    }
    // λ_max(A⁻¹)·max_norm only shrinks, by no more than ‖v‖²/(1 + q) a round. A bound s holds if
    // s·1 − A⁻¹ has a Cholesky factor, which takes less than an eigenvalue.
    double over_the_ball(const double* inverse, const double* step, double quadratic) {
        State& s = *state;
        s.rounds += 1;
        if (s.distrusted > 0) {
            s.distrusted = 0;
            s.bound *= SLACK;
            if (!has_factor(z, inverse, -1, s.bound, work)) s.bound = 0;
        }
        if (s.bound <= 0) {
            s.bound = largest_eigenvalue(z, inverse, work) * SLACK;
            s.moved = 0;
        } else {
            s.moved += dot(z, step, step) / (1 + quadratic);
            if (is_due()) {
                s.moved = 0;
                s.computed = s.rounds;
                if (s.rounds <= EARLY) s.bound = largest_eigenvalue(z, inverse, work) * SLACK;
                while (has_factor(z, inverse, -1, s.bound * (1 - TOO_LARGE), work))
                    s.bound *= (1 - TOO_LARGE) * SLACK;
            }
        }
        return s.bound * max_norm * (absolute ? root((double)z.n) : 1);
    }
};
}  // namespace dpb::DPB_ARCH
