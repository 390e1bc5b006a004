#include <algorithm>
#include <array>
#include <utility>

#include <strata/simd/simd.h>

#include "few_rows_table.h"
#include "transposed_block.h"

namespace strata::kernels::STRATA_ISA {
namespace {

using detail::kChain;
using simd::STRATA_ISA::f32splat;
using simd::STRATA_ISA::f32x16;
using simd::STRATA_ISA::load_lanes;
using simd::STRATA_ISA::multiply_add;
using simd::STRATA_ISA::store_lanes;

// 16 columns of the result are the lanes of a register, so that a sum over k needs no reduction. For that, b
// is transposed in blocks of 16 x 16, in registers, which costs less than reading b from memory.
constexpr int kColumns = f32x16::kLanes;
/// Rows whose sums stay in registers beside a block of b.
#ifdef STRATA_ISA_IS_avx512
constexpr int kRowsTogether = 15;
#else
constexpr int kRowsTogether = 4;
#endif

/// Up to 16 columns of b, which is stored as [k, n].
template <class T>
struct StoredRows {
  const T* b;
  std::int64_t ldb;
  int count;

  STRATA_HD TransposedBlock block(std::int64_t at, int depth) const {
    TransposedBlock out;
    for (int i = 0; i < depth; ++i) out.column[i] = load_lanes(b + (at + i) * ldb, count);
    return out;
  }
};

/// Up to 16 columns of b, which is stored as [n, k].
template <class T>
struct StoredColumns {
  const T* b;
  std::int64_t ldb;
  int count;

  STRATA_HD TransposedBlock block(std::int64_t at, int depth) const {
    return count == kColumns && depth == 16 ? TransposedBlock::load(b + at, ldb)
                                            : TransposedBlock::load_first(b + at, ldb, count, depth);
  }
};

/// The columns of one chain, transposed once for more rows than fit into registers.
struct BufferedColumns {
  const float (&lanes)[kChain][kColumns];
  std::int64_t first;

  STRATA_HD TransposedBlock block(std::int64_t at, int) const {
    TransposedBlock out;
    for (int i = 0; i < 16; ++i) out.column[i] = f32x16::load(lanes[at - first + i]);
    return out;
  }
};

/// One chain, [begin, end) of k, of R rows and up to 16 columns.
template <int R, class From>
STRATA_HD void add_chain(const float* a, std::int64_t lda, const From& columns, int count, float* c,
                         std::int64_t ldc, std::int64_t begin, std::int64_t end, bool adds) {
  f32x16 sums[R];
  for (int r = 0; r < R; ++r) sums[r] = f32x16(0.0f);
  std::int64_t at = begin;
  for (; at + 16 <= end; at += 16) {
    const TransposedBlock block = columns.block(at, 16);
    STRATA_UNROLL_BLOCK
    for (int i = 0; i < 16; ++i) STRATA_UNROLL_BLOCK
    for (int r = 0; r < R; ++r)
      sums[r] = multiply_add(f32splat(a[r * lda + at + i]), block.column[i], sums[r]);
  }
  if (at < end) {
    const auto depth = static_cast<int>(end - at);
    const TransposedBlock block = columns.block(at, depth);
    for (int i = 0; i < depth; ++i)
      for (int r = 0; r < R; ++r)
        sums[r] = multiply_add(f32splat(a[r * lda + at + i]), block.column[i], sums[r]);
  }
  for (int r = 0; r < R; ++r) {
    if (adds) sums[r] = load_lanes(c + r * ldc, count) + sums[r];
    store_lanes(c + r * ldc, sums[r], count);
  }
}

template <class From, int... R>
constexpr auto chains_of(std::integer_sequence<int, R...>) {
  return std::array{&add_chain<R + 1, From>...};
}

template <class From>
STRATA_HD void add_chain_of_rows(const float* a, std::int64_t lda, const From& columns, int count, float* c,
                                 std::int64_t ldc, std::int64_t m, std::int64_t begin, std::int64_t end,
                                 bool adds) {
  static constexpr auto kChains = chains_of<From>(std::make_integer_sequence<int, kRowsTogether>());
  for (std::int64_t i = 0; i < m; i += kRowsTogether)
    kChains[static_cast<std::size_t>(std::min<std::int64_t>(kRowsTogether, m - i) - 1)](
        a + i * lda, lda, columns, count, c + i * ldc, ldc, begin, end, adds);
}

template <class T>
void by_rows(const float* a, std::int64_t lda, const T* b, std::int64_t ldb, float* c, std::int64_t ldc,
             std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate) {
  for (std::int64_t j = 0; j < n; j += kColumns) {
    const StoredRows<T> columns{b + j, ldb, static_cast<int>(std::min<std::int64_t>(kColumns, n - j))};
    for (std::int64_t begin = 0; begin < k; begin += kChain)
      add_chain_of_rows(a, lda, columns, columns.count, c + j, ldc, m, begin, std::min(k, begin + kChain),
                        accumulate || begin > 0);
  }
}

template <class T>
void by_columns(const float* a, std::int64_t lda, const T* b, std::int64_t ldb, float* c, std::int64_t ldc,
                std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate) {
  for (std::int64_t j = 0; j < n; j += kColumns) {
    const StoredColumns<T> columns{b + j * ldb, ldb,
                                   static_cast<int>(std::min<std::int64_t>(kColumns, n - j))};
    for (std::int64_t begin = 0; begin < k; begin += kChain) {
      const std::int64_t end = std::min(k, begin + kChain);
      const bool adds = accumulate || begin > 0;
      if (m <= kRowsTogether) {
        add_chain_of_rows(a, lda, columns, columns.count, c + j, ldc, m, begin, end, adds);
        continue;
      }
      alignas(64) float lanes[kChain][kColumns];
      for (std::int64_t at = begin; at < end; at += 16) {
        const TransposedBlock block =
            columns.block(at, static_cast<int>(std::min<std::int64_t>(16, end - at)));
        for (int i = 0; i < 16; ++i) block.column[i].store(lanes[at - begin + i]);
      }
      add_chain_of_rows(a, lda, BufferedColumns{lanes, begin}, columns.count, c + j, ldc, m, begin, end,
                        adds);
    }
  }
}

}  // namespace

extern const detail::FewRowsTable<float> few_rows_f32 = {&by_rows<float>, &by_columns<float>};
extern const detail::FewRowsTable<bf16> few_rows_bf16 = {&by_rows<bf16>, &by_columns<bf16>};
extern const detail::FewRowsTable<f16> few_rows_f16 = {&by_rows<f16>, &by_columns<f16>};

}  // namespace strata::kernels::STRATA_ISA
