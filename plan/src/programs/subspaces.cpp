#include <strata/plan/subspaces.h>

#include <algorithm>
#include <map>
#include <string>

#include <strata/model/hf/tensors.h>
#include <strata/runtime/config/match_names.h>
#include <strata/runtime/str.h>

#include <strata/config/param_groups.h>
#include <strata/config/train_config.h>

namespace strata {
namespace {

constexpr const char* kGroupsKey = "optim.param_groups";

// The index of the first pattern that matches each parameter of the model, or -1.
Result<std::map<std::string, std::int32_t>> match_model(const DecoderConfig& decoder,
                                                        std::span<const std::string> patterns,
                                                        std::string_view key) {
  std::vector<std::string> names;
  for (const HfTensor& tensor : hf_tensors(decoder))
    if (names.empty() || names.back() != tensor.param) names.push_back(tensor.param);
  STRATA_TRY_ASSIGN(const std::vector<std::int32_t> first, match_names(names, patterns, key));
  std::map<std::string, std::int32_t> of_name;
  for (std::size_t i = 0; i < names.size(); ++i) of_name[names[i]] = first[i];
  return of_name;
}

Result<std::vector<ParamGroup>> given_groups(const TrainConfig& config) {
  std::vector<ParamGroup> groups;
  for (const std::string& text : config.optim.param_groups) {
    STRATA_TRY_ASSIGN(ParamGroup group, parse_param_group(text));
    groups.push_back(std::move(group));
  }
  return groups;
}

/// Puts the groups of factors before those of the user.
class FactorGroups {
 public:
  FactorGroups(const TrainConfig& config, std::vector<ParamGroup> given)
      : config_(config), given_(std::move(given)), is_of_others_(given_.size()) {}

  // `of_name`: which of the given groups has each parameter of the model.
  Result<std::vector<ParamGroup>> run(const std::vector<LoraGroup>& subspaces,
                                      std::map<std::string, std::int32_t> of_name) {
    bool any_without = false;
    for (const LoraGroup& subspace : subspaces) {
      const std::int32_t of = of_name.at(subspace.weight);
      any_without = any_without || of < 0;
      if (of >= 0) add_factor(subspace, static_cast<std::size_t>(of));
    }
    const double scale = config_.optim.galore_scale;
    if (any_without) groups_.push_back({"*.lora_[AB]*", scale, 0.0});
    if (measures_whole_gradients(config_)) groups_.push_back({"*.lora_outside*", 0.0, 0.0});
    for (const LoraGroup& subspace : subspaces) of_name.erase(subspace.weight);
    for (const auto& [name, of] : of_name)
      if (of >= 0) is_of_others_[static_cast<std::size_t>(of)] = true;
    for (std::size_t i = 0; i < given_.size(); ++i)
      if (is_of_others_[i]) groups_.push_back(given_[i]);
    if (problems_.empty()) return groups_;
    return Status::error(Code::invalid, problems_);
  }

 private:
  void add_factor(const LoraGroup& subspace, std::size_t of) {
    const ParamGroup& group = given_[of];
    groups_.push_back({subspace.factor(), group.lr_scale * config_.optim.galore_scale, 0.0});
    if (group.weight_decay.value_or(0) == 0) return;
    problems_ += str(problems_.empty() ? "" : "\n", kGroupsKey, ": '", group.pattern,
                     "' has weight_decay = ", *group.weight_decay, " and matches ", subspace.weight,
                     ", which optim.name = galore does not decay");
  }

  const TrainConfig& config_;
  const std::vector<ParamGroup> given_;
  std::vector<bool> is_of_others_;  // whether each given group has a parameter that is no such matrix
  std::vector<ParamGroup> groups_;
  std::string problems_;
};

}  // namespace

GaloreSettings galore_settings(const TrainConfig& config) {
  return {.rank = config.optim.galore_rank, .targets = config.optim.galore_targets};
}

bool measures_whole_gradients(const TrainConfig& config) {
  return trained_part(config) == TrainedPart::subspaces && config.optim.clip > 0;
}

Result<std::vector<LoraGroup>> subspace_groups(const TrainConfig& config, const DecoderConfig& decoder) {
  if (trained_part(config) != TrainedPart::subspaces) return std::vector<LoraGroup>();
  STRATA_TRY_ASSIGN(std::vector<LoraGroup> groups, galore_groups(decoder, galore_settings(config)));
  STRATA_TRY_ASSIGN(const auto frozen, match_model(decoder, config.train.freeze, "train.freeze"));
  std::erase_if(groups, [&](const LoraGroup& group) { return frozen.at(group.weight) >= 0; });
  if (!groups.empty()) return groups;
  return Status::error(Code::invalid,
                       "optim.name = galore, but train.freeze names every matrix of optim.galore_targets");
}

Result<std::vector<ParamGroup>> param_groups(const TrainConfig& config, const DecoderConfig& decoder) {
  STRATA_TRY_ASSIGN(std::vector<ParamGroup> given, given_groups(config));
  if (trained_part(config) != TrainedPart::subspaces) return given;
  STRATA_TRY_ASSIGN(const std::vector<LoraGroup> subspaces, subspace_groups(config, decoder));
  std::vector<std::string> patterns;
  for (const ParamGroup& group : given) patterns.push_back(group.pattern);
  STRATA_TRY_ASSIGN(auto of_name, match_model(decoder, patterns, kGroupsKey));
  return FactorGroups(config, std::move(given)).run(subspaces, std::move(of_name));
}

Result<Program> with_subspaces(Program program, const TrainConfig& config, const DecoderConfig& decoder) {
  STRATA_TRY_ASSIGN(const std::vector<LoraGroup> groups, subspace_groups(config, decoder));
  if (groups.empty()) return program;
  // Before the factors are there, whose names a pattern might match.
  STRATA_TRY_ASSIGN(program, freeze_parameters(std::move(program), config.train.freeze));
  return add_lora(std::move(program), groups);
}

Result<Program> with_unread_parameters(Program program, const TrainConfig& config,
                                       const DecoderConfig& decoder) {
  if (!measures_whole_gradients(config)) return program;
  STRATA_TRY_ASSIGN(const std::vector<LoraGroup> groups, subspace_groups(config, decoder));
  for (const LoraGroup& group : groups) {
    const auto index = static_cast<std::int32_t>(program.params.size());
    const ValueId value = program.add_value({group.outside, {1}, DType::f32, ValueKind::param, index});
    program.params.push_back({.name = group.outside,
                              .shape = {1},
                              .trainable = false,
                              .decay = false,
                              .init = {},
                              .value = value});
  }
  return program;
}

}  // namespace strata
