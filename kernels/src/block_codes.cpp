#include <strata/kernels/block_codes.h>

#include "cuda_ops.h"
#include "op.h"

namespace strata::kernels {
namespace {

Status checked(const char* op, const BlockCodesArgs& a) {
  detail::Check check(op, "x", a.x);
  check.that(a.block > 0 && a.block % kBlockMultiple == 0, "blocks of ", a.block,
             " values; it must be a multiple of ", kBlockMultiple);
  STRATA_TRY(check.status());
  const std::int64_t n = a.x.n_elems();
  return check.elements("codes", a.codes, DType::u8, block_code_bytes(a.format, n))
      .elements("scales", a.scales, DType::f32, detail::ceil_div(n, a.block))
      .status();
}

}  // namespace

Status quantize_blocks_async(Backend& backend, Stream& stream, const BlockCodesArgs& a) {
  STRATA_TRY(checked("quantize_blocks", a));
  constexpr detail::Op<BlockCodesArgs> op = {"quantize_blocks", &quantize_blocks_host,
                                             &cuda::quantize_blocks};
  return detail::queue(backend, stream, op, a, {a.x}, {a.codes, a.scales});
}

Status dequantize_blocks_async(Backend& backend, Stream& stream, const BlockCodesArgs& a) {
  STRATA_TRY(checked("dequantize_blocks", a));
  constexpr detail::Op<BlockCodesArgs> op = {"dequantize_blocks", &dequantize_blocks_host,
                                             &cuda::dequantize_blocks};
  return detail::queue(backend, stream, op, a, {a.codes, a.scales}, {a.x});
}

}  // namespace strata::kernels
