#include <strata/model/adapter/weight_parts.h>

#include <algorithm>
#include <map>
#include <set>

#include <strata/model/adapter/lora.h>
#include <strata/model/hf/tensors.h>
#include <strata/runtime/assert.h>

#include "family/family.h"

namespace strata {
namespace {

bool is_experts_in(std::string_view param) { return param.ends_with(".experts_in.weight"); }
bool is_experts_out(std::string_view param) { return param.ends_with(".experts_out.weight"); }

/// What an expert reads of a token, and writes.
std::int64_t width_of_experts(const DecoderConfig& config) {
  return config.experts.latent > 0 ? config.experts.latent : config.hidden;
}

/// Gate and up of an expert are two parts of its matrix, however a file has them.
WeightParts parts_of_experts(const std::string& param, const DecoderConfig& config) {
  const std::int64_t ffn = config.experts.ffn;
  if (!is_experts_in(param)) return {param, {width_of_experts(config)}};
  return is_gated(config.mlp) ? WeightParts{param, {ffn, ffn}} : WeightParts{param, {ffn}};
}

}  // namespace

std::vector<WeightParts> weight_parts(const DecoderConfig& config) {
  const DecoderConfig full = with_derived_sizes(config);
  const std::vector<HfTensor> tensors = hf_tensors(config);
  std::vector<WeightParts> weights, experts;
  std::set<std::string_view> known_experts;
  const bool only_experts = config.experts.only_quantized;
  std::map<std::string, std::map<std::int64_t, std::int64_t>> rows_of;  // keyed by matrix and first row
  for (const HfTensor& tensor : tensors) {
    if (tensor.of_experts && known_experts.insert(tensor.param).second)
      experts.push_back(parts_of_experts(tensor.param, full));
    if (only_experts || tensor.shape.size() != 2 || !tensor.is_linear || !tensor.param.starts_with("layers."))
      continue;
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
  weights.insert(weights.end(), experts.begin(), experts.end());
  return weights;
}

std::map<std::string, kernels::QuantizedMatrix, std::less<>> quantized_matrices(
    const DecoderConfig& config, kernels::WeightFormat format) {
  const std::map<std::string, std::int64_t> columns = inner_extents(config);
  const DecoderConfig full = with_derived_sizes(config);
  std::map<std::string, kernels::QuantizedMatrix, std::less<>> matrices;
  for (const WeightParts& parts : weight_parts(config)) {
    const bool in = is_experts_in(parts.weight), out = is_experts_out(parts.weight);
    const std::int64_t inner = in    ? width_of_experts(full)
                               : out ? full.experts.ffn
                                     : columns.at(parts.weight);
    kernels::QuantizedMatrix& matrix = matrices[parts.weight] = {format, inner, parts.rows};
    if (!in && !out) continue;
    matrix.count = full.experts.n;
    matrix.align = kernels::QuantizedMatrix::kExpertAlign;
  }
  return matrices;
}

}  // namespace strata
