// Hugging Face folders: round trips, and errors that name the damaged part.
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/model/decoder.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

#include "model/hf/damaged_folder.h"

namespace strata {
namespace {

using test::config_in;
using test::values_named;
using HfDamageTest = test::DamagedFolder;
using nlohmann::json;
using ::testing::HasSubstr;

std::map<std::string, std::int64_t> params_of(DecoderConfig config) {
  config.seq = 8;
  std::map<std::string, std::int64_t> sizes;
  for (const ParamInfo& param : must(record_decoder(config, 1, DecoderHead::logits)).params)
    sizes[param.name] = param.shape.n_elems();
  return sizes;
}

class HfFamilyTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const test::TempDir dir;
  const DecoderConfig config = config_in(GetParam());
  const std::string path = dir.file("model");
};

TEST_P(HfFamilyTest, EveryElementOfEveryParameterComesBackBitForBit) {
  must(export_hf(posix_io(), path, config, values_named, {}));
  const auto folder = must(HfFolder::open(posix_io(), path));
  for (const auto& [name, n] : params_of(config)) {
    std::vector<float> want(static_cast<std::size_t>(n)), got(want.size());
    must(values_named(name, want));
    must(folder->read(name, got));
    EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * 4), 0) << name;
  }
  must(check_hf_export(posix_io(), path, values_named, DType::f32));
}

TEST_P(HfFamilyTest, PartsOfAParameterAreThoseOfTheWhole) {
  must(export_hf(posix_io(), path, config, values_named, {}));
  const auto folder = must(HfFolder::open(posix_io(), path));
  for (const auto& [name, n] : params_of(config)) {
    std::vector<float> want(static_cast<std::size_t>(n)), got(want.size());
    must(values_named(name, want));
    for (std::int64_t at = 0; at < n; at += 77)
      must(folder->read_part(
          name, at,
          std::span(got).subspan(static_cast<std::size_t>(at),
                                 static_cast<std::size_t>(std::min<std::int64_t>(77, n - at)))));
    EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * 4), 0) << name;
    std::array<float, 2> two = {};  // one of which is there
    const Status past = folder->read_part(name, n - 1, two);
    EXPECT_EQ(past.code(), Code::invalid) << name;
  }
}

TEST_P(HfFamilyTest, TheConfigurationRoundTrips) {
  must(export_hf(posix_io(), path, config, values_named, {}));
  DecoderConfig got = with_derived_sizes(must(HfFolder::open(posix_io(), path))->config()),
                want = with_derived_sizes(config);
  for (DecoderConfig* c : {&got, &want})  // Gemma writes the usual value, too
    if (c->query_scalar == 0) c->query_scalar = static_cast<float>(c->head_dim);
  EXPECT_TRUE(got == want) << hf_config_json(got, DType::f32) << hf_config_json(want, DType::f32);
}

TEST_P(HfFamilyTest, EveryFractionThatIsWrittenIsRead) {
  DecoderConfig wide = config;
  if (family_limits(config.family).delta) wide.head_dim = 16;  // an eighth of it is two elements
  json written = json::parse(hf_config_json(wide, DType::f32));
  written.erase("rope_parameters");  // which repeats keys beside it
  for (const auto& [key, value] : written.items()) {
    if (!value.is_number_float() || value == 0) continue;
    json changed = written;
    changed[key] = value.get<double>() / 2;
    const DecoderConfig got = must(decoder_from_hf_config(changed.dump()));
    EXPECT_EQ(json::parse(hf_config_json(got, DType::f32))[key], changed[key]) << key;
  }
}

TEST_P(HfFamilyTest, OtherKeysOfTheSourceAreCarriedOver) {
  const std::string source =
      R"({"eos_token_id": [7, 9], "pad_token_id": null, "hidden_size": 99, "dtype": "float32"})";
  const json j = json::parse(hf_config_json(config, DType::bf16, source));
  EXPECT_EQ(j["eos_token_id"], json({7, 9}));
  EXPECT_TRUE(j["pad_token_id"].is_null());
  EXPECT_TRUE(j["bos_token_id"].is_null());
  EXPECT_EQ(j["dtype"], "bfloat16");
  const DecoderConfig again = must(decoder_from_hf_config(j.dump()));  // our values override the source's
  EXPECT_EQ(again.hidden, config.hidden);
}

TEST_P(HfFamilyTest, ShardsHoldEachTensorOnceAndReadBackAsOneFileDoes) {
  must(export_hf(posix_io(), path, config, values_named, {.dtype = DType::bf16, .shard_bytes = 3000}));
  const std::string index_path = path + "/model.safetensors.index.json";
  const json index = json::parse(must(read_text(posix_io(), index_path, 1 << 20)));
  EXPECT_EQ(index["weight_map"].size(), hf_tensors(config).size());
  std::set<std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) files.insert(file.get<std::string>());
  EXPECT_GT(files.size(), 3u);
  must(check_hf_export(posix_io(), path, values_named, DType::bf16));
}

