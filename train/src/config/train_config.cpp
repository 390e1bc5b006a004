#include <strata/train/train_config.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include "config/param_groups.h"

namespace strata {
namespace {

// The ranges in the schema keep these integers below 2^31.
int small(const ConfigTree& tree, std::string_view key) { return static_cast<int>(tree.integer(key)); }

/// The value of a choice or text key, "auto" included.
std::string choice(const ConfigTree& tree, std::string_view key) {
  return tree.is_auto(key) ? std::string("auto") : tree.text(key);
}

std::optional<std::int64_t> optional_integer(const ConfigTree& tree, std::string_view key) {
  if (tree.is_auto(key)) return std::nullopt;
  return tree.integer(key);
}

std::optional<std::uint64_t> optional_bytes(const ConfigTree& tree, std::string_view key) {
  if (tree.is_auto(key)) return std::nullopt;
  return tree.bytes(key);
}

void fill_model_and_data(const ConfigTree& tree, TrainConfig& config) {
  TrainConfig::Model& model = config.model;
  model.preset = tree.text("model.preset");
  model.from = tree.text("model.from");
  model.family = tree.text("model.family");
  model.layers = small(tree, "model.layers");
  model.hidden = small(tree, "model.hidden");
  model.heads = small(tree, "model.heads");
  if (!tree.is_auto("model.kv_heads")) model.kv_heads = small(tree, "model.kv_heads");
  model.ffn = small(tree, "model.ffn");
  model.vocab = small(tree, "model.vocab");
  model.seq = small(tree, "model.seq");
  config.data = {tree.texts("data.train"),
                 tree.texts("data.val"),
                 std::nullopt,
                 choice(tree, "data.chat_template"),
                 tree.text("data.cache_dir"),
                 choice(tree, "data.packing"),
                 tree.numbers("data.weights"),
                 {}};
  if (!tree.is_auto("data.tokenizer")) config.data.tokenizer = tree.text("data.tokenizer");
}

void fill_training(const ConfigTree& tree, TrainConfig& config) {
  TrainConfig::Train& train = config.train;
  train.steps = tree.integer("train.steps");
  train.micro_batch = small(tree, "train.micro_batch");
  train.allow_micro_batch_split = tree.flag("train.allow_micro_batch_split");
  train.grad_accum = small(tree, "train.grad_accum");
  train.max_time_s = tree.seconds("train.max_time");
  train.seed = static_cast<std::uint64_t>(tree.integer("train.seed"));
  train.freeze = tree.texts("train.freeze");
  if (!tree.is_auto("train.frozen_masters")) train.frozen_masters = tree.flag("train.frozen_masters");
  train.dtype = choice(tree, "train.dtype");
  train.fp8 = tree.flag("train.fp8");
  train.attention_backend = tree.text("train.attention_backend");
  train.recompute = choice(tree, "train.recompute");
  train.eval_every = tree.integer("train.eval_every");
  train.eval_batches = small(tree, "train.eval_batches");
  TrainConfig::Optim& optim = config.optim;
  optim.name = tree.text("optim.name");
  optim.schedule = tree.text("optim.schedule");
  optim.lr = tree.number("optim.lr");
  optim.beta1 = tree.number("optim.beta1");
  optim.beta2 = tree.number("optim.beta2");
  optim.eps = tree.number("optim.eps");
  optim.weight_decay = tree.number("optim.weight_decay");
  optim.param_groups = tree.texts("optim.param_groups");
  optim.momentum = tree.number("optim.momentum");
  optim.nesterov = tree.flag("optim.nesterov");
  optim.non_finite = tree.text("optim.non_finite");
  optim.decay_ratio = tree.number("optim.decay_ratio");
  optim.clip = tree.number("optim.clip");
  optim.loss_scale = tree.number("optim.loss_scale");
  optim.warmup = tree.integer("optim.warmup");
  optim.min_lr_ratio = tree.number("optim.min_lr_ratio");
}

void fill_placement(const ConfigTree& tree, TrainConfig& config) {
  config.memory = {choice(tree, "memory.backend"),        optional_bytes(tree, "memory.device"),
                   optional_bytes(tree, "memory.pinned"), tree.bytes("memory.nvme"),
                   tree.texts("memory.nvme_dir"),         tree.numbers("memory.nvme_rates")};
  config.offload.chunk_elems = optional_integer(tree, "offload.chunk");
  if (!tree.is_auto("offload.prefetch")) config.offload.prefetch = small(tree, "offload.prefetch");
  config.offload.step_mode = choice(tree, "offload.step_mode");
  config.offload.undo_bytes = optional_bytes(tree, "offload.undo_log");
  config.offload.states = tree.text("offload.states");
  config.offload.activations = choice(tree, "offload.activations");
  if (!tree.is_auto("offload.activation_share"))
    config.offload.activation_share = tree.number("offload.activation_share");
  config.offload.micro_batch_order = choice(tree, "offload.micro_batch_order");
  config.offload.policy = choice(tree, "offload.policy");
  config.offload.gradients = choice(tree, "offload.gradients");
  config.io = {choice(tree, "io.engine"), small(tree, "io.queue_depth"), tree.bytes("io.block"),
               tree.flag("io.direct"), tree.bytes("io.write_budget")};
  config.cpu.isa = choice(tree, "cpu.isa");
  config.cpu.bf16_gemm = choice(tree, "cpu.bf16_gemm");
}

void fill_outputs(const ConfigTree& tree, TrainConfig& config) {
  config.log = {tree.integer("log.every"),      tree.integer("log.sample_every"),
                tree.text("log.sample_prompt"), small(tree, "log.sample_tokens"),
                choice(tree, "log.progress"),   tree.steps("log.trace"),
                tree.text("log.level")};
  config.checkpoint = {tree.integer("checkpoint.every"), tree.seconds("checkpoint.interval"),
                       tree.flag("checkpoint.at_end"), small(tree, "checkpoint.keep"),
                       tree.text("checkpoint.dir")};
}

std::string set_by(const ConfigTree& tree, std::string_view key) {
  return str(tree.entry(key).origin, ": ", key);
}

Status check_together(const ConfigTree& tree, const TrainConfig& config) {
  std::vector<std::string> problems;
  // In a model from a folder, the head dimension may differ from hidden / heads.
  if (config.model.from.empty() && config.model.hidden % config.model.heads != 0)
    problems.push_back(str(set_by(tree, "model.heads"), " = ", config.model.heads,
                           " does not divide model.hidden = ", config.model.hidden, " (",
                           tree.entry("model.hidden").origin, ")"));
  if (const auto& data = config.data; !data.weights.empty() && data.weights.size() != data.train.size())
    problems.push_back(str(set_by(tree, "data.weights"), ": ", plural(data.weights.size(), "weight"),
                           ", but data.train has ", plural(data.train.size(), "file"), " (",
                           tree.entry("data.train").origin, ")"));
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
  if (config.optim.name == "sgd" && config.optim.nesterov && config.optim.momentum == 0)
    problems.push_back(str(set_by(tree, "optim.nesterov"), " = true, but optim.momentum is 0 (",
                           tree.entry("optim.momentum").origin, ")"));
  if (const auto share = config.offload.activation_share;
      share &&
      (*share > 0) != (config.offload.activations == "pinned" || config.offload.activations == "nvme"))
    problems.push_back(str(set_by(tree, "offload.activation_share"), " = ", *share,
                           ", but offload.activations is ", config.offload.activations, " (",
                           tree.entry("offload.activations").origin, ")"));
  if (config.offload.activations == "nvme" && config.memory.nvme_bytes == 0)
    problems.push_back(str(set_by(tree, "offload.activations"), " = nvme, but memory.nvme is 0 (",
                           tree.entry("memory.nvme").origin, ")"));
  if (config.train.fp8 && config.train.dtype == "f32")
    problems.push_back(str(set_by(tree, "train.fp8"), " = true, but train.dtype is f32 (",
                           tree.entry("train.dtype").origin, "); it must be bf16 or f16"));
  if (config.train.frozen_masters.value_or(false) && config.train.freeze.empty())
    problems.push_back(str(set_by(tree, "train.frozen_masters"), " = true, but train.freeze is empty"));
  for (const std::string& group : config.optim.param_groups)
    if (const Status status = parse_param_group(group).status(); !status.is_ok())
      problems.push_back(str(set_by(tree, "optim.param_groups"), ": ", status.message()));
  if (config.offload.policy == "nvme" && config.memory.nvme_bytes == 0)
    problems.push_back(str(set_by(tree, "offload.policy"), " = nvme, but memory.nvme is 0 (",
                           tree.entry("memory.nvme").origin, ")"));
  return config_problems(problems);
}

}  // namespace

void resolve_simple_autos(ConfigTree& tree, const CoreShare& share) {
  if (tree.is_auto("offload.step_mode") && tree.is_auto("offload.undo_log"))
    tree.resolve(
        "offload.step_mode", std::string("two_phase"),
        "during the next forward; with offload.undo_log also during backward while steps are not clipped");
  if (tree.is_auto("cpu.threads")) tree.resolve("cpu.threads", std::int64_t{share.threads()}, share.why);
  if (tree.is_auto("cpu.service_cores"))
    tree.resolve("cpu.service_cores", std::int64_t{share.service_cores},
                 share.service_cores > 0
                     ? "one with 8 or more cores, two with 32 or more"
                     : "none with fewer than 8 cores, or if the system places the threads");
}

Result<TrainConfig> fill_train_config(const ConfigTree& tree) {
  TrainConfig config;
  fill_model_and_data(tree, config);
  fill_training(tree, config);
  fill_placement(tree, config);
  fill_outputs(tree, config);
  STRATA_TRY(check_together(tree, config));
  return config;
}

// A pretrained model only understands the tokens of its own tokenizer, which is therefore the default.
std::string tokenizer_source(const TrainConfig& config) {
  if (config.data.tokenizer) return *config.data.tokenizer;
  return config.model.from.empty() ? std::string() : config.model.from + "/tokenizer.json";
}

std::string locate_data_file(const std::string& path, std::span<const std::string> data_dirs) {
  std::error_code ignored;  // an unreadable folder counts as one without the file
  if (path.empty() || path.front() == '/' || std::filesystem::exists(path, ignored)) return path;
  for (const std::string& dir : data_dirs) {
    std::string below = str(dir, "/", path);
    if (std::filesystem::exists(below, ignored)) return below;
  }
  return path;
}

std::vector<std::string> default_data_dirs() { return {STRATA_INSTALLED_DATA_DIR, STRATA_SOURCE_DATA_DIR}; }

}  // namespace strata
