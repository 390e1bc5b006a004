#include <strata/runtime/trace/profiler_range.h>

namespace strata {

ProfilerRange::ProfilerRange(const char*) noexcept {}
ProfilerRange::~ProfilerRange() {
}  // NOLINT(modernize-use-equals-default): the other source's destructor does work

}  // namespace strata
