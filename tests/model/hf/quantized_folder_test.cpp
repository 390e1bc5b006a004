// Folders whose matrices are quantized: by bitsandbytes or compressed-tensors, or in tiles of FP8.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/kernels/weight_quant.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/str.h>

#include "model/hf/opened_folder.h"

namespace strata {
namespace {

using kernels::QuantizedMatrix;
using kernels::WeightFormat;
using test::OpenedFolder;
using test::quantized_config_of;
using test::small_config_of;
using ::testing::HasSubstr;
using enum kernels::WeightFormat;

class QuantizedFolderTest : public ::testing::TestWithParam<std::pair<const char*, WeightFormat>> {};

// A parameter's bytes are those of the files, and what is read as f32 is what they stand for.
TEST_P(QuantizedFolderTest, ReadsTheQuantizedMatricesAsTheyAre) {
  const auto [family, format] = GetParam();
  const DecoderConfig config = quantized_config_of(family, format);
  OpenedFolder written(config, format);
  const std::unique_ptr<HfFolder> folder = written.open();
  EXPECT_EQ(folder->quantized_to(), format);
  EXPECT_EQ(quantization_in_hf_config(folder->config_text()), format);
  for (const auto& [param, matrix] : quantized_matrices(config, format)) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes())),
        pieces(bytes.size(), std::byte{0xCB});
    ASSERT_TRUE(must(folder->read_quantized(param, matrix, 0, bytes))) << param;
    for (std::size_t at = 0; at < pieces.size(); at += 1000)
      ASSERT_TRUE(must(folder->read_quantized(
          param, matrix, static_cast<std::int64_t>(at),
          std::span(pieces).subspan(at).first(std::min<std::size_t>(1000, pieces.size() - at)))));
    EXPECT_EQ(pieces, bytes) << param;
    std::vector<float> want(static_cast<std::size_t>(matrix.n_elems())), got(want.size()), some(100);
    kernels::dequantize_matrix(matrix, bytes, 0, want);
    must(folder->read(param, got));
    EXPECT_EQ(got, want) << param;
    must(folder->read_part(param, 77, some));
    EXPECT_TRUE(std::equal(some.begin(), some.end(), want.begin() + 77)) << param;
    QuantizedMatrix other = matrix;
    other.format = format == nf4 ? nf4_dq : nf4;
    EXPECT_FALSE(must(folder->read_quantized(param, other, 0, bytes)));
    EXPECT_FALSE(must(folder->read_quantized("tokens.weight", matrix, 0, bytes)));
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, QuantizedFolderTest,
                         ::testing::Values(std::pair{"llama", nf4}, std::pair{"llama", nf4_dq},
                                           std::pair{"llama", int8}, std::pair{"gpt2", nf4_dq},
                                           std::pair{"qwen3_moe", nf4}, std::pair{"qwen3", fp8_block},
                                           std::pair{"qwen3_moe", fp8_block}, std::pair{"gpt_oss", mxfp4},
                                           std::pair{"llama", int4}, std::pair{"qwen3_moe", int4}),
                         [](const auto& test) {
                           std::string name = str(test.param.first, "_", to_string(test.param.second));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A row has one scale, also if it does not end with a block of 64.
TEST(QuantizedFolderErrorsTest, RowsOf8BitsThatAreNoWholeBlocksAreReadAsFloats) {
  DecoderConfig config = small_config_of("llama");
  config.hidden = 72;
  config.head_dim = 16;
  OpenedFolder written(config, int8);
  const std::unique_ptr<HfFolder> folder = written.open();
  std::vector<float> all(static_cast<std::size_t>(72 * 128 * 2)), some(200);
  must(folder->read("layers.0.mlp_in.weight", all));
  must(folder->read_part("layers.0.mlp_in.weight", 71, some));
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 71));
  const std::string& codes = written.tensors["model.layers.0.mlp.gate_proj.weight"].bytes;
  for (const std::size_t at : {0, 71, 72, 143, 9215}) {
    const float scale = 0.3f + 0.01f * static_cast<float>(at / 72);
    EXPECT_NEAR(all[at], static_cast<float>(static_cast<signed char>(codes[at])) / 127.0f * scale, 1e-7)
        << at;
  }
}

