#include <strata/kernels/block_quant.h>

#include <strata/dispatch/op.h>
#include <strata/dispatch/rows.h>

namespace strata::kernels {
namespace {

Status checked(const char* op, const BlockQuantArgs& a) {
  dispatch::Check check(op, "x", a.x);
  check.require(a.block > 0 && a.block % kQuantBlockMultiple == 0, "block is ", a.block,
                "; it must be a positive multiple of ", kQuantBlockMultiple);
  STRATA_TRY(check.status());
  const std::int64_t n = a.x.n_elems();
  return check.elements("quantized", a.quantized, DType::u8, quantized_bytes(a.format, n))
      .elements("scales", a.scales, DType::f32, dispatch::ceil_div(n, a.block))
      .status();
}

}  // namespace

STRATA_OP(quantize_blocks, BlockQuantArgs);
STRATA_OP(dequantize_blocks, BlockQuantArgs);

Status quantize_blocks_async(Backend& backend, Stream& stream, const BlockQuantArgs& a) {
  STRATA_TRY(checked("quantize_blocks", a));
  return dispatch::enqueue(backend, stream, quantize_blocks_op, a, {a.x}, {a.quantized, a.scales});
}

Status dequantize_blocks_async(Backend& backend, Stream& stream, const BlockQuantArgs& a) {
  STRATA_TRY(checked("dequantize_blocks", a));
  return dispatch::enqueue(backend, stream, dequantize_blocks_op, a, {a.quantized, a.scales}, {a.x});
}

}  // namespace strata::kernels
