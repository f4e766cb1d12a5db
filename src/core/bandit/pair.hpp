// The anytime bandit with private contexts: residuals along directions, and the directions' Gram matrix,
// each in a sum of its own that is released for ever. Nothing looks at a slate, or at a context other
// than through a release. learners/pair.py says the same in NumPy, with the reasons.
#pragma once
#include "../learner/directions.hpp"
#include "../release/anytime.hpp"
#include "common.hpp"

namespace dpb {
namespace DPB_ARCH {
// The largest (1 + t)/2 + 2η²(1 − t²), t in [0, 1]: how far an item can move, squared.
DPB_INLINE double largest_move(double eta2) {
    double most = 2 * eta2, t = smaller(1 / (4 * most), 1);
    return 0.5 * (1 + t) + most * (1 - t * t);
}
struct TwoSums : Common {
    static constexpr bool is_whole = true;
    static constexpr int WIDTHS = 4, GUESSES = 2 * WIDTHS;
    static constexpr int REWARD_BITS = 20;  // of a person's residuals: privacy/unit.py
    // Whether contexts are alike, and after how many rounds per unit of noise that is decided.
    static constexpr i64 UNDECIDED = 0, DIFFERENT = 1, ALIKE = 2;
    static constexpr double SURE = 50;
    static constexpr double DOUBT = 2;  // nats against a constant along contexts until then
    static constexpr double CLOSE = 0.5;  // to a constant: R², without which none is along contexts that differ
    static constexpr double EXPLORES = 2.5;  // how much more unless contexts are alike
    struct Times {
        i64 due, change_due, version, releases, rounds_shown, alike;
        i64 people, people_shown;  // who came so far, and by the last release
        double before;  // rounds of a log, before round 1
    };
    Size l, g;
    i64 most;
    Schedule schedule;
    Fading moments, grams;
    Directions directions;
    Cleaner cleaner;
    Times* times;
    // For each version: whitener, its inverse, what its releases said of Γ, and B (see learners/pair.py).
    double *whiteners, *factors, *own_targets, *own_information, *designs;
    // The filter of the moments.
    double *mean, *weight, *weight_seen, *offset, *offset_seen, *information, *towards, *against, *noise_variance;
    double *expected, *second, *prior_second, *estimate, *posterior, *spread, *spread_factor;
    double *u, *longer, *packed, *noisy_gram;
    double *one, *two, *three, *known, *pull, *prior_pull, *means, *solved, *row, *constant;