TEST(QuantizedFolderErrorsTest, WhatIsDamagedOrNotSupportedIsNamed) {
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  const auto error_after = [&](WeightFormat format, const auto& change) {
    OpenedFolder folder(small_config_of("llama"), format);
    change(folder);
    return folder.error_text();
  };
  EXPECT_THAT(error_after(nf4, [&](OpenedFolder& f) { f.tensors.erase(q + ".absmax"); }),
              HasSubstr(q + ".absmax is missing"));
  EXPECT_THAT(error_after(nf4,
                          [&](OpenedFolder& f) {
                            f.tensors[q + ".absmax"] = {"BF16", {1, 64}, std::string(128, '?')};
                          }),
              HasSubstr(q + ".absmax is BF16 [1, 64], and not F32: bitsandbytes has saved the model after an "
                            "evaluation on a CPU"));
  EXPECT_THAT(error_after(nf4_dq, [&](OpenedFolder& f) { f.tensors.erase(q + ".nested_absmax"); }),
              HasSubstr(q + ".nested_absmax is missing"));
  EXPECT_THAT(
      error_after(nf4, [&](OpenedFolder& f) { f.tensors.erase(q + ".quant_state.bitsandbytes__nf4"); }),
      HasSubstr(q + ".quant_state.bitsandbytes__nf4 is missing"));
  EXPECT_THAT(
      error_after(int8, [&](OpenedFolder& f) { f.tensors.erase("model.layers.0.self_attn.q_proj.SCB"); }),
      HasSubstr("model.layers.0.self_attn.q_proj.SCB is missing"));
  EXPECT_THAT(
      error_after(nf4, [&](OpenedFolder& f) { f.state(q, 64, 64, "", 128); }),
      HasSubstr(
          "is quantized to nf4 in blocks of 128; nf4 in blocks of 64, and groups of 256, is supported"));
  EXPECT_THAT(error_after(nf4, [&](OpenedFolder& f) { f.state(q, 64, 32, ""); }),
              HasSubstr(q + " is a matrix [64, 32], but the model needs [64, 64]"));
  EXPECT_THAT(error_after(nf4, [&](OpenedFolder& f) { f.tensors[q + ".quant_map"].bytes[5] ^= 1; }),
              HasSubstr(q + ".quant_map: code 1 stands for"));
  EXPECT_THAT(error_after(nf4,
                          [&](OpenedFolder& f) {
                            f.tensors[q] = {"U8", {2047, 1}, std::string(2047, 'x')};
                          }),
              HasSubstr(q + " is U8 [2047, 1]; it must be U8 with 2048 elements"));
  EXPECT_THAT(error_after(nf4,
                          [&](OpenedFolder& f) {
                            f.tensors[q + ".quant_state.bitsandbytes__nf4"] = {"U8", {3}, "{x}"};
                          }),
              HasSubstr(q + ".quant_state.bitsandbytes__nf4"));
  EXPECT_THAT(error_after(nf4,
                          [&](OpenedFolder& f) {
                            f.tensors[q + ".quant_state.bitsandbytes__fp4"] = {"U8", {2}, "{}"};
                          }),
              HasSubstr(q + " is quantized to fp4, which is not supported; nf4 is"));
  EXPECT_THAT(error_after(nf4, [&](OpenedFolder& f) { f.quantization = R"({"quant_method": "gptq"})"; }),
              HasSubstr("quantization_config.quant_method is 'gptq', neither bitsandbytes, fp8, mxfp4 nor "
                        "compressed-tensors, which is not supported"));
  EXPECT_THAT(error_after(nf4,
                          [&](OpenedFolder& f) {
                            f.quantization = R"({"quant_method": "bitsandbytes", "load_in_4bit": true})";
                          }),
              HasSubstr("quantization_config.bnb_4bit_quant_type is not nf4"));
  EXPECT_THAT(error_after(nf4,
                          [&](OpenedFolder& f) {
                            f.tensors["model.extra.absmax"] = {"F32", {1}, "abcd"};
                          }),
              HasSubstr("model.extra.absmax is not a tensor of this model"));
}

}  // namespace
}  // namespace strata
