#include <strata/kernels/lora_rows.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// lora_rows: (base [T, N], x [T, K], a [sum of ranks, K], b [elements of all parts], adapters [T] i32)
//   -> y [T, N], workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

const LoraAttrs& row_parts(const Attrs& attrs) { return attrs.as<LoraRowsAttrs>().parts; }

struct RowSizes {
  std::int64_t rank = 0, elems = 0;
  bool in_order = true;
};
RowSizes row_sizes(const Attrs& attrs, std::int64_t columns) {
  RowSizes sizes;
  std::int64_t end = 0;
  for (const LoraPart& part : attrs.as<LoraRowsAttrs>().parts.all()) {
    sizes.rank += part.rank;
    sizes.elems += part.rows * part.rank;
    sizes.in_order = sizes.in_order && part.rank > 0 && part.rows > 0 && part.first_row >= end &&
                     part.first_row + part.rows <= columns;
    end = part.first_row + part.rows;
  }
  return sizes;
}

Specs infer_lora_rows(In in, const Attrs& attrs) {
  if (!is_matrix(in[0]) || !is_matrix(in[1])) return mismatch("base [T, N] and x [T, K]", in);
  const RowSizes sizes = row_sizes(attrs, in[0]->shape.dim(1));
  const std::int64_t rows = in[0]->shape.dim(0), inner = in[1]->shape.dim(1);
  const DType dtype = in[0]->dtype;
  if (!sizes.in_order || sizes.rank == 0 || !has_type(in[1], {rows, inner}, dtype) ||
      !has_type(in[2], {sizes.rank, inner}, dtype) || !has_type(in[3], {sizes.elems}, dtype) ||
      !has_type(in[4], {rows}, DType::i32) || attrs.as<LoraRowsAttrs>().adapter < 0)
    return mismatch(str("base [T, N], x [T, K], a [", sizes.rank, ", K], b [", sizes.elems,
                        "], of one dtype, adapters [T] i32, and ", attrs.as<LoraRowsAttrs>().parts.n,
                        " parts in the order of their rows"),
                    in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, dtype},
                                 workspace(kernels::lora_rows_workspace_bytes(rows, row_parts(attrs)))};
}

// As if every row had this adapter, which is the most that it can take.
double flops_lora_rows(In in, In, const Attrs& attrs) {
  const RowSizes sizes = row_sizes(attrs, in[0]->shape.dim(1));
  return 2.0 * static_cast<double>(in[0]->shape.dim(0)) *
         static_cast<double>(sizes.rank * in[1]->shape.dim(1) + sizes.elems);
}

Status launch_lora_rows(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<LoraRowsAttrs>();
  return kernels::lora_rows_async(backend, stream,
                                  {c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.out[0], row_parts(c.attrs),
                                   a.scale, a.adapter, as_workspace(c.out[1])});
}

}  // namespace

Value Builder::lora_rows(Value base, Value x, Value a, Value b, Value adapters, const LoraRowsAttrs& attrs) {
  return op(Op::lora_rows, {base, x, a, b, adapters}, attrs);
}

constinit const OpDef detail::op_defs::lora_rows = {
    .n_in = 5,
    .infer_outputs = infer_lora_rows,
    .in_place = {.out = 0, .in = 0},
    .flops = flops_lora_rows,
    .launch = launch_lora_rows,
};

}  // namespace strata
