#include "experts/panel_heights.h"

#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include <strata/kernels/bf16_gemm.h>
#include <strata/runtime/float16.h>
#include <strata/runtime/thread_annotations.h>

#include "dtype_dispatch.h"
#include "experts/expert_panels.h"
#include "gemm/gemm_tiled.h"

namespace strata::kernels::detail {
namespace {

template <class T>
std::vector<T> pseudo_random(std::int64_t n) {
  std::vector<T> values(static_cast<std::size_t>(n));
  std::uint32_t state = 1;
  for (T& x : values) {
    state = state * 1664525u + 1013904223u;  // Knuth & Lewis
    x = from_f32<T>(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
  }
  return values;
}

template <class T>
bool rows_keep_their_bits(Gemm g) {
  const std::int64_t rows = kMostPanels * kExpertPanel;
  const std::vector<T> a = pseudo_random<T>(rows * g.lda),
                       b = pseudo_random<T>((g.trans_b ? g.n : g.k) * g.ldb);
  std::vector<float> alone(static_cast<std::size_t>(rows * g.ldc)),
      together = alone, panels(static_cast<std::size_t>(kPanelFloats));
  g.b = b.data();
  for (std::int64_t row = 0; row < rows; row += kExpertPanel) {
    g.m = kExpertPanel;
    g.a = a.data() + row * g.lda;
    g.c = alone.data() + row * g.ldc;
    gemm_to_f32(g, panels.data());
  }
  g.a = a.data();
  g.c = together.data();
  for (g.m = 2 * kExpertPanel; g.m <= rows; g.m += kExpertPanel) {
    gemm_to_f32(g, panels.data());
    for (std::int64_t row = 0; row < g.m; ++row)
      if (std::memcmp(together.data() + row * g.ldc, alone.data() + row * g.ldc,
                      static_cast<std::size_t>(g.n) * sizeof(float)) != 0)
        return false;
  }
  return true;
}

/// The answers so far: a few for each shape of layers.
class Answers {
 public:
  using Key = std::tuple<DType, Bf16Gemm, bool, std::int64_t, std::int64_t, std::int64_t>;
  std::int64_t of(const Gemm& panel) {
    const Key key = {panel.dtype, bf16_gemm(), panel.trans_b, panel.n, panel.k, panel.ldb};
    const MutexLock lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    std::int64_t most = 1;
    dispatch_dtype(panel.dtype, [&]<class T>(std::type_identity<T>) {
      if (rows_keep_their_bits<T>(panel)) most = kMostPanels;
    });
    known_.emplace(key, most);
    return most;
  }

 private:
  Mutex mutex_;
  std::map<Key, std::int64_t> known_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace

std::int64_t panels_together(const Gemm& panel) {
  static Answers all;  // affects only speed
  return all.of(panel);
}

}  // namespace strata::kernels::detail
