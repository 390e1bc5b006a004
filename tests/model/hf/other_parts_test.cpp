// Folders of models that also read images are exported whole: what is no part of their text model is copied.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/model/hf/config.h>
#include <strata/model/hf/folder.h>

#include "model/hf/whole_folder.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct WholeKind {
  const char *family, *type;
};
const WholeKind kWholeKinds[] = {{"ministral3", "mistral3"},
                                 {"qwen3_5_text", "qwen3_5"},
                                 {"qwen3_5_moe_text", "qwen3_5_moe"},
                                 {"deepseek_v3", "kimi_k25"},
                                 {"deepseek_v3", "deepseek_v32"}};

const json kTilesOfFp8 = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};

class OtherPartsTest : public ::testing::TestWithParam<WholeKind> {
 protected:
  OtherParts record() const { return must(digest_other_parts(posix_io(), source.path)).value(); }
  Status exported(const OtherParts& parts, HfExport options = {}) const {
    options.source_config = source.root.dump();
    options.others = parts;
    return export_hf(posix_io(), out, config, test::values_named, options);
  }
  Status exported() const {
    source.write();
    return exported(record());
  }
  std::string read(const std::string& name) const {
    return must(read_text(posix_io(), out + "/" + name, std::uint64_t{1} << 24));
  }
  void refuses(const Status& status, Code code, const std::vector<std::string>& parts) const {
    EXPECT_EQ(status.code(), code) << status.message();
    for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    EXPECT_FALSE(posix_io().exists(out));
  }

  const test::TempDir dir;
  const std::string out = dir.file("out");
  const DecoderConfig config = test::config_in(GetParam().family);
  test::WholeFolder source{dir.file("source"), config, GetParam().type};
};

