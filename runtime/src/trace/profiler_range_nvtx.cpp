#include <strata/runtime/trace/profiler_range.h>

#include <nvtx3/nvToolsExt.h>

namespace strata {

ProfilerRange::ProfilerRange(const char* label) noexcept { (void)nvtxRangePushA(label); }
ProfilerRange::~ProfilerRange() { (void)nvtxRangePop(); }

}  // namespace strata
