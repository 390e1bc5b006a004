#include <strata/kernels/fp8.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// use_fp8() emits these ops, after derivation.
// fp8_cast: (x [T, K]) -> rows [T, K] and columns [K, T], each if requested, the inverse scale [1],
// workspace
// fp8_gemm: (a [M, K], its scale_inv [1], b [N, K], its scale_inv [1], bias [N] or none) -> c [M, N], and its
// workspace if it has one

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_fp8_cast(In in, const Attrs& attrs) {
  const auto& a = attrs.as<Fp8CastAttrs>();
  const auto fits = [](std::int64_t side) { return side > 0 && side % kernels::kFp8Multiple == 0; };
  if (!is_matrix(in[0]) || !is_stored_dtype(in[0]->dtype) || !fits(in[0]->shape.dim(0)) ||
      !fits(in[0]->shape.dim(1)) || (!a.rowwise && !a.columnwise))
    return mismatch(str("x [T, K], both multiples of ", kernels::kFp8Multiple), in);
  const DType codes = a.e5m2 ? DType::e5m2 : DType::e4m3;
  const std::int64_t rows = in[0]->shape.dim(0), k = in[0]->shape.dim(1);
  std::vector<OutputSpec> made;
  if (a.rowwise) made.push_back({"rows", {rows, k}, codes});
  if (a.columnwise) made.push_back({"columns", {k, rows}, codes});
  made.push_back({"inverse", {1}});
  made.push_back(workspace(kernels::fp8_cast_workspace_bytes()));
  return made;
}
Status launch_fp8_cast(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<Fp8CastAttrs>();
  kernels::Fp8CastArgs args{.x = c.in[0], .rowwise = {}, .columnwise = {}, .scale_inv = {}, .workspace = {}};
  std::size_t next = 0;
  if (a.rowwise) args.rowwise = c.out[next++];
  if (a.columnwise) args.columnwise = c.out[next++];
  args.scale_inv = c.out[next++];
  args.workspace = as_workspace(c.out[next]);
  return kernels::fp8_cast_async(backend, stream, args);
}

Specs infer_fp8_gemm(In in, const Attrs& attrs) {
  const auto& a = attrs.as<Fp8GemmAttrs>();
  const auto codes = [](const ValueInfo* of) {
    return of != nullptr && of->shape.rank == 2 && (of->dtype == DType::e4m3 || of->dtype == DType::e5m2);
  };
  if (!codes(in[0]) || !codes(in[2]) || in[2]->dtype != DType::e4m3 ||
      in[0]->shape.dim(1) != in[2]->shape.dim(1) || !has_type(in[1], {1}) || !has_type(in[3], {1}) ||
      !is_stored_dtype(a.out_dtype) ||
      (in[4] != nullptr &&
       (a.out_dtype == DType::f32 || !has_type(in[4], {in[2]->shape.dim(0)}, a.out_dtype))))
    return mismatch("a [M, K], b [N, K] in fp8, each with its scale_inv [1], bias [N] or none", in);
  return gemm_output("c", {in[0]->shape.dim(0), in[2]->shape.dim(0)}, a.out_dtype, a.gemm);
}
Status launch_fp8_gemm(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::fp8_gemm_async(backend, stream,
                                 {c.in[0], c.in[1], c.in[2], c.in[3], or_none(c.in[4]), c.out[0],
                                  accumulates(c, 0), workspace_or_none(c, 1)});
}

}  // namespace

// A quantized value stands for a 16-bit value, which is not stored either.
constinit const OpDef detail::op_defs::fp8_cast = {
    .n_in = 1,
    .infer_outputs = infer_fp8_cast,
    .flops = no_flops,
    .launch = launch_fp8_cast,
    .saved_bytes_per_byte = 2,
};
constinit const OpDef detail::op_defs::fp8_gemm = {
    .kind = OpKind::gemm,
    .n_in = 5,
    .optional_in = 4,
    .infer_outputs = infer_fp8_gemm,
    .flops = gemm_flops,
    .launch = launch_fp8_gemm,
};

}  // namespace strata
