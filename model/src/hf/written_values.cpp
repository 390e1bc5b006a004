#include "hf/written_values.h"

#include <algorithm>

#include <strata/model/hf/tensors.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "hf/folder_files.h"

namespace strata::detail {

ParamCache::ParamCache(const DecoderConfig& config, const ParamSource& source) : source_(source) {
  for (const HfTensor& tensor : hf_tensors(config)) elems_[tensor.param] += tensor.n_elems();
}

Result<std::span<const float>> ParamCache::get(const std::string& name) {
  if (name != name_) {
    values_.resize(static_cast<std::size_t>(elems_.at(name)));
    name_.clear();
    STRATA_TRY(source_(name, values_));
    name_ = name;
  }
  return std::span<const float>(values_);
}

Status check_written(const std::string& tensor, std::int64_t begin, std::span<const float> values,
                     std::span<const float> rounded, std::string_view format) {
  const std::size_t bad = first_non_finite(rounded);
  if (bad == rounded.size()) return {};
  const std::string where =
      str("element ", begin + static_cast<std::int64_t>(bad), " of ", tensor, " is ", values[bad]);
  if (first_non_finite(values.subspan(bad, 1)) == 0)
    return Status::error(Code::diverged, where + ": the run diverged; export an earlier checkpoint");
  return Status::error(Code::invalid, str(where, ", which ", format, " cannot hold: export as f32",
                                          format == "bf16" ? "" : " or bf16"));
}

Status write_rounded(const std::string& tensor, std::int64_t n, DType dtype, const ElementSource& elements,
                     const ByteSink& into) {
  std::vector<float> block, rounded;
  std::vector<std::byte> raw;
  for (std::int64_t at = 0; at < n; at += kElemsAtOnce) {
    block.resize(static_cast<std::size_t>(std::min(kElemsAtOnce, n - at)));
    STRATA_TRY(elements(at, block));
    raw.resize(block.size() * size_of(dtype));
    STRATA_TRY(narrow_from_f32(block, dtype, raw));
    rounded.resize(block.size());
    STRATA_TRY(widen_to_f32(dtype, raw, rounded));
    STRATA_TRY(check_written(tensor, at, block, rounded, to_string(dtype)));
    STRATA_TRY(into(raw));
  }
  return {};
}

}  // namespace strata::detail