INSTANTIATE_TEST_SUITE_P(Families, HfFamilyTest, ::testing::ValuesIn(decoder_families()),
                         [](const auto& test_case) { return std::string(test_case.param); });

TEST_F(HfDamageTest, MissingUnknownAndMisshapenTensorsAreAllNamedAtOnce) {
  edit_tensors(
      [](TensorSpec& spec) {
        if (spec.name == "model.layers.0.self_attn.k_proj.weight") return false;
        if (spec.name == "model.norm.weight") spec.shape = {25};
        return true;
      },
      {{"model.layers.7.mlp.up_proj.weight", "F32", {2, 2}}});
  expect_refused(Code::corrupt, {"model.layers.0.self_attn.k_proj.weight is missing",
                                 "model.norm.weight has the shape [25], but the model needs [24]",
                                 "model.layers.7.mlp.up_proj.weight is not a tensor of this model"});
}

TEST_F(HfDamageTest, ADtypeThatIsNotAFloatIsRefused) {
  edit_tensors([](TensorSpec& spec) {
    if (spec.name == "lm_head.weight") spec.dtype = "I32";
    return true;
  });
  expect_refused(Code::corrupt, {"lm_head.weight is I32; F32, BF16 and F16 can be read"});
}

TEST_F(HfDamageTest, BuffersOfOldFilesAreIgnored) {
  edit_tensors([](TensorSpec&) { return true; },
               {{"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {4}}});
  EXPECT_TRUE(HfFolder::open(posix_io(), path).has_value());
}

TEST_F(HfDamageTest, AFolderWithoutAModelSaysWhatIsMissing) {
  must(posix_io().remove_all(path + "/model.safetensors"));
  expect_refused(Code::not_found, {"model.safetensors"});
  must(posix_io().remove_all(path + "/config.json"));
  expect_refused(Code::not_found, {"config.json"});
}

TEST_F(HfDamageTest, AnIndexMayNameOnlyFilesOfItsFolder) {
  must(posix_io().rename(path + "/model.safetensors", path + "/part.safetensors"));
  const auto index = [&](const std::string& file) {
    json map = json::object();
    for (const HfTensor& tensor : hf_tensors(config)) map[tensor.name] = file;
    must(write_text_atomically(posix_io(), path + "/model.safetensors.index.json",
                               json{{"weight_map", map}}.dump()));
  };
  index("part.safetensors");
  EXPECT_TRUE(HfFolder::open(posix_io(), path).has_value());
  for (const std::string outside :
       {"../part.safetensors", "/etc/passwd", "..", "", "a/../part.safetensors"}) {
    index(outside);
    expect_refused(Code::invalid, {"'" + outside + "', which is not a file of this folder"});
  }
  std::filesystem::create_symlink("part.safetensors", path + "/link.safetensors");
  index("link.safetensors");
  EXPECT_TRUE(HfFolder::open(posix_io(), path).has_value()) << "it stays in the folder";
  std::filesystem::create_directory(path + "/folder");
  index("folder");
  expect_refused(Code::invalid, {"not a regular file"});
}

TEST_F(HfDamageTest, AMalformedIndexIsRefused) {
  must(posix_io().rename(path + "/model.safetensors", path + "/part.safetensors"));
  for (const char* text :
       {"", "[]", "{}", "{\"weight_map\": 3}", "{\"weight_map\": {}}", "{\"weight_map\": {\"a\": 1}}",
        "{\"weight_map\": {\"a\": \"b\", \"a\": \"c\"}}"}) {
    must(write_text_atomically(posix_io(), path + "/model.safetensors.index.json", text));
    expect_refused(Code::corrupt, {"model.safetensors.index.json"});
  }
}

TEST_F(HfDamageTest, SettingsThisBuildLacksAreNamedAllAtOnce) {
  edit_config([](json& j) {
    j["hidden_act"] = "gelu";
    j["rope_scaling"] = {{"rope_type", "longrope"}, {"factor", 4.0}};
    j["quantization_config"] = {{"bits", 4}};
    j["use_sliding_window"] = true;
  });
  expect_refused(Code::unsupported, {"hidden_act is gelu", "rope_scaling.rope_type is longrope",
                                     "quantization_config", "use_sliding_window is true"});
}

TEST_F(HfDamageTest, ValuesOfAWrongTypeAreNamedWithTheirValue) {
  edit_config([](json& j) {
    j["hidden_size"] = "24";
    j.erase("vocab_size");
    j["num_attention_heads"] = -4;
    j["tie_word_embeddings"] = 1;
    j["rms_norm_eps"] = nullptr;  // null: the family's default
  });
  expect_refused(Code::invalid, {"hidden_size is \"24\"; it must be a number", "vocab_size is missing",
                                 "num_attention_heads is -4", "tie_word_embeddings is 1"});
}

TEST_F(HfDamageTest, SizesThatDoNotGoTogetherAreRefused) {
  edit_config([](json& j) { j["num_key_value_heads"] = 3; });
  expect_refused(Code::invalid, {"model.heads is 4 and model.kv_heads 3"});
  edit_config([](json& j) {
    j["num_key_value_heads"] = 2;
    j["head_dim"] = 7;
  });
  expect_refused(Code::invalid, {"RoPE rotates 7 elements"});
}

// The folder is untrusted, but determines how much is allocated.
TEST_F(HfDamageTest, SizesThatNoModelHasAreRefusedBeforeAnythingIsAllocated) {
  edit_config([](json& j) {
    j["num_hidden_layers"] = std::int64_t{1} << 31;
    j["vocab_size"] = std::int64_t{1} << 31;
    j["head_dim"] = std::int64_t{1} << 31;
  });
  expect_refused(Code::invalid,
                 {"model.layers is 2147483648; it must be 1 to 10000",
                  "model.vocab is 2147483648; it must be 1 to 4194304",
                  "model.heads is 4 and model.head_dim 2147483648; their product must be at most 1048576"});
}

TEST_F(HfDamageTest, NumbersThatAreInfiniteInSinglePrecisionAreRefused) {
  edit_config([](json& j) {
    j["rms_norm_eps"] = 1e300;
    j["rope_theta"] = 1e-300;
    j["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", 0},
                         {"low_freq_factor", -1},
                         {"high_freq_factor", 4},
                         {"original_max_position_embeddings", 1.5}};
  });
  expect_refused(Code::invalid,
                 {"rms_norm_eps is 1e+300; it must be a number", "rope_theta is 1e-300; it must be above 0",
                  "factor is 0; it must be above 0", "low_freq_factor is -1; it must be above 0",
                  "original_max_position_embeddings is 1.5; it must be a number from 0 to 2^31"});
}

TEST(HfConfigTest, BloomsInnerWidthIsFourTimesTheOuterWhateverTheFileSays) {
  const std::string text = R"({"model_type": "bloom", "n_layer": 1, "hidden_size": 8, "n_head": 2,
                               "vocab_size": 5, "n_inner": 20})";
  EXPECT_EQ(must(decoder_from_hf_config(text)).ffn, 32);
}

