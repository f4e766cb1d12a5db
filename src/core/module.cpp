// What Python sees: dpbandit._core. Compiled for the oldest processor; picks the core when imported.
// Threads and errors belong to the module alone.
#include "module/draws.hpp"
#include "module/engine.hpp"
#include "module/logs.hpp"
#include "module/world.hpp"

NB_MODULE(_core, module) {
    // What a process holds when it ends is no mistake, and no line of its log.
    nb::set_leak_warnings(false);
    core_in_use = cores[dpb::cpu::choose()];
    const double nan = std::nan("");
    module.doc() = "The compiled core.";
    module.def("arch", [] { return core_in_use->name; },
               "The instruction set in use: 'v2', 'v3', 'v4' or 'generic'.");
    nb::class_<World>(module, "World")
        .def(nb::init<nb::dict>(), "spec"_a)
        .def("rounds", &World::rounds, "start"_a, "count"_a);
    nb::class_<Engine> engine(module, "Engine");
    engine
        .def(nb::init<nb::dict>(), "spec"_a)
        .def("rank", &Engine::rank, "contexts"_a.none(), "k"_a, "alpha"_a = nan)
        .def("check", &Engine::check, "contexts"_a.none())
        .def("admit", &Engine::admit, "x"_a.none(), "reward"_a)
        .def("learn_many", &Engine::learn_many, "xs"_a.none(), "rs"_a.none(), "told"_a = nb::none())
        .def("prepare", &Engine::prepare, "x"_a, "reward"_a, "in_public_set"_a = true, "counted"_a = 0)
        .def("pending", &Engine::pending)
        .def("pending_whole", &Engine::pending_whole)
        .def("commit", &Engine::commit, "noisy"_a)
        .def("starts", &Engine::starts)
        .def("begin", &Engine::begin, "level"_a, "whole"_a)
        .def("simulate", &Engine::simulate, "x"_a, "reward"_a, "in_public_set"_a, "noise_key"_a, "start_key"_a,
             "counted"_a = 0)
        .def("theta", &Engine::theta)
        .def("model", &Engine::model)
        .def("fields", &Engine::fields)
        .def("load_fields", &Engine::load_fields, "fields"_a)
        .def("start", &Engine::start, "noisy"_a, "scale"_a)
        .def("conclude", &Engine::conclude)
        .def("snapshot", &Engine::snapshot)
        .def("restore", &Engine::restore, "snapshot"_a)
        .def("reset", &Engine::reset)
        .def("copy", &Engine::copy, nb::rv_policy::take_ownership)
        .def("draft", &Engine::draft, nb::rv_policy::take_ownership)
        .def("go_on", &Engine::go_on)
        .def("play", &Engine::play, "pool"_a, "shown"_a, "rewards"_a, "means"_a, nb::kw_only(), "alphas"_a,
             "noise_key"_a, "start_key"_a, "in_public_set"_a = nb::none(), "truth"_a = nb::none(), "record"_a,
             "totals"_a, "arms"_a = nb::none())
        .def("play_world", &Engine::play_world, "world"_a, "start"_a, "count"_a, nb::kw_only(), "alphas"_a,
             "noise_key"_a, "start_key"_a, "truth"_a = nb::none(), "record"_a, "totals"_a)
        .def("trace", &Engine::trace, "xs"_a, "rs"_a, "in_public_set"_a = nb::none(), nb::kw_only(), "noise_key"_a,
             "start_key"_a, "noisy"_a = nb::none())
        .def("scores", &Engine::scores, "xs"_a, "rs"_a, "other_xs"_a, "other_rs"_a, "in_public_set"_a = nb::none(),
             nb::kw_only(), "key"_a, "first"_a, "count"_a)
        .def_prop_ro("growth", &Engine::growth)
        .def_prop_ro("rounds", [](const Engine& e) { return e.number("rounds"); })
        .def_prop_ro("decisions", [](const Engine& e) { return e.number("decisions"); })
        .def_prop_ro("clipped", [](const Engine& e) { return e.number("clipped"); })
        .def_prop_ro("outside", [](const Engine& e) { return e.number("outside") != 0; });
    static PyMethodDef quick[] = {
        {"select", (PyCFunction)(void (*)(void))&Engine::select, METH_FASTCALL, "The arm to play, or a code."},
        {"learn", (PyCFunction)(void (*)(void))&Engine::learn, METH_FASTCALL,
         "Learn from a context and its reward: 0, 1 if a release is due, or a code."}};
    for (PyMethodDef& one : quick)
        engine.attr(one.ml_name) = nb::steal(PyDescr_NewMethod((PyTypeObject*)engine.ptr(), &one));
    module.def("noise", &simulated_noise, "name"_a, "key"_a, "index"_a, "scale"_a, "value"_a,
               "A value with simulated noise number `index`: never for anyone outside a simulation.");
    module.def("uniforms", &uniforms, "key"_a, "stream"_a, "count"_a);
    module.def("lot", [](uint64_t key, uint64_t stream, uint64_t index) { return core_in_use->lot(key, stream, index); },
               "key"_a, "stream"_a, "index"_a);
    module.def("hash_names", &hash_names, "text"_a, "offsets"_a, "out"_a);
    module.def("tally", &tally, "names"_a, "status"_a, "cap"_a, "over"_a, "keys"_a, "counts"_a, "start"_a);
    module.def("move_tally", &move_tally, "keys"_a, "counts"_a, "new_keys"_a, "new_counts"_a);
    module.def("inspect_rows", &inspect_rows, "recipe"_a, "contexts"_a, "status"_a);
    module.def("absorb_rows", &absorb_rows, "recipe"_a, "contexts"_a, "rewards"_a, "status"_a, "sums"_a);
    module.def("log_ratio", &log_ratio, "name"_a, "y"_a, "zero"_a, "one"_a, "scale"_a,
               "log p(y | value one) − log p(y | value zero).");
    module.def("release_scores", &release_scores, "name"_a, "value"_a, "zero"_a, "one"_a, "scales"_a, "key"_a,
               "first"_a, "count"_a, "Scores of whole runs, for mechanisms known by their releases alone.");
}