    TwoSums(Block& b, const Spec& spec)
        : Common(b, spec, spec.dim + 1 + (spec.dim + 1) * (spec.dim + 2) / 2),
          l(spec.dim + 1),
          g((spec.dim + 1) * (spec.dim + 2) / 2),
          most(spec.versions),
          schedule{spec.knee, spec.ratio, __builtin_inf()},
          moments(b, l.n),
          grams(b, g.n),
          directions(b, l.n),
          cleaner(b, l.n) {
        auto matrices = [&](i64 count) { return b.take<double>(count * l.square()); };
        auto vectors = [&](i64 count) { return b.take<double>(count * l.s); };
        times = b.take<Times>(1);
        whiteners = matrices(most);
        factors = matrices(most);
        own_targets = matrices(most);
        designs = matrices(most);
        own_information = b.take<double>(most);
        mean = vectors(1);
        weight = b.take<double>(most);
        weight_seen = b.take<double>(most);
        offset = vectors(most);
        offset_seen = vectors(most);
        information = b.take<double>(most * most);
        towards = vectors(most);
        against = vectors(most * most);
        noise_variance = b.take<double>(1);
        expected = matrices(1);
        second = matrices(1);
        prior_second = matrices(1);
        estimate = vectors(1);
        posterior = matrices(1);
        spread = b.matrix(z);
        spread_factor = b.matrix(z);
        u = vectors(1);
        longer = vectors(1);
        packed = b.vector(g);
        noisy_gram = matrices(1);
        one = matrices(1);
        two = matrices(1);
        three = matrices(1);
        known = matrices(1);
        pull = vectors(1);
        prior_pull = vectors(1);
        means = vectors(GUESSES);
        constant = vectors(1);
        solved = vectors(1);
        row = vectors(1);
        if (!b.at) return;
        times->due = o.first;
        times->change_due = o.change;
        for (int i = 0; i < l.n; i++) {
            const i64 at = (i64)i * l.s + i;
            whiteners[at] = factors[at] = 1;
            expected[at] = 1.0 / l.n;
            second[at] = i < z.n ? 1.0 / z.n : 1;
        }
        if (o.known_second.rows) {
            for (int i = 0; i < l.n; i++)
                for (int k = 0; k < l.n; k++) second[(i64)i * l.s + k] = o.known_second.at[i * l.n + k];
            whiten(0);
        }
        copy(second, prior_second, l.square());
        set_prior(1, one);
        factor(l, one, nullptr, two);
        invert_factor(l, two, posterior);
        multiply(l, posterior, prior_pull, estimate);
        loaded();
    }
    double* of(double* table, i64 version) const { return table + version * l.square(); }
    double eta2(i64 version) const { return version == 0 ? o.first_eta2 : o.later_eta2; }
    // A person's residuals and the one visit in the Gram matrix may be of different whiteners.
    double move(i64 version) const {
        return o.persons ? 1 + 2 * larger(o.first_eta2, o.later_eta2) : largest_move(eta2(version));
    }
    double size(i64 version) const { return root(move(version)); }
    double eta(i64 version) const { return root(eta2(version)) / size(version); }
    double length(i64 version) const {
        return root(version == 0 && !o.known_second.rows ? 2.0 : (double)l.n);
    }
    double coefficient(i64 version) const { return length(version) / (2 * o.reach * size(version)); }
    // What this person has left of a residual e, in shares of the reach and whole numbers of steps.
    double within_reach(double e, bool is_new) const {
        i64 left = ((i64)1 << REWARD_BITS) - (is_new ? 0 : visit->counted - 1);
        i64 steps = (i64)(magnitude(e) * 0x1p20);
        if (steps > left) steps = left;
        visit->growth = steps + is_new;
        return e < 0 ? -(double)steps * 0x1p-20 : (double)steps * 0x1p-20;
    }
    i64 numbers() const { return l.n + g.n; }
    bool quiet(const double*) const { return clock->rounds + 1 < times->due; }
    const double* matrix() const { return spread; }
    DPB_CALL int choose(const Slate& slate, double alpha, double* scores) {
        return choose_by(View{released, spread, spread_factor}, slate, alpha, scores);
    }
    bool shows_whole(i64 t) const { return t >= times->change_due && times->version + 1 < most; }
    DPB_CALL double prepare(const double* x, double reward, bool) {
        const i64 t = ++clock->rounds, v = times->version;
        const int d = z.n;
        for (int i = 0; i < d; i++) longer[i] = x[i] / o.max_norm;
        longer[d] = 1;
        const double* p = of(whiteners, v);  // lower triangular
        for (int i = 0; i < l.n; i++) {
            double sum = 0;
            for (int k = 0; k <= i; k++) sum += p[(i64)i * l.s + k] * longer[k];
            u[i] = sum;
        }
        double h = root(dot(l, u, u)), c = o.window;
        double prediction = smaller(larger(dot(l, longer, estimate), o.low), o.high);
        double residual = (reward - prediction) * smaller(length(v) / h, 2);
        double e = smaller(larger(residual, -c), c);
        const bool is_new = !o.persons || !visit->counted;
        if (o.persons) e = within_reach(e / o.reach, is_new) * o.reach;
        visit->counted = 0;  // the next round is a stranger's, if nobody says otherwise
        times->people += is_new;
        e /= 2 * o.reach * size(v);
        for (int i = 0; i < l.n; i++) u[i] /= h;
        i64 at = 0;
        for (int i = 0; i < l.n; i++) {
            packed[at++] = u[i] * u[i];
            double scaled = root(2.0) * u[i];
            for (int k = i + 1; k < l.n; k++) packed[at++] = scaled * u[k];
        }
        moments.add(e, u);
        if (is_new) grams.add(eta(v), packed);
        clear(u, l.s);  // no clean term stays in memory
        clear(longer, l.s);
        clear(packed, g.s);
        if (t < times->due) return NO_RELEASE;
        double rho = schedule.kept(t), other = shows_whole(t) ? 0 : rho;
        moments.show(Schedule::shown(rho), rho, node.wides);
        grams.show(Schedule::shown(other), other, node.wides + l.n);
        node.wide = true;
        times->due = schedule.next(t);
        show_pending(numbers());
        return o.scale;
    }
    DPB_CALL void commit(const double* value) {
        const i64 t = clock->rounds;
        const double rho = schedule.kept(t);
        const bool turns = shows_whole(t);
        learn_release(value, (double)(t - times->rounds_shown), rho, turns ? 0 : rho, o.scale, turns);
    }
    // Learn from a log's noisy sums, before round 1: all is shown and nothing kept, and another whitener
    // comes, if there is one.
    bool start(const double* value, double scale) {
        if (!(times->before > 0)) return false;
        learn_release(value, times->before, 0, 0, scale, times->version + 1 < most);
        return true;
    }
    void learn_release(const double* value, double rounds, double rho, double other, double given_scale,
                       bool turns) {
        const i64 t = clock->rounds, v = times->version;
        const double scale = larger(given_scale, 1e-6);
        copy(value, row, l.n);
        learn_moments(row, t, rounds, Schedule::shown(rho), rho, scale);
        i64 at = l.n;
        for (int i = 0; i < l.n; i++) {
            noisy_gram[(i64)i * l.s + i] = value[at++];
            for (int k = i + 1; k < l.n; k++)
                noisy_gram[(i64)i * l.s + k] = noisy_gram[(i64)k * l.s + i] = value[at++] / root(2.0);
        }
        const double of_directions = o.persons ? (double)(times->people - times->people_shown) : rounds;
        times->people_shown = times->people;
        directions.learn(noisy_gram, of_directions, eta(v), Schedule::shown(other), other, scale, of(own_targets, v),
                         own_information + v);
        if (!t) {  // of a log the Gram matrix itself is known, but for noise, not a mean that it samples
            own_information[v] = of_directions * of_directions / (scale * scale);
            for (i64 i = 0; i < l.square(); i++)
                of(own_targets, v)[i] = of_directions / (scale * scale) * noisy_gram[i];
        }
        times->rounds_shown = t;
        times->releases++;
        conclude(turns);
        if (turns) turn_whitener(t);
    }
    void learn_moments(const double* noisy, i64 t, double rounds, double q, double rho, double scale) {
        const i64 v = times->version;
        const double c = o.reach;
        weight[v] += rounds;
        add_scaled(l, offset + v * l.s, rounds, estimate);
        *noise_variance += rounds * (o.reward_variance / (4 * c * c) / l.n / move(v));
        const double of_noise = q * q * *noise_variance + scale * scale, gain = q * *noise_variance / of_noise;
        const double fades =
            times->releases ? root((times->before + (double)times->rounds_shown) / (times->before + (double)t)) : 1;
        double* surprise = solved;
        for (int i = 0; i < l.n; i++) {
            surprise[i] = noisy[i] - q * mean[i];
            mean[i] = (mean[i] + gain * surprise[i]) * rho;
        }
        for (int i = l.n; i < l.s; i++) surprise[i] = 0;
        for (i64 m = 0; m <= v; m++) {
            const double share = q * (weight[m] - weight_seen[m]) / of_noise;
            for (i64 k = 0; k <= v; k++) {
                double& both = information[m * most + k];
                both = both * fades + share * (q * (weight[k] - weight_seen[k]));
                double* to = against + (m * most + k) * l.s;
                for (int i = 0; i < l.s; i++)
                    to[i] = to[i] * fades + share * (q * (offset[k * l.s + i] - offset_seen[k * l.s + i]));
            }
            double* to = towards + m * l.s;
            for (int i = 0; i < l.s; i++) to[i] = to[i] * fades + share * surprise[i];
        }
        for (i64 m = 0; m <= v; m++) {
            weight_seen[m] = (weight_seen[m] + gain * q * (weight[m] - weight_seen[m])) * rho;
            weight[m] *= rho;
            for (i64 i = m * l.s; i < (m + 1) * l.s; i++) {
                offset_seen[i] = (offset_seen[i] + gain * q * (offset[i] - offset_seen[i])) * rho;
                offset[i] *= rho;
            }
        }
        *noise_variance *= (1 - q * gain) * rho * rho;
    }
    DPB_CALL void conclude(bool turns) {
        const i64 v = times->version;
        const int d = z.n;
        const double now = directions.now->information, sd = root(0.5 / now) / eta(v);
        for (i64 i = 0; i < l.square(); i++) one[i] = directions.target[i] / now / eta(v);
        cleaner.clear_of_noise(one, expected, sd, known);
        around(l, of(factors, v), known, one, two, second);
        scale_by(l, 1 / second[(i64)d * l.s + d], second);
        if (times->alike != DIFFERENT) copy(second, prior_second, l.square());
        find_constant();
        const double seen = o.persons ? (double)times->people : times->before + (double)clock->rounds;
        if (turns && times->alike == UNDECIDED && seen > SURE * o.scale) {
            double along = 0;
            for (int i = 0; i < d; i++) along += mean_entry(i) * mean_entry(i);
            times->alike = along > 0.5 * (trace_of(l, second) - 1) ? ALIKE : DIFFERENT;
        }
        for (i64 m = 0; m <= v; m++) design(m, of(designs, m));
        clear(known, l.square());
        clear(pull, l.s);
        for (i64 m = 0; m <= v; m++) {
            clear(one, l.square());
            copy(towards + m * l.s, row, l.s);
            for (i64 k = 0; k <= v; k++) {
                const double both = information[m * most + k], *b = of(designs, k), *c = against + (m * most + k) * l.s;
                for (i64 i = 0; i < l.square(); i++) one[i] += both * b[i];
                for (int i = 0; i < l.n; i++) row[i] += dot(l, b + (i64)i * l.s, c);
            }
            add_rows(l, known, of(designs, m), one, l.n);
            multiply(l, of(designs, m), row, solved);
            add_scaled(l, pull, 1, solved);
        }
        for (int i = 0; i < l.n; i++)
            for (int k = 0; k < i; k++) {
                double both = 0.5 * (known[(i64)i * l.s + k] + known[(i64)k * l.s + i]);
                known[(i64)i * l.s + k] = known[(i64)k * l.s + i] = both;
            }
        const double b = coefficient(v), own = information[v * most + v], wrong = smaller(v || !(times->before > 0) ? sd : own_sd(0), 0.3 / l.n);
        for (int pass = 0; pass < 2; pass++) {
            // A wrong Γ multiplies how far θ is from what was predicted: noise as well.
            for (int i = 0; i < l.s; i++) row[i] = estimate[i] - against[(v * most + v) * l.s + i] / own;
            multiply(l, of(factors, v), row, solved);
            average(1 / (1 + wrong * wrong * b * b * own * dot(l, solved, solved)));
        }
        loaded();
    }
    double mean_entry(int i) const { return prior_second[(i64)i * l.s + z.n]; }
    double own_sd(i64 m) const { return root(0.5 / own_information[m]) / eta(m); }
    // B of a version, as Γ looks now.
    void design(i64 m, double* out) {
        around(l, of(whiteners, m), second, one, two, three);
        scale_by(l, 1 / trace_of(l, three), three);
        if ((times->version || times->before > 0) && own_information[m] > 0) {  // somebody new came under it
            double unit = 1 / (own_information[m] * eta(m)), sd = own_sd(m);
            for (i64 i = 0; i < l.square(); i++) one[i] = of(own_targets, m)[i] * unit;
            cleaner.own_design(one, three, sd, two);
        } else {
            copy(three, two, l.square());
        }
        turn(l, of(factors, m), one);
        clear(out, l.square());
        add_product(l, coefficient(m), two, one, out);
    }
    // θ under several priors, averaged by how well they expected the releases.
    void average(double share) {
        double logs[GUESSES], best = -__builtin_inf(), total = 0;
        const double against_along = along_contexts();
        for (int w = 0; w < GUESSES; w++) {
            logs[w] = -__builtin_inf();
            if (w < WIDTHS ? times->alike == ALIKE : !(against_along < __builtin_inf())) continue;
            const int power = w % WIDTHS - 1;
            set_prior(w, one);
            factor(l, one, nullptr, two);
            solve_lower(l, two, prior_pull, row);
            double likely = -0.5 * dot_of(row, row) - 0.5 * power * power - (w < WIDTHS ? 0 : against_along);
            for (int i = 0; i < l.n; i++) likely += log1(two[(i64)i * l.s + i]);
            for (i64 i = 0; i < l.square(); i++) one[i] += share * known[i];
            factor(l, one, nullptr, two);
            for (int i = 0; i < l.s; i++) row[i] = share * pull[i] + prior_pull[i];
            solve_lower(l, two, row, row);
            likely += 0.5 * dot_of(row, row);
            for (int i = 0; i < l.n; i++) likely -= log1(two[(i64)i * l.s + i]);
            solve_upper(l, two, row);
            copy(row, means + w * l.s, l.s);
            logs[w] = likely;
            best = larger(best, likely);
        }
        for (int w = 0; w < GUESSES; w++) total += logs[w] = exp1(logs[w] - best);
        clear(estimate, l.s);
        clear(posterior, l.square());
        for (int w = 0; w < GUESSES; w++) add_scaled(l, estimate, logs[w] / total, means + w * l.s);
        for (int w = 0; w < GUESSES; w++) {
            const double likely = logs[w] / total;
            if (!(likely > 0)) continue;
            set_prior(w, one);
            for (i64 i = 0; i < l.square(); i++) one[i] += share * known[i];
            factor(l, one, nullptr, two);
            invert_factor(l, two, one);
            for (int i = 0; i < l.s; i++) row[i] = means[w * l.s + i] - estimate[i];
            for (int i = 0; i < l.n; i++)
                for (int k = 0; k < l.s; k++)
                    posterior[(i64)i * l.s + k] += likely * (one[(i64)i * l.s + k] + row[i] * row[k]);
        }
    }
    // How many nats speak against a constant along contexts from the start; ∞: none is looked for there.
    double along_contexts() const {
        if (times->alike == ALIKE) return 0;
        if (times->alike == UNDECIDED) return DOUBT;
        double close = 0;
        for (int i = 0; i < z.n; i++) close += mean_entry(i) * constant[i];
        return close > CLOSE ? 0 : __builtin_inf();
    }
    double dot_of(const double* a, const double* b) const {
        double sum = 0;
        for (int i = 0; i < l.n; i++) sum += a[i] * b[i];
        return sum;
    }
    // w: the linear function of contexts that comes closest to a constant, w·x ≈ 1.
    void find_constant() {
        const double size = trace_of(l, prior_second) - prior_second[(i64)z.n * l.s + z.n];
        const double more = 0.5 * size / z.n;
        for (int i = 0; i < z.n; i++)
            for (int k = 0; k < z.s; k++)
                spread[(i64)i * z.s + k] = k < z.n ? prior_second[(i64)i * l.s + k] + (i == k ? more : 0) : 0;
        factor(z, spread, nullptr, spread_factor);
        clear(constant, l.s);
        for (int i = 0; i < z.n; i++) constant[i] = mean_entry(i);
        solve_lower(z, spread_factor, constant, constant);
        solve_upper(z, spread_factor, constant);
    }
    // Precision, and its pull in prior_pull, of (θ, intercept) under a guess: how far arms differ, and
    // whether a constant is along w or in the intercept.
    void set_prior(int guess, double* precision) {
        const int d = z.n, power = guess % WIDTHS - 1;
        const double width2 = width() * width(), middle = centre();
        double size = trace_of(l, prior_second) - prior_second[(i64)d * l.s + d], length = 0;
        for (int i = 0; i < d; i++) length += mean_entry(i) * mean_entry(i);
        const double factor = power < 0 ? 0.25 : (double)(1 << (2 * power));
        const double variance = factor / 256 * width2 / larger(size - length, 1e-3 * size);
        double intercept = 0.01 * width2;
        clear(precision, l.square());
        clear(prior_pull, l.s);
        for (int i = 0; i < d; i++) precision[(i64)i * l.s + i] = 1 / variance;
        if (guess >= WIDTHS) {
            const double square = dot(l, constant, constant), kappa = 0.25 * width2;
            const double stiffness = variance + kappa * square;
            for (int i = 0; i < d; i++) {
                for (int k = 0; k < d; k++)
                    precision[(i64)i * l.s + k] -= kappa / stiffness * constant[i] * constant[k] / variance;
                prior_pull[i] = middle * constant[i] / stiffness;
            }
        } else {
            intercept += 0.25 * width2;
            prior_pull[d] = middle / intercept;
        }
        precision[(i64)d * l.s + d] = 1 / intercept;
    }
    // The whitener of a version, from the second moments as they look now, and the Γ to expect of it.
    // Returns the mean square of Px⁺.
    double whiten(i64 version) {
        copy(second, one, l.square());
        eigen(l, one, cleaner.values, cleaner.vectors, cleaner.work);
        double ridge = 0;
        for (int i = 0; i < l.n - 1; i++) ridge += cleaner.values[i];
        copy(second, one, l.square());
        for (int i = 0; i < l.n; i++) one[(i64)i * l.s + i] += ridge / (l.n - 1);
        factor(l, one, nullptr, two);
        turn(l, two, of(factors, version));
        invert_upper(l, two, of(whiteners, version));
        around(l, of(whiteners, version), second, one, two, expected);
        const double square = trace_of(l, expected);
        scale_by(l, 1 / square, expected);
        return square;
    }
    // Another whitener, from the second moments as they look now; what is known of Γ is carried over.
    DPB_CALL void turn_whitener(i64 t) {
        const i64 old = times->version, now = ++times->version;
        double due = larger((double)times->change_due, (double)t) * o.growth_of_change;
        times->change_due = (i64)due;
        times->change_due += (double)times->change_due < due;
        const double is = whiten(now);
        around(l, of(whiteners, old), second, one, two, three);
        const double growth = is / trace_of(l, three);
        clear(known, l.square());
        add_product(l, 1, of(whiteners, now), of(factors, old), known);  // from the old directions to the new
        turn(l, known, one);
        clear(two, l.square());
        add_product(l, 1, known, one, two);
        const double trace = trace_of(l, two), n = l.n;
        const double louder = (trace * trace + square_of(l, two)) / (n * n + n);
        auto& d = *directions.now;
        around(l, known, directions.target, one, two, three);
        const double before = d.information, ratio = eta(old) / eta(now) * growth;
        d.information *= ratio * ratio / louder;
        scale_by(l, eta(now) * d.information / (before * eta(old) * growth), three);
        copy(three, directions.target, l.square());
        clear(directions.mean, l.square());
        d.seen = d.slope = d.variance = 0;
    }
    // What `choose` looks at, of the posterior.
    void loaded() {
        const double unit = 1 / o.max_norm;
        const double wider = unit * (times->alike == ALIKE ? 1 : EXPLORES);
        for (int i = 0; i < z.n; i++) {
            released[i] = estimate[i] * unit;
            for (int k = 0; k < z.s; k++)
                spread[(i64)i * z.s + k] = k < z.n ? posterior[(i64)i * l.s + k] * wider * wider : 0;
        }
        factor(z, spread, nullptr, spread_factor);
    }
    void fields(Fields& f) {
        common_fields(f);
        moments.fields(f, "moments_low", "moments_high");
        grams.fields(f, "directions_low", "directions_high");
        directions.fields(f);
        f.number("due", &times->due);
        f.number("change_due", &times->change_due);
        f.number("version", &times->version);
        f.number("releases", &times->releases);
        f.number("rounds_shown", &times->rounds_shown);
        f.number("alike", &times->alike);
        f.real("before", &times->before);
        if (o.persons) {
            f.number("people", &times->people);
            f.number("people_shown", &times->people_shown);
        }
        f.table("whiteners", whiteners, most * l.n, l);
        f.table("factors", factors, most * l.n, l);
        f.table("own_targets", own_targets, most * l.n, l);
        f.vector("own_information", own_information, most);
        f.vector("mean", mean, l.n);
        f.vector("weight", weight, most);
        f.vector("weight_seen", weight_seen, most);
        f.table("offset", offset, most, l);
        f.table("offset_seen", offset_seen, most, l);
        f.put("information", information, false, most, most, most);
        f.table("towards", towards, most, l);
        f.table("against", against, most * most, l);
        f.real("noise_variance", noise_variance);
        f.matrix("expected", expected, l);
        f.matrix("second", second, l);
        f.matrix("prior_second", prior_second, l);
        f.vector("constant", constant, z.n);
        f.vector("estimate", estimate, l.n);
        f.matrix("posterior", posterior, l);
    }
};
}  // namespace DPB_ARCH
}  // namespace dpb
