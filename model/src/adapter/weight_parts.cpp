#include <strata/model/adapter/weight_parts.h>

#include <algorithm>
#include <map>

#include <strata/model/hf/tensors.h>
#include <strata/runtime/assert.h>

namespace strata {

std::vector<WeightParts> weight_parts(const DecoderConfig& config) {
  const std::vector<HfTensor> tensors = hf_tensors(config);
  std::vector<WeightParts> weights;
  std::map<std::string, std::map<std::int64_t, std::int64_t>> rows_of;  // keyed by matrix and first row
  for (const HfTensor& tensor : tensors) {
    if (tensor.shape.size() != 2 || !tensor.is_linear || !tensor.param.starts_with("layers.")) continue;
    const auto [found, is_new] = rows_of.try_emplace(tensor.param);
    if (is_new) weights.push_back({tensor.param});
    const std::size_t rows = tensor.layout == HfTensor::Layout::transposed ? 1 : 0;
    found->second[tensor.first_row] = static_cast<std::int64_t>(tensor.shape[rows]);
  }
  for (WeightParts& parts : weights) {
    const auto& rows = rows_of.at(parts.weight);
    STRATA_ASSERT(rows.size() <= parts.rows.size(), parts.weight, " has ", rows.size(), " parts");
    std::transform(rows.begin(), rows.end(), parts.rows.begin(),
                   [](const auto& part) { return part.second; });
  }
  return weights;
}

}  // namespace strata
