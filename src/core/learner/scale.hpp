// How far rewards are from predictions, found beside the sum for nothing. With u·e/2c two numbers ride
// along, BY_DISTANCE·|e|/c and AT_EDGE·(2|e|/c − 1)+, and no reward moves the three further than the first
// alone. What is released of them says how wide later windows need to be and how much rewards vary. All
// here is public, functions of releases and of contexts, but for the two numbers of a round.
#pragma once
#include "../fields.hpp"
#include "../linalg.hpp"

namespace dpb::DPB_ARCH {
struct Scale {
    static constexpr int FREE = 2;  // numbers that ride along
    static constexpr double BY_DISTANCE = 0.7, AT_EDGE = 0.5;  // why no more: docs/privacy.md
    // From the prediction to the window's edge, in standard deviations of the residual.
    static constexpr double DEVIATIONS = 2.25;
    // A standard deviation in mean distances, as of Gaussian noise; and the least, in widths of the range.
    static constexpr double OF_DISTANCE = 1.2533, LEAST_DEVIATION = 1e-2;
    // What predictions err is what the filter believes: no more of the deviation is put down to it.
    static constexpr double LEAST_SHARE = 0.5;
    // What is left of older releases' word with each: predictions were worse then.
    static constexpr double FADED = 0.98;
    // The window widens where this share more of residuals is near its edge than of Gaussian ones.
    static constexpr double CROWDED = 0.01, WIDER = 1.1, NARROWER = 0.95;
    // A release with so many more at the edge, and so many errors more, says that something happened.
    static constexpr double SUDDEN = 0.05, ERRORS = 3;
    struct Found {
        double distance_design, expected, share_design, squares;  // Σ ω/c, Σ ω·v/c, Σ ω, Σ ω²
        double distance_information, distance_target, expected_target;
        double share_information, share_target, edge_target;
        double widened, residual_deviation, reward_deviation;
    };
    double most, widest, least;
    Found* found;

    Scale(Block& b, double deviation, double window, double width)
        : most(deviation), widest(window), least(LEAST_DEVIATION * width) {
        found = b.take<Found>(1);
        if (!b.at) return;
        found->widened = 1;
        found->residual_deviation = found->reward_deviation = most;
    }
    // Half the width of a residual whose prediction has this variance.
    double window(double variance) const {
        const double own = found->reward_deviation, deviation = root(own * own + variance);
        return smaller(widest, DEVIATIONS * found->widened * deviation);
    }
    // What rides along with a residual of this size in this window.
    DPB_INLINE void see(double size, double half, double variance, double* rides) {
        found->distance_design += 1 / half;
        found->expected += variance / half;
        found->share_design += 1;
        found->squares += 1;
        const double share = size / half;
        rides[0] = BY_DISTANCE * share;
        rides[1] = AT_EDGE * larger(2 * share - 1, 0);
    }
    // Take what a release shows of the two sums, with noise of this scale. Below 1 where something
    // happened: so much narrower windows were than they are now.
    DPB_CALL double learn(const double* noisy, double q, double rho, double scale) {
        Found& f = *found;
        // Shares lie between 0 and 1. They are in many releases, but count as in one alone.
        const double noise = scale * scale + 0.25 * BY_DISTANCE * BY_DISTANCE * f.squares;
        const double distance = q * BY_DISTANCE * f.distance_design, share = q * f.share_design;
        const bool sudden = is_sudden(noisy[1] / (AT_EDGE * share), root(noise) / (AT_EDGE * share));
        double own = distance / noise;
        f.distance_information = FADED * f.distance_information + own * distance;
        f.distance_target = FADED * f.distance_target + own * noisy[0];
        f.expected_target = FADED * f.expected_target + own * (q * BY_DISTANCE * f.expected);
        own = share / noise;
        f.share_information = FADED * f.share_information + own * share;
        f.share_target = FADED * f.share_target + own * (noisy[0] / BY_DISTANCE);
        f.edge_target = FADED * f.edge_target + own * (noisy[1] / AT_EDGE);
        f.distance_design *= rho;
        f.expected *= rho;
        f.share_design *= rho;
        f.squares *= rho * rho;
        const double before = f.widened;
        conclude();
        if (!sudden) return 1;
        // The window is open at once, and narrows again release by release.
        f.widened = larger(before, widest / (DEVIATIONS * f.reward_deviation));
        return before / f.widened;
    }
    bool is_sudden(double edge, double error) const {
        if (!(found->share_information > 0)) return false;
        return edge - found->edge_target / found->share_information > SUDDEN + ERRORS * error;
    }
    void conclude() {
        Found& f = *found;
        const double error = 1 / root(f.distance_information);
        const double mean = f.share_target / f.share_information;  // of |e|/c
        const double distance = larger(f.distance_target / f.distance_information, 0) + error;
        const double deviation = OF_DISTANCE * distance * cut_off(mean);
        f.residual_deviation = smaller(larger(deviation, least), most);
        const double own = deviation * deviation - f.expected_target / f.distance_information;
        const double lowest = larger(larger(least, error), LEAST_SHARE * deviation);
        f.reward_deviation = smaller(larger(root(larger(own, 0)), lowest), most);
        // Where the rewards' law has more at the window's edge than Gaussian noise, it is widened.
        const double crowd = f.edge_target / f.share_information - of_gaussians(mean);
        if (crowd - 1 / (AT_EDGE * root(f.share_information)) > CROWDED)
            f.widened = smaller(WIDER * f.widened, widest / (DEVIATIONS * least));
        else
            f.widened = larger(NARROWER * f.widened, 1);
    }
    // What E|z| is in E min(|z|, c), for Gaussian z and E min(|z|, c)/c = mean; for 1 and above, as for 1.
    static double cut_off(double mean) {
        const double above = smaller(larger(mean - 0.3, 0), 0.7);
        return 1 + 2.2 * above * above;
    }
    // E(2·min(|z|/c, 1) − 1)+ for Gaussian z with E min(|z|/c, 1) = mean, to within 0.007.
    static double of_gaussians(double mean) {
        const double above = larger(mean - 0.13, 0);
        return 2.1 * above * above;
    }
    void fields(Fields& f) {
        f.real("distance_design", &found->distance_design);
        f.real("expected", &found->expected);
        f.real("share_design", &found->share_design);
        f.real("squares", &found->squares);
        f.real("distance_information", &found->distance_information);
        f.real("distance_target", &found->distance_target);
        f.real("expected_target", &found->expected_target);
        f.real("share_information", &found->share_information);
        f.real("share_target", &found->share_target);
        f.real("edge_target", &found->edge_target);
        f.real("widened", &found->widened);
        f.real("residual_deviation", &found->residual_deviation);
        f.real("reward_deviation", &found->reward_deviation);
    }
};
}  // namespace dpb::DPB_ARCH
