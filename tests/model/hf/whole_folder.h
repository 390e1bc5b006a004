#pragma once

#include <map>
#include <string>
#include <vector>

#include <strata/model/hf/other_parts.h>
#include <strata/runtime/io/digest.h>

#include "hf/text_model.h"
#include "model/hf/damaged_folder.h"
#include "model/hf/quantized_folder.h"

namespace strata::test {

/// A folder of a whole model, or of a text model with a layer that predicts further tokens, in two files: the
/// text model's tensors, with the values of values_named(), and what else the model has.
class WholeFolder {
 public:
  WholeFolder(const std::string& folder, const DecoderConfig& config, const std::string& type)
      : path(folder), config_(config) {
    const nlohmann::json own = nlohmann::json::parse(hf_config_json(config, DType::bf16));
    root = {{"model_type", type},
            {"architectures", {"ForConditionalGeneration"}},
            {"image_token_index", 10},
            {"tie_word_embeddings", own.at("tie_word_embeddings")},
            {"dtype", "bfloat16"},
            {"text_config", own},
            {"vision_config", {{"model_type", "pixtral"}, {"dtype", "bfloat16"}}}};
    if (type == "deepseek_v32") {
      root = own;
      root.update(
          {{"model_type", type}, {"index_topk", 64}, {"image_token_index", 10}, {"dtype", "bfloat16"}});
    }
    const detail::WholeModel* const whole = detail::whole_model_of(type == config.family ? own : root);
    if (whole == nullptr) root = own;
    for (const HfTensor& tensor : hf_tensors(config)) {
      std::vector<float> values(static_cast<std::size_t>(tensor.n_elems())), param(size_of_param(tensor));
      must(values_named(tensor.param, param));
      gather_hf(tensor, config, 0, param, values);
      text[whole == nullptr ? tensor.name : whole->in_files(tensor.name)] = {
          "F32", tensor.shape, bytes_of(std::span<const float>(values))};
    }
    files = {{"preprocessor_config.json", "{\"size\": 14}"},
             {"chat_template.json", "{}"},
             {"tokenizer_config.json", "{\"of\": \"the source\"}"},
             {"README.md", "a card"}};
    if (whole != nullptr) add_others(*whole);
  }

  /// Adds what predicts further tokens, whose names begin with `beginning`.
  void add_extra_layer(const std::string& beginning) {
    others[beginning + "enorm.weight"] = {"BF16", {3, 2}, noise(12, 1)};
    others[beginning + "eh_proj.weight"] = {"F32", {30, 100}, noise(12'000, 2)};
    others[beginning + "self_attn.rotary_emb.inv_freq"] = {"F32", {2}, noise(8, 3)};
  }
  void write() const {
    must(posix_io().make_dirs(path));
    must(write_text_atomically(posix_io(), path + "/config.json", root.dump()));
    for (const auto& [name, content] : files)
      must(write_text_atomically(posix_io(), path + "/" + name, content));
    nlohmann::json map;
    for (const auto& [file, tensors] : {std::pair(kTextFile, &text), std::pair(kOthersFile, &others)}) {
      std::vector<TensorSpec> specs;
      for (const auto& [name, stored] : *tensors) specs.push_back({name, stored.dtype, stored.shape});
      if (posix_io().exists(str(path, "/", file))) must(posix_io().remove_all(str(path, "/", file)));
      const auto writer = must(SafetensorsWriter::create(posix_io(), str(path, "/", file), specs));
      for (const auto& [name, stored] : *tensors)
        must(writer->append(std::as_bytes(std::span(stored.bytes)))), map[name] = file;
      must(writer->finish());
    }
    must(write_text_atomically(posix_io(), path + "/model.safetensors.index.json",
                               nlohmann::json{{"weight_map", map}}.dump()));
  }

  static constexpr const char *kTextFile = "model-00001-of-00002.safetensors",
                              *kOthersFile = "model-00002-of-00002.safetensors";
  const std::string path;
  nlohmann::json root;
  std::map<std::string, StoredBytes> text, others;
  std::map<std::string, std::string> files;

 private:
  void add_others(const detail::WholeModel& whole) {
    for (const std::string_view beginning : whole.others) {
      if (beginning.empty()) continue;
      others[str(beginning, "patches.weight")] = {"BF16", {3, 2}, noise(12, beginning.size())};
      others[str(beginning, "positions")] = {"I64", {2}, noise(16, beginning.size() + 1)};
    }
    const std::string in_layer =
        whole.inside_layers.empty() ? "" : str("model.layers.0", whole.inside_layers);
    if (!in_layer.empty()) others[str(in_layer, "patches.weight")] = {"BF16", {3, 2}, noise(12, 1)};
    others[str(in_layer, whole.others[0], "wide.weight")] = {"F32", {300, 1000}, noise(1'200'000, 7)};
  }
  std::size_t size_of_param(const HfTensor& of) const {
    std::int64_t n = 0;
    for (const HfTensor& tensor : hf_tensors(config_))
      if (tensor.param == of.param) n += tensor.n_elems();
    return static_cast<std::size_t>(n);
  }
  static std::string noise(std::size_t n, std::uint64_t seed) {
    const Rng rng(seed, 3);
    std::string bytes(n, '\0');
    for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(rng.below(i, 256));
    return bytes;
  }

  const DecoderConfig config_;
};

inline std::string digest_of_text(const std::string& bytes) {
  return to_hex(digest_of(std::as_bytes(std::span(bytes))));
}

}  // namespace strata::test
