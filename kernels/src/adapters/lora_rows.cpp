#include <strata/kernels/lora_rows.h>

#include <algorithm>
#include <cstring>

#include <strata/simd/convert.h>
#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "few_rows_table.h"
#include "adapters/lora_gemms.h"
#include "adapters/lora_parts_check.h"
#include "adapters/lora_scale.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(lora_rows, LoraRowsArgs);

namespace {

/// The rows of one adapter. Work is split by elements of u and of y, whatever the number of rows is.
template <class T>
class AdapterRows {
 public:
  AdapterRows(const LoraRowsArgs& args, ThreadPool& pool)
      : a_(args),
        pool_(pool),
        rows_(dispatch::row_count(args.base)),
        columns_(dispatch::row_length(args.base)),
        inner_(dispatch::row_length(args.x)),
        ranks_(detail::sums_of(args.parts).ranks),
        u_(reinterpret_cast<float*>(args.workspace.data)) {}

  void run() const {
    if (!std::any_of(numbers(), numbers() + rows_, [&](std::int32_t n) { return n == a_.adapter; })) return;
    each_block(ranks_, inner_, [&](std::int64_t t, std::int64_t first, std::int64_t n) {
      down(a_.x.as<T>() + t * inner_, a_.a.as<T>() + first * inner_, u_ + t * ranks_ + first, n);
    });
    (void)detail::for_each_part(a_.parts, [&](const LoraPart& part, const detail::LoraOffsets& offsets) {
      each_block(part.rows, part.rank, [&](std::int64_t t, std::int64_t first, std::int64_t n) {
        up(u_ + t * ranks_ + offsets.u, a_.b.as<T>() + offsets.b + first * part.rank,
           a_.y.as<T>() + t * columns_ + offsets.y + first, part.rank, n);
      });
      return Status::ok();
    });
  }

 private:
  const std::int32_t* numbers() const { return a_.adapters.as<std::int32_t>(); }
  /// body(row, first, n) for blocks of the `count` sums of each row of the adapter, of `length` terms each.
  template <class Body>
  void each_block(std::int64_t count, std::int64_t length, const Body& body) const {
    const std::int64_t block = std::min(count, detail::rows_per_item(length)),
                       blocks = dispatch::ceil_div(count, block);
    pool_.parallel_for(rows_ * blocks, [&](std::int64_t item) {
      const std::int64_t t = item / blocks, first = item % blocks * block;
      if (numbers()[t] == a_.adapter) body(t, first, std::min(block, count - first));
    });
  }

  /// n elements of u, which the ops linear and scale of an adapter alone would store in T.
  void down(const T* x, const T* a, float* u, std::int64_t n) const {
    alignas(64) float chain[detail::kChain];
    for (std::int64_t first = 0; first < inner_; first += detail::kChain) {
      const std::int64_t length = std::min(detail::kChain, inner_ - first);
      simd::widen(x + first, chain, length);
      table_.by_columns(chain, length, a + first, inner_, u, n, 1, n, length, first > 0);
    }
    for (std::int64_t j = 0; j < n; ++j) u[j] = detail::scaled_once_stored<T>(u[j], a_.scale);
  }
  /// Adds products of u to n elements of y, rounded once.
  void up(const float* u, const T* b, T* y, std::int64_t rank, std::int64_t n) const {
    alignas(64) float sums[256];
    for (std::int64_t first = 0; first < n; first += std::ssize(sums)) {
      const std::int64_t count = std::min<std::int64_t>(std::ssize(sums), n - first);
      table_.by_columns(u, rank, b + first * rank, rank, sums, count, 1, count, rank, false);
      detail::simd_table<T>().accumulate_row(sums, y + first, count);
      simd::narrow(sums, y + first, count);
    }
  }

  const detail::FewRowsTable<T>& table_ = detail::few_rows_table<T>();
  const LoraRowsArgs& a_;
  ThreadPool& pool_;
  std::int64_t rows_, columns_, inner_, ranks_;
  float* u_;
};

}  // namespace

std::size_t lora_rows_workspace_bytes(std::int64_t rows, const LoraParts& parts) noexcept {
  return static_cast<std::size_t>(rows * detail::sums_of(parts).ranks) * sizeof(float);
}

void lora_rows_host(const LoraRowsArgs& a, ThreadPool& pool) {
  detail::copy_base(a.base, a.y, pool);
  detail::dispatch_dtype(a.base.dtype,
                         [&]<class T>(std::type_identity<T>) { AdapterRows<T>(a, pool).run(); });
}

Status lora_rows_async(Backend& backend, Stream& stream, const LoraRowsArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.base), n = dispatch::row_length(a.base),
                     inner = dispatch::row_length(a.x);
  const detail::PartSums sums = detail::sums_of(a.parts);
  dispatch::Check check("lora_rows", "base", a.base);
  detail::check_parts(check, a.parts, n);
  check.rows("base", a.base, rows, n).rows("x", a.x, rows, inner).rows("y", a.y, rows, n);
  check.shape("a", a.a, a.base.dtype, {sums.ranks, inner}).elements("b", a.b, a.base.dtype, sums.elems);
  check.elements("adapters", a.adapters, DType::i32, rows)
      .workspace(a.workspace, lora_rows_workspace_bytes(rows, a.parts));
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, lora_rows_op, a, {a.base, a.x, a.a, a.b, a.adapters}, {a.y},
                           a.workspace);
}

}  // namespace strata::kernels
