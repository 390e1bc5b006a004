// The keys of axolotl 0.19.0 that its examples use (utils/schemas).
#include <algorithm>

#include <strata/runtime/str.h>

#include "table.h"

namespace strata::detail {
namespace {

constexpr DsVerdict kTaken = DsVerdict::taken, kNothing = DsVerdict::meaningless,
                    kRefused = DsVerdict::refused;

constexpr std::string_view kSpeed = "strata decides how it computes; it changes no result but its rounding";
constexpr std::string_view kReports = "see strata report, strata top and log.*";
constexpr std::string_view kPlacement =
    "strata decides by its budgets what is kept, moved and computed again";

bool is_file(const std::string& path) {
  constexpr std::string_view kEnds[] = {".json", ".jsonl", ".ndjson", ".txt", ".gz", ".parquet", ".csv"};
  return path.starts_with("./") || path.starts_with("../") || path.starts_with('/') ||
         std::any_of(std::begin(kEnds), std::end(kEnds),
                     [&](std::string_view end) { return path.ends_with(end); });
}
/// Whether `path` is the name of a reader of the datasets library, whose files are in data_files.
bool is_reader(const std::string& path) {
  for (const char* name : {"json", "text", "csv", "parquet", "arrow"})
    if (path == name) return true;
  return false;
}

/// The part of an entry of `datasets` that strata would read otherwise; else empty.
std::string problem_of(const Json& entry) {
  if (at(entry, "type").is_object())
    return "'type' has fields and a format of its own: write the records as messages, prompts or texts";
  const Json& split = at(entry, "split");
  if (split.is_string() && split.get_ref<const std::string&>().find('[') != std::string::npos)
    return str("'split' = ", split.dump(), " is a part of the records: write those into a file of their own");
  const Json& names = at(entry, "message_property_mappings");
  if (!names.is_object()) return {};
  for (const auto& [what, name] : names.items())
    if (name != what && !(what == "role" && name == "from") && !(what == "content" && name == "value"))
      return str("'message_property_mappings' has ", what, ": ", name.dump(),
                 "; strata reads messages with role and content, or from and value");
  return {};
}

/// The files of one entry of `datasets`, or why there are none.
std::string add_files(const Json& entry, Json& files) {
  if (!entry.is_object() || !at(entry, "path").is_string()) return "each entry must have a path";
  if (std::string problem = problem_of(entry); !problem.empty()) return problem;
  for (const auto& [key, value] : entry.items()) {
    static constexpr std::string_view kKnown[] = {
        "path",  "type", "data_files",     "ds_type",
        "split", "name", "field_messages", "message_property_mappings"};
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown) && !is_off(value))
      return str("its key '", key,
                 "' has no counterpart: strata knows records by their keys, which 'strata data "
                 "inspect FILE' shows");
  }
  const std::string path = at(entry, "path").get<std::string>();
  const Json named = as_list(at(entry, "data_files"));
  if (named.is_null()) files.push_back(path);
  for (const Json& file : named) {
    if (!file.is_string()) return "'data_files' must be a list of names";
    files.push_back(is_reader(path) ? file.get<std::string>() : str(path, "/", file.get<std::string>()));
  }
  return {};
}

YamlOutcome data_sets(const YamlRow& row, const Json& value, const Json&) {
  if (!value.is_array()) return refused("it must be a list");
  Json files = Json::array();
  bool is_of_hub = false;
  for (const Json& entry : value) {
    if (std::string why = add_files(entry, files); !why.empty()) return refused(std::move(why));
    const std::string path = at(entry, "path").get<std::string>();
    is_of_hub = is_of_hub || !(is_file(path) || is_reader(path));
  }
  constexpr std::string_view kForms =
      "records are known by their keys, and those of Alpaca are conversations in data.chat_template";
  return taken(row.strata_keys, files,
               is_of_hub ? str("a folder: of a name on the Hub, where 'hf download NAME --repo-type dataset "
                               "--local-dir DIR' put it; ",
                               kForms)
                         : std::string(kForms));
}

