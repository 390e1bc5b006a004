#include <strata/kernels/lora_rows.h>

#include <algorithm>
#include <cstring>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "gemm/lora_gemms.h"
#include "gemm/lora_parts_check.h"
#include "lora_rows_table.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(lora_rows, LoraRowsArgs);

template <>
const detail::LoraRowsTable<float>& detail::lora_rows_table<float>() noexcept {
  return STRATA_ACTIVE_TABLE(lora_rows_f32);
}
template <>
const detail::LoraRowsTable<bf16>& detail::lora_rows_table<bf16>() noexcept {
  return STRATA_ACTIVE_TABLE(lora_rows_bf16);
}
template <>
const detail::LoraRowsTable<f16>& detail::lora_rows_table<f16>() noexcept {
  return STRATA_ACTIVE_TABLE(lora_rows_f16);
}

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
      table_.down(a_.x.as<T>() + t * inner_, a_.a.as<T>() + first * inner_, a_.scale, u_ + t * ranks_ + first,
                  inner_, n);
    });
    (void)detail::for_each_part(a_.parts, [&](const LoraPart& part, const detail::LoraOffsets& offsets) {
      each_block(part.rows, part.rank, [&](std::int64_t t, std::int64_t first, std::int64_t n) {
        table_.up(u_ + t * ranks_ + offsets.u, a_.b.as<T>() + offsets.b + first * part.rank,
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

  const detail::LoraRowsTable<T>& table_ = detail::lora_rows_table<T>();
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
