#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/kernels/values/attention_order.h>
#include <strata/model/decoder.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/text/rewards/rewards.h>
#include <strata/config/split_annotations.h>
#include <strata/config/train_config.h>

#include <strata/config/adapter_methods.h>
#include "fill/galore.h"
#include <strata/config/given_keys.h>
#include <strata/config/param_groups.h>
#include <strata/config/model_choice.h>
#include <strata/config/optimizer_choice.h>
#include <strata/config/pipeline_schedule.h>
#include "schema/sections.h"

namespace strata {
namespace {

using detail::set_by;

// Refuses sizes for which config.json of a family has no key: the model could not be exported.
void check_new_model(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  const TrainConfig::Model& m = config.model;
  const FamilyLimits limits = family_limits(m.family);
  if (const std::int64_t n = limits.ffn_factor; n > 0 && m.ffn != n * m.hidden)
    problems.push_back(str(set_by(tree, "model.ffn"), " = ", m.ffn, ", but the MLP of ", limits.title, " is ",
                           n, " x model.hidden = ", n * m.hidden, " wide (model.hidden = ", m.hidden, ", ",
                           tree.entry("model.hidden").origin, ")"));
  if (!limits.grouped_queries && m.kv_heads.value_or(m.heads) != m.heads)
    problems.push_back(str(set_by(tree, "model.kv_heads"), " = ", *m.kv_heads, ", but ", m.family,
                           " has keys and values for each of its model.heads = ", m.heads, " (",
                           tree.entry("model.heads").origin, ")"));
  if (!limits.head_dim && m.head_dim && std::int64_t{*m.head_dim} * m.heads != m.hidden)
    problems.push_back(str(set_by(tree, "model.head_dim"), " = ", *m.head_dim, ", but the ", m.heads,
                           " heads of ", limits.title, " are together as wide as model.hidden = ", m.hidden,
                           " (", tree.entry("model.hidden").origin, ")"));
}

void check_model_and_data(const ConfigTree& tree, const TrainConfig& config,
                          std::vector<std::string>& problems) {
  if (config.model.from.empty() && !config.model.head_dim && config.model.hidden % config.model.heads != 0)
    problems.push_back(str(set_by(tree, "model.heads"), " = ", config.model.heads,
                           " does not divide model.hidden = ", config.model.hidden, " (",
                           tree.entry("model.hidden").origin, "); model.head_dim sets the width of a head"));
  if (!config.model.states.empty() && config.model.from.empty())
    problems.push_back(str(set_by(tree, "model.states"), " = ", config.model.states,
                           ", but model.from, whose tensors it names, is empty"));
  if (const auto& data = config.data; !data.weights.empty() && data.weights.size() != data.train.size())
    problems.push_back(str(set_by(tree, "data.weights"), ": ", plural(data.weights.size(), "weight"),
                           ", but data.train has ", plural(data.train.size(), "file"), " (",
                           tree.entry("data.train").origin, ")"));
}

void check_memory_and_io(const ConfigTree& tree, const TrainConfig& config,
                         std::vector<std::string>& problems) {
  const auto& dirs = config.memory.nvme_dirs;
  if (config.memory.nvme_bytes > 0 && (dirs.empty() || std::count(dirs.begin(), dirs.end(), "") > 0))
    problems.push_back(str(set_by(tree, "memory.nvme_dir"),
                           " is empty, but memory.nvme enables an NVMe tier (",
                           tree.entry("memory.nvme").origin, ")"));
  if (const auto& rates = config.memory.nvme_rates; !rates.empty() && rates.size() != dirs.size())
    problems.push_back(str(set_by(tree, "memory.nvme_rates"), ": ", plural(rates.size(), "rate"),
                           ", but memory.nvme_dir has ", plural(dirs.size(), "folder"), " (",
                           tree.entry("memory.nvme_dir").origin, ")"));
  if (config.io.block_bytes % 4096 != 0)
    problems.push_back(
        str(set_by(tree, "io.block"), " = ", config.io.block_bytes, " is not a multiple of 4096"));
}

void check_offload(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  if (const auto share = config.offload.activation_share;
      share &&
      (*share > 0) != (config.offload.activations == "pinned" || config.offload.activations == "nvme"))
    problems.push_back(str(set_by(tree, "offload.activation_share"), " = ", *share,
                           ", but offload.activations is ", config.offload.activations, " (",
                           tree.entry("offload.activations").origin, ")"));
  if (config.offload.activations == "nvme" && config.memory.nvme_bytes == 0)
    problems.push_back(str(set_by(tree, "offload.activations"), " = nvme, but memory.nvme is 0 (",
                           tree.entry("memory.nvme").origin, ")"));
  if (config.offload.policy == "nvme" && config.memory.nvme_bytes == 0)
    problems.push_back(str(set_by(tree, "offload.policy"), " = nvme, but memory.nvme is 0 (",
                           tree.entry("memory.nvme").origin, ")"));
}

void check_router_losses(const ConfigTree& tree, const TrainConfig& config,
                         std::vector<std::string>& problems) {
  for (const auto& loss : {std::pair{"train.router_aux", config.train.router_aux},
                           std::pair{"train.router_z", config.train.router_z}}) {
    if (loss.second == 0) continue;
    const auto refuse = [&](const std::string& why) {
      problems.push_back(str(set_by(tree, loss.first), " = ", loss.second, ", but ", why));
    };
    if (!has_softmax_routers(decoder_config(config)))
      refuse(str("the model has no routers with a softmax: model.family is ", config.model.family, " (",
                 tree.entry("model.family").origin, ")"));
    if (config.train.objective != "lm")
      refuse(str("train.objective is ", config.train.objective, " (", tree.entry("train.objective").origin,
                 "), whose loss has no losses of routers"));
    if (model_parallel(config).ranks() > 1)
      refuse(str("ranks share the model (", to_string(model_parallel(config)),
                 "), and these losses need all layers and tokens of a micro-batch"));
  }
}

void check_router_bias(const ConfigTree& tree, const TrainConfig& config,
                       std::vector<std::string>& problems) {
  if (config.train.router_bias_rate == 0) return;
  const auto refuse = [&](const std::string& why) {
    problems.push_back(
        str(set_by(tree, "train.router_bias_rate"), " = ", config.train.router_bias_rate, ", but ", why));
  };
  if (choice_biases(decoder_config(config)).empty())
    refuse(str("the model has no routers with a bias for the choice: model.family is ", config.model.family,
               " (", tree.entry("model.family").origin, ")"));
  if (config.train.objective != "lm")
    refuse(str("train.objective is ", config.train.objective, " (", tree.entry("train.objective").origin,
               "), whose steps do not change biases of routers"));
  if (trained_part(config) == TrainedPart::adapters)
    refuse(str("adapter.method is ", config.adapter.method, " (", tree.entry("adapter.method").origin,
               "), whose files have no biases of the base's routers"));
  if (model_parallel(config).ranks() > 1)
    refuse(str("ranks share the model (", to_string(model_parallel(config)),
               "), and each counts the rows of its own experts and tokens alone"));
}

void check_training(const ConfigTree& tree, const TrainConfig& config, bool trains,
                    std::vector<std::string>& problems) {
  if (chosen_optimizer(config).momentum && config.optim.nesterov && config.optim.momentum == 0)
    problems.push_back(str(set_by(tree, "optim.nesterov"), " = true, but optim.momentum is 0 (",
                           tree.entry("optim.momentum").origin, ")"));
  if (config.train.fp8 && config.train.dtype == "f32")
    problems.push_back(str(set_by(tree, "train.fp8"), " = true, but train.dtype is f32 (",
                           tree.entry("train.dtype").origin, "); it must be bf16 or f16"));
  if (config.train.frozen_masters.value_or(false) && trained_part(config) == TrainedPart::parameters &&
      config.train.freeze.empty())
    problems.push_back(str(set_by(tree, "train.frozen_masters"), " = true, but train.freeze is empty"));
  if (base_format(config) != kernels::WeightFormat::full && trained_part(config) != TrainedPart::adapters &&
      trains)
    problems.push_back(str(set_by(tree, "train.base"), " = ", config.train.base,
                           ", but only a frozen base can be quantized, and adapter.method is none (",
                           tree.entry("adapter.method").origin, ")"));
  if (base_format(config) != kernels::WeightFormat::full && config.train.fp8)
    problems.push_back(str(set_by(tree, "train.base"), " = ", config.train.base, ", but train.fp8 is true (",
                           tree.entry("train.fp8").origin, "); GEMMs have one of the two"));
  if (trains) check_router_losses(tree, config, problems);
  if (trains) check_router_bias(tree, config, problems);
  detail::check_adapter(tree, config, problems);
  detail::check_galore(tree, config, trains, problems);
  if (const std::string& backend = config.train.attention_backend; backend != "auto")
    if (const Status status = kernels::parse_attention_order(backend).status(); !status.is_ok())
      problems.push_back(str(set_by(tree, "train.attention_backend"), ": ", status.message()));
  for (const std::string& group : config.optim.param_groups)
    if (const Status status = parse_param_group(group).status(); !status.is_ok())
      problems.push_back(str(set_by(tree, "optim.param_groups"), ": ", status.message()));
}

void check_reward(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  if (config.align.reward.empty())
    problems.push_back(str("align.reward is empty, but train.objective is ", config.train.objective, " (",
                           tree.entry("train.objective").origin, "); name what an answer is worth"));
  for (const std::string& text : config.align.reward)
    if (const Status status = parse_reward(text).status(); !status.is_ok())
      problems.push_back(str(tree.entry("align.reward").origin, ": ", status.message()));
}

// Checks the settings of objectives that sample answers.
void check_policy(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  const PolicySizes sizes = policy_sizes(config);
  check_reward(tree, config, problems);
  if (config.model.from.empty() && !config.data.tokenizer)
    problems.push_back(
        str("train.objective is ", config.train.objective, " (", tree.entry("train.objective").origin,
            "), but there is neither model.from nor data.tokenizer: prompts train no tokenizer"));
  if (sizes.context() > config.model.seq)
    problems.push_back(str("a prompt of ", sizes.max_prompt, " tokens (align.max_prompt) and an answer of ",
                           sizes.max_tokens, " (", set_by(tree, "align.max_tokens"),
                           ") do not fit into model.seq = ", config.model.seq));
  if (sizes.answers() % sizes.mini_batches != 0)
    problems.push_back(str(set_by(tree, "align.mini_batches"), " = ", sizes.mini_batches,
                           " does not divide the ", sizes.answers(),
                           " answers of an iteration (align.prompts = ", sizes.prompts,
                           ", align.samples = ", sizes.samples, ")"));
  if (!objective_of(config).has_critic && sizes.samples < 2)
    problems.push_back(
        str(set_by(tree, "align.samples"), " = ", sizes.samples,
            ", but grpo compares answers to one prompt with each other; there must be 2 or more"));
  if (const int n = config.train.grad_accum; n != 1 && n != sizes.micro_batches)
    problems.push_back(str(set_by(tree, "train.grad_accum"), " = ", n, ", but a step of ",
                           config.train.objective, " has ", sizes.micro_batches,
                           " micro-batches, which follow from section align; leave it out"));
  if (config.align.kl == "k1" && !objective_of(config).has_critic)
    problems.push_back(
        str(set_by(tree, "align.kl"), " = k1, whose gradient in the loss of grpo is none; use k3"));
  if (config.align.kl_target > 0 && (!objective_of(config).has_critic || config.align.kl_coef == 0))
    problems.push_back(str(set_by(tree, "align.kl_target"), " = ", config.align.kl_target, ", but ",
                           objective_of(config).has_critic ? "align.kl_coef is 0, which nothing adapts"
                                                           : "only the penalty of ppo adapts to it"));
  if (config.offload.micro_batch_order == "breadth_first")
    problems.push_back(str(set_by(tree, "offload.micro_batch_order"),
                           " = breadth_first computes all micro-batches of a step, but train.objective is ",
                           config.train.objective, ", which leaves out those that are empty"));
  if (config.log.histograms && objective_of(config).has_critic)
    problems.push_back(str(set_by(tree, "log.histograms"), " = true shows one model, but ppo trains two"));
  constexpr std::int64_t kMostAnswers = std::int64_t{1} << 20;
  if (sizes.answers() > kMostAnswers)
    problems.push_back(str("an iteration of ", sizes.answers(), " answers (", set_by(tree, "align.prompts"),
                           " = ", sizes.prompts, ", align.samples = ", sizes.samples, "); there may be ",
                           kMostAnswers));
  if (!config.data.val.empty())
    problems.push_back(str(set_by(tree, "data.val"), " names files, but train.objective is ",
                           config.train.objective, ", which has no validation; watch the reward"));
  if (all_ranks(config) > 1)
    problems.push_back(str(set_by(tree, "parallel.ranks"), " = ", all_ranks(config),
                           ", but train.objective is ", config.train.objective, ", which runs on one rank"));
}

void check_loss_name(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  const std::string &loss = config.align.loss, &objective = config.train.objective;
  if (loss == "auto") return;
  const Objective& has_it = *std::ranges::find_if(
      all_objectives(), [&](const Objective& each) { return std::ranges::count(each.losses, loss) > 0; });
  if (objective == has_it.name) return;
  // Older configurations name a loss of pairs where nothing reads it.
  if (has_it.data == RunData::pairs && (objective == "lm" || objective == "reward")) return;
  problems.push_back(str(set_by(tree, "align.loss"), " = ", loss, " is a loss of ", has_it.name,
                         ", but train.objective is ", objective, " (", tree.entry("train.objective").origin,
                         ")"));
}

// Refuses settings that only objectives that sample answers have.
void check_mixture(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  if (!config.data.mixture.empty() && objective_of(config).data != RunData::prompts)
    problems.push_back(str(set_by(tree, "data.mixture"), " names files, but train.objective is ",
                           config.train.objective, " (", tree.entry("train.objective").origin,
                           "), which has no answers to mix them with; name them in data.train"));
}

void check_objective(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  check_loss_name(tree, config, problems);
  check_mixture(tree, config, problems);
  if (config.train.objective == "lm") return;
  if (objective_of(config).data == RunData::prompts) check_policy(tree, config, problems);
  const auto refuse = [&](const char* key, const auto& value, const char* why) {
    problems.push_back(str(set_by(tree, key), " = ", value, ", but train.objective is ",
                           config.train.objective, " (", tree.entry("train.objective").origin, "), ", why));
  };
  if (!config.data.weights.empty())
    refuse("data.weights", fmt::format("{}", fmt::join(config.data.weights, ",")), "which mixes no data");
  if (model_parallel(config).ranks() > 1)
    problems.push_back(str("ranks share the model (", to_string(model_parallel(config)),
                           "), but train.objective is ", config.train.objective, " (",
                           tree.entry("train.objective").origin, "), which needs whole models"));
  if (config.train.allow_micro_batch_split)
    refuse("train.allow_micro_batch_split", "true", "whose micro-batches are packed with whole texts");
  if (config.optim.name == "galore")
    refuse("optim.name", config.optim.name, "which has no bases of subspaces");
  if (virtual_tokens(config) > 0)
    refuse("adapter.method", config.adapter.method,
           "whose texts are packed, and virtual tokens are of a row");
}

// Refuses settings that ranks that share the model do not support.
void check_split(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  const auto refuse = [&](const char* key, const auto& value, const char* why) {
    problems.push_back(str(set_by(tree, key), " = ", value, " ", why, ", but ranks share the model (",
                           to_string(model_parallel(config)), ")"));
  };
  if (const Status status = split_annotations(config, decoder_config(config).tied_head).status();
      !status.is_ok())
    problems.emplace_back(status.message());
  if (config.adapter.method != "none")
    refuse("adapter.method", config.adapter.method, "trains on one rank's model");
  if (config.train.base != "full") refuse("train.base", config.train.base, "is not split among ranks");
  if (config.optim.name == "galore") refuse("optim.name", config.optim.name, "trains on one rank's model");
  if (chosen_optimizer(config).tensor_norms)
    refuse("optim.name", config.optim.name, "needs norms of whole tensors");
  if (config.offload.micro_batch_order == "breadth_first")
    refuse("offload.micro_batch_order", "breadth_first", "needs whole gradients of each micro-batch");
  if (config.log.histograms && model_parallel(config).ranks() > config.parallel.pp)
    refuse("log.histograms", "true", "shows norms of whole tensors");
}

void check_pipeline(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  if (const Status status = pipeline_schedule(config).status(); !status.is_ok())
    problems.push_back(
        str(set_by(tree, "parallel.schedule"), " = ", config.parallel.schedule, ": ", status.message()));
  const int per_rank = virtual_stages(config), stages = config.parallel.pp * per_rank,
            layers = decoder_config(config).layers;
  if (stages > layers)
    problems.push_back(str(set_by(tree, "parallel.pp"), " = ", config.parallel.pp, " makes ", stages,
                           " stages", per_rank > 1 ? str(" (", per_rank, " of each rank)") : "",
                           ", but the model has ", plural(layers, "layer")));
  if (!config.parallel.stage_layers) return;
  double sum = 0;
  bool whole = true;
  for (const double n : *config.parallel.stage_layers) {
    sum += n;
    whole = whole && n == std::floor(n);
  }
  const auto n = static_cast<int>(config.parallel.stage_layers->size());
  const bool any_number = config.parallel.schedule == "auto" && !config.parallel.virtual_stages;
  if ((any_number ? n % config.parallel.pp != 0 : n != stages) || sum != static_cast<double>(layers) ||
      !whole)
    problems.push_back(str(set_by(tree, "parallel.stage_layers"), " has ", sum, " layers in ",
                           plural(n, "stage"), ", but the model has ", layers, " in ", stages,
                           " (parallel.pp = ", config.parallel.pp, ", ", plural(per_rank, "stage"),
                           " of each rank)"));
}

// The problems that a plan would find, with the keys that are to blame.
void check_parallel(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  const int sharing = model_parallel(config).ranks();
  if (all_ranks(config) % sharing != 0) {
    problems.push_back(str(set_by(tree, "parallel.ranks"), " = ", all_ranks(config),
                           " is not a multiple of the ", sharing, " ranks that share the model (",
                           to_string(model_parallel(config)), ")"));
    return;
  }
  if (sharing > 1) check_split(tree, config, problems);
  const int ranks = all_ranks(config) / sharing;
  if (config.parallel.pp > 1 && config.train.grad_accum % ranks == 0) check_pipeline(tree, config, problems);
  if (config.parallel.zero == 1 && config.parallel.reduce == "each")
    problems.push_back(
        str(set_by(tree, "parallel.zero"),
            " = 1 keeps whole gradients and adds them once a step, but parallel.reduce is each (",
            tree.entry("parallel.reduce").origin, ")"));
  if (ranks == 1) return;
  if (config.train.grad_accum % ranks != 0)
    problems.push_back(str(set_by(tree, "train.grad_accum"), " = ", config.train.grad_accum,
                           " is not a multiple of ", sharing == 1 ? "" : "the data-parallel part of ",
                           "parallel.ranks = ", ranks, " (", tree.entry("parallel.ranks").origin,
                           "): every rank computes as many micro-batches"));
  if (const int shard = config.parallel.shard_ranks; shard > 0 && ranks % shard != 0)
    problems.push_back(str(set_by(tree, "parallel.shard_ranks"), " = ", shard,
                           " does not divide parallel.ranks = ", ranks, " (",
                           tree.entry("parallel.ranks").origin, ")"));
  if (config.offload.micro_batch_order == "breadth_first" && config.parallel.reduce == "each")
    problems.push_back(
        str(set_by(tree, "offload.micro_batch_order"),
            " = breadth_first sums a rank's gradients in one pass; it needs parallel.reduce=once"));
  const std::string& mode = config.offload.step_mode;
  if (chosen_optimizer(config).tensor_norms && ranks > 1 && config.parallel.zero.value_or(2) > 0 &&
      (mode == "speculative" || mode == "hybrid"))
    problems.push_back(str(set_by(tree, "offload.step_mode"), " = ", mode, " updates speculatively, which ",
                           set_by(tree, "optim.name"),
                           " = lamb cannot where ranks share tensors; use two_phase"));
}

void check_outputs(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems) {
  if (config.log.sample_prompt.empty() && config.log.sample_every > 0 && config.train.objective == "lm")
    problems.push_back(
        str(set_by(tree, "log.sample_prompt"), " is empty, but log.sample_every = ", config.log.sample_every,
            " (", tree.entry("log.sample_every").origin,
            ") writes texts that continue it; give it a character, or set log.sample_every=0"));
  if (config.log.histograms && !config.log.tensorboard)
    problems.push_back(str(set_by(tree, "log.histograms"),
                           " = true, but log.tensorboard, whose events have them, is ", "false (",
                           tree.entry("log.tensorboard").origin, ")"));
}

Status check_together(const ConfigTree& tree, const TrainConfig& config, bool trains) {
  std::vector<std::string> problems;
  check_model_and_data(tree, config, problems);
  if (trains && config.model.from.empty()) check_new_model(tree, config, problems);
  check_memory_and_io(tree, config, problems);
  check_offload(tree, config, problems);
  check_training(tree, config, trains, problems);
  check_objective(tree, config, problems);
  check_parallel(tree, config, problems);
  check_outputs(tree, config, problems);
  return config_problems(problems);
}

}  // namespace

Result<TrainConfig> fill_train_config(const ConfigTree& tree, bool trains) {
  TrainConfig config;
  const std::span<const TrainKey> keys = train_keys();
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i].field.fill(tree.entries()[i], config);
  STRATA_TRY(check_together(tree, config, trains));
  if (objective_of(config).data == RunData::prompts)
    config.train.grad_accum = static_cast<int>(policy_sizes(config).micro_batches);
  return config;
}

}  // namespace strata
