// The keys of LLaMA-Factory 0.9.5 that its examples use (hparams/).
#include <algorithm>
#include <cstdint>

#include <strata/runtime/str.h>

#include "table.h"

namespace strata::detail {
namespace {

constexpr DsVerdict kTaken = DsVerdict::taken, kNothing = DsVerdict::meaningless,
                    kRefused = DsVerdict::refused;
constexpr std::string_view kSpeed = "strata decides how it computes; it changes no result but its rounding";
constexpr std::string_view kPlacement =
    "strata decides by its budgets what is kept, moved and computed again";
constexpr std::string_view kOtherMethod = "strata has no such method";

/// The names are those of dataset_info.json, whose own files are called after them.
YamlOutcome data_sets(const YamlRow& row, const Json& value, const Json& root) {
  const Json& given = at(root, "dataset_dir");
  const std::string folder = given.is_string() ? given.get<std::string>() : "data";
  Json files = Json::array();
  for (const Json& name : as_list(value)) {
    if (!name.is_string()) return refused("it must be a list of names");
    files.push_back(str(folder, "/", name.get<std::string>(), ".json"));
  }
  return taken(row.strata_keys, files,
               "dataset_info.json says which file a name has; this is what it usually is");
}

YamlOutcome stage(const YamlRow&, const Json& value, const Json&) {
  if (value == "sft" || value == "pt") return taken("train.objective", "lm");
  if (value == "rm") return taken("train.objective", "reward");
  if (value == "dpo" || value == "ppo") return taken("train.objective", value);
  return refused("strata has sft, rm, dpo and ppo among these (train.objective)");
}

YamlOutcome finetuning(const YamlRow&, const Json& value, const Json&) {
  if (value == "lora") return taken("adapter.method", "lora");
  if (value == "full") return taken("adapter.method", "none");
  return refused(str("strata has lora and full here",
                     value == "freeze" ? "; train.freeze names what is not trained" : ""));
}

/// The default of lora_alpha is twice the rank.
YamlOutcome rank(const YamlRow&, const Json& value, const Json& root) {
  YamlOutcome outcome = taken("adapter.rank", value);
  if (at(root, "lora_alpha").is_null() && value.is_number_integer())
    outcome.settings.emplace_back("adapter.alpha", 2 * value.get<std::int64_t>());
  return outcome;
}

YamlOutcome quantization(const YamlRow&, const Json& value, const Json& root) {
  if (value == 8) return taken("train.base", "int8");
  if (value != 4) return refused("strata has 4 and 8 bits here (train.base)");
  const Json& twice = at(root, "double_quantization");
  return taken("train.base", twice.is_null() || !is_off(twice) ? "nf4-dq" : "nf4");
}

YamlOutcome four_bit_type(const YamlRow&, const Json& value, const Json&) {
  return value == "nf4" ? meaningless("4 bits are NF4") : refused("4 bits are NF4 here (train.base)");
}

/// Templates that folders have under no name are refused. The others are those of a family's folder, without
/// which strata refuses the run instead of writing conversations in another form.
YamlOutcome chat_template(const YamlRow&, const Json& value, const Json&) {
  for (const char* name : {"alpaca", "default", "vicuna", "empty", "fewshot"})
    if (value == name)
      return refused("set data.chat_template to one of its names, or to own, the one in the model's folder");
  return taken("data.chat_template", "own",
               "the template in the model's folder; where it has none, one of strata's names");
}

YamlOutcome use_galore(const YamlRow&, const Json& value, const Json&) {
  return is_off(value) ? meaningless("as in strata") : taken("optim.name", "galore");
}

YamlOutcome principal_start(const YamlRow&, const Json& value, const Json& root) {
  if (is_off(value)) return meaningless("as in strata");
  const Json& iterations = at(root, "pissa_iter");
  const bool is_exact = iterations.is_number() && iterations.get<double>() < 0;
  return taken("adapter.init", is_exact ? "pissa" : "pissa-subspace");
}

bool has_adapter(const Json& root) {
  const Json& type = at(root, "finetuning_type");
  return type.is_null() || type == "lora";
}
/// An adapter that the run makes itself.
bool makes_adapter(const Json& root) { return has_adapter(root) && is_off(at(root, "adapter_name_or_path")); }

std::string_view ignored(std::string_view key, const Json& root) {
  constexpr std::string_view kOfAdapters[] = {"additional_target", "use_rslora", "use_dora", "pissa_init"};
  const bool is_of_adapter =
      key.starts_with("lora_") ||
      std::find(std::begin(kOfAdapters), std::end(kOfAdapters), key) != std::end(kOfAdapters);
  if (!is_of_adapter || makes_adapter(root)) return {};
  return has_adapter(root) ? "the folder of adapter_name_or_path says it" : "the file asks for no adapter";
}

YamlOutcome preference(const YamlRow&, const Json& value, const Json&) {
  if (value == "sigmoid" || value == "ipo") return taken("align.loss", value);
  return refused("strata has sigmoid and ipo (align.loss)");
}

YamlOutcome packing(const YamlRow&, const Json& value, const Json&) {
  return taken("data.packing", "pack",
               is_off(value)
                   ? "a sequence of strata holds as many whole records as fit: a step has more of them than "
                     "without packing, so lower train.grad_accum to have as many"
                   : "records stay whole, and see only themselves");
}

constexpr YamlRow kRows[] = {
    {"model_name_or_path", kTaken, "model.from",
     "a folder: of a name on the Hub, where 'hf download NAME --local-dir DIR' put it"},
    {"adapter_name_or_path", kTaken, "adapter.from", "an adapter's folder to go on from"},
    {"trust_remote_code", kNothing, "", "strata runs no code of a folder"},
    {"image_max_pixels", kNothing, "", "strata trains text models"},
    {"video_max_pixels", kNothing, "", "strata trains text models"},
    {"stage", kTaken, "train.objective", "", stage},
    {"do_train", kNothing, "", "strata train"},
    {"do_eval", kNothing, "train.eval_every", "strata eval"},
    {"do_predict", kNothing, "", "strata generate"},
    {"predict_with_generate", kNothing, "", "strata generate"},
    {"finetuning_type", kTaken, "adapter.method", "", finetuning},
    {"lora_rank", kTaken, "adapter.rank adapter.alpha", "", rank},
    {"lora_alpha", kTaken, "adapter.alpha", ""},
    {"lora_dropout", kTaken, "adapter.dropout", ""},
    {"lora_target", kTaken, "adapter.targets", "", targets},
    {"additional_target", kTaken, "adapter.modules_to_save", "", modules},
    {"use_rslora", kTaken, "adapter.rslora", ""},
    {"use_dora", kTaken, "adapter.dora", ""},
    {"pissa_init", kTaken, "adapter.init", "", principal_start},
    {"pissa_iter", kNothing, "adapter.init", "pissa-subspace decides its iterations"},
    {"pissa_convert", kNothing, "", "strata export writes LoRA's form"},
    {"loraplus_lr_ratio", kRefused, "optim.param_groups", "rates of parameters are optim.param_groups",
     unless_off},
    {"create_new_adapter", kRefused, "", kOtherMethod, unless_off},
    {"freeze_trainable_layers", kRefused, "train.freeze", "name what is not trained instead", unless_off},
    {"freeze_trainable_modules", kRefused, "train.freeze", "name what is not trained instead", unless_off},
    {"use_galore", kTaken, "optim.name", "", use_galore},
    {"galore_rank", kTaken, "optim.galore_rank", ""},
    {"galore_scale", kTaken, "optim.galore_scale", ""},
    {"galore_update_interval", kTaken, "optim.galore_gap", ""},
    {"galore_target", kTaken, "optim.galore_targets", "", targets},
    {"galore_layerwise", kNothing, "optim.name", kPlacement},
    {"use_apollo", kRefused, "", kOtherMethod, unless_off},
    {"use_badam", kRefused, "", kOtherMethod, unless_off},
    {"use_muon", kRefused, "", kOtherMethod, unless_off},
    {"use_adam_mini", kRefused, "", kOtherMethod, unless_off},
    {"use_llama_pro", kRefused, "", kOtherMethod, unless_off},
    {"use_dft_loss", kRefused, "", kOtherMethod, unless_off},
    {"use_asft_loss", kRefused, "", kOtherMethod, unless_off},
    {"use_eaft_loss", kRefused, "", kOtherMethod, unless_off},
    {"mixture_of_depths", kRefused, "", kOtherMethod, unless_off},
    {"neftune_noise_alpha", kRefused, "", kOtherMethod, unless_off},
    {"quantization_bit", kTaken, "train.base", "", quantization},
    {"quantization_method", kNothing, "train.base", "as bitsandbytes' matrices are"},
    {"quantization_type", kNothing, "train.base", "", four_bit_type},
    {"double_quantization", kNothing, "train.base", "decides between nf4 and nf4-dq"},
    {"pref_beta", kTaken, "align.beta", ""},
    {"pref_loss", kTaken, "align.loss", "", preference},
    {"pref_ftx", kRefused, "", "strata adds no loss of the chosen answers", unless_off},
    {"dpo_label_smoothing", kTaken, "align.label_smoothing", ""},
    {"reward_model", kRefused, "align.reward", "set align.reward=model:FOLDER", unless_off},
    {"dataset", kTaken, "data.train", "", data_sets},
    {"eval_dataset", kTaken, "data.val", "", data_sets},
    {"dataset_dir", kNothing, "data.train", "the folder of these files"},
    {"val_size", kRefused, "data.val",
     "strata validates on files of their own: set data.val, whose records are then no longer in data.train",
     unless_off},
    {"template", kTaken, "data.chat_template", "", chat_template},
    {"enable_thinking", kNothing, "", "what a record says is trained as it is"},
    {"cutoff_len", kTaken, "model.seq", "", seq},
    {"max_samples", kRefused, "data.train", "all records are trained: name a shorter file", unless_off},
    {"packing", kTaken, "data.packing", "", packing},
    {"neat_packing", kNothing, "data.packing", "packed records never see each other"},
    {"train_on_prompt", kRefused, "",
     "questions are never in the loss; write records with 'text' to train on all", unless_off},
    {"mask_history", kRefused, "", "every answer is trained, unless its message has 'weight': 0", unless_off},
    {"overwrite_cache", kNothing, "data.cache_dir", "a cache of other data is made anew"},
    {"tokenized_path", kNothing, "data.cache_dir", "tokens are kept in data.cache_dir"},
    {"streaming", kNothing, "", "data are never in memory as a whole"},
    {"preprocessing_num_workers", kNothing, "", kSpeed},
    {"dataloader_num_workers", kNothing, "", kSpeed},
    {"per_device_train_batch_size", kTaken, "train.micro_batch", "sequences of a micro-batch"},
    {"per_device_eval_batch_size", kNothing, "train.eval_batches",
     "a validation has train.eval_batches micro-batches"},
    {"gradient_accumulation_steps", kTaken, "train.grad_accum",
     "for one rank; train.grad_accum counts the micro-batches of all ranks: multiply it by them"},
    {"learning_rate", kTaken, "optim.lr", ""},
    {"num_train_epochs", kTaken, "train.epochs", "", epochs},
    {"max_steps", kTaken, "train.steps", "", steps},
    {"lr_scheduler_type", kTaken, "optim.schedule optim.min_lr_ratio", "", schedule},
    {"warmup_ratio", kTaken, "optim.warmup_ratio", "", warmup_ratio},
    {"warmup_steps", kTaken, "optim.warmup optim.warmup_ratio", "", warmup_steps},
    {"optim", kTaken, "optim.name offload.states", "", optimizer},
    {"weight_decay", kTaken, "optim.weight_decay", ""},
    {"adam_beta1", kTaken, "optim.beta1", ""},
    {"adam_beta2", kTaken, "optim.beta2", ""},
    {"adam_epsilon", kTaken, "optim.eps", ""},
    {"max_grad_norm", kTaken, "optim.clip", ""},
    {"seed", kTaken, "train.seed", "of strata's own random numbers: not the same order of records"},
    {"bf16", kTaken, "train.dtype", "", dtype},
    {"fp16", kTaken, "train.dtype", "", dtype},
    {"pure_bf16", kRefused, "train.dtype", "masters are f32: set bf16", unless_off},
    {"fp8", kTaken, "train.fp8", ""},
    {"flash_attn", kNothing, "train.attention_backend", kSpeed},
    {"enable_liger_kernel", kNothing, "", kSpeed},
    {"use_unsloth", kNothing, "", kSpeed},
    {"disable_gradient_checkpointing", kNothing, "train.recompute", kPlacement},
    {"gradient_checkpointing", kNothing, "train.recompute", kPlacement},
    {"deepspeed", kNothing, "parallel.zero", "strata config convert reads that file, too"},
    {"fsdp", kNothing, "parallel.zero", kPlacement},
    {"fsdp_config", kNothing, "parallel.zero", kPlacement},
    {"ddp_timeout", kNothing, "parallel.patience", "a rank that hangs is given up after parallel.patience"},
    {"ray_num_workers", kNothing, "parallel.ranks", kPlacement},
    {"logging_steps", kTaken, "log.every", ""},
    {"save_steps", kTaken, "checkpoint.every", "", every},
    {"save_strategy", kNothing, "checkpoint.interval", "by time here, and at the end"},
    {"save_total_limit", kTaken, "checkpoint.keep", ""},
    {"save_only_model", kNothing, "", "a checkpoint is one to go on from; strata export writes the model"},
    {"eval_steps", kTaken, "train.eval_every", "", every},
    {"eval_strategy", kNothing, "train.eval_every", "in steps here"},
    {"plot_loss", kNothing, "", "strata report"},
    {"report_to", kNothing, "log.tensorboard", "see strata report, strata top and log.*"},
    {"run_name", kNothing, "", "strata train --out DIR"},
    {"output_dir", kNothing, "", "strata train --out DIR"},
    {"overwrite_output_dir", kNothing, "", "strata train --overwrite"},
    {"resume_from_checkpoint", kNothing, "", "strata train --resume RUN"},
    {"include_num_input_tokens_seen", kNothing, "", "every run counts its tokens"},
};

bool has_no_steps(const Json& root) { return !has_steps(root); }
bool has_no_warmup(const Json& root) { return is_off(at(root, "warmup_ratio")); }

// Where LLaMA-Factory's or transformers' default is not strata's.
constexpr YamlDefault kDefaults[] = {
    {"finetuning_type", "\"lora\""},
    {"lora_target", "\"all\"", makes_adapter},
    {"lora_rank", "8", makes_adapter},
    {"warmup_steps", "0", has_no_warmup},
    {"cutoff_len", "2048"},
    {"packing", "false"},
    {"per_device_train_batch_size", "8"},
    {"learning_rate", "5e-05"},
    {"num_train_epochs", "3", has_no_steps},
    {"lr_scheduler_type", "\"linear\""},
    {"weight_decay", "0"},
    {"adam_beta2", "0.999"},
};

}  // namespace

const TrainerTable& llama_factory_table() noexcept {
  static constexpr TrainerTable kTable = {"LLaMA-Factory", kRows, kDefaults, ignored};
  return kTable;
}

}  // namespace strata::detail
