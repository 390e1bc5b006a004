// Reads the header of a GGUF file (docs/gguf.md of ggml-org/ggml, versions 2 and 3) and values of its
// tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <strata/runtime/io/gguf/format.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

#include <strata/runtime/io/gguf/layout.h>

namespace strata {

/// A value of the metadata. Integers of all widths are 64 bits, floats double; texts are UTF-8. A long list
/// that nothing reads is not kept: std::monostate says that it is there.
using GgufValue =
    std::variant<std::monostate, std::int64_t, double, bool, std::string, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<bool>, std::vector<std::string>>;

/// A tensor and the offset of its data in the file.
struct GgufEntry {
  GgufTensor tensor;
  std::uint64_t offset = 0;
};

/// An open file whose header has been checked: each count, length and offset before it was used; names and
/// keys are unique, and the tensors lie in the file and do not overlap. Immutable; read() from one thread at
/// a time.
class GgufReader {
 public:
  /// Errors: `corrupt` with the offset; `unsupported` for another version, byte order or format of values.
  static Result<std::unique_ptr<GgufReader>> open(Io& io, const std::string& path);

  const std::map<std::string, GgufValue, std::less<>>& metadata() const noexcept { return metadata_; }
  const std::map<std::string, GgufEntry, std::less<>>& tensors() const noexcept { return tensors_; }
  /// The value of a key; null if there is none.
  template <class T>
  const T* find(std::string_view key) const noexcept {
    const auto at = metadata_.find(key);
    return at == metadata_.end() ? nullptr : std::get_if<T>(&at->second);
  }
  /// Reads elements [begin, begin + into.size()) of a tensor of this file as f32. Errors: `io_error`,
  /// `corrupt`.
  Status read(const GgufEntry& entry, std::uint64_t begin, std::span<float> into) const;
  /// Whether two tensors have the same format, shape and bytes.
  Result<bool> are_equal(const GgufEntry& one, const GgufEntry& other) const;

 private:
  GgufReader() = default;
  std::string path_;
  std::unique_ptr<File> file_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::map<std::string, GgufEntry, std::less<>> tensors_;
};

}  // namespace strata
