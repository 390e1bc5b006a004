#include "execute/matrix_quantizer.h"

#include <algorithm>
#include <cstring>

#include <strata/kernels/weight_quant.h>

namespace strata::detail {
namespace {

using kernels::QuantizedPart;
using kernels::QuantizedUnits;

/// Units that are quantized at once: those of about a MiB of values.
std::int64_t units_at_once(const QuantizedUnits& units) {
  constexpr std::int64_t kElemsAtOnce = std::int64_t{1} << 18;
  return std::max<std::int64_t>(1, kElemsAtOnce / units.elems);
}

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
  const std::int64_t end = first + std::ssize(into), of_matrix = matrix_.matrix_bytes();
  std::fill(into.begin(), into.end(), std::byte{0});
  for (std::int64_t m = first / of_matrix; m * of_matrix < end; ++m) {
    const std::int64_t from = std::max(first, m * of_matrix), to = std::min(end, (m + 1) * of_matrix);
    for (std::size_t p = 0; p < matrix_.n_parts(); ++p)
      STRATA_TRY(read_part(
          {m, p}, from - m * of_matrix,
          into.subspan(static_cast<std::size_t>(from - first), static_cast<std::size_t>(to - from)), read));
  }
  return {};
}

// Bytes [first, first + into.size()) of the matrix, as far as they are the part's.
Status MatrixQuantizer::read_part(const Part& at, std::int64_t first, std::span<std::byte> into,
                                  const ReadValues& read) {
  const std::int64_t end = first + std::ssize(into);
  const QuantizedPart part = matrix_.part(at.index);
  const QuantizedUnits units = units_of(matrix_, at.index);
  if (end <= part.values || first >= part.end) return {};
  const std::int64_t last = std::min(units.n, (end - part.values + units.bytes - 1) / units.bytes);
  for (std::int64_t unit = std::max<std::int64_t>(0, first - part.values) / units.bytes; unit < last;) {
    const std::int64_t to = std::min(last, unit + units_at_once(units));
    STRATA_TRY(quantize(at, unit, to, read));
    copy_overlap(part.values + unit * units.bytes, std::as_bytes(std::span(codes_)), first, into);
    unit = to;
  }
  if (end <= part.scales) return {};
  STRATA_TRY(finish_scales(at, read));
  copy_overlap(part.scales, sections_, first, into);
  return {};
}

// Leaves the values' bytes in codes_.
Status MatrixQuantizer::quantize(const Part& at, std::int64_t first_unit, std::int64_t end_unit,
                                 const ReadValues& read) {
  const QuantizedPart part = matrix_.part(at.index);
  const QuantizedUnits units = units_of(matrix_, at.index);
  if (part_ != at) {
    part_ = at;
    quantized_ = 0;
    sections_.clear();
    scales_.assign(static_cast<std::size_t>(part.blocks), 0.0f);
  }
  const std::int64_t first = first_unit * units.elems, end = std::min(part.elems, end_unit * units.elems);
  values_.resize(static_cast<std::size_t>(end - first));
  STRATA_TRY(read(at.matrix * matrix_.matrix_elems() + part.first_row * matrix_.columns + first, values_));
  codes_.resize(static_cast<std::size_t>(kernels::code_bytes(matrix_, end - first)));
  kernels::quantize_weights(matrix_, values_, codes_.data(), scales_.data() + first_unit * units.blocks,
                            pool_);
  if (first_unit <= quantized_) quantized_ = std::max(quantized_, end_unit);
  return {};
}

Status MatrixQuantizer::finish_scales(const Part& at, const ReadValues& read) {
  const QuantizedPart part = matrix_.part(at.index);
  const QuantizedUnits units = units_of(matrix_, at.index);
  if (part_ == at && !sections_.empty()) return {};
  while (part_ != at || quantized_ < units.n) {  // the pieces did not begin with the part
    const std::int64_t unit = part_ == at ? quantized_ : 0;
    STRATA_TRY(quantize(at, unit, std::min(units.n, unit + units_at_once(units)), read));
  }
  sections_.assign(static_cast<std::size_t>(part.end - part.scales), std::byte{0});
  kernels::write_weight_scales(matrix_, at.index, scales_, sections_.data());
  return {};
}

}  // namespace strata::detail
