// What the module sees of a core, whichever instruction set it was compiled for. Plain data:
// nothing here has code.
#pragma once

namespace dpb {

struct Arch {
    const char* name;
};

#if defined(__x86_64__)
extern const Arch arch_v2, arch_v3, arch_v4;
#else
extern const Arch arch_generic;
#endif

}  // namespace dpb
