#include <strata/config/train_schema.h>

#include <deque>
#include <vector>

#include <strata/config/train_config.h>

#include "schema/sections.h"

namespace strata {
namespace {

constexpr PresetValue kAusten5m[] = {
    {"model.vocab", "1024"},
    {"model.layers", "6"},
    {"model.hidden", "256"},
    {"model.heads", "4"},
    {"model.ffn", "1024"},
    {"model.seq", "128"},
    {"data.train",
     "examples/data/austen/pride_and_prejudice.txt,examples/data/austen/sense_and_sensibility.txt"},
    {"data.val", "examples/data/austen/persuasion.txt"},
    {"train.micro_batch", "2"},
    {"train.grad_accum", "4"},
    {"train.steps", "400"},
    {"train.max_time", "90s"},
    {"train.recompute", "full"},
    {"optim.lr", "0.002"},
    {"optim.warmup", "50"},
    {"optim.schedule", "cosine"},
    {"memory.device", "32MiB"},
    {"memory.pinned", "24MiB"},
    {"memory.nvme", "48MiB"},
};
constexpr PresetValue kAustenTiny[] = {
    {"model.vocab", "512"},
    {"model.layers", "2"},
    {"model.hidden", "64"},
    {"model.heads", "2"},
    {"model.ffn", "256"},
    {"model.seq", "32"},
    {"data.train", "examples/data/austen/pride_and_prejudice.txt"},
    {"data.val", "examples/data/austen/persuasion.txt"},
    {"train.micro_batch", "2"},
    {"train.grad_accum", "2"},
    {"train.steps", "20"},
    {"train.eval_every", "10"},
    {"train.eval_batches", "2"},
    {"optim.lr", "0.003"},
    {"optim.warmup", "5"},
    {"memory.device", "2MiB"},
    {"memory.pinned", "2MiB"},
    {"memory.nvme", "4MiB"},
    {"log.every", "5"},
    {"log.sample_every", "10"},
    {"log.sample_prompt", "Elizabeth "},
    {"log.sample_tokens", "16"},
};
constexpr ConfigPreset kConfigPresets[] = {
    {"austen-5m", "five million parameters on two novels, in 90 seconds", kAusten5m},
    {"austen-tiny", "two layers for tests", kAustenTiny},
};
constexpr EnvName kEnvNames[] = {
    {"STRATA_CONFIG", ""},   // the file if the command names none; read by load_config()
    {"STRATA_LIBRARY", ""},  // read by the Python package
    {"STRATA_PROGRESS", "log.progress"},
};

// Nothing that was renamed is accepted: an old configuration is refused with the present names.
constexpr RenamedKey kRenamed[] = {
    {"data.chat", "data.chat_template"},
    {"train.allow_split", "train.allow_micro_batch_split"},
    {"train.attention", "train.attention_backend"},
    {"train.recompute=block", "train.recompute=full"},
    {"optim.groups", "optim.param_groups"},
    {"offload.undo", "offload.undo_log"},
    {"offload.order", "offload.micro_batch_order"},
    {"offload.micro_batch_order=micro_batch", "offload.micro_batch_order=depth_first"},
    {"offload.micro_batch_order=layer", "offload.micro_batch_order=breadth_first"},
    {"offload.reopens", "offload.auto_keys"},
    {"cpu.bf16_gemm", "cpu.bf16_matmul"},
    {"offload.step_mode=twin", "offload.step_mode=hybrid"},
    {"offload.policy=least_moves", "offload.policy=min_traffic"},
};

/// The rows of all sections, with the choices and readers that tables elsewhere have.
struct Rows {
  Rows() {
    for (const auto part : {model_and_data_keys(), training_keys(), optimizer_keys(), adapter_keys(),
                            align_keys(), placement_keys(), parallel_keys(), outputs_keys()})
      keys.insert(keys.end(), part.begin(), part.end());
    for (TrainKey& key : keys) {
      if (key.facts.choices != nullptr) key.spec.choices = texts.emplace_back(key.facts.choices());
      if (key.facts.readers != nullptr)
        key.spec.doc = texts.emplace_back(str(key.spec.doc, "; read by ", key.facts.readers()));
    }
  }
  std::vector<TrainKey> keys;
  std::deque<std::string> texts;  // the keys view them
};

}  // namespace

std::span<const TrainKey> train_keys() {
  static const Rows rows;
  return rows.keys;
}

const ConfigSchema& train_schema() noexcept {
  static const std::vector<KeySpec> specs = [] {
    std::vector<KeySpec> all;
    for (const TrainKey& key : train_keys()) all.push_back(key.spec);
    return all;
  }();
  static const ConfigSchema schema = {specs,     kConfigPresets, "model.preset",
                                      kEnvNames, kRenamed,       other_words()};
  return schema;
}

}  // namespace strata
