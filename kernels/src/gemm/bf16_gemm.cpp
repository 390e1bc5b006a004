#include <strata/kernels/bf16_gemm.h>

#include <time.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>
#include <vector>

#include <strata/runtime/float16.h>

#include "gemm/gemm_16bit.h"
#include "gemm/native_bf16.h"

namespace strata::kernels {
namespace {

std::atomic<bool>& widened_is_forced() noexcept {
  static std::atomic<bool> forced{false};
  return forced;
}

/// One tile of a typical GEMM of a training step, with an inner extent so long that operands are widened in
/// several blocks.
struct Sample {
  static constexpr std::int64_t kRows = 256, kColumns = 256, kDepth = 2 * detail::kWidenedK;
  std::vector<std::uint16_t> a, b;
  std::vector<float> c, panels;

  Sample()
      : a(kRows * kDepth),
        b(kColumns * kDepth),
        c(kRows * kColumns),
        panels(static_cast<std::size_t>(detail::kPanelFloats)) {
    std::uint32_t x = 1;  // values like those of a model: of both signs, none subnormal
    for (auto* operand : {&a, &b})
      for (std::uint16_t& value : *operand) {
        x = x * 1664525u + 1013904223u;
        value = f32_to_bf16(static_cast<float>(x >> 16) / 32768.0f - 1.0f);
      }
  }
  detail::Gemm make_gemm(bool trans_a, bool trans_b) {
    detail::Gemm gemm;
    gemm.trans_a = trans_a;
    gemm.trans_b = trans_b;
    gemm.m = kRows;
    gemm.n = kColumns;
    gemm.k = kDepth;
    gemm.a = a.data();
    gemm.lda = trans_a ? kRows : kDepth;
    gemm.b = b.data();
    gemm.ldb = trans_b ? kDepth : kColumns;
    gemm.c = c.data();
    gemm.ldc = kColumns;
    gemm.dtype = DType::bf16;
    return gemm;
  }
};

// CPU time of this thread, so that other load on the machine does not count.
double cpu_seconds() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Work>
double seconds_of(const Work& work) {
  const double begin = cpu_seconds();
  work();
  return cpu_seconds() - begin;
}

}  // namespace

const char* to_string(Bf16Gemm gemm) noexcept {
  switch (gemm) {
    case Bf16Gemm::amx:
      return "AMX";
    case Bf16Gemm::avx512_bf16:
      return "AVX512-BF16";
    case Bf16Gemm::widened:
      break;
  }
  return "widened to f32";
}

Bf16Gemm native_bf16_gemm() noexcept {
  static const Bf16Gemm native = detail::detect_native_bf16_gemm();
  return native;
}

Bf16Gemm bf16_gemm() noexcept {
  return widened_is_forced().load(std::memory_order_relaxed) ? Bf16Gemm::widened : native_bf16_gemm();
}

void force_widened_bf16_gemm(bool forced) noexcept {
  widened_is_forced().store(forced, std::memory_order_relaxed);
}

Bf16GemmTimes measure_bf16_gemm() {
  constexpr int kRounds = 3;  // after one round that fills caches and creates primitives; the minimum counts
  if (native_bf16_gemm() == Bf16Gemm::widened) return {};
  Sample sample;
  Bf16GemmTimes sum;
  for (const auto& [trans_a, trans_b] : {std::pair{false, true}, {false, false}, {true, false}}) {
    const detail::Gemm gemm = sample.make_gemm(trans_a, trans_b);
    double native = std::numeric_limits<double>::infinity(), widened = native;
    for (int round = 0; round <= kRounds; ++round) {
      const double one = seconds_of([&] { detail::gemm_native_bf16(gemm); });
      const double other = seconds_of([&] { detail::gemm_widened(gemm, sample.panels.data()); });
      if (round == 0) continue;
      native = std::min(native, one);
      widened = std::min(widened, other);
    }
    sum.native_s += native;
    sum.widened_s += widened;
  }
  return sum;
}

}  // namespace strata::kernels
