#include "hf/stored/stored_matrix.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <strata/runtime/str.h>

#include "hf/folder_files.h"

namespace strata::detail {
Status wrong_tensor(const std::string& name, const std::string& is, const std::string& must_be) {
  return Status::error(Code::corrupt, str(name, " is ", is, "; it must be ", must_be));
}

Result<StoredTensor> expect_tensor(const std::string& name, std::string_view dtype, std::int64_t elems,
                                   const FindTensor& find, std::vector<std::string>& names) {
  const StoredTensor found = find(name);
  if (found.entry == nullptr) return Status::error(Code::corrupt, str(name, " is missing"));
  names.push_back(name);
  std::uint64_t n = 1;
  for (const std::uint64_t extent : found.entry->shape) n *= extent;
  if (found.entry->dtype == dtype && n == static_cast<std::uint64_t>(elems)) return found;
  return wrong_tensor(name, str(found.entry->dtype, " ", shape_text(found.entry->shape)),
                      str(dtype, " with ", elems, " elements"));
}

Result<StoredTensor> expect_shape(const std::string& name, std::string_view dtype,
                                  const std::vector<std::int64_t>& shape, const FindTensor& find,
                                  std::vector<std::string>& names) {
  const std::vector<std::uint64_t> extents(shape.begin(), shape.end());
  std::int64_t elems = 1;
  for (const std::int64_t extent : shape) elems *= extent;
  STRATA_TRY_ASSIGN(const StoredTensor found, expect_tensor(name, dtype, elems, find, names));
  if (found.entry->shape == extents) return found;
  return wrong_tensor(name, str(dtype, " ", shape_text(found.entry->shape)),
                      str(dtype, " ", shape_text(extents)));
}

Status read_stored(const StoredTensor& tensor, std::int64_t at, std::span<std::byte> into) {
  return tensor.file->read_range(*tensor.entry, static_cast<std::uint64_t>(at), into);
}

namespace {

/// What the largest code of a value stands for.
float largest_code(kernels::ValueType type) {
  using enum kernels::ValueType;
  return type == e2m1 ? 6.0f : type == e4m3 ? 448.0f : type == int4 ? 8.0f : 1.0f;
}

float scale_at(kernels::ScaleType type, const std::byte* at) {
  if (type == kernels::ScaleType::e8m0) {
    const auto code = static_cast<int>(*at);
    return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, code - 127);
  }
  float scale = 0;
  const auto bytes = static_cast<std::size_t>(kernels::scale_bytes(type));  // bf16 is the upper half
  std::memcpy(reinterpret_cast<std::byte*>(&scale) + sizeof scale - bytes, at, bytes);
  return scale;
}

}  // namespace

Status read_scales(const StoredTensor& tensor, kernels::WeightFormat format, std::int64_t at,
                   std::span<std::byte> into) {
  STRATA_TRY(read_stored(tensor, at, into));
  const kernels::WeightFormatTraits& traits = kernels::traits_of(format);
  const std::int64_t bytes = kernels::scale_bytes(traits.scales);
  const float code = largest_code(traits.values), limit = std::numeric_limits<float>::max() / code;
  for (std::int64_t i = (at + bytes - 1) / bytes; (i + 1) * bytes <= at + std::ssize(into); ++i) {
    const float scale = scale_at(traits.scales, into.data() + (i * bytes - at));
    if (std::abs(scale) <= limit) continue;
    return Status::error(Code::corrupt, str("element ", i, " of ", tensor.entry->name, " is ", scale,
                                            "; scales must be finite, and ", code, " times as much, too"));
  }
  return {};
}

Status read_e4m3(const StoredTensor& tensor, std::int64_t at, std::span<std::byte> into) {
  STRATA_TRY(read_stored(tensor, at, into));
  const auto is_nan = [](std::byte code) { return (code & std::byte{0x7f}) == std::byte{0x7f}; };
  const auto found = std::find_if(into.begin(), into.end(), is_nan);
  if (found == into.end()) return {};
  return Status::error(Code::corrupt, str("element ", at + (found - into.begin()), " of ", tensor.entry->name,
                                          " is nan; weights must be finite"));
}

}  // namespace strata::detail
