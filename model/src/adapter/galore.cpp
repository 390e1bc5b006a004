#include <strata/model/adapter/galore.h>

#include <map>
#include <utility>

#include "adapter/choose_modules.h"

namespace strata {
namespace {

using ModuleRows = std::pair<std::string, std::int64_t>;  // a parameter, and the first row of a module in it

// The factor that is trained of each module: the one whose partner is the basis.
std::map<ModuleRows, LoraTrained> trained_factors(const DecoderConfig& config) {
  std::map<ModuleRows, LoraTrained> trained;
  for (const HfTensor& tensor : hf_tensors(config)) {
    if (tensor.shape.size() != 2) continue;
    const bool of_rows = tensor.shape[0] >= tensor.shape[1];
    const bool transposed = tensor.layout == HfTensor::Layout::transposed;
    trained[{tensor.param, tensor.first_row}] = of_rows == transposed ? LoraTrained::a : LoraTrained::b;
  }
  return trained;
}

}  // namespace

Result<std::vector<LoraGroup>> galore_groups(const DecoderConfig& config, const GaloreSettings& settings) {
  LoraSettings of_rank{.rank = settings.rank, .targets = settings.targets};
  STRATA_TRY_ASSIGN(const std::vector<LoraTarget> targets,
                    detail::choose_modules(config, of_rank, "optim.galore", detail::RankLimit::of_matrix));
  const std::map<ModuleRows, LoraTrained> trained = trained_factors(config);
  std::vector<LoraModule> modules;
  for (const LoraTarget& target : targets) {
    modules.push_back(target.lora);
    modules.back().scale = 1;
    modules.back().trained = trained.at({target.lora.weight, target.lora.part.first_row});
  }
  return group_lora_modules(modules);
}

}  // namespace strata
