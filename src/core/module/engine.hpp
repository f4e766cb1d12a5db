// One bandit's engine, as Python sees it.
#pragma once
#include "spec.hpp"

namespace {
constexpr int NOT_AN_ARRAY = -1;

class World;

// The last entries of a list, in which numbers are put once they are known. Nothing can fail then.
class Told {
   public:
    explicit Told(PyObject* list, int numbers = 1) : list_(list == Py_None ? nullptr : list), room_(true) {
        first_ = list_ ? PyList_Size(list_) : 0;
        for (int i = 0; list_ && room_ && i < numbers; i++) room_ = PyList_Append(list_, Py_False) == 0;
    }
    bool has_room() const { return room_; }
    void say(int64_t number, int at = 0) {
        if (!list_ || !number) return;
        PyObject* made = PyLong_FromLongLong(number);
        if (!made) abort();  // as wherever there is no memory
        PyList_SetItem(list_, first_ + at, made);
    }

   private:
    PyObject* list_;
    Py_ssize_t first_;
    bool room_;
};

class Engine {
   public:
    explicit Engine(nb::dict given) : tables_(), spec_(read_spec(given, tables_)) { make(); }
    // A copy that goes on from the same state. Tables do not move when their owner does.
    Engine(const Engine& other) : tables_(other.tables_), spec_(other.spec_) {
        size_t at = 0;
        for (dpb::Table* t : {&spec_.shape, &spec_.unshape, &spec_.public_arms, &spec_.rates, &spec_.weights,
                              &spec_.public_contexts, &spec_.memories, &spec_.known_second})
            for (at = 0; t->at && at < tables_.size(); at++)
                if (other.tables_[at].data() == t->at) {
                    t->at = tables_[at].data();
                    break;
                }
        make();
        core_->become(*other.core_);
    }
    Engine& operator=(const Engine&) = delete;
    ~Engine() { core_->destroy(); }

