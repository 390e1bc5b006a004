#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/io/safetensors_format.h>
#include <strata/runtime/status.h>
#include <strata/runtime/str.h>

namespace strata::detail {

/// Bytes of one element of a safetensors dtype, 0 for an unknown name.
std::uint64_t safetensors_element_bytes(std::string_view dtype) noexcept;
/// product(shape) x element size. Errors: `invalid` past 2^63 - 1 or past the rank limit, `unsupported` for
/// an unknown dtype.
Result<std::uint64_t> safetensors_bytes(std::string_view name, std::string_view dtype,
                                        const std::vector<std::uint64_t>& shape);
/// Returns a name from a file in quotes, shortened for a message and without control characters.
std::string quoted(std::string_view name);

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in file order; names may still be duplicated
  std::map<std::string, std::string> metadata;
};
/// Checks syntax, limits and field types. Consistency between entries, and with the file, is left to the
/// caller.
Result<SafetensorsHeader> parse_safetensors_header(const std::string& text);

std::string safetensors_header_text(const std::vector<TensorSpec>& specs,
                                    const std::vector<std::uint64_t>& ends,
                                    const std::map<std::string, std::string>& metadata);

inline constexpr std::uint64_t kLengthBytes = 8;  // the length of the header, at the beginning of the file

/// Indices of `items` (tensors) sorted by name. Errors: `corrupt` if a name occurs twice.
template <class Items>
Result<std::vector<std::uint32_t>> sort_names(const Items& items) {
  std::vector<std::uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return items[a].name < items[b].name; });
  const auto duplicate = std::adjacent_find(order.begin(), order.end(),
                                            [&](auto a, auto b) { return items[a].name == items[b].name; });
  if (duplicate != order.end())
    return Status::error(Code::corrupt,
                         str("tensor ", detail::quoted(items[*duplicate].name), " occurs twice"));
  return order;
}

/// A file with its header, before it is written.
struct SafetensorsLayout {
  std::string header;
  std::vector<std::uint64_t> ends;  ///< end offset of each tensor's data, ascending
  std::uint64_t data_begin() const noexcept { return kLengthBytes + header.size(); }
  std::uint64_t file_bytes() const noexcept { return data_begin() + (ends.empty() ? 0 : ends.back()); }
};
/// Errors: `invalid` for tensors that a reader would refuse, naming the problem.
Result<SafetensorsLayout> lay_out_safetensors(const std::vector<TensorSpec>& specs,
                                              const std::map<std::string, std::string>& metadata);

}  // namespace strata::detail
