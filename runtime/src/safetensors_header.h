#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/safetensors.h>

namespace strata::detail {

/// Bytes of one element of a safetensors dtype, 0 for an unknown name.
std::uint64_t safetensors_element_bytes(std::string_view dtype) noexcept;
/// product(shape) x element size. Errors: `invalid` past 2^63 - 1 or past the rank limit, `unsupported`
/// dtype.
Result<std::uint64_t> safetensors_bytes(std::string_view name, std::string_view dtype,
                                        const std::vector<std::uint64_t>& shape);
/// A name from a file, quoted, cut to a length fit for a message and free of control characters.
std::string quoted(std::string_view name);

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of the text, names not yet known to be distinct
  std::map<std::string, std::string> metadata;
};
/// Syntax, limits and field types; what the entries say about each other and the file is the reader's to
/// check.
Result<SafetensorsHeader> parse_safetensors_header(const std::string& text);

std::string safetensors_header_text(const std::vector<TensorSpec>& specs,
                                    const std::vector<std::uint64_t>& ends,
                                    const std::map<std::string, std::string>& metadata);

}  // namespace strata::detail
