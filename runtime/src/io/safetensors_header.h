#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/io/safetensors_format.h>
#include <strata/runtime/status.h>

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

}  // namespace strata::detail
