#include <strata/train/run_identity.h>

#include <span>

#include <strata/config/key_facts.h>
#include <strata/config/model_choice.h>
#include <strata/config/objective.h>
#include <strata/config/train_config.h>
#include <strata/model/hf/config.h>
#include <strata/profile/compute_device.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::string_view kDecoder = "model.decoder", kValidation = "data.val";

// What the identity has besides values of keys. Checkpoints have what a reference gives its pairs of
// data.val.
std::map<std::string, std::string> other_entries(const TrainConfig& c, const TrainingData& training_data) {
  const std::string decoder = hf_config_json(decoder_config(c), DType::f32);
  std::map<std::string, std::string> entries = {
      {"data", training_data.data_digest()},
      {"data.packing", training_data.packing()},
      {std::string(kDecoder), to_hex(digest_of(std::as_bytes(std::span(decoder))))}};
  if (objective_of(c).has_reference) entries.emplace(kValidation, training_data.val_digest());
  if (std::string gemm = gemm_implementation(c.memory.backend, c.train.dtype, c.train.attention_backend);
      !gemm.empty())
    entries.emplace(kGemmImplementation, std::move(gemm));
  return entries;
}

}  // namespace

std::map<std::string, std::string> run_identity(const TrainConfig& config,
                                                const TrainingData& training_data) {
  std::map<std::string, std::string> identity = identity_of_keys(config);
  identity.merge(other_entries(config, training_data));
  return identity;
}

Status check_identity(const std::map<std::string, std::string>& saved,
                      const std::map<std::string, std::string>& now) {
  std::string problems;
  bool sizes_differ = false;
  for (const auto& [key, value] : now)
    if (const auto found = saved.find(key);
        key.starts_with("model.") && key != kDecoder && found != saved.end() && found->second != value)
      sizes_differ = true;
  for (const auto& [key, value] : now) {
    if (key == kGemmImplementation) continue;       // depends on the machine; the caller warns
    if (key == kScheduleSteps) continue;            // a run may be extended; the caller warns
    if (key == kDecoder && sizes_differ) continue;  // follows from the sizes that are reported
    const auto found = saved.find(key);
    const bool is_later = key == kDecoder || key == kValidation;  // than runs that resume without them
    const std::string_view was = found != saved.end() ? found->second : is_later ? value : former_value(key);
    if (was != value)
      problems += str(problems.empty() ? "" : "\n", key, ": the checkpoint was made with ", was,
                      ", this run has ", value);
  }
  return problems.empty() ? Status::ok() : Status::error(Code::invalid, problems);
}

}  // namespace strata
