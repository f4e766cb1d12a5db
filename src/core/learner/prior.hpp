// What contexts alone say before any reward: how they are spread (the whitener of instruments), and a
// sensible prior on θ and an intercept. All of it is public: it comes from the public contexts, or
// grows from the contexts offered so far.
// The prior says that rewards lie around the middle of their range. Where contexts can express a
// constant (R² of a constant on the contexts above ½), that is said along their mean; where they
// cannot, by the intercept. Differences between arms get a variance that is small against the range.
#pragma once
#include "../fields.hpp"
#include "../linalg.hpp"
#include "../policy/scores.hpp"

namespace dpb::DPB_ARCH {
// Directions that contexts hardly take would otherwise get instruments of their own.
constexpr double FAINTEST = 1e-4;
// Prior variances, in squared widths of the range: of differences between arms, of the intercept.
constexpr double DIFFERENCES = 1.0 / 256, INTERCEPT = 0.01, LEVEL = 0.25;
constexpr int LOOKED_AT = 64;  // all arms of so many decisions are looked at, then of every eighth
// Different contexts are told apart by the cell that they fall into: exact for few, when it matters.
constexpr int CELLS = 4096;
constexpr int TOGETHER = 32;  // contexts of a slate that are added up together
// Up to this size the whitener is kept as a matrix; above, systems are solved.
constexpr int WHITENER_UP_TO = 96;

struct Prior {
    Size z, l;  // d, and d + 1 with the intercept
    bool is_public;
    double *second, *first;  // Σ xxᵀ and Σ x, each slate weighing 1
    double *slates, *different, *pairs, *scatter, *size;
    double *factor_, *whitener, *precision, *pull, *work, *cells;
    double *shares, *mean, *rows, *scaled;  // of features in a context's cell; of a slate

    struct Moments {
        double differences, level, intercept, middle;
        bool along_mean;
    } moments;  // of the prior, as `refresh` found them
    struct Spread {
        double count, trace, length, apart;
        bool along_mean;
    } spread;  // of contexts, as `refresh` found it