YamlOutcome adapter(const YamlRow&, const Json& value, const Json&) {
  if (value == "lora" || value == "qlora") return taken("adapter.method", "lora");
  return refused("strata reads lora and qlora here; see adapter.method for others");
}

YamlOutcome listed(const YamlRow& row, const Json& value, const Json& root) {
  if (is_off(at(root, "lora_target_linear"))) return targets(row, value, root);
  return meaningless("lora_target_linear takes all linear layers");
}

YamlOutcome all_linear(const YamlRow&, const Json& value, const Json&) {
  if (is_off(value)) return meaningless("adapter.targets names the modules");
  return taken("adapter.targets", Json::array({"all-linear"}));
}

/// {NAME: NUMBER} as NAME=NUMBER.
YamlOutcome patterns(const YamlRow& row, const Json& value, const Json&) {
  if (is_off(value)) return meaningless("as in strata");
  if (!value.is_object()) return refused("it must have a number for each name");
  Json list = Json::array();
  for (const auto& [name, number] : value.items()) list.push_back(str(name, "=", number.dump()));
  return taken(row.strata_keys, list);
}

/// A list of ids, or one for each module.
YamlOutcome tokens(const YamlRow& row, const Json& value, const Json&) {
  if (is_off(value)) return meaningless("as in strata");
  Json list = Json::array();
  const auto add = [&](const std::string& module, const Json& ids) {
    for (const Json& id : ids) list.push_back(str(module, module.empty() ? "" : "=", id.dump()));
  };
  if (value.is_array()) add("", value);
  if (value.is_object())
    for (const auto& [module, ids] : value.items()) add(module, ids);
  return taken(row.strata_keys, list);
}

YamlOutcome start(const YamlRow&, const Json& value, const Json&) {
  if (value == true || value.is_null()) return meaningless("as in strata");
  if (value == "pissa") return taken("adapter.init", "pissa");
  if (value.is_string() && value.get_ref<const std::string&>().starts_with("pissa_niter_"))
    return taken("adapter.init", "pissa-subspace");
  return refused("strata has PEFT's default and pissa (adapter.init)");
}

YamlOutcome packing(const YamlRow&, const Json& value, const Json&) {
  return taken("data.packing", "pack",
               is_off(value)
                   ? "a sequence of strata holds as many whole records as fit: a step has more of them than "
                     "without packing, so lower train.grad_accum to have as many"
                   : "records stay whole, and see only themselves");
}

YamlOutcome four_bits(const YamlRow&, const Json& value, const Json&) {
  return is_off(value) ? meaningless("as in strata") : taken("train.base", "nf4-dq", "NF4 with 8-bit scales");
}
YamlOutcome eight_bits(const YamlRow&, const Json& value, const Json&) {
  return is_off(value) ? meaningless("as in strata") : taken("train.base", "int8");
}

YamlOutcome chat_template(const YamlRow&, const Json& value, const Json&) {
  if (value == "tokenizer_default") return taken("data.chat_template", "own");
  for (const char* name : {"chatml", "llama3", "gemma", "qwen3"})
    if (value == name) return taken("data.chat_template", name);
  if (value == "gemma3") return taken("data.chat_template", "gemma");
  if (value.is_string() && value.get_ref<const std::string&>().starts_with("tokenizer_default_fallback"))
    return meaningless("data.chat_template=auto: the folder's own, if it has one");
  return refused("set data.chat_template to one of its names, or to own, the one in the model's folder");
}

YamlOutcome special_tokens(const YamlRow&, const Json& value, const Json&) {
  const bool pads_only = value.is_object() && value.size() == 1 && value.contains("pad_token");
  return is_off(value) || pads_only ? meaningless("padding is no part of the loss, and needs no token")
                                    : refused("change tokenizer_config.json in the model's folder instead");
}

