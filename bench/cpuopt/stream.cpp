#include "stream.h"

namespace strata::bench {
namespace {

using cpuopt::MasterLayout;
using cpuopt::UpdateBlock;

constexpr std::int64_t kGroup = 64;            // elements per iteration: a cache line of the narrowest span
constexpr std::int64_t kPrefetchBytes = 1024;  // prefetch distance in every span

typedef std::uint64_t Line __attribute__((vector_size(64), aligned(1), may_alias));

#define STRATA_ALWAYS_INLINE inline __attribute__((always_inline))

template <int kBytes, bool kPrefetch>
STRATA_ALWAYS_INLINE void prefetch_span(const std::byte* p) {
  if constexpr (kPrefetch)
    for (int line = 0; line < kBytes; ++line)
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(p) + kPrefetchBytes +
                                                       static_cast<std::uintptr_t>(line) * 64));
}

// Access 64 elements of kBytes each: read and written back, only read, or only written.
template <int kBytes, bool kPrefetch>
STRATA_ALWAYS_INLINE void pass_through(void* span, std::int64_t i, std::uint64_t zero) {
  std::byte* const p = static_cast<std::byte*>(span) + i * kBytes;
  prefetch_span<kBytes, kPrefetch>(p);
  for (int line = 0; line < kBytes; ++line) {
    Line* const at = reinterpret_cast<Line*>(p + line * 64);
    *at = *at ^ zero;
  }
}
template <int kBytes, bool kPrefetch>
STRATA_ALWAYS_INLINE void read_only(const void* span, std::int64_t i, std::uint64_t* seen) {
  const std::byte* const p = static_cast<const std::byte*>(span) + i * kBytes;
  prefetch_span<kBytes, kPrefetch>(p);
  Line all = {};
  for (int line = 0; line < kBytes; ++line) all |= *reinterpret_cast<const Line*>(p + line * 64);
  *reinterpret_cast<Line*>(seen) |= all;
}
template <int kBytes>
STRATA_ALWAYS_INLINE void write_only(void* span, std::int64_t i, std::uint64_t zero) {
  std::byte* const p = static_cast<std::byte*>(span) + i * kBytes;
  const Line value = Line{} ^ zero;
  for (int line = 0; line < kBytes; ++line) *reinterpret_cast<Line*>(p + line * 64) = value;
}

template <MasterLayout kLayout, int kMoments, int kMomentBytes, bool kNarrow, bool kPrefetch>
STRATA_ALWAYS_INLINE void run(const UpdateBlock& b, std::int64_t n) {
  std::uint64_t zero = 0;
  asm volatile("" : "+r"(zero));
  alignas(64) std::uint64_t seen[8] = {};
  void* const first = b.m.values != nullptr ? b.m.values : b.v.values;
  for (std::int64_t i = 0; i + kGroup <= n; i += kGroup) {
    if constexpr (kLayout == MasterLayout::f32) {
      pass_through<4, kPrefetch>(b.param, i, zero);
    } else if constexpr (kLayout == MasterLayout::bf16_split) {
      pass_through<2, kPrefetch>(b.param, i, zero);
      pass_through<2, kPrefetch>(b.master, i, zero);
    } else {
      pass_through<4, kPrefetch>(b.master, i, zero);
      write_only<2>(b.param, i, zero);
    }
    if constexpr (kMoments > 0) pass_through<kMomentBytes, kPrefetch>(first, i, zero);
    if constexpr (kMoments > 1) pass_through<kMomentBytes, kPrefetch>(b.v.values, i, zero);
    read_only<kNarrow ? 2 : 4, kPrefetch>(b.g, i, seen);
  }
  asm volatile("" : : "m"(seen));
}

template <MasterLayout kLayout, int kMoments, int kMomentBytes, bool kNarrow, bool kPrefetch>
__attribute__((target("avx2"))) void run_avx2(const UpdateBlock& b, std::int64_t n) {
  run<kLayout, kMoments, kMomentBytes, kNarrow, kPrefetch>(b, n);
}
template <MasterLayout kLayout, int kMoments, int kMomentBytes, bool kNarrow, bool kPrefetch>
__attribute__((target("avx512f,avx512bw"))) void run_avx512(const UpdateBlock& b, std::int64_t n) {
  run<kLayout, kMoments, kMomentBytes, kNarrow, kPrefetch>(b, n);
}

template <MasterLayout kLayout, int kMoments, int kMomentBytes, bool kNarrow>
StreamKernel chosen(simd::CpuIsa isa, bool prefetch) {
  const bool wide = isa == simd::CpuIsa::avx512;
  if (prefetch)
    return wide ? &run_avx512<kLayout, kMoments, kMomentBytes, kNarrow, true>
                : &run_avx2<kLayout, kMoments, kMomentBytes, kNarrow, true>;
  return wide ? &run_avx512<kLayout, kMoments, kMomentBytes, kNarrow, false>
              : &run_avx2<kLayout, kMoments, kMomentBytes, kNarrow, false>;
}
template <MasterLayout kLayout, bool kNarrow>
StreamKernel by_moments(const StreamShape& shape, simd::CpuIsa isa, bool prefetch) {
  if (shape.moments == 0) return chosen<kLayout, 0, 4, kNarrow>(isa, prefetch);
  const bool two = shape.moments == 2;
  switch (shape.states) {
    case StateFormat::fp32:
      return two ? chosen<kLayout, 2, 4, kNarrow>(isa, prefetch)
                 : chosen<kLayout, 1, 4, kNarrow>(isa, prefetch);
    case StateFormat::bf16:
      return two ? chosen<kLayout, 2, 2, kNarrow>(isa, prefetch)
                 : chosen<kLayout, 1, 2, kNarrow>(isa, prefetch);
    case StateFormat::int8:
      return two ? chosen<kLayout, 2, 1, kNarrow>(isa, prefetch)
                 : chosen<kLayout, 1, 1, kNarrow>(isa, prefetch);
  }
  __builtin_unreachable();
}
template <MasterLayout kLayout>
StreamKernel by_gradient(const StreamShape& shape, simd::CpuIsa isa, bool prefetch) {
  return shape.narrow_gradient ? by_moments<kLayout, true>(shape, isa, prefetch)
                               : by_moments<kLayout, false>(shape, isa, prefetch);
}

}  // namespace

StreamKernel select_stream_kernel(const StreamShape& shape, simd::CpuIsa isa, bool prefetch) {
  switch (shape.layout) {
    case MasterLayout::f32:
      return by_gradient<MasterLayout::f32>(shape, isa, prefetch);
    case MasterLayout::bf16_split:
      return by_gradient<MasterLayout::bf16_split>(shape, isa, prefetch);
    case MasterLayout::bf16_shadow:
    case MasterLayout::f16_shadow:
      return by_gradient<MasterLayout::bf16_shadow>(shape, isa, prefetch);
  }
  __builtin_unreachable();
}

double necessary_bytes(const StreamShape& shape) {
  const double gradient = shape.narrow_gradient ? 2 : 4;
  const double master =
      shape.layout == MasterLayout::f32 || shape.layout == MasterLayout::bf16_split ? 8 : 10;
  const double scales = shape.states == StateFormat::int8 ? 4.0 / static_cast<double>(kMomentBlock) : 0;
  return gradient + master +
         2 * shape.moments * (static_cast<double>(moment_value_bytes(shape.states)) + scales);
}

}  // namespace strata::bench
