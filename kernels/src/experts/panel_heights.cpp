#include "experts/panel_heights.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include <strata/kernels/bf16_gemm.h>
#include <strata/runtime/float16.h>
#include <strata/runtime/thread_annotations.h>

#include "dtype_dispatch.h"
#include "gemm/gemm_tiled.h"

namespace strata::kernels::detail {
namespace {

// More rows cost as much as a panel.
constexpr std::int64_t kFewRows = 16;

/// A matrix whose first elements of the first rows are pseudo-random, and all others 0, which add nothing to
/// sums. What is never written takes no memory, so that the matrix of a large expert is no burden.
template <class T>
class StandIn {
 public:
  StandIn(std::int64_t rows, std::int64_t columns, std::int64_t stride)
      : data_(static_cast<T*>(
            std::calloc(static_cast<std::size_t>((rows - 1) * stride + columns), sizeof(T)))) {
    if (data_ == nullptr) return;
    constexpr std::int64_t kMost = 2048;  // more than any block of a GEMM's inner extent
    std::uint32_t state = 1;
    for (std::int64_t row = 0; row < std::min(rows, kMost); ++row)
      for (std::int64_t i = 0; i < std::min(columns, kMost); ++i) {
        state = state * 1664525u + 1013904223u;  // Knuth & Lewis
        data_.get()[row * stride + i] = from_f32<T>(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
      }
  }
  const T* data() const noexcept { return data_.get(); }

 private:
  struct Free {
    void operator()(T* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<T, Free> data_;
};

template <class T>
PanelHeights compare_heights(Gemm g) {
  const StandIn<T> a(kMostPanelRows, g.k, g.lda), b(g.trans_b ? g.n : g.k, g.trans_b ? g.k : g.n, g.ldb);
  if (a.data() == nullptr || b.data() == nullptr) return {0, kExpertPanel, kExpertPanel};
  std::vector<float> want(static_cast<std::size_t>(kMostPanelRows * g.ldc)),
      got = want, panels(static_cast<std::size_t>(kPanelFloats));
  g.b = b.data();
  const auto multiply = [&](std::int64_t height, std::vector<float>& into) {
    g.m = height;
    for (std::int64_t row = 0; row + height <= kMostPanelRows; row += height) {
      g.a = a.data() + row * g.lda;
      g.c = into.data() + row * g.ldc;
      gemm_to_f32(g, panels.data());
    }
  };
  const auto has_same_bits = [&](std::int64_t height) {
    multiply(height, got);
    for (std::int64_t row = 0; row < kMostPanelRows / height * height; ++row)
      if (std::memcmp(got.data() + row * g.ldc, want.data() + row * g.ldc,
                      static_cast<std::size_t>(g.n) * sizeof(float)) != 0)
        return false;
    return true;
  };
  multiply(kExpertPanel, want);
  const bool higher = has_same_bits(2 * kExpertPanel) && has_same_bits(3 * kExpertPanel);
  constexpr std::int64_t kHalf = kExpertPanel / 2;
  const bool halves =
      has_same_bits(kHalf) && (!higher || (has_same_bits(3 * kHalf) && has_same_bits(5 * kHalf)));
  std::int64_t few = 0;
  while (few < kFewRows && has_same_bits(few + 1)) ++few;
  return {few == kFewRows ? few : 0, halves ? kHalf : kExpertPanel, higher ? kMostPanelRows : kExpertPanel};
}

/// The answers so far: a few for each shape of layers.
class Answers {
 public:
  using Key = std::tuple<DType, Bf16Gemm, bool, std::int64_t, std::int64_t, std::int64_t>;
  PanelHeights of(const Gemm& panel) {
    const Key key = {panel.dtype, bf16_gemm(), panel.trans_b, panel.n, panel.k, panel.ldb};
    const MutexLock lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    PanelHeights heights = {0, kExpertPanel, kExpertPanel};
    dispatch_dtype(panel.dtype, [&]<class T>(std::type_identity<T>) { heights = compare_heights<T>(panel); });
    known_.emplace(key, heights);
    return heights;
  }

 private:
  Mutex mutex_;
  std::map<Key, PanelHeights> known_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace

PanelHeights panel_heights(const Gemm& panel) {
  const bool is_native = panel.dtype == DType::bf16 && bf16_gemm() != Bf16Gemm::widened;
  if (sums_by_chains() && !is_native) return {0, 1, kMostPanelRows};
  static Answers all;  // affects only speed
  return all.of(panel);
}

}  // namespace strata::kernels::detail
