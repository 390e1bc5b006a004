#include <algorithm>
#include <vector>

#include <oneapi/dnnl/dnnl.h>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/assert.h>

#include "gemm/gemm.h"
#include "gemm/one_openmp_thread.h"

namespace strata::kernels::detail {
namespace {

void call(const Gemm& g) noexcept {
  const dnnl_status_t status =
      dnnl_sgemm(g.trans_a ? 'T' : 'N', g.trans_b ? 'T' : 'N', g.m, g.n, g.k, 1.0f,
                 static_cast<const float*>(g.a), g.lda, static_cast<const float*>(g.b), g.ldb,
                 g.accumulate ? 1.0f : 0.0f, static_cast<float*>(g.c), g.ldc);
  STRATA_ASSERT(status == dnnl_success, "dnnl_sgemm returned ", static_cast<int>(status), " for ", g.m, " x ",
                g.n, " x ", g.k);
}

// Note [rows on AVX2]: oneDNN's kernel for AVX2 computes six rows at a time, and sums a row of the last one,
// two or three in another order. A row would have other bits in another batch. All rows have those of six if
// none is in such a group: calls are of at most 72 rows, since more may be halved inside, and of numbers of
// rows that leave no such group; fewer than four are filled up to four.
constexpr std::int64_t kRowsTogether = 6, kFewestRows = 4, kMostRows = 72;

bool rows_differ_by_group() noexcept {
  static const auto isa = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  constexpr unsigned kAvx2 = dnnl_cpu_isa_avx2, kAvx512 = dnnl_cpu_isa_avx512_core;
  return (isa & kAvx2) == kAvx2 && (isa & kAvx512) != kAvx512;
}

// How many of the rows that are left the next call computes; 0 if they are fewer than four.
std::int64_t rows_of_call(std::int64_t left) noexcept {
  constexpr std::int64_t kLast[kRowsTogether] = {0, 13, 8, 9, 0, 0};  // rows in calls of four and five
  const std::int64_t whole = left - kLast[left % kRowsTogether];
  if (whole > 0) return std::min(whole, kMostRows);
  if (whole == 0) return left == 8 ? 4 : 5;
  return left / kRowsTogether * kRowsTogether;
}

// A GEMM of fewer than four rows, with zeros as the others.
void call_filled_up(const Gemm& g) {
  static thread_local std::vector<float> filled;
  filled.assign(static_cast<std::size_t>(kFewestRows * (g.k + g.n)), 0.0f);
  float* const a = filled.data();
  float* const c = a + kFewestRows * g.k;
  const auto copy_rows = [&](const float* from, std::int64_t ld_from, float* to, std::int64_t ld_to,
                             std::int64_t n) {
    for (std::int64_t i = 0; i < g.m; ++i) std::copy_n(from + i * ld_from, n, to + i * ld_to);
  };
  copy_rows(static_cast<const float*>(g.a), g.lda, a, g.k, g.k);
  if (g.accumulate) copy_rows(static_cast<const float*>(g.c), g.ldc, c, g.n, g.n);
  Gemm four = g;
  four.m = kFewestRows;
  four.a = a;
  four.lda = g.k;
  four.c = c;
  four.ldc = g.n;
  call(four);
  copy_rows(c, g.n, static_cast<float*>(g.c), g.ldc, g.n);
}

}  // namespace

void gemm_one_thread(const Gemm& g) noexcept {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) return write_empty_sums(g);
  const OneOpenMpThread one_thread;
  const ThirdPartyScope scope;  // allocations of oneDNN's packing buffers, and of rows that are filled up
  if (g.trans_a || !rows_differ_by_group()) return call(g);  // transposed: rows are not those of a batch
  Gemm part = g;
  for (std::int64_t row = 0; row < g.m; row += part.m) {
    part.m = rows_of_call(g.m - row);
    part.a = static_cast<const float*>(g.a) + row * g.lda;
    part.c = static_cast<float*>(g.c) + row * g.ldc;
    if (part.m > 0) {
      call(part);
    } else {
      part.m = g.m - row;
      call_filled_up(part);
    }
  }
}

}  // namespace strata::kernels::detail
