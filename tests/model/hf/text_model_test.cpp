// Folders of models that also read images: Mistral 3, whose text model is a Ministral 3.
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

class TextModelTest : public ::testing::Test {
 protected:
  TextModelTest() {
    must(export_hf(posix_io(), dir.file("plain"), config, test::values_named, {}));
    const json text =
        json::parse(must(read_text(posix_io(), dir.file("plain") + "/config.json", std::uint64_t{1} << 20)));
    root = {{"model_type", "mistral3"}, {"architectures", {"Mistral3ForConditionalGeneration"}},
            {"image_token_index", 10},  {"tie_word_embeddings", text.at("tie_word_embeddings")},
            {"text_config", text},      {"vision_config", {{"model_type", "pixtral"}, {"hidden_size", 32}}}};
    root["text_config"].erase("tie_word_embeddings");
    for (const HfTensor& tensor : hf_tensors(config)) {
      std::vector<float> values(static_cast<std::size_t>(tensor.n_elems())), param(sizes_of(tensor.param));
      must(test::values_named(tensor.param, param));
      gather_hf(tensor, config, 0, param, values);
      tensors["language_model." + tensor.name] = {"F32", tensor.shape,
                                                  test::bytes_of(std::span<const float>(values))};
    }
    for (const char* name : {"vision_tower.patch_conv.weight", "multi_modal_projector.linear_1.weight"})
      tensors[name] = {"F32", {1}, std::string(4, '\0')};
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
  const DecoderConfig config = test::config_in("ministral3");
  json root;
  std::map<std::string, test::StoredBytes> tensors;
};

TEST_F(TextModelTest, HasTheConfigAndTheValuesOfTheTextModelAlone) {
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

TEST_F(TextModelTest, IsExportedAsTheTextModel) {
  const auto folder = must(written());
  const std::string text = hf_config_json(folder->config(), DType::f32, folder->config_text());
  EXPECT_EQ(text, must(read_text(posix_io(), dir.file("plain") + "/config.json", 1 << 20)));
}

TEST_F(TextModelTest, AHeadThatIsTheEmbeddingMayBeInTheFiles) {
  root["tie_word_embeddings"] = true;
  tensors["language_model.lm_head.weight"] = tensors["language_model.model.embed_tokens.weight"];
  EXPECT_TRUE(must(written())->config().tied_head);
}

TEST_F(TextModelTest, TensorsThatAreMissingOrUnknownAreNamed) {
  tensors.erase("language_model.model.layers.1.mlp.up_proj.weight");
  tensors["audio_tower.weight"] = {"F32", {1}, std::string(4, '\0')};
  const Status status = written().status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::HasSubstr("model.layers.1.mlp.up_proj.weight is missing"),
                               ::testing::HasSubstr("audio_tower.weight is not a tensor of this model")));
}

TEST_F(TextModelTest, ATextModelThatIsNotKnownIsNamed) {
  root["text_config"]["model_type"] = "mistral4";
  EXPECT_THAT(std::string(written().status().message()), ::testing::HasSubstr("model_type is 'mistral4'"));
}

}  // namespace
}  // namespace strata
