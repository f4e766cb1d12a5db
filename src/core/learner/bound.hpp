// How far A⁻¹·(one item) can reach: max ‖A⁻¹x‖ over the public arms, or over the ball. A and the arms
// are public, so this needs no assumption on contexts. A valid bound is kept and brought up to date
// when it may have become 5% too large and t has grown by 5%, or when it may be half too large.
#pragma once
#include "../fields.hpp"
#include "../linalg.hpp"
#include "../policy/scores.hpp"

namespace dpb {
namespace DPB_ARCH {
constexpr double TOO_LARGE = 0.05, LATER = 1.05, MUCH_TOO_LARGE = 0.5, EARLY = 20;
constexpr double MOST_GROWTH = 1e100;
constexpr double SLACK = 1 + 1e-9;  // more than rounding can take off a computed length

struct Reach {
    struct State {
        double bound, growth;    // when it was last computed, and since
        double arms_growth;      // since all arms were computed
        double largest;          // the arm that was largest
        double moved;            // how far any can have moved since the bound was computed
        double rounds, computed; // now, and when it was computed
        double distrusted;       // 1 if A⁻¹ was computed anew since
    };
    Size z;
    Table arms;
    double max_norm;
    bool absolute;  // in L1, else in L2
    State* state;
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
    void forget() { *state = State{}; }
    void distrust() { state->distrusted = 1; }
    // Sizes of arms are not saved: all are computed when the bound is next brought up to date.
    void look_anew() {
        state->arms_growth = 1;
        state->largest = 0;
        for (i64 j = 0; j < arms.rows; j++) sizes[j] = __builtin_inf();
    }
    void fields(Fields& f) {
        f.real("bound_bound", &state->bound);
        f.real("bound_growth", &state->growth);
        f.real("bound_moved", &state->moved);
        f.real("bound_rounds", &state->rounds);
        f.real("bound_computed", &state->computed);
        f.real("bound_distrusted", &state->distrusted);
    }

    // x is the context added last, step = A_old⁻¹x, quadratic = xᵀA_old⁻¹x. `all`: over the ball.
    DPB_CALL double after(const double* inverse, const double* x, const double* step, double quadratic,
                          bool ball) {
        State& s = *state;
        if (ball || arms.rows == 0) return over_the_ball(inverse, step, quadratic);
        s.rounds += 1;
        if (s.bound <= 0 || s.distrusted > 0) {
            s.distrusted = 0;
            look_anew();
            bring_up_to_date(inverse);
        } else {
            double factor, moved;
            grow(x, step, quadratic, factor, moved);
            s.growth *= smaller(factor, 1 + moved / (s.bound * s.growth));
            s.arms_growth *= factor;
            // Beyond, it would overflow, and sizes of 0·∞ are looked at no more.
            if (!(s.arms_growth < MOST_GROWTH)) look_anew();
            s.moved += moved;
            if (s.growth > 1 + TOO_LARGE || is_due()) bring_up_to_date(inverse);
        }
        return s.bound * s.growth;
    }

   private:
    bool is_due() const {
        double moved = state->moved / state->bound;
        return moved > MUCH_TOO_LARGE ||
               (moved > TOO_LARGE && state->rounds >= LATER * state->computed);
    }
    // By what adding xxᵀ can at most have multiplied ‖A⁻¹y‖, and how far it can have moved it, for
    // ‖y‖ ≤ max_norm. The new A⁻¹y is (1 − vxᵀ/(1 + q))·(the old one), v = step; with
    // a = ‖v‖‖x‖/(1 + q) that matrix has norm (a + √(a² + 4/(1 + q)))/2; in L1 its largest column.
    void grow(const double* x, const double* step, double quadratic, double& factor, double& moved) const {
        double inside = 1 / (1 + quadratic), square = dot(z, step, step), length = dot(z, x, x);
        double total = 0;
        for (int i = 0; i < z.n; i++) total += magnitude(step[i]);
        moved = (absolute ? total : root(square)) * root(square) * max_norm * inside;
        if (absolute) {
            factor = 0;
            for (int i = 0; i < z.n; i++) {
                double diagonal = magnitude(1 - step[i] * inside * x[i]);
                double others = magnitude(x[i]) * inside * (total - magnitude(step[i]));
                factor = larger(factor, diagonal + others);
            }
        } else {
            double a = root(square * length) * inside;
            factor = 0.5 * (a + root(a * a + 4 * inside));
        }
        factor = larger(factor, 1);
    }
    // The largest ‖A⁻¹x‖ over all arms; those that cannot have become the largest are not looked at.
    void bring_up_to_date(const double* inverse) {
        State& s = *state;
        double before = s.arms_growth;
        todo[0] = (i64)s.largest;
        double worst = sizes_of(inverse, before, 1, 0);
        int count = 0;
        for (i64 from = 0; from < arms.rows; from += 4) {  // sizes are padded with zeros
            word4 larger_ones = (word4)(load(sizes + from) * splat(before) > splat(worst));
            if (!(larger_ones[0] | larger_ones[1] | larger_ones[2] | larger_ones[3])) continue;
            for (i64 j = from; j < from + 4; j++) {
                if (!(sizes[j] * before > worst)) continue;
                todo[count++] = j;
                if (count < PACK) continue;
                worst = sizes_of(inverse, before, count, worst);
                count = 0;
            }
        }
        if (count) worst = sizes_of(inverse, before, count, worst);
        s.bound = worst;
        s.growth = 1;
        s.moved = 0;
        s.computed = s.rounds;
    }
    double sizes_of(const double* inverse, double before, int count, double worst) {
        for (int n = count; n < PACK; n++) todo[n] = todo[0];
        Slate slate{arms.at, todo, PACK, z.n};
        pack<3>(slate, 0, nullptr, packed);
        double* out = packed + pack_room(z.n);
        image_sizes(inverse, out);
        for (int n = 0; n < count; n++) {
            double size = out[n] * SLACK;
            sizes[todo[n]] = size / before;
            if (size > worst) {
                worst = size;
                state->largest = (double)todo[n];
            }
        }
        return worst;
    }
    // ‖A⁻¹x‖ of the packed arms.
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
        for (int v = 0; v < 3; v++) store(out + 4 * v, absolute ? size[v] : root(size[v]));
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
}  // namespace DPB_ARCH
}  // namespace dpb
