// The rows of a log: see log.hpp.
#pragma once
#include "spec.hpp"

namespace {
void hash_names(nb::handle text_, nb::handle offsets_, nb::handle out_) {
    View text(text_, 1, 'B'), offsets(offsets_, 1, 'q'), out(out_, 1, 'Q');
    require(text.good && offsets.good && out.good && offsets.rows() == out.rows() + 1, "text, offsets or out");
    const int64_t* at = offsets.data<int64_t>();
    for (int64_t i = 0; i < out.rows(); i++)
        require(at[i] >= 0 && at[i] <= at[i + 1] && at[i + 1] <= text.rows(), "offsets lie within the text");
    uint64_t* hashes = out.writable<uint64_t>();
    nb::gil_scoped_release unlocked;
    core_in_use->hash_names(text.data<unsigned char>(), at, out.rows(), hashes);
}
struct TallyViews {
    View keys, counts;
    dpb::Tally table;
    TallyViews(nb::handle keys_, nb::handle counts_) : keys(keys_, 1, 'Q'), counts(counts_, 1, 'i') {
        require(keys.good && counts.good && counts.rows() == keys.rows() + 1 && keys.rows() >= 1 &&
                    (keys.rows() & (keys.rows() - 1)) == 0,
                "keys: a power of two of them; counts: one more");
        table = dpb::Tally{keys.writable<uint64_t>(), counts.writable<int32_t>(), keys.rows()};
    }
};
int64_t tally(nb::handle names_, nb::handle status_, int64_t cap, int64_t over, nb::handle keys, nb::handle counts,
              int64_t start) {
    View names(names_, 1, 'Q'), status(status_, 1, 'B');
    require(names.good && status.good && names.rows() == status.rows(), "names and status have one length");
    require(start >= 0 && start <= names.rows() && cap >= 1, "start or cap");
    require(over > 0 && over < 256, "over is a status");
    const uint64_t* all = names.data<uint64_t>();
    for (int64_t i = 0; i < names.rows(); i++) require(all[i] != 0, "no name has the hash 0");
    TallyViews into(keys, counts);
    unsigned char* marks = status.writable<unsigned char>();
    nb::gil_scoped_release unlocked;
    return core_in_use->tally(into.table, cap, (unsigned char)over, all, marks, start, names.rows());
}
void move_tally(nb::handle keys, nb::handle counts, nb::handle new_keys, nb::handle new_counts) {
    TallyViews from(keys, counts), to(new_keys, new_counts);
    require(to.table.places > from.table.places, "the new table is larger");
    nb::gil_scoped_release unlocked;
    core_in_use->move_tally(from.table, to.table);
}
dpb::LogRecipe read_recipe(nb::dict given, std::vector<std::vector<double>>& tables) {
    Reader r(given, tables);
    dpb::LogRecipe o{};
    o.dim = r.integer("dim");
    o.power = r.integer("power");
    o.max_norm = r.real("max_norm");
    o.tolerance = r.real("tolerance");
    o.l1_limit = r.real("l1_limit");
    require(o.l1_limit >= 0, "l1_limit must be at least 0, infinity for none");
    o.low = r.real("low");
    o.high = r.real("high");
    o.middle = r.real("middle");
    o.width = r.real("width");
    o.size = r.real("size");
    o.floor = r.real("floor");
    o.clips = r.flag("clips");
    o.constant = r.flag("constant");
    o.triangular = r.flag("triangular");
    o.whole = r.flag("whole");
    o.whitener = r.table("whitener");
    o.directions = r.real("directions");
    r.finish();
    int64_t k = o.dim + o.constant;
    require(o.dim >= 1 && o.max_norm > 0 && o.size > 0 && o.low < o.high && o.width > 0, "dim, norms or ranges");
    require(o.whitener.rows == 0 || (o.whitener.rows == k && o.whitener.columns == k), "the whitener is k × k");
    require(o.power == -1 || o.power == 0 || o.power == 2, "power is -1, 0 or 2");
    // Items of any size would not fit the grid: v is at most ½, from the middle or from the end.
    const bool centred = o.middle == 0.5 * (o.low + o.high) && o.width == o.high - o.low;
    const bool from_low = o.middle == o.low && o.width >= 2 * (o.high - o.low);
    require(!o.whole || (o.clips && (centred || from_low)),
            "private items are of clipped, centred and scaled rewards");
    require(o.whole || o.whitener.rows == 0, "rewards in the clear have no whitener");
    require(o.directions >= 0 && o.directions <= 16 && (o.directions == 0 || o.whitener.rows), "directions");
    return o;
}
struct LogRows {
    View xs, rs, status;
    LogRows(const dpb::LogRecipe& o, nb::handle xs_, nb::handle rs_, nb::handle status_)
        : xs(xs_, 2), rs(rs_, 1), status(status_, 1, 'B') {
        require(xs.good && rs.good && status.good && xs.columns() == o.dim && rs.rows() == xs.rows() &&
                    status.rows() == xs.rows(),
                "contexts, rewards and statuses of as many rows");
    }
};
void inspect_rows(nb::dict recipe, nb::handle xs_, nb::handle status_) {
    std::vector<std::vector<double>> tables;
    dpb::LogRecipe o = read_recipe(recipe, tables);
    View xs(xs_, 2), status(status_, 1, 'B');
    require(xs.good && status.good && xs.columns() == o.dim && status.rows() == xs.rows(),
            "contexts and statuses of as many rows");
    unsigned char* marks = status.writable<unsigned char>();
    nb::gil_scoped_release unlocked;
    core_in_use->inspect_rows(o, xs.data(), xs.rows(), marks);
}
void absorb_rows(nb::dict recipe, nb::handle xs, nb::handle rs, nb::handle status, nb::dict sums) {
    std::vector<std::vector<double>> tables;
    dpb::LogRecipe o = read_recipe(recipe, tables);
    LogRows rows(o, xs, rs, status);
    const unsigned char* marks = rows.status.data<unsigned char>();
    for (int64_t i = 0; i < rows.status.rows(); i++) require(marks[i] <= dpb::ROW_OVER_CAP, "an unknown status");
    int64_t k = o.dim + o.constant, seconds = o.power >= 0 ? k * k : 0;
    std::vector<std::unique_ptr<View>> views;
    auto numbers = [&](const char* name, int ndim, int64_t count, char format) {
        require(sums.contains(name), (string("the sums lack ") + name).c_str());
        views.push_back(std::make_unique<View>(sums[name], ndim, format));
        const View& v = *views.back();
        require(v.good && v.b.len == count * 8, (string("the sums' ") + name + " has another shape").c_str());
        return v.writable<void>();
    };
    auto reals = [&](const char* name, int ndim, int64_t count) { return (double*)numbers(name, ndim, count, 'd'); };
    auto words = [&](const char* name, int64_t count) { return (int64_t*)numbers(name, 1, count, 'q'); };
    dpb::LogSums into{};
    into.gram = reals("gram", 2, k * k);
    into.gram_low = reals("gram_low", 2, k * k);
    into.second = reals("second", 2, seconds);
    into.second_low = reals("second_low", 2, seconds);
    into.first = reals("first", 1, k);
    into.first_low = reals("first_low", 1, k);
    into.moments = reals("moments", 1, k);
    into.moments_low = reals("moments_low", 1, k);
    into.items = words("items", 2 * (k + (o.directions > 0 ? k * (k + 1) / 2 : 0)));
    into.counts = words("counts", dpb::ROW_COUNTS);
    into.longest = reals("longest", 1, 2);
    nb::gil_scoped_release unlocked;
    core_in_use->absorb_rows(o, rows.xs.data(), rows.rs.data(), marks, rows.rs.rows(), into);
}
}  // namespace
