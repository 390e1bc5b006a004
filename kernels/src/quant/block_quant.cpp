#include <strata/kernels/block_quant.h>

#include <strata/ops/op.h>
#include <strata/ops/rows.h>

#include "cuda/quant/launches.h"

namespace strata::kernels {
namespace {

Status checked(const char* op, const BlockQuantArgs& a) {
  ops::Check check(op, "x", a.x);
  check.require(a.block > 0 && a.block % kQuantBlockMultiple == 0, "block is ", a.block,
                "; it must be a positive multiple of ", kQuantBlockMultiple);
  STRATA_TRY(check.status());
  const std::int64_t n = a.x.n_elems();
  return check.elements("quantized", a.quantized, DType::u8, quantized_bytes(a.format, n))
      .elements("scales", a.scales, DType::f32, ops::ceil_div(n, a.block))
      .status();
}

}  // namespace

Status quantize_blocks_async(Backend& backend, Stream& stream, const BlockQuantArgs& a) {
  STRATA_TRY(checked("quantize_blocks", a));
  constexpr ops::OpImpl<BlockQuantArgs> op = {"quantize_blocks", &quantize_blocks_host,
                                              &cuda::quantize_blocks};
  return ops::enqueue(backend, stream, op, a, {a.x}, {a.quantized, a.scales});
}

Status dequantize_blocks_async(Backend& backend, Stream& stream, const BlockQuantArgs& a) {
  STRATA_TRY(checked("dequantize_blocks", a));
  constexpr ops::OpImpl<BlockQuantArgs> op = {"dequantize_blocks", &dequantize_blocks_host,
                                              &cuda::dequantize_blocks};
  return ops::enqueue(backend, stream, op, a, {a.quantized, a.scales}, {a.x});
}

}  // namespace strata::kernels