    // select(contexts, alpha=nan). Like `learn` not by way of nanobind, whose reading of arguments takes
    // longer than much of a round.
    static PyObject* select(PyObject* self, PyObject* const* given, Py_ssize_t count) {
        double alpha = count == 2 ? PyFloat_AsDouble(given[1]) : std::nan("");
        if (count < 1 || count > 2) PyErr_SetString(PyExc_TypeError, "select takes contexts and, if asked for, alpha");
        if (PyErr_Occurred()) return nullptr;
        const Engine& engine = *nb::inst_ptr<Engine>(self);
        View v(given[0], 2);
        if (!v.good) return PyLong_FromLong(NOT_AN_ARRAY);
        double width = alpha == alpha ? alpha : engine.spec_.alpha;
        return PyLong_FromLong(engine.core_->select(v.data(), v.rows(), v.columns(), width));
    }
    nb::object rank(nb::handle contexts, int64_t k, double alpha) {
        View v(contexts, 2);
        if (!v.good) return nb::int_(NOT_AN_ARRAY);
        require(k >= 1 && k <= v.rows(), "k must be between 1 and the number of arms");
        std::vector<int64_t> found((size_t)k);
        int code = core_->rank(v.data(), v.rows(), v.columns(), alpha == alpha ? alpha : spec_.alpha, k,
                               found.data());
        if (code) return nb::int_(code);
        nb::list out;
        for (int64_t arm : found) out.append(arm);
        return out;
    }
    int check(nb::handle contexts) {
        View v(contexts, 2);
        return v.good ? core_->check(v.data(), v.rows(), v.columns()) : NOT_AN_ARRAY;
    }
    int admit(nb::handle x, double reward) {
        View v(x, 1);
        return v.good ? core_->admit(v.data(), v.rows(), reward) : NOT_AN_ARRAY;
    }
    // learn(x, reward, told=None, counted=0). `told` gets the number of rows that were learned, and of a
    // person by how much their count grew, within the call that learns them: whoever is interrupted on
    // the way back can look.
    static PyObject* learn(PyObject* self, PyObject* const* given, Py_ssize_t count) {
        if (count < 2 || count > 4 || (count > 2 && given[2] != Py_None && !PyList_Check(given[2]))) {
            PyErr_SetString(PyExc_TypeError,
                            "learn takes a context, a reward and, if asked for, a list and what was counted");
            return nullptr;
        }
        const int64_t counted = count == 4 ? PyLong_AsLongLong(given[3]) : 0;
        if (counted == -1 && PyErr_Occurred()) return nullptr;
        Told told(count > 2 ? given[2] : Py_None, count == 4 ? 2 : 1);
        if (!told.has_room()) return nullptr;
        int code = NOT_AN_ARRAY;
        View v(given[0], 1);
        dpb::Core* core = nb::inst_ptr<Engine>(self)->core_;
        if (v.good && PyFloat_Check(given[1]))
            code = core->learn(v.data(), v.rows(), PyFloat_AsDouble(given[1]), counted);
        told.say(code == 0);
        if (count == 4 && code == 0) told.say(core->growth(), 1);
        return PyLong_FromLong(code);
    }
    nb::tuple learn_many(nb::handle xs, nb::handle rs, nb::handle told) {
        View v(xs, 2), r(rs, 1);
        int64_t done = 0;
        int code = NOT_AN_ARRAY;
        if (v.good && r.good && v.rows() == r.rows()) {
            require(told.is_none() || PyList_Check(told.ptr()), "told is a list");
            Told room(told.ptr());
            if (!room.has_room()) nb::raise_python_error();
            code = v.columns() == spec_.dim ? core_->learn_many(v.data(), r.data(), r.rows(), &done) : -2;
            room.say(done);
        }
        return nb::make_tuple(done, code);
    }
    const double* context(const View& v) const {
        require(v.good && v.rows() == spec_.dim, "a context is a C-contiguous float64 array of dim numbers");
        return v.data();
    }
    double prepare(nb::handle x, double reward, bool in_public_set, int64_t counted) {
        require(!core_->waits(), "a release is pending: commit it first");
        View v(x, 1);
        return core_->prepare(context(v), reward, in_public_set, counted);
    }
    Array pending() const { return copied(core_->pending(), core_->numbers()); }
    nb::object pending_whole() {
        const __int128* numbers = core_->pending_whole();
        if (!numbers) return nb::none();
        nb::list out;
        for (int64_t i = 0; i < core_->numbers(); i++) out.append(whole_number(numbers[i]));
        return out;
    }
    void commit(nb::handle noisy) {
        View v(noisy, 1);
        require(core_->waits(), "no release is pending");
        require(v.good && v.rows() == core_->numbers(), "commit takes as many numbers as are pending");
        core_->commit(v.data());
    }
    nb::list starts() {
        int64_t levels[dpb::MOST_LEVELS];
        nb::list out;
        for (int64_t i = 0, many = core_->starts(levels); i < many; i++) out.append(levels[i]);
        return out;
    }
    void begin(int64_t level, nb::list noise) {
        require((int64_t)noise.size() == core_->numbers() && level >= 0 && level < dpb::MOST_LEVELS,
                "begin takes a level and as many whole numbers as a release has");
        std::vector<__int128> numbers;
        for (nb::handle one : noise) numbers.push_back(from_whole_number(one));
        core_->begin(level, numbers.data());
    }
    double simulate(nb::handle x, double reward, bool in_public_set, uint64_t noise_key, uint64_t start_key,
                    int64_t counted) {
        require(!core_->waits(), "a release is pending: commit it first");
        View v(x, 1);
        return core_->simulate(context(v), reward, in_public_set, dpb::Keys{noise_key, start_key}, counted);
    }
    Array theta() const { return copied(core_->theta(), spec_.dim); }
    nb::dict model() {
        nb::dict out;
        out["theta"] = theta();
        size_t d = (size_t)spec_.dim;
        if (const double* m = core_->matrix()) {
            out["matrix"] = copied(m, spec_.dim, spec_.dim, core_->stride());
            return out;
        }
        // One-hot contexts see the diagonal alone: an arm's bonus, squared; none in random play.
        std::vector<double> diagonal(d * d);
        const double* bonuses = core_->bonuses(spec_.alpha);
        for (size_t i = 0; bonuses && i < d; i++) diagonal[i * d + i] = bonuses[i] * bonuses[i];
        out["matrix"] = array(std::move(diagonal), {d, d});
        return out;
    }
    static nb::dict fields(nb::object self) {
        auto& engine = nb::cast<Engine&>(self);
        dpb::Field found[dpb::MOST_FIELDS];
        nb::dict out;
        for (int64_t i = 0, many = engine.core_->fields(found); i < many; i++) {
            const dpb::Field& f = found[i];
            std::vector<size_t> shape = {(size_t)f.rows, (size_t)f.columns};
            std::vector<int64_t> strides = {f.stride, f.step};
            if (f.rows == 0) {
                shape.erase(shape.begin());
                strides.erase(strides.begin());
            }
            if (f.words)
                out[f.name] = nb::ndarray<nb::numpy, int64_t>(f.data, shape.size(), shape.data(), self,
                                                              strides.data());
            else
                out[f.name] = Array(f.data, shape.size(), shape.data(), self, strides.data());
        }
        return out;
    }
    // Go on from these: all of this engine's fields, no other, each of its own shape and type.
    static void load_fields(nb::object self, nb::dict given) {
        nb::dict own = fields(self);
        string wrong;
        for (auto [name, value] : given)
            if (!own.contains(name)) wrong = nb::cast<string>(name) + " is not a field of this engine";
        for (auto [name, value] : own) {
            if (!given.contains(name)) wrong = "the field " + nb::cast<string>(name) + " is missing";
            if (!wrong.empty()) break;
            nb::object from = given[name];
            if (!from.attr("shape").equal(value.attr("shape")) || !from.attr("dtype").equal(value.attr("dtype")))
                wrong = "the field " + nb::cast<string>(name) + " has another shape or type";
        }
        if (!wrong.empty()) throw nb::value_error(wrong.c_str());
        for (auto [name, value] : own) value[nb::ellipsis()] = given[name];
        nb::cast<Engine&>(self).core_->loaded();
    }
    int64_t number(const char* name) const {
        dpb::Field found[dpb::MOST_FIELDS];
        int64_t many = core_->fields(found);
        for (int64_t i = 0; i < many && i < 4; i++)
            if (string(found[i].name) == name) return *(const int64_t*)found[i].data;
        throw nb::attribute_error(name);
    }
    bool start(nb::handle noisy, double scale) {
        View v(noisy, 1);
        require(v.good && v.rows() == core_->numbers(), "start takes as many numbers as a release has");
        return core_->start(v.data(), scale);
    }
    bool conclude() { return core_->conclude(); }
    nb::bytes snapshot() const {
        std::vector<char> kept(core_->size());
        core_->save(kept.data());
        return nb::bytes(kept.data(), kept.size());
    }
    void restore(nb::bytes kept) {
        require(kept.size() == core_->size(), "a snapshot of another engine");
        core_->load((const char*)kept.data());
    }
    void reset() { core_->reset(); }
    Engine* copy() const { return new Engine(*this); }
    // A copy to work on. Until `go_on` this one neither chooses nor learns: what it would take in
    // meanwhile would be lost when the draft takes its place.
    Engine* draft() {
        auto* made = new Engine(*this);
        core_->hold(true);
        return made;
    }
    void go_on() { core_->hold(false); }

