// The local phase: each of the first rewards is made noisy once, by itself, and is an equation
// x⁺·θ⁺ = prediction + answer of known variance. It enters no sum. Equations wait here until θ is read anew.
// Which rewards these are is public: rounds up to `central_from`, which slates may bring forward.
#pragma once
#include "../fields.hpp"
#include "../linalg.hpp"
#include "../policy/policy.hpp"

namespace dpb::DPB_ARCH {
struct LocalPhase {
    // What play teaches anyway while answers come: information grows like t, so that this is less than later;
    // and three times d + 1 more answers, spread like what was played of late, of which round j counts (j/t)⁵.
    static constexpr double TAUGHT = 10, AHEAD = 3 * 6;
    struct Times {
        // Rounds before the first that is summed; equations here; when θ is read next; slates in blocks seen.
        i64 central_from, waiting, due, blocks;
    };
    const Spec& o;
    Size z;  // d + 1
    Times* times;
    double *rows, *values;

    LocalPhase(Block& b, const Spec& spec) : o(spec), z(spec.dim + 1) {
        times = b.take<Times>(1);
        rows = b.matrix(z);
        values = b.vector(z);
        if (b.at) *times = Times{o.local, 0, 1, 0};
    }
    // Whether round t was, or would be, answered by itself.
    bool has(i64 t) const { return t >= 1 && t <= times->central_from; }
    bool takes(i64 t) const { return has(t) && (o.local_anyhow || times->blocks); }
    // How many rewards are summed up to round t, if it is; a phase that does not take it is over.
    i64 summed(i64 t) const { return has(t) ? 1 : t - times->central_from; }
    // From the round after this one on, rewards are summed.
    void end(i64 rounds) { times->central_from = rounds; }
    bool looks(i64 rounds) const { return !o.local_anyhow && rounds < times->central_from; }
    // Whether no feature is shared by two arms of a slate, and arms are more than names.
    DPB_CALL bool look(const Slate& slate) {
        bool features = false;
        for (i64 j = 0; j < slate.arms; j++) {
            i64 own = 0;
            for (i64 i = 0; i < o.dim; i++) own += slate.row(j)[i] != 0;
            features |= own > 1;
        }
        for (i64 i = 0; features && i < o.dim; i++) {
            i64 sharing = 0;
            for (i64 j = 0; j < slate.arms; j++) sharing += slate.row(j)[i] != 0;
            features = sharing <= 1;
        }
        times->blocks += features;
        return features;
    }
    double unit() const { return 1 / root(o.local_variance); }
    // The equation of a round, of variance 1, without its answer.
    DPB_CALL void ask(const double* longer, double prediction) {
        double* row = rows + times->waiting * z.s;
        for (int i = 0; i < z.s; i++) row[i] = longer[i] * unit();
        values[times->waiting] = prediction * unit();
    }
    // Its answer. Whether it is time to read θ anew.
    DPB_CALL bool add(i64 t, double answer) {
        values[times->waiting++] += answer * unit();
        if (t < times->due && times->waiting < z.n && t < times->central_from) return false;
        const double later = (double)t * o.ratio;
        i64 up = (i64)later;
        up += (double)up < later;
        times->due = up > t ? up : t + 1;
        return true;
    }
    // How many times what was played of late play will teach, if what is known has this trace.
    double taught(i64 t, double known, double traced) const {
        return TAUGHT * known / traced + AHEAD * z.n / ((double)t * o.local_variance);
    }
    void forget() {
        clear(rows, z.square());
        clear(values, z.s);
        times->waiting = 0;
    }
    void fields(Fields& f) {
        f.matrix("local_rows", rows, z);
        f.vector("local_values", values, z.n);
        f.number("central_from", &times->central_from);
        f.number("local_waiting", &times->waiting);
        f.number("local_due", &times->due);
        f.number("blocks_seen", &times->blocks);
    }
};
}  // namespace dpb::DPB_ARCH
