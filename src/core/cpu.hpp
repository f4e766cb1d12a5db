// Which core the processor can run. For module.cpp alone: this uses the standard library, which no
// unit that is compiled for a wider instruction set may do.
#pragma once
#include <cstdlib>
#include <stdexcept>
#include <string>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace dpb::cpu {

#if defined(__x86_64__)

// x86-64-v2, -v3 and -v4 of the System V ABI, from narrow to wide: who can run one can run those
// before it.
constexpr const char* names[] = {"v2", "v3", "v4"};
constexpr int count = 3;

constexpr unsigned bits() { return 0; }
template <class... Rest>
constexpr unsigned bits(int first, Rest... rest) {
    return 1u << first | bits(rest...);
}
inline bool has(unsigned word, unsigned wanted) { return (word & wanted) == wanted; }

// The registers that the operating system keeps when it changes threads.
inline unsigned kept_registers() {
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

// How many of `names` this processor and its operating system can run. Read by hand, because
// __builtin_cpu_supports needs a symbol that not every compiler's runtime has.
inline int supported() {
    // leaf 1: SSE3 SSSE3 CMPXCHG16B SSE4.1 SSE4.2 POPCNT; FMA MOVBE OSXSAVE AVX F16C
    constexpr unsigned v2_first = bits(0, 9, 13, 19, 20, 23), v3_first = bits(12, 22, 27, 28, 29);
    constexpr unsigned v3_seventh = bits(3, 5, 8);             // leaf 7: BMI1 AVX2 BMI2
    constexpr unsigned v4_seventh = bits(16, 17, 28, 30, 31);  // AVX-512 F DQ CD BW VL
    constexpr unsigned v2_extended = bits(0), v3_extended = bits(5);  // leaf 2³¹ + 1: LAHF; LZCNT
    constexpr unsigned avx_registers = bits(1, 2), avx512_registers = bits(1, 2, 5, 6, 7);

    unsigned a, b, d, first, extended, seventh, ignored;
    if (!__get_cpuid(1, &a, &b, &first, &d) || !has(first, v2_first)) return 0;
    if (!__get_cpuid(0x80000001, &a, &b, &extended, &d) || !has(extended, v2_extended)) return 0;
    if (!has(first, v3_first) || !has(extended, v3_extended)) return 1;
    if (!__get_cpuid_count(7, 0, &a, &seventh, &ignored, &d) || !has(seventh, v3_seventh)) return 1;
    unsigned kept = kept_registers();  // allowed: OSXSAVE is in v3_first
    if (!has(kept, avx_registers)) return 1;
    return has(seventh, v4_seventh) && has(kept, avx512_registers) ? 3 : 2;
}

#else

constexpr const char* names[] = {"generic"};
constexpr int count = 1;
inline int supported() { return 1; }

#endif

// The place in `names` of the core to use: the widest that runs here, or the one that DPBANDIT_ARCH
// names. Throws std::runtime_error, which becomes an ImportError.
inline int choose() {
    const int usable = supported();
    if (usable == 0) throw std::runtime_error("dpbandit's core needs a processor with x86-64-v2");
    const char* asked = std::getenv("DPBANDIT_ARCH");
    if (!asked || !*asked) return usable - 1;
    std::string allowed;
    for (int i = 0; i < usable; i++) {
        if (std::string(asked) == names[i]) return i;
        allowed += (i ? ", " : "") + std::string(names[i]);
    }
    bool known = false;
    for (int i = usable; i < count; i++) known = known || std::string(asked) == names[i];
    const char* why =
        known ? " is more than this processor can run" : " is no instruction set known here";
    throw std::runtime_error("DPBANDIT_ARCH=" + std::string(asked) + why + "; allowed: " + allowed);
}

}  // namespace dpb::cpu