    // What the arguments of the two `play`s have in common.
    struct Played {
        View alphas, record, totals, truth_view;
        std::vector<double> out;
        dpb::Record record_of;
        Played(nb::handle alphas_, nb::handle record_, nb::handle totals_, nb::object truth, int64_t rounds,
               int64_t dim)
            : alphas(alphas_, 1), record(record_, 1, 'q'), totals(totals_, 1), truth_view(truth, 1) {
            require(alphas.good && (alphas.rows() == 1 || alphas.rows() == rounds), "alphas: one, or one a round");
            require(record.good && totals.good && totals.rows() == 2 && !totals.b.readonly, "record or totals");
            require(truth.is_none() || (truth_view.good && truth_view.rows() == dim), "truth has dim numbers");
            out.resize((size_t)record.rows() * 3);
            record_of = dpb::Record{alphas.data(),
                                    alphas.rows(),
                                    truth.is_none() ? nullptr : truth_view.data(),
                                    record.data<int64_t>(),
                                    record.rows(),
                                    (double*)totals.b.buf,
                                    out.data(),
                                    nullptr};
        }
    };
    nb::object play(nb::handle pool_, nb::handle shown_, nb::handle rewards_, nb::handle means_, nb::handle alphas,
                    uint64_t noise_key, uint64_t start_key, nb::object known, nb::object truth, nb::handle record,
                    nb::handle totals, nb::object arms) {
        View pool(pool_, 2), shown(shown_, 2, 'q'), rewards(rewards_, 2), means(means_, 2);
        View set(known, 1, '?'), chosen(arms, 1, 'q');
        require(pool.good && shown.good && rewards.good && means.good, "pool, shown, rewards or means");
        require(pool.columns() == spec_.dim, "the pool has dim columns");
        require(rewards.rows() == shown.rows() && rewards.columns() == shown.columns() &&
                    means.rows() == shown.rows() && means.columns() == shown.columns() && shown.columns() >= 1,
                "shown, rewards and means have one shape");
        require(known.is_none() || (set.good && set.rows() == pool.rows()), "in_public_set: one a row of the pool");
        require(arms.is_none() || (chosen.good && chosen.rows() == shown.rows()), "arms: one a round");
        const int64_t* rows = shown.data<int64_t>();
        bool inside = true;  // all are looked at without a branch: there are many
        for (int64_t i = 0; i < shown.rows() * shown.columns(); i++)
            inside &= (uint64_t)rows[i] < (uint64_t)pool.rows();
        require(inside, "shown names a row that the pool does not have");
        Played played(alphas, record, totals, truth, shown.rows(), spec_.dim);
        played.record_of.arms = arms.is_none() ? nullptr : (int64_t*)chosen.b.buf;
        dpb::Rounds rounds{pool.data(),    rows,    means.data(),
                           rewards.data(), nullptr, known.is_none() ? nullptr : set.data<bool>(),
                           shown.rows(),   shown.columns()};
        int code;
        {
            nb::gil_scoped_release unlocked;
            code = core_->play(rounds, played.record_of, dpb::Keys{noise_key, start_key});
        }
        if (code) return nb::int_(code);
        size_t many = (size_t)played.record_of.count;
        return nb::cast(array(std::move(played.out), {many, 3}));
    }
    nb::object play_world(World& world, int64_t start, int64_t count, nb::handle alphas, uint64_t noise_key,
                          uint64_t start_key, nb::object truth, nb::handle record, nb::handle totals);