TEST(HfConfigTest, AnInvalidRotaryFractionIsRefused) {
  for (const char* share : {"-0.5", "1.5", "1e300"}) {
    const auto config = decoder_from_hf_config(
        str(R"({"model_type": "glm", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
                "intermediate_size": 8, "vocab_size": 5, "partial_rotary_factor": )",
            share, "}"));
    EXPECT_FALSE(config.has_value()) << share;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr("partial_rotary_factor is ")) << share;
  }
}

TEST_F(HfDamageTest, AnArchitectureThatIsNotKnownIsNamed) {
  edit_config([](json& j) { j["model_type"] = "mamba"; });
  expect_refused(Code::unsupported, {"model_type is 'mamba'", "gpt2, opt, bloom, llama"});
}

TEST_F(HfDamageTest, AnExportNeverReplacesAFolder) {
  const Status status = export_hf(posix_io(), path, config, values_named, {});
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("already exists"));
}

TEST_F(HfDamageTest, AFailedExportLeavesNothing) {
  const auto broken = [](std::string_view param, std::span<float> into) {
    return param == "final_norm.weight" ? Status::error(Code::io_error, "gone") : values_named(param, into);
  };
  EXPECT_EQ(export_hf(posix_io(), dir.file("other"), config, broken, {}).code(), Code::io_error);
  EXPECT_EQ(must(posix_io().list(dir.path())), (std::vector<std::string>{"model"}));
}

TEST_F(HfDamageTest, TheCheckFindsAFlippedBit) {
  const std::uint64_t size = std::filesystem::file_size(path + "/model.safetensors");
  std::fstream raw(path + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  raw.seekp(static_cast<std::streamoff>(size - 3));
  raw.put('\x55');
  raw.close();
  const Status status = check_hf_export(posix_io(), path, values_named, DType::f32);
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(std::string(status.message()), HasSubstr("head.weight has other values when it is read back"));
}

TEST_F(HfDamageTest, OtherQuantizationsAreRefusedByName) {
  edit_config([](json& j) { j["quantization_config"] = {{"quant_method", "gptq"}}; });
  expect_refused(Code::unsupported, {"quantization_config.quant_method is 'gptq', neither bitsandbytes, fp8, "
                                     "mxfp4 nor compressed-tensors"});
}

}  // namespace
}  // namespace strata
