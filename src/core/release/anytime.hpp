// The anytime release: a sum that is shown again and again, for ever. Each time an item of weight ω
// spends q²ω² and keeps ρ²ω², q² + ρ² = 1, so it never spends more than the 1 it came with.
// Release times grow by `ratio` up to `life` and then keep their distance; R(j) = (1 + j/knee)^−4 is what
// an early item has left after round j ≤ life. At the end of every generation all that is left is shown.
#pragma once
#include "../fields.hpp"
#include "../fixed.hpp"

namespace dpb::DPB_ARCH {
struct Schedule {
    static constexpr double LIVES = 10;  // that a generation has
    double knee, ratio, life;
    DPB_INLINE i64 next(i64 t) const {
        double later = (double)t > life ? (double)t + life * (ratio - 1) : (double)t * ratio;
        later = smaller(later, 0x1p62);  // no clock goes further
        i64 up = (i64)later;
        up += (double)up < later;
        return up > t ? up : t + 1;
    }
    DPB_INLINE double kept(i64 t) const {
        const i64 later = next(t);
        const double generation = LIVES * life;
        if (__builtin_floor((double)t / generation) != __builtin_floor((double)later / generation)) return 0;
        const double at = knee + smaller((double)t, life), left = at / (at + (double)(later - t));
        return left * left;
    }
    DPB_INLINE static double shown(double rho) { return root((1 - rho) * (1 + rho)); }
};
struct Fading {  // the sum, in whole numbers
    static constexpr i64 TOGETHER = 1 << 20;  // items that surely fit into 64 bits
    Size z;
    whole* sums;
    i64 *recent, *item, *count;  // items that are not in the sums yet
    Fading(Block& b, i64 numbers) : z(numbers) {
        sums = b.take<whole>(z.n);
        recent = b.take<i64>(z.s);
        item = b.take<i64>(z.s);
        count = b.take<i64>(1);
    }
    // An item factor·u, and `more` numbers that ride along behind it.
    DPB_INLINE void add(double factor, const double* u, int more = 0, const double* rides = nullptr) {
        to_grid(z, factor, u, item);
        for (int i = 0; i < more; i++) item[z.n - more + i] = to_grid(rides[i]);
        add_steps(z, recent, item);
        clear(z, item);
        if (++*count == TOGETHER) settle();
    }
    DPB_CALL void settle() {
        for (int i = 0; i < z.n; i++) sums[i] += recent[i];
        clear(z, recent);
        *count = 0;
    }
    void show(double q, double rho, whole* pending) {
        settle();
        u64 shown = (u64)(q * 0x1p62), kept = (u64)(rho * 0x1p62);
        for (int i = 0; i < z.n; i++) {
            pending[i] = share_of(sums[i], shown);
            sums[i] = share_of(sums[i], kept);
        }
    }
    void fields(Fields& f, const char* low = "sums_low", const char* high = "sums_high") {
        settle();
        f.wholes(low, high, sums, 1, z.n);
    }
};
}  // namespace dpb::DPB_ARCH