    struct Streamed {
        View xs, rs, set;
        dpb::Stream stream;
        Streamed(nb::handle xs_, nb::handle rs_, nb::object known, int64_t dim)
            : xs(xs_, 2), rs(rs_, 1), set(known, 1, '?') {
            require(xs.good && rs.good && xs.rows() == rs.rows() && xs.columns() == dim, "a stream's arrays");
            require(known.is_none() || (set.good && set.rows() == rs.rows()), "in_public_set: one a round");
            stream = dpb::Stream{xs.data(), rs.data(), known.is_none() ? nullptr : set.data<bool>(), rs.rows()};
        }
    };
    nb::tuple trace(nb::handle xs, nb::handle rs, nb::object known, uint64_t noise_key, uint64_t start_key,
                    nb::object noisy) {
        Streamed s(xs, rs, known, spec_.dim);
        size_t width = (size_t)core_->shown_numbers(), many = (size_t)s.stream.count;
        View forced(noisy, 2);
        require(noisy.is_none() ||
                    (forced.good && forced.rows() == s.stream.count && forced.columns() == (int64_t)width),
                "noisy has a row for each round");
        std::vector<double> shown(many * width), values(many * width), scales(many);
        if (!noisy.is_none()) shown.assign(forced.data(), forced.data() + many * width);
        {
            nb::gil_scoped_release unlocked;
            core_->trace(s.stream, dpb::Keys{noise_key, start_key}, !noisy.is_none(), shown.data(), values.data(),
                         scales.data());
        }
        return nb::make_tuple(array(std::move(shown), {many, width}), array(std::move(values), {many, width}),
                              array(std::move(scales), {many}));
    }
    Array scores(nb::handle xs, nb::handle rs, nb::handle other_xs, nb::handle other_rs, nb::object known,
                 uint64_t key, int64_t first, int64_t count) {
        Streamed own(xs, rs, known, spec_.dim), other(other_xs, other_rs, known, spec_.dim);
        require(own.stream.count == other.stream.count, "streams of one length");
        Engine twin(*this);
        std::vector<double> out((size_t)count);
        {
            nb::gil_scoped_release unlocked;
            core_->scores(own.stream, other.stream, twin.core_, key, first, count, out.data());
        }
        return array(std::move(out), {(size_t)count});
    }
    const dpb::Spec& spec() const { return spec_; }
    int64_t growth() const { return core_->growth(); }

   private:
    void make() {
        dpb::Made made = core_in_use->make(spec_);
        if (!made.known) throw nb::value_error("the core has no such combination of site and release");
        if (!made.core) throw std::bad_alloc();
        core_ = made.core;
    }
    std::vector<std::vector<double>> tables_;
    dpb::Spec spec_;
    dpb::Core* core_;
};
}  // namespace
