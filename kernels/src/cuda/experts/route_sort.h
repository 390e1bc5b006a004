#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>

#include "cuda/thread_block.h"
#include "experts/router_math.h"

/// The stable counting sort of choices by expert: each block counts the choices of its run, one block sums
/// the counts of an expert over the runs, and each block places the choices of its run. The counts of run 0
/// are in the offsets, and those of another one in the positions of its choices, which are written last.
namespace strata::kernels::detail {

/// The choices of a run. The last run has the rest, so that each but the first has room for its counts.
inline constexpr std::int64_t kRunLength = kMostExperts;
constexpr std::int64_t route_runs(std::int64_t choices) noexcept {
  return choices < 2 * kRunLength ? 1 : choices / kRunLength;
}

struct RouteView {
  const std::int32_t* chosen;
  std::int32_t *offsets, *source, *position;
  std::int64_t choices, experts, runs;

  STRATA_HD std::int64_t run_begin(std::int64_t run) const { return run * kRunLength; }
  STRATA_HD std::int64_t run_end(std::int64_t run) const {
    return run + 1 < runs ? (run + 1) * kRunLength : choices;
  }
  STRATA_HD std::int32_t* counts(std::int64_t run) const {
    return run == 0 ? offsets : position + run_begin(run);
  }
  STRATA_HD std::int32_t expert(std::int64_t choice) const { return bounded_expert(chosen[choice], experts); }
};

template <int kThreads>
struct RouteShared {
  std::int32_t places[kMostExperts];  ///< each expert's count, or where its next row is
  std::int32_t experts[kThreads];     ///< chosen in a tile
  std::int32_t sums[2][kThreads];
};

/// Adds one to a count in shared memory.
STRATA_DEVICE_INLINE void count_one(std::int32_t& count) {
#ifdef __CUDA_ARCH__
  atomicAdd(&count, 1);  // integers, whose order does not matter
#else
  ++count;
#endif
}

template <int kThreads, class ThreadBlock>
STRATA_DEVICE_INLINE void count_run(const ThreadBlock& block, RouteShared<kThreads>& m, const RouteView& v,
                                    std::int64_t run) {
  block.run_and_sync([&](int me) {
    for (std::int64_t e = me; e < v.experts; e += kThreads) m.places[e] = 0;
  });
  block.run_and_sync([&](int me) {
    for (std::int64_t c = v.run_begin(run) + me; c < v.run_end(run); c += kThreads)
      count_one(m.places[v.expert(c)]);
  });
  block.run_and_sync([&](int me) {
    for (std::int64_t e = me; e < v.experts; e += kThreads) v.counts(run)[e] = m.places[e];
  });
}

/// Replaces the count of an expert in each run but the first by the sum of its counts before that run, and
/// the offsets by where the rows of experts begin. One block of at least as many threads as experts (Hillis &
/// Steele 1986).
template <int kThreads, class ThreadBlock>
STRATA_DEVICE_INLINE void sum_runs(const ThreadBlock& block, RouteShared<kThreads>& m, const RouteView& v) {
  static_assert(kThreads >= kMostExperts);
  block.run_and_sync([&](int me) {
    std::int32_t total = 0;
    for (std::int64_t run = 0; me < v.experts && run < v.runs; ++run) {
      std::int32_t& count = v.counts(run)[me];
      const std::int32_t before = total;
      total += count;
      if (run > 0) count = before;
    }
    m.sums[0][me] = total;
  });
  int from = 0;
  for (int stride = 1; stride < kThreads; stride *= 2, from = 1 - from)
    block.run_and_sync([&](int me) {
      m.sums[1 - from][me] = m.sums[from][me] + (me >= stride ? m.sums[from][me - stride] : 0);
    });
  block.run_and_sync([&](int me) {
    if (me < v.experts) v.offsets[me] = me > 0 ? m.sums[from][me - 1] : 0;
    if (me == 0) v.offsets[v.experts] = static_cast<std::int32_t>(v.choices);
  });
}

/// Places the choices of a run, tile by tile: behind those of its expert in earlier runs and tiles, and in
/// its tile behind those before it.
template <int kThreads, class ThreadBlock>
STRATA_DEVICE_INLINE void place_run(const ThreadBlock& block, RouteShared<kThreads>& m, const RouteView& v,
                                    std::int64_t run) {
  block.run_and_sync([&](int me) {
    for (std::int64_t e = me; e < v.experts; e += kThreads)
      m.places[e] = v.offsets[e] + (run > 0 ? v.counts(run)[e] : 0);
  });
  for (std::int64_t first = v.run_begin(run); first < v.run_end(run); first += kThreads) {
    const std::int64_t left = v.run_end(run) - first;
    const int held = static_cast<int>(left < kThreads ? left : kThreads);
    block.run_and_sync([&](int me) { m.experts[me] = me < held ? v.expert(first + me) : -1; });
    block.run_and_sync([&](int me) {
      std::int32_t before = 0, behind = 0;
      for (int other = 0; other < held; ++other) {
        const bool same = m.experts[other] == m.experts[me];
        before += same && other < me ? 1 : 0;
        behind += same && other > me ? 1 : 0;
      }
      if (me >= held) return;
      const std::int32_t row = m.places[m.experts[me]] + before;
      v.source[row] = static_cast<std::int32_t>(first + me);
      v.position[first + me] = row;
      m.sums[0][me] = behind == 0 ? row + 1 : -1;
    });
    block.run_and_sync([&](int me) {
      if (me < held && m.sums[0][me] >= 0) m.places[m.experts[me]] = m.sums[0][me];
    });
  }
}

}  // namespace strata::kernels::detail
