// Folders of models that also read images: Mistral 3, whose text model is a Ministral 3, and Qwen3.5.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/model/hf/config.h>
#include <strata/model/hf/folder.h>

#include "model/hf/damaged_folder.h"
#include "model/hf/quantized_folder.h"

namespace strata {
namespace {

using nlohmann::json;

struct Whole {
  const char *family, *type, *architecture;
  std::string text_names, file_names;
  std::vector<const char*> others;
};
const Whole kWholes[] = {
    {"ministral3",
     "mistral3",
     "Mistral3ForConditionalGeneration",
     "",
     "language_model.",
     {"vision_tower.patch_conv.weight", "multi_modal_projector.linear_1.weight"}},
    {"qwen3_5_text",
     "qwen3_5",
     "Qwen3_5ForConditionalGeneration",
     "model.",
     "model.language_model.",
     {"model.visual.patch_embed.proj.weight", "mtp.fc.weight"}},
    {"qwen3_5_moe_text",
     "qwen3_5_moe",
     "Qwen3_5MoeForConditionalGeneration",
     "model.",
     "model.language_model.",
     {"model.visual.blocks.0.norm1.weight", "mtp.layers.0.mlp.gate.weight"}},
    {"gemma4_text",
     "gemma4",
     "Gemma4ForConditionalGeneration",
     "model.",
     "model.language_model.",
     {"model.vision_tower.patch_embedder.input_proj.weight", "model.audio_tower.layers.0.norm_out.weight"}},
    {"deepseek_v3",
     "kimi_k25",
     "Kimi_K25ForConditionalGeneration",
     "",
     "language_model.",
     {"vision_tower.patch_embed.proj.weight", "mm_projector.proj.0.weight"}}};

class TextModelTest : public ::testing::TestWithParam<Whole> {
 protected:
  TextModelTest() {
    must(export_hf(posix_io(), dir.file("plain"), config, test::values_named, {}));
    const json text =
        json::parse(must(read_text(posix_io(), dir.file("plain") + "/config.json", std::uint64_t{1} << 20)));
    root = {
        {"model_type", GetParam().type}, {"architectures", {GetParam().architecture}},
        {"image_token_index", 10},       {"tie_word_embeddings", text.at("tie_word_embeddings")},
        {"text_config", text},           {"vision_config", {{"model_type", "pixtral"}, {"hidden_size", 32}}}};
    root["text_config"].erase("tie_word_embeddings");
    for (const HfTensor& tensor : hf_tensors(config)) {
      std::vector<float> values(static_cast<std::size_t>(tensor.n_elems())), param(sizes_of(tensor.param));
      must(test::values_named(tensor.param, param));
      gather_hf(tensor, config, 0, param, values);
      tensors[in_files(tensor.name)] = {"F32", tensor.shape, test::bytes_of(std::span<const float>(values))};
    }
    for (const char* name : GetParam().others) tensors[name] = {"F32", {1}, std::string(4, '\0')};
  }
  static std::string in_files(const std::string& name) {
    const Whole& whole = GetParam();
    return name.starts_with(whole.text_names) ? whole.file_names + name.substr(whole.text_names.size())
                                              : name;
  }
  std::size_t sizes_of(const std::string& param) const {
    std::int64_t n = 0;
    for (const HfTensor& tensor : hf_tensors(config))
      if (tensor.param == param) n += tensor.n_elems();
    return static_cast<std::size_t>(n);
  }
  Result<std::unique_ptr<HfFolder>> written() {
    const std::string path = dir.file("whole");
    must(posix_io().make_dirs(path));
    must(write_text_atomically(posix_io(), path + "/config.json", root.dump()));
    std::vector<TensorSpec> specs;
    for (const auto& [name, stored] : tensors) specs.push_back({name, stored.dtype, stored.shape});
    const auto writer = must(SafetensorsWriter::create(posix_io(), path + "/model.safetensors", specs));
    for (const auto& [name, stored] : tensors) must(writer->append(std::as_bytes(std::span(stored.bytes))));
    must(writer->finish());
    return HfFolder::open(posix_io(), path);
  }

  const test::TempDir dir;
  const DecoderConfig config = test::config_in(GetParam().family);
  json root;
  std::map<std::string, test::StoredBytes> tensors;
};

TEST_P(TextModelTest, HasTheConfigAndTheValuesOfTheTextModelAlone) {
  const auto plain = must(HfFolder::open(posix_io(), dir.file("plain")));
  const auto folder = must(written());
  EXPECT_EQ(folder->config(), plain->config());
  for (const HfTensor& tensor : hf_tensors(config)) {
    std::vector<float> want(sizes_of(tensor.param)), got(want.size());
    must(test::values_named(tensor.param, want));
    must(folder->read(tensor.param, got));
    EXPECT_EQ(got, want) << tensor.param;
  }
}

// transformers saves the layers of Kimi K2.5 so, see findings/transformers_kimi_k25_names.sh.
TEST_P(TextModelTest, LayersMayHaveTheNamesThatTransformersSaves) {
  const std::string published = "language_model.model.layers.", saved = "language_model.model.blocks.";
  if (GetParam().type != std::string("kimi_k25")) return;
  std::map<std::string, test::StoredBytes> renamed;
  for (auto& [name, stored] : tensors)
    renamed[name.starts_with(published) ? saved + name.substr(published.size()) : name] = stored;
  tensors = std::move(renamed);
  const auto folder = must(written());
  for (const HfTensor& tensor : hf_tensors(config)) {
    std::vector<float> want(sizes_of(tensor.param)), got(want.size());
    must(test::values_named(tensor.param, want));
    must(folder->read(tensor.param, got));
    EXPECT_EQ(got, want) << tensor.param;
  }
}

TEST_P(TextModelTest, IsExportedAsTheTextModel) {
  const auto folder = must(written());
  const std::string text = hf_config_json(folder->config(), DType::f32, folder->config_text());
  EXPECT_EQ(text, must(read_text(posix_io(), dir.file("plain") + "/config.json", 1 << 20)));
}

TEST_P(TextModelTest, AHeadThatIsTheEmbeddingMayBeInTheFiles) {
  root["tie_word_embeddings"] = true;
  tensors[in_files("lm_head.weight")] = tensors[in_files("model.embed_tokens.weight")];
  EXPECT_TRUE(must(written())->config().tied_head);
}

TEST_P(TextModelTest, TensorsThatAreMissingOrUnknownAreNamed) {
  tensors.erase(in_files("model.layers.1.post_attention_layernorm.weight"));
  tensors["audio_tower.weight"] = {"F32", {1}, std::string(4, '\0')};
  const Status status = written().status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::AllOf(::testing::HasSubstr("model.layers.1.post_attention_layernorm.weight is missing"),
                       ::testing::HasSubstr("audio_tower.weight is not a tensor of this model")));
}

TEST_P(TextModelTest, ATextModelThatIsNotKnownIsNamed) {
  root["text_config"]["model_type"] = "mistral4";
  EXPECT_THAT(std::string(written().status().message()), ::testing::HasSubstr("model_type is 'mistral4'"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, TextModelTest, ::testing::ValuesIn(kWholes),
                         [](const auto& test) { return std::string(test.param.type); });

}  // namespace
}  // namespace strata