    Prior(Block& b, i64 dim, Table known) : z(dim), l(dim + 1), is_public(known.rows > 0) {
        second = b.matrix(z);
        first = b.vector(z);
        slates = b.take<double>(1);
        different = b.take<double>(1);
        pairs = b.take<double>(1);
        scatter = b.take<double>(1);
        size = b.take<double>(1);
        factor_ = b.matrix(l);
        whitener = b.matrix(l);
        precision = b.matrix(l);
        pull = b.vector(l);
        work = b.matrix(l);
        cells = b.take<double>(is_public ? 0 : CELLS);
        shares = b.vector(z);
        mean = b.vector(z);
        rows = b.take<double>(is_public ? 0 : TOGETHER * z.s);
        scaled = b.take<double>(is_public ? 0 : TOGETHER * z.s);
        if (!b.at) return;
        for (int i = 0; i < z.n; i++) {
            double share = (i + 1) * 0.6180339887498949;
            shares[i] = share - __builtin_floor(share);
        }
        *size = 1;
        if (is_public) look_at_all(known);
    }
    void look_at_all(Table known) {
        double share = 1 / (double)known.rows, trace = 0, length = 0;
        for (i64 j = 0; j < known.rows; j++)
            for (int i = 0; i < z.n; i++) {
                double x = known.at[j * z.n + i];
                first[i] += x * share;
                for (int k = 0; k < z.n; k++)
                    second[(i64)i * z.s + k] += x * known.at[j * z.n + k] * share;
            }
        for (int i = 0; i < z.n; i++) {
            trace += second[(i64)i * z.s + i];
            length += first[i] * first[i];
        }
        *slates = 1;
        *different = (double)known.rows;
        *pairs = 1;
        *scatter = larger(trace - length, 0);
    }
    // Count a context that has not been seen before: four articles, offered a thousand times, say no
    // more about contexts than four of them. By direction and size, whatever the unit.
    DPB_CALL void note(const double* x) {
        if (*different >= CELLS / 2) return;  // more make no difference
        double total = 0, length = 0;
        for (int i = 0; i < z.n; i++) {
            total += x[i] * shares[i];
            length += magnitude(x[i]);
        }
        int cell = 0;
        if (length > 0) {
            double place = (total / length + log1(length)) * 3141592.653589793;
            cell = (int)((place - __builtin_floor(place)) * CELLS);
        }
        *different += 1 - cells[cell];
        cells[cell] = 1;
    }
    // A slate of contexts has been offered.
    DPB_CALL void look(const Slate& slate) {
        const double arms = (double)slate.arms, share = 1 / arms;
        double total = 0, length = 0;
        clear(mean, z.s);
        for (i64 from = 0; from < slate.arms; from += TOGETHER) {
            int count = (int)(slate.arms - from < TOGETHER ? slate.arms - from : TOGETHER);
            for (int j = 0; j < count; j++) {
                const double* x = slate.row(from + j);
                for (int i = 0; i < z.n; i++) {
                    rows[j * z.s + i] = x[i];
                    scaled[j * z.s + i] = x[i] * share;
                }
                total += dot(z, rows + j * z.s, rows + j * z.s);
                add_scaled(z, mean, 1, scaled + j * z.s);
            }
            add_rows(z, second, scaled, rows, count);
        }
        length = dot(z, mean, mean);
        add_scaled(z, first, 1, mean);
        *slates += 1;
        for (i64 j = 0; j < slate.arms; j++) note(slate.row(j));
        if (slate.arms > 1) {
            *pairs += 1;
            *scatter += larger(total - arms * length, 0) / (arms - 1);
        }
    }
    // A context was played of which no slate is known.
    DPB_CALL void look_at_one(const double* x) {
        for (int i = 0; i < z.n; i++) {
            first[i] += x[i];
            for (int k = 0; k < z.n; k++) second[(i64)i * z.s + k] += x[i] * x[k];
        }
        *slates += 1;
        note(x);
    }
    // Bring the whitener and the prior up to date; rewards lie around `middle`, in a range this wide.
    // Differences between the arms of a slate have the variance `differences`.
    DPB_CALL void refresh(double middle, double width, double differences) {
        const int d = z.n, s = l.s;
        double count = larger(*slates, 1), trace = 0, length = 0, largest = 0;
        for (int i = 0; i < d; i++) {
            trace += second[(i64)i * z.s + i] / count;
            length += first[i] / count * (first[i] / count);
        }
        if (trace < 1e-200) trace = 1;  // nothing seen yet, or nothing to see
        // What was not seen yet is taken to be round, with the weight of one slate.
        double scale = is_public ? 1 : count / (count + 1);
        *size = root(trace);
        for (int i = 0; i <= d; i++) {
            double total = 0;
            for (int k = 0; k <= d; k++) {
                double e = 1;
                if (i < d && k < d)
                    e = second[(i64)i * z.s + k] / count / trace * scale + (i == k ? (1 - scale) / d : 0);
                else if (i < d || k < d)
                    e = first[i < k ? i : k] / count / *size * scale;
                work[(i64)i * s + k] = e;
                total += magnitude(e);
            }
            largest = larger(largest, total);
        }
        for (int i = 0; i <= d; i++) work[(i64)i * s + i] += FAINTEST * largest;
        factor(l, work, nullptr, factor_);
        if (l.n <= WHITENER_UP_TO) invert_rows();
        measure_spread(count, trace, length);
        believe(middle, width, differences);
    }
    // Row c of the whitener is column c of L⁻¹, so that adding up rows gives L⁻¹x.
    DPB_CALL void invert_rows() {
        invert_upper(l, factor_, work);
        for (int c = 0; c < l.n; c++)
            for (int i = 0; i < l.n; i++) whitener[(i64)c * l.s + i] = work[(i64)i * l.s + c];
    }
    // out = L⁻¹·x, where L·Lᵀ are the second moments of (x/size, 1).
    DPB_INLINE void whiten(const double* x, double* out) const {
        if (l.n > WHITENER_UP_TO) return solve_by_rows(x, out);
        for (int j = 0; j < l.s; j += 8) {  // row k begins with k zeros
            const bool wide = j + 8 <= l.s;
            four a = splat(0), b = splat(0);
            int rows = j + 8 < l.n ? j + 8 : l.n;
            for (int k = 0; k < rows; k++) {
                const double* row = whitener + (i64)k * l.s + j;
                a += splat(x[k]) * load(row);
                if (wide) b += splat(x[k]) * load(row + 4);
            }
            store(out + j, a);
            if (wide) store(out + j + 4, b);
        }
    }
    DPB_CALL void solve_by_rows(const double* x, double* out) const {
        copy(x, out, l.s);
        for (int i = 0; i < l.n; i++) {
            const double* row = factor_ + (i64)i * l.s;
            double found = out[i] / row[i];
            for (int k = i / 4 * 4; k < l.s; k += 4) {
                four left = load(out + k) - splat(found) * load(row + k);
                store(out + k, left);
            }
            out[i] = found;  // the row has zeros before i
        }
    }
    DPB_CALL void measure_spread(double count, double trace, double length) {
        const int d = z.n, s = l.s;
        // R² of a constant on the contexts, with the usual correction for fitting d numbers.
        double square = 0, *solved = work;
        for (int i = 0; i < d; i++) {
            double t = first[i] / count / *size;
            for (int k = 0; k < i; k++) t -= factor_[(i64)k * s + i] * solved[k];
            solved[i] = t / factor_[(i64)i * s + i];
            square += solved[i] * solved[i];
        }
        double seen = *different, explained = 0;
        if (seen > d + 1) explained = 1 - (1 - smaller(square, 1)) * (seen - 1) / (seen - d - 1);
        double apart = *pairs > 0 ? *scatter / *pairs : trace - length;
        spread = Spread{count, trace, length, larger(apart, 1e-9 * trace), explained > 0.5};
    }
    // Another prior for contexts as the last `refresh` found them.
    DPB_CALL void believe(double middle, double width, double differences) {
        const int d = z.n, s = l.s;
        const auto [count, trace, length, apart, along_mean] = spread;
        double variance = differences / apart;
        double intercept = (along_mean ? INTERCEPT : INTERCEPT + LEVEL) * width * width;
        // V = v + κ·mmᵀ/E‖x‖² on θ, so V⁻¹ = (1 − mmᵀ·shrink/E‖x‖²)/v; its mean is middle·m/E‖x‖².
        double kappa = along_mean ? LEVEL * width * width / trace : 0;
        double stiffness = variance + kappa * (length / trace), shrink = kappa / stiffness;
        double* means = work;
        for (int i = 0; i < d; i++) means[i] = first[i] / count / *size;
        for (int i = 0; i < d; i++) {
            const double own = means[i];
            double* row = precision + (i64)i * s;
            for (int k = 0; k < d; k++)
                row[k] = ((i == k ? 1 : 0) - shrink * (own * means[k])) / variance;
            row[d] = precision[(i64)d * s + i] = 0;
            pull[i] = along_mean ? middle * own / *size / stiffness : 0;
        }
        precision[(i64)d * s + d] = 1 / intercept;
        pull[d] = along_mean ? 0 : middle / intercept;
        moments = Moments{variance, kappa, intercept, middle, along_mean};
    }
    // Whether there are more contexts than a parameter has numbers: then arms tell of each other.
    bool has_features() const { return *different > z.n + 1; }
    // Whether, with them, every two features meet in some context: then every play tells of all arms. Not so in
    // blocks of features.
    bool shares_features() const {
        for (int i = 0; i < z.n; i++)
            for (int k = 0; k < i; k++)
                if (second[(i64)i * z.s + k] == 0) return false;
        return has_features();
    }
    // The mean reward of all contexts, and its standard deviation, if θ⁺ has these moments.
    DPB_CALL void level(const double* theta, const double* covariance, double* mean, double* sd) const {
        const int d = z.n, s = l.s;
        const double share = 1 / larger(*slates, 1);
        double square = covariance[(i64)d * s + d];
        *mean = theta[d];
        for (int i = 0; i < d; i++) {
            const double x = first[i] * share, *row = covariance + (i64)i * s;
            *mean += theta[i] * x;
            square += 2 * row[d] * x;
            for (int k = 0; k < d; k++) square += row[k] * x * (first[k] * share);
        }
        *sd = root(larger(square, 0));
    }
    // The prior itself: what is believed before the first release. Right after `refresh`.
    DPB_CALL void show(double* theta, double* covariance) const {
        const int d = z.n, s = l.s;
        double count = larger(*slates, 1), scale = 1 / (count * *size);
        for (int i = 0; i < d; i++) {
            double own = first[i] * scale, *row = covariance + (i64)i * s;
            for (int k = 0; k < d; k++)
                row[k] = (i == k ? moments.differences : 0) + moments.level * own * (first[k] * scale);
            row[d] = covariance[(i64)d * s + i] = 0;
            theta[i] = moments.along_mean ? moments.middle * own / *size : 0;
        }
        covariance[(i64)d * s + d] = moments.intercept;
        theta[d] = moments.along_mean ? 0 : moments.middle;
    }
    void fields(Fields& f) {
        f.matrix("context_second", second, z);
        f.vector("context_first", first, z.n);
        f.real("slates", slates);
        f.real("different", different);
        f.real("pairs", pairs);
        f.real("scatter", scatter);
        f.real("context_size", size);
        f.matrix("factor", factor_, l);
        f.matrix("whitener", whitener, l);
        f.matrix("precision", precision, l);
        f.vector("pull", pull, l.n);
        if (!is_public) f.vector("cells", cells, CELLS);
    }
};
}  // namespace dpb::DPB_ARCH