TEST_P(OtherPartsTest, TensorsAreWrittenByteForByteBesideTheTextModelsOwn) {
  source.write();
  const OtherParts parts = record();
  ASSERT_TRUE(exported(parts, {.shard_bytes = 20'000}).is_ok());
  std::size_t found = 0;
  for (const std::string& name : must(posix_io().list(out))) {
    if (!name.ends_with(".safetensors")) continue;
    const auto file = must(SafetensorsFile::open(posix_io(), out + "/" + name));
    for (const SafetensorsEntry& entry : file->entries()) {
      const bool is_other = source.others.contains(entry.name);
      ASSERT_TRUE(is_other || source.text.contains(entry.name)) << entry.name;
      std::string bytes(entry.bytes, '\0');
      must(file->read(entry.name, std::as_writable_bytes(std::span(bytes))));
      EXPECT_EQ(bytes, (is_other ? source.others : source.text).at(entry.name).bytes) << entry.name;
      ++found;
    }
  }
  EXPECT_EQ(found, source.others.size() + source.text.size());
  EXPECT_EQ(must(HfFolder::open(posix_io(), out))->config(),
            must(HfFolder::open(posix_io(), source.path))->config());
  EXPECT_TRUE(check_hf_export(posix_io(), out, test::values_named, DType::f32, parts).is_ok());
}

// The text model's config, which that of a model with an index is itself.
json& text_in(json& root) { return root.contains("text_config") ? root["text_config"] : root; }

TEST_P(OtherPartsTest, TheConfigIsTheWholeModelsButForTheDtypeAndTheTokens) {
  text_in(source.root)["quantization_config"] = kTilesOfFp8;
  source.root["quantization_config"] = kTilesOfFp8;
  source.write();
  ASSERT_TRUE(exported(record(), {.dtype = DType::f16, .token_ids = {.eos = {3, 4}}}).is_ok());
  json want = source.root;
  json& text = text_in(want);
  want["dtype"] = text["torch_dtype"] = "float16";
  text["eos_token_id"] = {3, 4};
  want.erase("quantization_config");
  text.erase("quantization_config");
  if (text.contains("dtype")) text["dtype"] = "float16";
  EXPECT_EQ(json::parse(read("config.json")), want);
}

TEST_P(OtherPartsTest, ATextModelThatTheRunHasChangedIsSaidToBeSo) {
  source.write();
  DecoderConfig untied = config;
  untied.tied_head = !config.tied_head;
  HfExport options;
  options.source_config = source.root.dump();
  options.others = record();
  ASSERT_TRUE(export_hf(posix_io(), out, untied, test::values_named, options).is_ok());
  EXPECT_EQ(json::parse(read("config.json"))["tie_word_embeddings"], untied.tied_head);
  EXPECT_EQ(must(HfFolder::open(posix_io(), out))->config().tied_head, untied.tied_head);
}

TEST_P(OtherPartsTest, FilesOfOtherPartsAreCopiedAndThoseOfTheTokensAreNot) {
  source.write();
  HfExport options;
  options.files = {{"chat_template.jinja", "of the run"}, {"tokenizer_config.json", "of the run"}};
  ASSERT_TRUE(exported(record(), options).is_ok());
  EXPECT_EQ(read("preprocessor_config.json"), source.files["preprocessor_config.json"]);
  EXPECT_EQ(read("tokenizer_config.json"), "of the run");
  EXPECT_FALSE(posix_io().exists(out + "/README.md"));
  EXPECT_FALSE(posix_io().exists(out + "/chat_template.json"));  // it would be another than the run's
}

TEST_P(OtherPartsTest, ATensorOrAFileOfAnotherContentIsRefusedWithBothDigests) {
  source.write();
  const OtherParts parts = record();
  auto& [name, stored] = *source.others.rbegin();
  const std::string before = test::digest_of_text(stored.bytes);
  stored.bytes.back() = static_cast<char>(stored.bytes.back() ^ 1);
  source.write();
  refuses(exported(parts), Code::corrupt,
          {source.path, name, before, test::digest_of_text(stored.bytes), "--text-only"});
  stored.bytes.back() = static_cast<char>(stored.bytes.back() ^ 1);
  source.files["preprocessor_config.json"] = "{}";
  source.write();
  refuses(exported(parts), Code::corrupt,
          {"preprocessor_config.json", test::digest_of_text("{}"), test::digest_of_text("{\"size\": 14}")});
}

TEST_P(OtherPartsTest, WhatIsGoneOrHasAnotherFormIsNamed) {
  source.write();
  const OtherParts parts = record();
  const std::string name = source.others.begin()->first;
  source.others.begin()->second.shape = {6};
  source.write();
  refuses(exported(parts), Code::corrupt, {name, "BF16 [6], and was BF16 [3, 2]"});
  source.others.erase(source.others.begin());
  source.write();
  refuses(exported(parts), Code::corrupt, {source.path, str(name, " is missing")});
  must(posix_io().remove_all(source.path));
  refuses(exported(parts), Code::not_found, {source.path, "does not exist", "model.from", "--text-only"});
}

TEST_P(OtherPartsTest, QuantizedTensorsAreRefusedAsNothingWouldSaySo) {
  source.others.begin()->second = {"F8_E4M3", {2}, "ab"};
  source.write();
  EXPECT_TRUE(exported(record()).is_ok());  // no quantization_config explains them in the source either
  must(posix_io().remove_all(out));
  source.root["quantization_config"] = kTilesOfFp8;
  source.write();
  refuses(exported(record()), Code::unsupported, {source.others.begin()->first, "F8_E4M3"});
}

TEST_P(OtherPartsTest, AnExportWhoseCopiesAreDamagedFailsItsCheck) {
  source.write();
  const OtherParts parts = record();
  ASSERT_TRUE(exported(parts).is_ok());
  OtherParts other = parts;
  other.tensors.back().digest.back() ^= 1;
  const Status status = check_hf_export(posix_io(), out, test::values_named, DType::f32, other);
  EXPECT_EQ(status.code(), Code::corrupt);
}

TEST_P(OtherPartsTest, ARecordIsReadBackAsItWasWritten) {
  source.write();
  const OtherParts parts = record();
  EXPECT_EQ(parts.tensors.size(), source.others.size());
  EXPECT_EQ(must(other_parts_from_json(other_parts_json(parts))), parts);
  json broken = json::parse(other_parts_json(parts));
  broken["files"][0]["name"] = "../config.json";
  EXPECT_EQ(other_parts_from_json(broken.dump()).status().code(), Code::invalid);
  broken["tensors"][0].erase("digest");
  EXPECT_THAT(std::string(other_parts_from_json(broken.dump()).status().message()), HasSubstr("file"));
  broken["files"] = json::array();
  EXPECT_THAT(std::string(other_parts_from_json(broken.dump()).status().message()), HasSubstr("digest"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, OtherPartsTest, ::testing::ValuesIn(kWholeKinds),
                         [](const auto& test) { return std::string(test.param.type); });

TEST(OtherPartsOfTest, ATextModelHasNone) {
  const test::TempDir dir;
  must(export_hf(posix_io(), dir.file("text"), test::config_in("llama"), test::values_named, {}));
  EXPECT_FALSE(must(other_parts_of(posix_io(), dir.file("text"))).has_value());
}

TEST(OtherPartsOfTest, AreDescribedByTheBeginningsOfTheirNames) {
  const OtherParts parts{
      "/m",
      {{"model.visual.a", "F32", {512}, 2048}, {"model.visual.b", "F32", {1}, 4}, {"mtp.a", "F32", {1}, 4}}};
  EXPECT_EQ(describe(parts), "3 tensors (2.0 KiB), whose names begin with model.visual. and mtp.");
  OtherParts layers{"/m", {}};
  for (const char* const name :
       {"model.layers.0.self_attn.indexer.wk.weight", "model.layers.0.self_attn.indexer.wq_b.weight",
        "model.layers.1.self_attn.indexer.wk.weight", "model.layers.1.self_attn.indexer.wq_b.weight",
        "model.layers.2.eh_proj.weight", "model.layers.2.mlp.gate.weight", "model.layers.3.eh_proj.weight",
        "model.layers.3.mlp.gate.weight"})
    layers.tensors.push_back({name, "F32", {512}, 2048});
  EXPECT_EQ(describe(layers),
            "8 tensors (16.0 KiB), whose names begin with model.layers.*.self_attn.indexer., model.layers.2. "
            "and model.layers.3.");
}

}  // namespace
}  // namespace strata