YamlOutcome alignment(const YamlRow&, const Json& value, const Json&) {
  if (value == "dpo" || value == "grpo") return taken("train.objective", value);
  if (value == "ipo") return {DsVerdict::taken, {{"train.objective", "dpo"}, {"align.loss", "ipo"}}, {}};
  return refused("strata has dpo, ipo and grpo among these (train.objective)");
}

YamlOutcome plugins(const YamlRow&, const Json& value, const Json&) {
  const auto is_kernel = [](const Json& one) {
    const std::string name = one.is_string() ? one.get<std::string>() : "";
    return name.find("liger") != std::string::npos || name.find("cut_cross_entropy") != std::string::npos;
  };
  if (value.is_array() && std::all_of(value.begin(), value.end(), is_kernel))
    return meaningless(std::string(kSpeed));
  return refused("a plugin of axolotl's does not run here");
}

YamlOutcome half(const YamlRow& row, const Json& value, const Json& root) {
  if (value == "full") return taken("train.dtype", "bf16");
  const auto is_off_or_absent = [&](const char* key) { return is_off(at(root, key)); };
  if (value == false && is_off_or_absent("fp16") && is_off_or_absent("float16") &&
      is_off_or_absent("bfloat16") && is_off_or_absent("bf16"))
    return taken("train.dtype", "f32", "neither bf16 nor fp16");
  return dtype(row, value, root);
}

std::string_view ignored(std::string_view key, const Json& root) {
  const bool is_of_adapter = key.starts_with("lora_") || key.starts_with("peft_");
  if (!is_of_adapter || key == "lora_model_dir" || !is_off(at(root, "adapter"))) return {};
  return "the file asks for no adapter";
}

