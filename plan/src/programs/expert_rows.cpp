#include <strata/plan/expert_rows.h>

#include <utility>

#include <strata/config/model_choice.h>
#include <strata/config/objective.h>
#include <strata/config/train_config.h>
#include <strata/graph/op_list.h>
#include <strata/model/decoder.h>
#include <strata/runtime/str.h>

namespace strata {

std::string expert_rows_output(std::size_t mixture) { return str("expert_rows.", mixture); }

Program with_expert_rows(Program program) {
  std::size_t mixture = 0;
  for (const Instr& instr : program.code) {
    if (instr.op != Op::route_rows) continue;
    const ValueId offsets = instr.out.front();
    program.values[static_cast<std::size_t>(offsets)].name = expert_rows_output(mixture++);
    program.outputs.push_back(offsets);
  }
  return program;
}

bool has_expert_rows(const TrainConfig& config) {
  return objective_of(config).data == RunData::texts && decoder_config(config).experts.n > 0 &&
         model_parallel(config).ranks() == 1;
}

std::vector<StepSum> expert_sums(const TrainConfig& config) {
  std::vector<StepSum> sums;
  if (!has_expert_rows(config)) return sums;
  const ExpertsConfig experts = with_derived_sizes(decoder_config(config)).experts;
  for (const bool is_mixture : experts.layers)
    if (is_mixture) sums.push_back({expert_rows_output(sums.size()), experts.n + 1});
  if (router_losses(config).any()) sums.push_back({kRouterLossesOutput, 2});
  return sums;
}

std::vector<std::string> balanced_biases(const TrainConfig& config) {
  if (config.train.router_bias_rate == 0) return {};
  return choice_biases(decoder_config(config));
}

}  // namespace strata
