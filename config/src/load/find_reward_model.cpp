#include "load/find_reward_model.h"

#include <algorithm>
#include <filesystem>

#include <strata/model/hf/config.h>
#include <strata/model/hf/model_files.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/text/rewards/rewards.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>
#include <strata/config/run_checkpoints.h>
#include <strata/config/run_layout.h>

namespace strata::detail {
namespace {

Status no_reward_model(const std::string& path, const std::string& why) {
  return Status::error(Code::invalid, str("align.reward = model:", path, ": ", why));
}

Result<RewardModel> read_run(const std::string& path, const TrainConfig& config, const LoadRun& load) {
  STRATA_TRY_ASSIGN(const TrainConfig of_run, load(str(path, "/", kResolvedConfig)));
  if (!objective_of(of_run).scores)
    return no_reward_model(path, str("it is a run of train.objective = ", of_run.train.objective));
  RewardModel model{
      .path = path, .is_run = true, .checkpoints = {}, .decoder = decoder_config(of_run), .adapter = {}};
  model.checkpoints = checkpoint_dir(of_run, path);
  if (of_run.adapter.method == "none") return model;
  if (config.adapter.method == "none" || of_run.train.base != config.train.base)
    return no_reward_model(
        path,
        config.adapter.method != "none"
            ? str("its base is ", of_run.train.base, ", but train.base is ", config.train.base)
            : std::string("it is an adapter over a base that this run would train (adapter.method is none)") +
                  "; export it with --format merged and name that folder");
  std::error_code unknown;
  if (!std::filesystem::equivalent(of_run.model.from, config.model.from, unknown))
    return no_reward_model(path, str("its adapter is over ", of_run.model.from, ", but model.from is ",
                                     config.model.from.empty() ? "empty" : config.model.from,
                                     "; export it with --format merged and name that folder"));
  STRATA_TRY_ASSIGN(model.adapter, adapter_settings(of_run));
  return model;
}

Result<RewardModel> read_folder(const std::string& path) {
  constexpr std::uint64_t kMaxBytes = 16 << 20;
  STRATA_TRY_ASSIGN(const std::string text, read_model_file(posix_io(), path + "/config.json", kMaxBytes));
  STRATA_TRY_ASSIGN(DecoderConfig decoder, decoder_from_hf_config(text));
  if (!decoder.scores) return no_reward_model(path, "it has a head for tokens, and no score");
  return RewardModel{
      .path = path, .is_run = false, .checkpoints = {}, .decoder = std::move(decoder), .adapter = {}};
}

Status check_vocabulary(const RewardModel& model, const TrainConfig& config) {
  STRATA_TRY_ASSIGN(const Tokenizer own, Tokenizer::load(posix_io(), tokenizer_source(config)));
  STRATA_TRY_ASSIGN(const Tokenizer other,
                    Tokenizer::load(posix_io(), model.is_run ? model.path + "/tokenizer.json" : model.path));
  if (own.digest() == other.digest()) return {};
  return no_reward_model(model.path, str("its tokenizer (", other.vocab_size(),
                                         " tokens) is not that of the run (", own.vocab_size(), ")"));
}

}  // namespace

Status find_reward_model(ConfigTree& tree, TrainConfig& config, const LoadRun& load) {
  if (objective_of(config).data != RunData::prompts) return {};
  std::vector<std::string>& rewards = config.align.reward;
  for (std::string& text : rewards) {
    STRATA_TRY_ASSIGN(const RewardSpec spec, parse_reward(text));
    if (spec.kind != kModelReward) continue;
    if (config.align.reward_model)
      return Status::error(Code::unsupported,
                           str("align.reward names two models, ", config.align.reward_model->path, " and ",
                               spec.argument, "; there may be one"));
    const std::string path = std::filesystem::absolute(spec.argument).lexically_normal().string();
    STRATA_TRY_ASSIGN(config.align.reward_model,
                      is_run_folder(posix_io(), path) ? read_run(path, config, load) : read_folder(path));
    STRATA_TRY(check_vocabulary(*config.align.reward_model, config));
    text.replace(text.size() - spec.argument.size(), spec.argument.size(), path);
  }
  tree.replace_texts("align.reward", rewards);
  return {};
}

}  // namespace strata::detail
