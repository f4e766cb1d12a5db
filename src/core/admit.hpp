// The one gate: what a context and a reward must satisfy, and what is done to a reward.
// Whatever way a number comes in (one, many, a log, a simulation), it passes here.
#pragma once
#include "linalg.hpp"

namespace dpb::DPB_ARCH {
enum Code {
    FINE = 0,
    RELEASE_IS_DUE = 1,
    NOT_AN_ARRAY = -1,
    DIMENSION = -2,
    NO_ARMS = -3,
    NOT_FINITE = -4,
    TOO_LONG = -5,
    TOO_LONG_L1 = -6,
    NOT_ONE_HOT = -7,
    REWARD_NOT_FINITE = -8,
    HORIZON = -9,
    BUSY = -10,
};
constexpr double TOLERANCE = 1e-9;  // contexts are normalised in floats: a hair above is rounding

struct Gate {
    double per_norm, most_square, most_total;  // most_total: infinity if the L1 norm is not limited
    bool one_hot, clips;
    double low, high;

    // NaN and infinity make the comparison false; which of them it was is asked only then.
    DPB_INLINE int admit(const double* x, int n) const {
        four squares = splat(0);
        int i = 0;
        for (; i + 4 <= n; i += 4) {
            four scaled = load(x + i) * splat(per_norm);
            squares += scaled * scaled;
        }
        double square = add_up(squares);
        for (; i < n; i++) square += x[i] * per_norm * (x[i] * per_norm);
        if (!(square <= most_square)) return refusal(x, n);
        if (one_hot || most_total < __builtin_inf()) return admit_further(x, n);
        return FINE;
    }
    DPB_CALL int refusal(const double* x, int n) const {
        for (int i = 0; i < n; i++)
            if (!is_finite(x[i])) return NOT_FINITE;
        return TOO_LONG;
    }
    DPB_CALL int admit_further(const double* x, int n) const {
        double total = 0;
        int ones = 0, others = 0;
        for (int i = 0; i < n; i++) {
            total += magnitude(x[i]);
            ones += x[i] == 1;
            others += x[i] != 1 && x[i] != 0;
        }
        if (one_hot && (ones != 1 || others)) return NOT_ONE_HOT;
        return total <= most_total ? FINE : TOO_LONG_L1;
    }
    DPB_INLINE int admit_reward(double r) const { return is_finite(r) ? FINE : REWARD_NOT_FINITE; }
    DPB_INLINE double clip(double r) const { return clips ? smaller(larger(r, low), high) : r; }
};
}  // namespace dpb::DPB_ARCH
