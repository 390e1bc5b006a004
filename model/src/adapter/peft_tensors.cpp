#include "adapter/peft_tensors.h"

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

/// The part of `param` as a tensor of a Hugging Face file, whose rows may be in another order.
HfTensor as_hf(const PeftTensor& tensor) {
  return {tensor.name, tensor.shape(), tensor.param, 0, tensor.layout};
}

}  // namespace

std::vector<PeftTensor> peft_tensors(const DecoderConfig& config, const std::vector<LoraTarget>& targets) {
  const std::map<std::string, std::int64_t> columns = inner_extents(config);
  const std::vector<LoraGroup> groups = lora_groups(targets);
  std::vector<PeftTensor> tensors;
  for (const LoraTarget& target : targets) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const LoraGroup& g) {
      return g.weight == target.lora.weight && g.scale == target.lora.scale &&
             g.magnitude.empty() != target.lora.dora;
    });
    STRATA_ASSERT(group != groups.end(), target.module, " is in no group");
    std::int64_t rank = 0, rows = 0, elems = 0;  // before the module
    for (const LoraPart& part : group->parts.all()) {
      if (part == target.lora.part) break;
      rank += part.rank;
      rows += part.rows;
      elems += part.rows * part.rank;
    }
    const LoraPart& part = target.lora.part;
    const std::int64_t inner = columns.at(target.lora.weight);
    const std::string name = str("base_model.model.", target.module);
    tensors.push_back(
        {name + ".lora_A.weight", group->a, rank * inner, part.rank, inner, HfTensor::Layout::rows});
    tensors.push_back({name + ".lora_B.weight", group->b, elems, part.rows, part.rank, target.rows});
    if (target.lora.dora)
      tensors.push_back({name + ".lora_magnitude_vector", group->magnitude, rows, part.rows, 0, target.rows});
  }
  return tensors;
}

void scatter_peft(const PeftTensor& tensor, const DecoderConfig& config, std::span<const float> from,
                  std::span<float> param) {
  scatter_hf(as_hf(tensor), config, 0, from, param.subspan(static_cast<std::size_t>(tensor.first)));
}

void gather_peft(const PeftTensor& tensor, const DecoderConfig& config, std::span<const float> param,
                 std::span<float> into) {
  gather_hf(as_hf(tensor), config, 0, param.subspan(static_cast<std::size_t>(tensor.first)), into);
}

}  // namespace strata::detail