constexpr YamlRow kRows[] = {
    {"base_model", kTaken, "model.from",
     "a folder: of a name on the Hub, where 'hf download NAME --local-dir DIR' put it"},
    {"base_model_config", kNothing, "model.from", "config.json of the model's folder is read"},
    {"model_type", kNothing, "model.from", "config.json of the model's folder says it"},
    {"tokenizer_type", kNothing, "data.tokenizer", "the tokenizer in the model's folder is read"},
    {"tokenizer_config", kTaken, "data.tokenizer", "a folder with a tokenizer"},
    {"processor_type", kRefused, "", "strata trains text models", unless_off},
    {"trust_remote_code", kNothing, "", "strata runs no code of a folder"},
    {"strict", kNothing, "", "every key must be known"},
    {"datasets", kTaken, "data.train", "", data_sets},
    {"test_datasets", kTaken, "data.val", "", data_sets},
    {"val_set_size", kRefused, "data.val",
     "strata validates on files of their own: set data.val, whose records are "
     "then no longer in data.train",
     unless_off},
    {"dataset_prepared_path", kNothing, "data.cache_dir", "tokens are kept in data.cache_dir"},
    {"skip_prepare_dataset", kNothing, "", "tokens are made as they are needed"},
    {"remove_unused_columns", kNothing, "", "keys that are not read are named at the start"},
    {"shuffle_merged_datasets", kNothing, "train.seed", "every epoch has an order of its own"},
    {"train_on_inputs", kRefused, "",
     "questions are never in the loss; write records with 'text' to train on all", unless_off},
    {"roles_to_train", kRefused, "", "the assistant's messages are trained; 'weight': 0 excludes one",
     unless_off},
    {"chat_template", kTaken, "data.chat_template", "", chat_template},
    {"eot_tokens", kNothing, "", "an answer ends with the token that the template writes behind it"},
    {"special_tokens", kNothing, "", "", special_tokens},
    {"tokens", kRefused, "", "tokens cannot be added here: add them to the model's folder before",
     unless_off},
    {"sequence_len", kTaken, "model.seq", "", seq},
    {"sample_packing", kTaken, "data.packing", "", packing},
    {"eval_sample_packing", kNothing, "data.packing", "validation is packed as training is"},
    {"pad_to_sequence_len", kNothing, "model.seq", "rows are always whole"},
    {"group_by_length", kRefused, "", "it changes the order of records; strata packs them instead",
     unless_off},
    {"adapter", kTaken, "adapter.method", "", adapter},
    {"lora_r", kTaken, "adapter.rank", ""},
    {"lora_alpha", kTaken, "adapter.alpha", ""},
    {"lora_dropout", kTaken, "adapter.dropout", ""},
    {"lora_target_modules", kTaken, "adapter.targets", "", listed},
    {"lora_target_linear", kTaken, "adapter.targets", "", all_linear},
    {"lora_target_parameters", kTaken, "adapter.target_parameters", "", listed},
    {"lora_modules_to_save", kTaken, "adapter.modules_to_save", "", modules},
    {"peft_layers_to_transform", kTaken, "adapter.layers", ""},
    {"peft_trainable_token_indices", kTaken, "adapter.trainable_tokens", "", tokens},
    {"lora_rank_pattern", kTaken, "adapter.rank_pattern", "", patterns},
    {"lora_alpha_pattern", kTaken, "adapter.alpha_pattern", "", patterns},
    {"peft_init_lora_weights", kTaken, "adapter.init", "", start},
    {"peft_layers_pattern", kNothing, "adapter.layers", "layers are known by their numbers in names"},
    {"peft_autocast_adapter_dtype", kNothing, "train.dtype", "masters of adapters are f32"},
    {"lora_on_cpu", kNothing, "memory.device", kPlacement},
    {"lora_fan_in_fan_out", kNothing, "", "the folder's family says how matrices are stored"},
    {"lora_model_dir", kTaken, "adapter.from", "an adapter's folder to go on from"},
    {"peft_use_dora", kTaken, "adapter.dora", ""},
    {"peft_use_rslora", kTaken, "adapter.rslora", ""},
    {"lora_mlp_kernel", kNothing, "", kSpeed},
    {"lora_qkv_kernel", kNothing, "", kSpeed},
    {"lora_o_kernel", kNothing, "", kSpeed},
    {"load_in_4bit", kTaken, "train.base", "", four_bits},
    {"load_in_8bit", kTaken, "train.base", "", eight_bits},
    {"unfrozen_parameters", kRefused, "train.freeze", "name what is not trained instead", unless_off},
    {"micro_batch_size", kTaken, "train.micro_batch", "sequences of a micro-batch"},
    {"gradient_accumulation_steps", kTaken, "train.grad_accum",
     "for one rank; train.grad_accum counts the "
     "micro-batches of all ranks: multiply it by them"},
    {"batch_size", kRefused, "train.micro_batch", "set micro_batch_size and gradient_accumulation_steps",
     unless_off},
    {"eval_batch_size", kNothing, "train.eval_batches", "a validation has train.eval_batches micro-batches"},
    {"num_epochs", kTaken, "train.epochs", "", epochs},
    {"max_steps", kTaken, "train.steps", "", steps},
    {"learning_rate", kTaken, "optim.lr", ""},
    {"optimizer", kTaken, "optim.name offload.states", "", optimizer},
    {"lr_scheduler", kTaken, "optim.schedule optim.min_lr_ratio", "", schedule},
    {"cosine_min_lr_ratio", kTaken, "optim.min_lr_ratio", ""},
    {"cosine_constant_lr_ratio", kRefused, "optim.schedule", "there is no schedule with such an end",
     unless_off},
    {"warmup_steps", kTaken, "optim.warmup optim.warmup_ratio", "", warmup_steps},
    {"warmup_ratio", kTaken, "optim.warmup_ratio", "", warmup_ratio},
    {"weight_decay", kTaken, "optim.weight_decay", ""},
    {"adam_beta1", kTaken, "optim.beta1", ""},
    {"adam_beta2", kTaken, "optim.beta2", ""},
    {"adam_epsilon", kTaken, "optim.eps", ""},
    {"max_grad_norm", kTaken, "optim.clip", ""},
    {"loraplus_lr_ratio", kRefused, "optim.param_groups", "rates of parameters are optim.param_groups",
     unless_off},
    {"embedding_lr", kRefused, "optim.param_groups", "rates of parameters are optim.param_groups",
     unless_off},
    {"seed", kTaken, "train.seed", "of strata's own random numbers: not the same order of records"},
    {"bf16", kTaken, "train.dtype", "", half},
    {"fp16", kTaken, "train.dtype", "", dtype},
    {"float16", kTaken, "train.dtype", "", dtype},
    {"bfloat16", kTaken, "train.dtype", "", dtype},
    {"tf32", kNothing, "", kSpeed},
    {"rl", kTaken, "train.objective align.loss", "", alignment},
    {"rl_beta", kTaken, "align.beta", ""},
    {"dpo_beta", kTaken, "align.beta", ""},
    {"reward_model", kRefused, "", "train with --task reward", unless_off},
    {"trl", kRefused, "align.prompts", "set what it says in section align", unless_off},
    {"gradient_checkpointing", kNothing, "train.recompute", kPlacement},
    {"gradient_checkpointing_kwargs", kNothing, "train.recompute", kPlacement},
    {"activation_offloading", kNothing, "offload.activations", kPlacement},
    {"deepspeed", kNothing, "parallel.zero", "strata config convert reads that file, too"},
    {"fsdp", kNothing, "parallel.zero", kPlacement},
    {"fsdp_config", kNothing, "parallel.zero", kPlacement},
    {"fsdp_version", kNothing, "parallel.zero", kPlacement},
    {"ddp_find_unused_parameters", kNothing, "", kPlacement},
    {"device_map", kNothing, "memory.device", kPlacement},
    {"dp_shard_size", kNothing, "parallel.zero", kPlacement},
    {"tensor_parallel_size", kTaken, "parallel.tp", ""},
    {"context_parallel_size", kTaken, "parallel.cp", ""},
    {"attn_implementation", kNothing, "train.attention_backend", kSpeed},
    {"flash_attention", kNothing, "train.attention_backend", kSpeed},
    {"sdp_attention", kNothing, "train.attention_backend", kSpeed},
    {"xformers_attention", kNothing, "train.attention_backend", kSpeed},
    {"flash_attn_cross_entropy", kNothing, "", kSpeed},
    {"torch_compile", kNothing, "", kSpeed},
    {"plugins", kNothing, "", "", plugins},
    {"liger_rope", kNothing, "", kSpeed},
    {"liger_rms_norm", kNothing, "", kSpeed},
    {"liger_glu_activation", kNothing, "", kSpeed},
    {"liger_layer_norm", kNothing, "", kSpeed},
    {"liger_fused_linear_cross_entropy", kNothing, "", kSpeed},
    {"cut_cross_entropy", kNothing, "", kSpeed},
    {"use_kernels", kNothing, "", kSpeed},
    {"logging_steps", kTaken, "log.every", ""},
    {"eval_steps", kTaken, "train.eval_every", "", every},
    {"evals_per_epoch", kNothing, "train.eval_every", "in steps here"},
    {"save_steps", kTaken, "checkpoint.every", "", every},
    {"saves_per_epoch", kNothing, "checkpoint.interval", "by time here, and at the end"},
    {"save_strategy", kNothing, "checkpoint.interval", "by time here, and at the end"},
    {"save_total_limit", kTaken, "checkpoint.keep", ""},
    {"save_only_model", kNothing, "", "a checkpoint is one to go on from; strata export writes the model"},
    {"save_safetensors", kNothing, "", "strata export writes safetensors"},
    {"output_dir", kNothing, "", "strata train --out DIR"},
    {"resume_from_checkpoint", kNothing, "", "strata train --resume RUN"},
    {"auto_resume_from_checkpoints", kNothing, "", "strata train --resume RUN"},
    {"fp8", kTaken, "train.fp8", ""},
    {"trackio_project_name", kNothing, "log.command", kReports},
    {"trackio_run_name", kNothing, "log.command", kReports},
    {"trackio_space_id", kNothing, "log.command", kReports},
    {"use_wandb", kNothing, "log.command", kReports},
    {"evaluation_strategy", kNothing, "train.eval_every", "in steps here"},
    {"eval_strategy", kNothing, "train.eval_every", "in steps here"},
    {"eval_table_size", kNothing, "log.sample_every", "see log.sample_every"},
    {"max_packed_sequence_len", kRefused, "data.packing", "set sequence_len and sample_packing", unless_off},
    {"pretraining_dataset", kRefused, "data.train", "name its files in data.train", unless_off},
    {"tokenizer_use_fast", kNothing, "data.tokenizer", "tokenizer.json in the model's folder is read"},
    {"tokenizer_legacy", kNothing, "data.tokenizer", "tokenizer.json in the model's folder is read"},
    {"low_cpu_mem_usage", kNothing, "memory.pinned", kPlacement},
    {"hf_use_auth_token", kNothing, "", "strata downloads nothing"},
    {"resize_token_embeddings_to_32x", kNothing, "", "kernels need no such multiple"},
    {"flash_attn_fuse_mlp", kNothing, "", kSpeed},
    {"flash_attn_rms_norm", kNothing, "", kSpeed},
    {"flash_optimum", kNothing, "", kSpeed},
    {"flex_attn_compile_kwargs", kNothing, "", kSpeed},
    {"fused_attn_kernel", kNothing, "", kSpeed},
    {"torch_compile_mode", kNothing, "", kSpeed},
    {"sample_packing_eff_est", kNothing, "data.packing", "rows are filled as they are read"},
    {"total_num_tokens", kNothing, "data.cache_dir", "tokens are counted"},
    {"wandb_project", kNothing, "log.command", kReports},
    {"wandb_entity", kNothing, "log.command", kReports},
    {"wandb_watch", kNothing, "log.command", kReports},
    {"wandb_name", kNothing, "log.command", kReports},
    {"wandb_run_id", kNothing, "log.command", kReports},
    {"wandb_log_model", kNothing, "log.command", kReports},
    {"use_tensorboard", kTaken, "log.tensorboard", ""},
    {"mlflow_experiment_name", kNothing, "log.command", kReports},
    {"hub_model_id", kNothing, "", "strata uploads nothing"},
    {"push_dataset_to_hub", kNothing, "", "strata uploads nothing"},
    {"loss_watchdog_threshold", kNothing, "optim.non_finite", "a loss that is no number ends the run"},
    {"loss_watchdog_patience", kNothing, "optim.non_finite", "a loss that is no number ends the run"},
    {"early_stopping_patience", kRefused, "", "a run has the steps that it is given", unless_off},
    {"dataloader_num_workers", kNothing, "", kSpeed},
    {"dataset_processes", kNothing, "", kSpeed},
    {"debug", kNothing, "log.level", ""},
};

bool has_no_steps(const Json& root) { return !has_steps(root); }

// Where axolotl's or transformers' default is not strata's.
constexpr YamlDefault kDefaults[] = {
    {"micro_batch_size", "1"}, {"num_epochs", "1", has_no_steps}, {"lr_scheduler", "\"cosine\""},
    {"weight_decay", "0"},     {"adam_beta2", "0.999"},           {"sample_packing", "false"},
};

}  // namespace

const TrainerTable& axolotl_table() noexcept {
  static constexpr TrainerTable kTable = {"axolotl", kRows, kDefaults, ignored};
  return kTable;
}

}  // namespace strata::detail
