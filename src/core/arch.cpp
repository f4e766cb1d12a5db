// Compiled once for each instruction set, which DPB_ARCH names. No std:: here: of an inline
// function that several units define the linker keeps one copy for all, and it could be the one
// that only the newest processors run.
#include "interface.hpp"

#define DPB_JOIN_(a, b) a##b
#define DPB_JOIN(a, b) DPB_JOIN_(a, b)
#define DPB_TEXT_(a) #a
#define DPB_TEXT(a) DPB_TEXT_(a)

namespace dpb {
const Arch DPB_JOIN(arch_, DPB_ARCH) = {DPB_TEXT(DPB_ARCH)};
}
