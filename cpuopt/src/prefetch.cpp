#include <strata/cpuopt/prefetch.h>

#include <time.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <new>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <strata/cpuopt/update_block.h>

#include "update_in_f32.h"

namespace strata::cpuopt {
namespace {

constexpr std::int64_t kElems = std::int64_t{1} << 17;
constexpr std::size_t kSpans = 4;  // parameters, moments, gradients
constexpr int kRounds = 5;
constexpr double kMaxTimeRatio = 0.97;

// A process-wide setting instead of an argument of every call: it changes speed, never results. -1 if
// use_prefetch() has set none.
std::atomic<int>& forced() noexcept {
  static std::atomic<int> prefetch{-1};
  return prefetch;
}

bool flush_caches([[maybe_unused]] const float* values, [[maybe_unused]] std::size_t n) noexcept {
#if defined(__SSE2__)
  for (std::size_t i = 0; i < n; i += 64 / sizeof(float)) _mm_clflush(values + i);
  _mm_mfence();
  return true;
#else
  return false;
#endif
}

// CPU time of this thread, so that other load on the machine does not count.
double cpu_nanoseconds() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

Prefetch fastest() noexcept {
  const auto ns = measure_prefetch();
  if (!ns) return Prefetch::none;
  const auto min_ns = std::min_element(ns->begin(), ns->end());
  return *min_ns < kMaxTimeRatio * ns->front() ? static_cast<Prefetch>(min_ns - ns->begin()) : Prefetch::none;
}

}  // namespace

std::string_view to_string(Prefetch prefetch) noexcept {
  switch (prefetch) {
    case Prefetch::none:
      return "none";
    case Prefetch::moments:
      return "moments";
    case Prefetch::all:
      return "all";
  }
  return "unknown";
}

std::optional<std::array<double, kPrefetches>> measure_prefetch() noexcept {
  constexpr auto n = static_cast<std::size_t>(kElems);
  const std::unique_ptr<float[]> memory(new (std::nothrow) float[kSpans * n]);
  if (memory == nullptr) return std::nullopt;
  std::fill_n(memory.get(), kSpans * n, 0.0f);
  OptimizerParams params;
  params.optimizer = Optimizer::adamw;
  const UpdateStep step = make_update_step(params);
  float* const p = memory.get();
  const UpdateBlock block{.param = p, .m = {p + n, nullptr}, .v = {p + 2 * n, nullptr}, .g = p + 3 * n};
  std::array<double, kPrefetches> min_ns;
  min_ns.fill(std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t which = 0; which < kPrefetches; ++which) {
      if (!flush_caches(p, kSpans * n)) return std::nullopt;
      const double begin = cpu_nanoseconds();
      detail::update_in_f32(step, block, kElems, static_cast<Prefetch>(which));
      min_ns[which] = std::min(min_ns[which], (cpu_nanoseconds() - begin) / static_cast<double>(kElems));
    }
  return min_ns;
}

Prefetch active_prefetch() noexcept {
  const int asked = forced().load(std::memory_order_relaxed);
  if (asked >= 0) return static_cast<Prefetch>(asked);
  static const Prefetch measured = fastest();
  return measured;
}

void use_prefetch(std::optional<Prefetch> prefetch) noexcept {
  forced().store(prefetch ? static_cast<int>(*prefetch) : -1, std::memory_order_relaxed);
}

}  // namespace strata::cpuopt
