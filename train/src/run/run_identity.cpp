#include <strata/train/run_identity.h>

#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/model/hf/config.h>
#include <strata/profile/compute_device.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>

namespace strata {

std::map<std::string, std::string> run_identity(const TrainConfig& c, const TrainingData& training_data) {
  std::map<std::string, std::string> identity = {{"data", training_data.data_digest()}};
  const auto add = [&](const char* key, const auto& value) {
    identity.emplace(key, fmt::format("{}", value));
  };
  add("data.packing", training_data.packing());
  identity.emplace("data.weights", fmt::format("{}", fmt::join(c.data.weights, ",")));
  add("model.family", c.model.family);
  const std::string decoder = hf_config_json(decoder_config(c), DType::f32);
  add("model.decoder", to_hex(digest_of(std::as_bytes(std::span(decoder)))));
  add("model.layers", c.model.layers);
  add("model.hidden", c.model.hidden);
  add("model.heads", c.model.heads);
  add("model.ffn", c.model.ffn);
  add("model.vocab", c.model.vocab);
  add("model.seq", c.model.seq);
  add("optim.name", c.optim.name);
  add("optim.lr", c.optim.lr);
  // Settings that the optimizer does not read do not affect the results.
  if (c.optim.name != "sgd" && c.optim.name != "adagrad") {
    add("optim.beta1", c.optim.beta1);
    add("optim.beta2", c.optim.beta2);
  }
  if (c.optim.name != "sgd" && c.optim.name != "lion") add("optim.eps", c.optim.eps);
  add("optim.weight_decay", c.optim.weight_decay);
  identity.emplace("optim.param_groups", fmt::format("{}", fmt::join(c.optim.param_groups, ",")));
  add("optim.clip", c.optim.clip);
  if (c.train.dtype == "f16") add("optim.loss_scale", c.optim.loss_scale);
  add("optim.warmup", c.optim.warmup);
  add("optim.schedule", c.optim.schedule);
  if (c.optim.schedule == "wsd") add("optim.decay_ratio", c.optim.decay_ratio);
  if (c.optim.name == "sgd") {
    add("optim.momentum", c.optim.momentum);
    add("optim.nesterov", c.optim.nesterov);
  }
  add("offload.states", c.offload.states);
  add("optim.min_lr_ratio", c.optim.min_lr_ratio);
  add("train.dtype", c.train.dtype);
  add("train.attention_backend", c.train.attention_backend);
  identity.emplace("train.fp8", c.train.fp8 ? "true" : "false");
  if (std::string implementation =
          gemm_implementation(c.memory.backend, c.train.dtype, c.train.attention_backend);
      !implementation.empty())
    identity.emplace(kGemmImplementation, std::move(implementation));
  add("train.grad_accum", c.train.grad_accum);
  add("train.micro_batch", c.train.micro_batch);
  add("train.seed", c.train.seed);
  identity.emplace("train.freeze", fmt::format("{}", fmt::join(c.train.freeze, ",")));
  if (!c.train.freeze.empty() && c.train.dtype != "f32")  // with f32 the masters are the parameters
    identity.emplace("train.frozen_masters", c.train.frozen_masters.value_or(true) ? "true" : "false");
  add("train.steps", c.train.steps);  // kScheduleSteps
  return identity;
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
    const std::string was = found != saved.end()               ? found->second
                            : key == "data.packing"            ? "stream"  // what runs without the key used
                            : key == "offload.states"          ? "fp32"
                            : key == "data.weights"            ? ""
                            : key == "train.fp8"               ? "false"
                            : key == "train.attention_backend" ? "mma"
                            : key == "train.freeze" || key == "optim.param_groups" ? ""
                            : key == "model.decoder" ? value  // older runs have only the size keys
                                                     : "nothing";
    if (was != value)
      problems += str(problems.empty() ? "" : "\n", key, ": the checkpoint was made with ", was,
                      ", this run has ", value);
  }
  return problems.empty() ? Status::ok() : Status::error(Code::invalid, problems);
}

}  // namespace strata
