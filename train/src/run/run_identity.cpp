#include <strata/train/run_identity.h>

#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/config/train_config.h>
#include <strata/model/hf/config.h>
#include <strata/profile/compute_device.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/config/model_choice.h>

#include <strata/config/adapter_methods.h>

namespace strata {

namespace {

/// The values of an identity, by name.
struct Identity {
  std::map<std::string, std::string> values{};

  void add(std::string_view key, const auto& value) { values.emplace(key, fmt::format("{}", value)); }
  void add_list(std::string_view key, const auto& list) { add(key, fmt::format("{}", fmt::join(list, ","))); }
};

void add_model(Identity& identity, const TrainConfig& c) {
  identity.add("model.family", c.model.family);
  const std::string decoder = hf_config_json(decoder_config(c), DType::f32);
  identity.add("model.decoder", to_hex(digest_of(std::as_bytes(std::span(decoder)))));
  identity.add("model.layers", c.model.layers);
  identity.add("model.hidden", c.model.hidden);
  identity.add("model.heads", c.model.heads);
  identity.add("model.ffn", c.model.ffn);
  identity.add("model.vocab", c.model.vocab);
  identity.add("model.seq", c.model.seq);
}

// Settings that the optimizer does not read do not affect the results.
void add_optimizer(Identity& identity, const TrainConfig& c) {
  identity.add("optim.name", c.optim.name);
  identity.add("optim.lr", c.optim.lr);
  if (c.optim.name != "sgd" && c.optim.name != "adagrad") {
    identity.add("optim.beta1", c.optim.beta1);
    identity.add("optim.beta2", c.optim.beta2);
  }
  if (c.optim.name != "sgd" && c.optim.name != "lion") identity.add("optim.eps", c.optim.eps);
  identity.add("optim.weight_decay", c.optim.weight_decay);
  identity.add_list("optim.param_groups", c.optim.param_groups);
  identity.add("optim.clip", c.optim.clip);
  if (c.train.dtype == "f16") identity.add("optim.loss_scale", c.optim.loss_scale);
  identity.add("optim.warmup", c.optim.warmup);
  identity.add("optim.schedule", c.optim.schedule);
  if (c.optim.schedule == "wsd") identity.add("optim.decay_ratio", c.optim.decay_ratio);
  if (c.optim.name == "sgd") {
    identity.add("optim.momentum", c.optim.momentum);
    identity.add("optim.nesterov", c.optim.nesterov);
  }
  if (c.optim.ema_decay > 0) identity.add("optim.ema_decay", c.optim.ema_decay);
  if (trains_in_subspaces(c)) {
    identity.add("optim.galore_rank", c.optim.galore_rank);
    identity.add("optim.galore_scale", c.optim.galore_scale);
    identity.add("optim.galore_gap", c.optim.galore_gap);
    identity.add("optim.galore_svd", c.optim.galore_svd);
    identity.add_list("optim.galore_targets", c.optim.galore_targets);
  }
  identity.add("offload.states", c.offload.states);
  identity.add("optim.min_lr_ratio", c.optim.min_lr_ratio);
}

void add_policy(Identity& identity, const TrainConfig& c) {
  const PolicySizes sizes = policy_sizes(c);
  identity.add("align.prompts", sizes.prompts);
  identity.add("align.samples", sizes.samples);
  identity.add("align.mini_batches", sizes.mini_batches);
  identity.add("align.epochs", sizes.epochs);
  identity.add("align.max_prompt", sizes.max_prompt);
  identity.add("align.max_tokens", sizes.max_tokens);
  identity.add("align.slots", sizes.slots);
  identity.add_list("align.reward", c.align.reward);
  identity.add("align.temperature", c.align.temperature);
  identity.add("align.clip", c.align.clip);
  identity.add("align.clip_high", c.align.clip_high.value_or(c.align.clip));
  identity.add("align.kl", kl_estimator(c) == kernels::KlEstimator::k1 ? "k1" : "k3");
  identity.add("align.kl_coef", c.align.kl_coef);
  if (!c.data.mixture.empty()) {
    identity.add("align.mixture_weight", c.align.mixture_weight);
    identity.add("align.mixture_batches", c.align.mixture_batches);
  }
  if (!has_critic(c)) return identity.add("align.loss", align_loss(c));
  identity.add("align.kl_target", c.align.kl_target);
  identity.add("align.kl_horizon", c.align.kl_horizon);
  identity.add("align.gamma", c.align.gamma);
  identity.add("align.lambda", c.align.lambda);
  identity.add("align.whiten", c.align.whiten);
  identity.add("align.value_clip", c.align.value_clip);
  identity.add("align.critic_lr", c.align.critic_lr.value_or(c.optim.lr));
}

void add_objective(Identity& identity, const TrainConfig& c, const TrainingData& training_data) {
  identity.add("train.objective", c.train.objective);
  if (samples_answers(c)) add_policy(identity, c);
  if (!compares_pairs(c)) return;
  identity.add("align.max_pairs", pair_program(c).max_pairs);
  if (!has_reference(c)) return;
  identity.add("data.val",
               training_data.val_digest());  // checkpoints have what the reference gives its pairs
  identity.add("align.loss", align_loss(c));
  identity.add("align.beta", c.align.beta);
  identity.add("align.label_smoothing", c.align.label_smoothing);
}

void add_training(Identity& identity, const TrainConfig& c) {
  identity.add("train.dtype", c.train.dtype);
  identity.add("train.attention_backend", c.train.attention_backend);
  identity.add("train.fp8", c.train.fp8);
  if (const std::string implementation =
          gemm_implementation(c.memory.backend, c.train.dtype, c.train.attention_backend);
      !implementation.empty())
    identity.add(kGemmImplementation, implementation);
  identity.add("train.grad_accum", c.train.grad_accum);
  identity.add("train.micro_batch", c.train.micro_batch);
  identity.add("train.seed", c.train.seed);
  identity.add_list("train.freeze", c.train.freeze);
  if ((freezes(c) || trains_in_subspaces(c)) &&
      c.train.dtype != "f32")  // the masters are the parameters if the dtype is f32
    identity.add("train.frozen_masters", c.train.frozen_masters.value_or(true));
  identity.add("train.steps", c.train.steps);  // kScheduleSteps
  identity.add("adapter.method", c.adapter.method);
  identity.add("train.base", c.train.base);
  if (!has_adapters(c)) return;
  if (c.adapter.method != "lora") {
    for (const auto& [key, value] : detail::adapter_keys_of(must(adapter_settings(c))))
      identity.add(key, value);
    return;
  }
  identity.add("adapter.rank", c.adapter.rank);
  identity.add("adapter.alpha", c.adapter.alpha);
  identity.add("adapter.rslora", c.adapter.rslora);
  identity.add("adapter.dora", c.adapter.dora);
  identity.add("adapter.init", c.adapter.init);
  identity.add_list("adapter.targets", c.adapter.targets);
  if (!c.adapter.exclude.empty()) identity.add_list("adapter.exclude", c.adapter.exclude);
  if (!c.adapter.modules_to_save.empty())
    identity.add_list("adapter.modules_to_save", c.adapter.modules_to_save);
  if (!c.adapter.trainable_tokens.empty())
    identity.add_list("adapter.trainable_tokens", c.adapter.trainable_tokens);
  if (c.adapter.bias != "none") identity.add("adapter.bias", c.adapter.bias);
  if (has_dropout(c)) identity.add("adapter.dropout", c.adapter.dropout);
  if (!c.adapter.layers.empty()) identity.add_list("adapter.layers", c.adapter.layers);
  identity.add_list("adapter.rank_pattern", c.adapter.rank_pattern);
  identity.add_list("adapter.alpha_pattern", c.adapter.alpha_pattern);
}

}  // namespace

std::map<std::string, std::string> run_identity(const TrainConfig& c, const TrainingData& training_data) {
  Identity identity;
  identity.add("data", training_data.data_digest());
  identity.add("data.packing", training_data.packing());
  identity.add_list("data.weights", c.data.weights);
  add_model(identity, c);
  add_optimizer(identity, c);
  add_objective(identity, c, training_data);
  add_training(identity, c);
  return std::move(identity.values);
}

Status check_identity(const std::map<std::string, std::string>& saved,
                      const std::map<std::string, std::string>& now) {
  std::string problems;
  bool sizes_differ = false;
  for (const auto& [key, value] : now)
    if (const auto found = saved.find(key);
        key.starts_with("model.") && key != "model.decoder" && found != saved.end() && found->second != value)
      sizes_differ = true;
  for (const auto& [key, value] : now) {
    if (key == kGemmImplementation) continue;              // depends on the machine; the caller warns
    if (key == kScheduleSteps) continue;                   // a run may be extended; the caller warns
    if (key == "model.decoder" && sizes_differ) continue;  // follows from the sizes that are reported
    const auto found = saved.find(key);
    const std::string was = found != saved.end()      ? found->second
                            : key == "data.packing"   ? "stream"  // runs without the key used this
                            : key == "offload.states" ? "fp32"
                            : key == "data.weights"   ? ""
                            : key == "train.fp8" || key == "adapter.dora"          ? "false"
                            : key == "train.base"                                  ? "full"
                            : key == "adapter.init"                                ? "default"
                            : key == "train.attention_backend"                     ? "mma"
                            : key == "train.objective"                             ? "lm"
                            : key == "adapter.method"                              ? "none"
                            : key == "train.freeze" || key == "optim.param_groups" ? ""
                            : key == "model.decoder" || key == "data.val"
                                ? value  // which older runs do not have
                                : "nothing";
    if (was != value)
      problems += str(problems.empty() ? "" : "\n", key, ": the checkpoint was made with ", was,
                      ", this run has ", value);
  }
  return problems.empty() ? Status::ok() : Status::error(Code::invalid, problems);
}

}  // namespace strata
