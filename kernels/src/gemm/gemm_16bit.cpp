#include "gemm/gemm_16bit.h"

#include <algorithm>

#include <strata/simd/convert.h>

#include "dtype_dispatch.h"
#include "gemm/gemm_chains.h"

namespace strata::kernels::detail {
namespace {

/// Converts a block of a matrix to f32, with contiguous rows.
template <class T>
const float* widened(const T* from, std::int64_t ld, std::int64_t rows, std::int64_t columns, float* into) {
  for (std::int64_t i = 0; i < rows; ++i) simd::widen(from + i * ld, into + i * columns, columns);
  return into;
}

}  // namespace

void gemm_widened(const Gemm& g, float* panels) noexcept {
  dispatch_dtype(g.dtype, [&]<class T>(std::type_identity<T>) {
    const bool few = sums_by_chains() && has_few_rows(g);
    const auto* a = static_cast<const T*>(g.a);
    const auto* b = static_cast<const T*>(g.b);
    std::int64_t at = 0;
    do {  // at least once: an empty sum is zero and must be written
      Gemm block = g;
      block.dtype = DType::f32;
      block.k = std::min(kWidenedK, g.k - at);
      block.accumulate = g.accumulate || at > 0;
      block.lda = g.trans_a ? g.m : block.k;
      block.ldb = g.trans_b ? block.k : g.n;
      block.a = g.trans_a ? widened(a + at * g.lda, g.lda, block.k, g.m, panels)
                          : widened(a + at, g.lda, g.m, block.k, panels);
      if (few && block.k > 0) {  // B is read as it is stored
        block.b = b + at;
        block.ldb = g.ldb;
        multiply_few_rows<T>(block);
      } else {
        float* b_panel = panels + kWidenedK * kLargestTile.rows;
        block.b = g.trans_b ? widened(b + at, g.ldb, g.n, block.k, b_panel)
                            : widened(b + at * g.ldb, g.ldb, block.k, g.n, b_panel);
        gemm_one_thread(block);
      }
      at += kWidenedK;
    } while (at < g.k);
  });
}

void TileScratch::add_block() {
  blocks_.push_back(std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(kFloats)));
  free_.reserve(blocks_.capacity());  // so that release() never allocates
  free_.push_back(blocks_.back().get());
}

void TileScratch::reserve(std::size_t blocks) {
  const MutexLock lock(mutex_);
  while (blocks_.size() < blocks) add_block();
}

float* TileScratch::acquire() {
  const MutexLock lock(mutex_);
  if (free_.empty()) add_block();
  float* block = free_.back();
  free_.pop_back();
  return block;
}

void TileScratch::release(float* block) noexcept {
  const MutexLock lock(mutex_);
  free_.push_back(block);
}

}  // namespace strata::kernels::detail
