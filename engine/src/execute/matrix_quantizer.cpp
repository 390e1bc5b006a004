#include "execute/matrix_quantizer.h"

#include <algorithm>
#include <cstring>

#include <strata/kernels/weight_quant.h>

namespace strata::detail {
namespace {

using kernels::kWeightBlock;
using kernels::QuantizedPart;

constexpr std::int64_t kBlocksAtOnce = 4096;

/// Copies bytes [at, at + from.size()) to where they are in `into`, which begins at byte `first`, as far as
/// they overlap.
void copy_overlap(std::int64_t at, std::span<const std::byte> from, std::int64_t first,
                  std::span<std::byte> into) {
  const std::int64_t begin = std::max(at, first),
                     end = std::min(at + std::ssize(from), first + std::ssize(into));
  if (begin < end)
    std::memcpy(into.data() + (begin - first), from.data() + (begin - at),
                static_cast<std::size_t>(end - begin));
}

}  // namespace

Status MatrixQuantizer::read_bytes(std::int64_t first, std::span<std::byte> into, const ReadValues& read) {
  const std::int64_t end = first + std::ssize(into);
  std::fill(into.begin(), into.end(), std::byte{0});
  for (std::size_t p = 0; p < matrix_.n_parts(); ++p) {
    const QuantizedPart part = matrix_.part(p);
    if (end <= part.values || first >= part.end) continue;
    const std::int64_t block_bytes =
        matrix_.format == kernels::WeightFormat::int8 ? kWeightBlock : kWeightBlock / 2;
    const std::int64_t last = std::min(part.blocks, (end - part.values + block_bytes - 1) / block_bytes);
    for (std::int64_t block = std::max<std::int64_t>(0, first - part.values) / block_bytes; block < last;) {
      const std::int64_t to = std::min(last, block + kBlocksAtOnce);
      STRATA_TRY(quantize(p, block, to, read));
      copy_overlap(part.values + block * block_bytes, std::as_bytes(std::span(codes_)), first, into);
      block = to;
    }
    if (end <= part.scales) continue;
    STRATA_TRY(finish_scales(p, read));
    copy_overlap(part.scales, sections_, first, into);
  }
  return {};
}

// Leaves the values' bytes in codes_.
Status MatrixQuantizer::quantize(std::size_t p, std::int64_t first_block, std::int64_t end_block,
                                 const ReadValues& read) {
  const QuantizedPart part = matrix_.part(p);
  if (part_ != p) {
    part_ = p;
    quantized_ = 0;
    sections_.clear();
    scales_.assign(static_cast<std::size_t>(part.blocks), 0.0f);
  }
  const std::int64_t first = first_block * kWeightBlock, end = std::min(part.elems, end_block * kWeightBlock);
  values_.resize(static_cast<std::size_t>(end - first));
  STRATA_TRY(read(part.first_row * matrix_.columns + first, values_));
  const bool is_int8 = matrix_.format == kernels::WeightFormat::int8;
  codes_.resize(static_cast<std::size_t>(is_int8 ? end - first : (end - first + 1) / 2));
  kernels::quantize_weights(matrix_.format, values_, codes_.data(), scales_.data() + first_block, pool_);
  if (first_block <= quantized_) quantized_ = std::max(quantized_, end_block);
  return {};
}

Status MatrixQuantizer::finish_scales(std::size_t p, const ReadValues& read) {
  const QuantizedPart part = matrix_.part(p);
  if (part_ == p && !sections_.empty()) return {};
  while (part_ != p || quantized_ < part.blocks) {  // the pieces did not begin with the part
    const std::int64_t block = part_ == p ? quantized_ : 0;
    STRATA_TRY(quantize(p, block, std::min(part.blocks, block + kBlocksAtOnce), read));
  }
  sections_.assign(static_cast<std::size_t>(part.end - part.scales), std::byte{0});
  kernels::write_weight_scales(matrix_, p, scales_, sections_.data());
  return {};
}

}  // namespace strata::detail
