// Simulated noise, and how likely releases are under it.
#pragma once
#include "spec.hpp"

namespace {
Array simulated_noise(const string& name, uint64_t key, uint64_t index, double scale, nb::handle value) {
    View v(value, 1);
    require(v.good, "value must be a C-contiguous float64 vector");
    std::vector<double> from(v.data(), v.data() + v.rows()), out((size_t)v.rows() + 16);
    from.resize(from.size() + 16);
    core_in_use->draw(kind(NOISES, name, "noise"), key, index, v.rows(), scale, from.data(), out.data());
    out.resize((size_t)v.rows());
    return array(std::move(out), {(size_t)v.rows()});
}
Array uniforms(uint64_t key, uint64_t stream, int64_t count) {
    require(count >= 0, "count must be at least 0");
    std::vector<double> out((size_t)count + 8);
    core_in_use->uniforms(key, stream, count, out.data());
    out.resize((size_t)count);
    return array(std::move(out), {(size_t)count});
}
double log_ratio(const string& name, nb::handle y_, nb::handle zero_, nb::handle one_, double scale) {
    View y(y_, 1), zero(zero_, 1), one(one_, 1);
    require(y.good && zero.good && one.good && y.rows() == zero.rows() && y.rows() == one.rows(),
            "three float64 vectors of one length");
    return core_in_use->log_ratio(kind(NOISES, name, "noise"), y.rows(), y.data(), zero.data(), one.data(), scale);
}
// Log-likelihood ratios of runs of a mechanism that is known by its releases alone: `value` with noise of
// these scales, where the two streams have `zero` and `one`.
Array release_scores(const string& name, nb::handle value_, nb::handle zero_, nb::handle one_, nb::handle scales_,
                     uint64_t key, int64_t first, int64_t count) {
    View value(value_, 2), zero(zero_, 2), one(one_, 2), scales(scales_, 1);
    require(value.good && zero.good && one.good && scales.good && first >= 0 && count >= 0, "a mechanism's arrays");
    int64_t rounds = value.rows(), width = value.columns();
    for (const View* v : {&zero, &one})
        require(v->rows() == rounds && v->columns() == width && scales.rows() == rounds, "arrays of one shape");
    dpb::NoiseKind noise = kind(NOISES, name, "noise");
    std::vector<double> clean((size_t)width + 16), noisy((size_t)width + 16), out((size_t)count);
    {
        nb::gil_scoped_release unlocked;
        for (int64_t run = 0; run < count; run++) {
            uint64_t own = core_in_use->lot(key, (uint64_t)(first + run), 0);
            for (int64_t t = 0; t < rounds; t++) {
                double scale = scales.data()[t];
                std::copy(value.data() + t * width, value.data() + (t + 1) * width, clean.begin());
                core_in_use->draw(noise, own, (uint64_t)t + 1, width, scale, clean.data(), noisy.data());
                out[(size_t)run] += core_in_use->log_ratio(noise, width, noisy.data(), zero.data() + t * width,
                                                           one.data() + t * width, scale);
            }
        }
    }
    return array(std::move(out), {(size_t)count});
}
}  // namespace
