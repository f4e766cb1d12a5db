// What Python sees: dpbandit._core. Compiled for the oldest processor; picks the core at import.
#include <nanobind/nanobind.h>

#include "cpu.hpp"
#include "interface.hpp"

namespace nb = nanobind;

namespace {

// in the order of dpb::cpu::names
#if defined(__x86_64__)
const dpb::Arch* const cores[] = {&dpb::arch_v2, &dpb::arch_v3, &dpb::arch_v4};
#else
const dpb::Arch* const cores[] = {&dpb::arch_generic};
#endif
static_assert(sizeof cores / sizeof *cores == dpb::cpu::count, "a core for each name");

}  // namespace

NB_MODULE(_core, module) {
    const dpb::Arch* chosen = cores[dpb::cpu::choose()];
    module.doc() = "The compiled core.";
    module.def("arch", [chosen] { return chosen->name; },
               "The instruction set in use: 'v2', 'v3', 'v4' or 'generic'.");
}
