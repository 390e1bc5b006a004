// Functions that writers of models share: they read parameters one after the other, and check the values to
// write.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/hf/folder.h>
#include <strata/runtime/dtype.h>

namespace strata::detail {

/// Holds the last parameter read, since the tensors of one parameter are written in succession.
class ParamCache {
 public:
  /// `source` outlives the object.
  ParamCache(const DecoderConfig& config, const ParamSource& source);
  /// The values of a parameter of the model, valid until the next call. Errors: those of `source`.
  Result<std::span<const float>> get(const std::string& name);

 private:
  const ParamSource& source_;
  std::map<std::string, std::int64_t> elems_;
  std::string name_;
  std::vector<float> values_;
};

/// Checks elements of a tensor from `begin` on, of which `rounded` is what is written: a file with a NaN or
/// an infinity would load but compute only NaN. Errors: `diverged` if a value is not finite; `invalid` if
/// only `format` makes it so, with the formats that hold it.
Status check_written(const std::string& tensor, std::int64_t begin, std::span<const float> values,
                     std::span<const float> rounded, std::string_view format);

using ByteSink = std::function<Status(std::span<const std::byte>)>;
/// Gives the elements of a tensor from `begin` on.
using ElementSource = std::function<Status(std::int64_t begin, std::span<float> into)>;

/// Rounds the `n` elements of a tensor to `dtype` and gives their bytes to `into`, at most 1 MiB of f32 at a
/// time. Errors: those of check_written(), of `elements` and of `into`.
Status write_rounded(const std::string& tensor, std::int64_t n, DType dtype, const ElementSource& elements,
                     const ByteSink& into);

}  // namespace strata::detail
