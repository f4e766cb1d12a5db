// Compiled once for each instruction set, with -DDPB_ARCH=v2, v3, v4 or generic.
#include "log.hpp"
#include "worlds.hpp"

namespace dpb::DPB_ARCH {
static Made hold_ridge(const Spec& o) {
    switch (o.site) {
        case Site::nothing: return hold<InTheClear>(o);
        case Site::reward: return hold<Local>(o);
        case Site::own: return hold<Own>(o);
        case Site::increment: return hold<Increments>(o);
        case Site::moments: break;
    }
    switch (o.release) {
        case ReleaseKind::tree: return hold<Moments<TreeRelease>>(o);
        case ReleaseKind::honaker: return hold<Moments<HonakerRelease>>(o);
        case ReleaseKind::pan_private: return hold<Moments<PanPrivateRelease>>(o);
        case ReleaseKind::toeplitz: return hold<Moments<ToeplitzRelease>>(o);
        case ReleaseKind::episodes: return hold<Moments<EpisodesRelease>>(o);
        case ReleaseKind::once: break;
    }
    return {nullptr, false};
}
static Made make(const Spec& o) {
    switch (o.learner) {
        case LearnerKind::none: return hold<RandomPlay>(o);
        case LearnerKind::ridge: return hold_ridge(o);
        case LearnerKind::filter: return hold<Anytime>(o);
        case LearnerKind::pair: return hold<TwoSums>(o);
        case LearnerKind::joint: return hold<Joint>(o);
        case LearnerKind::arms: return hold<Arms>(o);
        case LearnerKind::batches: return hold<Batches>(o);
    }
    return {nullptr, false};
}
static World* make_world(const WorldSpec& o) { return new (Here{fresh(sizeof(Simulated))}) Simulated(o); }
static void draw(NoiseKind kind, uint64_t key, uint64_t index, int64_t count, double scale,
                 const double* value, double* out) {
    add_noise(kind, key, index, count, scale, value, out);
}
static void draw_uniforms(uint64_t key, uint64_t stream, int64_t count, double* out) {
    uniforms(key, stream, count, out);
}
static uint64_t draw_lot(uint64_t key, uint64_t stream, uint64_t index) { return lot(key, stream, index); }
static double ratio(NoiseKind kind, int64_t count, const double* y, const double* zero,
                    const double* one, double scale) {
    return log_ratio(kind, count, y, zero, one, scale);
}
}  // namespace dpb::DPB_ARCH

#define DPB_JOIN(a, b) a##b
#define DPB_NAMED(a, b) DPB_JOIN(a, b)
#define DPB_TEXT(a) #a
#define DPB_QUOTED(a) DPB_TEXT(a)
namespace dpb {
const Arch DPB_NAMED(arch_, DPB_ARCH) = {
    DPB_QUOTED(DPB_ARCH),    &DPB_ARCH::make,          &DPB_ARCH::make_world, &DPB_ARCH::draw,
    &DPB_ARCH::draw_uniforms, &DPB_ARCH::draw_lot,      &DPB_ARCH::ratio,
    &DPB_ARCH::hash_names,   &DPB_ARCH::tally,         &DPB_ARCH::move_tally, &DPB_ARCH::inspect_rows,
    &DPB_ARCH::absorb_rows,
};
}  // namespace dpb
