// Folders of matrices in MXFP4, tiles of FP8, and INT4: what is damaged, or not supported, is named.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/kernels/weight_quant.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/model/hf/folder.h>

#include "model/hf/opened_folder.h"

namespace strata {
namespace {

using kernels::QuantizedMatrix;
using kernels::WeightFormat;
using test::OpenedFolder;
using test::quantized_config_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using enum kernels::WeightFormat;

// gpt-oss: the rows of gates and ups are in turn, [experts, rows, columns / 32, 16].
TEST(QuantizedFormsTest, RowsOfMxfp4MoveAsTheyAre) {
  const DecoderConfig config = quantized_config_of("gpt_oss", mxfp4);
  const std::int64_t rows = 2 * 96, columns = 64, experts = config.experts.n;
  OpenedFolder written(config, mxfp4);
  const std::string name = "model.layers.1.mlp.experts.gate_up_proj";
  const QuantizedMatrix file = {mxfp4, columns, {experts * rows}};
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.bytes()));
  const std::string &blocks = written.tensors[name + "_blocks"].bytes,
                    &scales = written.tensors[name + "_scales"].bytes;
  std::memcpy(bytes.data(), blocks.data(), blocks.size());
  std::memcpy(bytes.data() + file.part(0).scales, scales.data(), scales.size());
  std::vector<float> of_file(static_cast<std::size_t>(file.n_elems())), got(of_file.size());
  kernels::dequantize_matrix(file, bytes, 0, of_file);
  must(written.open()->read("layers.1.experts_in.weight", got));
  for (std::int64_t e = 0; e < experts; ++e)
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t from = row < rows / 2 ? 2 * row : 2 * (row - rows / 2) + 1;
      ASSERT_TRUE(std::equal(got.begin() + (e * rows + row) * columns,
                             got.begin() + (e * rows + row + 1) * columns,
                             of_file.begin() + (e * rows + from) * columns))
          << "expert " << e << ", row " << row;
    }
}

TEST(QuantizedFormsTest, WhatIsDamagedInMxfp4IsNamed) {
  const std::string down = "model.layers.0.mlp.experts.down_proj";
  const auto error_after = [&](DecoderConfig config, const auto& change) {
    OpenedFolder folder(config, mxfp4);
    change(folder);
    return folder.error_text();
  };
  const DecoderConfig config = quantized_config_of("gpt_oss", mxfp4);
  EXPECT_THAT(error_after(config, [&](OpenedFolder& f) { f.tensors.erase(down + "_scales"); }),
              HasSubstr(down + "_scales is missing"));
  EXPECT_THAT(
      error_after(config, [&](OpenedFolder& f) { f.tensors.erase(down + "_blocks"); }),
      AllOf(HasSubstr(down + " is missing"), HasSubstr(down + "_scales is not a tensor of this model")));
  EXPECT_THAT(error_after(config,
                          [&](OpenedFolder& f) {
                            f.tensors[down + "_scales"] = {"U8", {7}, "1234567"};
                          }),
              HasSubstr(down + "_scales is U8 [7]; it must be U8 with "));
  EXPECT_THAT(error_after(config,
                          [&](OpenedFolder& f) {
                            f.tensors[down + "_scales"].shape = {6, 3, 64};
                          }),
              HasSubstr(down + "_scales is U8 [6, 3, 64]; it must be U8 [6, 64, 3]"));
}

TEST(QuantizedFormsTest, WhatIsDamagedInTilesOfFp8IsNamed) {
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  const auto error_after = [&](const auto& change) {
    OpenedFolder folder(quantized_config_of("qwen3", fp8_block), fp8_block);
    change(folder);
    return folder.error_text();
  };
  EXPECT_THAT(error_after([&](OpenedFolder& f) { f.tensors.erase(q + "_scale_inv"); }),
              HasSubstr(q + "_scale_inv is missing"));
  EXPECT_THAT(error_after([&](OpenedFolder& f) {
                f.tensors[q + "_scale_inv"].shape = {4, 1};
              }),
              HasSubstr(q + "_scale_inv is F32 [4, 1]; it must be F32 [2, 2]"));
  EXPECT_THAT(error_after([&](OpenedFolder& f) {
                f.tensors[q + "_scale_inv"] = {"BF16", {2, 2}, std::string(8, 'x')};
              }),
              HasSubstr(q + "_scale_inv is BF16 [2, 2]; it must be F32 with 4 elements"));
  EXPECT_THAT(error_after([&](OpenedFolder& f) {
                f.tensors[q] = {"F8_E4M3", {191, 192}, std::string(191 * 192, 'x')};
              }),
              HasSubstr(q + " is F8_E4M3 [191, 192]; it must be F8_E4M3 with 36864 elements"));
  EXPECT_THAT(error_after([&](OpenedFolder& f) { f.quantization = R"({"quant_method": "fp8"})"; }),
              HasSubstr("quantization_config.weight_block_size is not there, not [128,128]"));
  EXPECT_THAT(error_after([&](OpenedFolder& f) {
                f.quantization =
                    R"({"quant_method": "fp8", "weight_block_size": [64, 128], "scale_fmt": "ue8m0"})";
              }),
              AllOf(HasSubstr("quantization_config.weight_block_size is [64,128], not [128,128]"),
                    HasSubstr("quantization_config.scale_fmt is 'ue8m0', not float")));
}

// Kimi K2's releases.
TEST(QuantizedFormsTest, Int4MayBeOfExpertsAlone) {
  DecoderConfig config = quantized_config_of("qwen3_moe", int4);
  config.experts.only_quantized = true;
  OpenedFolder written(config, int4);
  const std::unique_ptr<HfFolder> folder = written.open();
  EXPECT_EQ(folder->quantized_to(), int4);
  EXPECT_TRUE(folder->config().experts.only_quantized);
  for (const auto& [param, matrix] : quantized_matrices(folder->config(), int4)) {
    EXPECT_THAT(param, HasSubstr(".experts_"));
    std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes()));
    EXPECT_TRUE(must(folder->read_quantized(param, matrix, 0, bytes))) << param;
  }
}

TEST(QuantizedFormsTest, WhatIsDamagedOrAnotherInt4IsNamed) {
  const std::string up = "model.layers.1.mlp.experts.3.up_proj.weight";
  const auto error_after = [&](const auto& change) {
    OpenedFolder folder(quantized_config_of("qwen3_moe", int4), int4);
    change(folder);
    return folder.error_text();
  };
  const auto with = [](const char* was, const char* is) {
    return [=](OpenedFolder& f) { f.quantization.replace(f.quantization.find(was), std::strlen(was), is); };
  };
  const std::string group = "quantization_config.config_groups.group_0";
  EXPECT_THAT(error_after(with(R"("group_size": 32)", R"("group_size": 128)")),
              HasSubstr(group + ".weights.group_size is 128, not 32, which is not supported"));
  EXPECT_THAT(error_after(with(R"("symmetric": true)", R"("symmetric": false)")),
              HasSubstr(group + ".weights.symmetric is false, not true, which is not supported"));
  EXPECT_THAT(error_after(with(R"("num_bits": 4)", R"("num_bits": 8)")),
              HasSubstr(group + ".weights.num_bits is 8, not 4, which is not supported"));
  EXPECT_THAT(error_after(with(R"("actorder": null)", R"("actorder": "group")")),
              HasSubstr(group + ".weights.actorder is \"group\", not null"));
  EXPECT_THAT(error_after(with(R"("input_activations": null)", R"("input_activations": {"num_bits": 8})")),
              HasSubstr(group + ".input_activations is {\"num_bits\":8}, not null"));
  EXPECT_THAT(error_after(with("pack-quantized", "marlin-24")),
              HasSubstr("quantization_config.format is \"marlin-24\", not \"pack-quantized\""));
  EXPECT_THAT(error_after([&](OpenedFolder& f) { f.tensors.erase(up + "_scale"); }),
              HasSubstr(up + "_scale is missing"));
  EXPECT_THAT(error_after([&](OpenedFolder& f) {
                f.tensors[up + "_scale"] = {"BF16", {32, 1}, std::string(64, 'x')};
              }),
              HasSubstr(up + "_scale is BF16 [32, 1]; it must be BF16 with 64 elements"));
  EXPECT_THAT(error_after([&](OpenedFolder& f) {
                f.tensors[up + "_packed"].shape = {8, 32};
              }),
              HasSubstr(up + "_packed is I32 [8, 32]; it must be I32 [32, 8]"));
  EXPECT_THAT(error_after([&](OpenedFolder& f) { f.tensors[up + "_shape"].bytes[0] = 64; }),
              HasSubstr(up + " is a matrix [64, 64], but the model needs [32, 64]"));
  EXPECT_THAT(error_after([&](OpenedFolder& f) {
                f.tensors[up + "_zero_point"] = {"I32", {4, 2}, std::string(32, 'x')};
              }),
              HasSubstr(up + "_zero_point is there; INT4 is supported where it is symmetric"));
  DecoderConfig narrow = quantized_config_of("qwen3_moe", int4);
  narrow.experts.ffn = 40;
  OpenedFolder folder(narrow, int4);
  EXPECT_THAT(folder.error_text(),
              HasSubstr("down_proj.weight has rows of 40 values; those of INT4 are whole groups of 32"));
}

// A matrix cannot be in the place of those of all experts.
TEST(QuantizedFormsTest, OneMatrixIsNoStackOfExperts) {
  const std::string name = "model.layers.0.mlp.experts.down_proj";
  OpenedFolder folder(quantized_config_of("gpt_oss", mxfp4), mxfp4);
  folder.tensors.erase(name + "_blocks");
  folder.tensors[name] = {"F8_E4M3", {64, 96}, std::string(64 * 96, 'x')};
  EXPECT_THAT(folder.error_text(),
              HasSubstr(name + " is stored as one matrix, and the model has 6 matrices of experts in it"));
}

// A NaN of E4M3 is reported where it is.
TEST(QuantizedFormsTest, ANaNInATileIsRefusedByItsElement) {
  OpenedFolder written(quantized_config_of("qwen3", fp8_block), fp8_block);
  const std::string down = "model.layers.1.mlp.down_proj.weight";
  written.tensors[down].bytes[777] = '\x7f';
  const std::unique_ptr<HfFolder> folder = written.open();
  std::vector<float> values(192 * 160);
  EXPECT_THAT(std::string(folder->read("layers.1.mlp_out.weight", values).message()),
              HasSubstr("element 777 of " + down + " is nan"));
}

// Bytes are not dequantized before they are used, and one of these makes a whole model NaN.
TEST(QuantizedFormsTest, BytesOfScalesThatAreNotFiniteAreRefusedByTheirElement) {
  const auto error_after = [](const char* family, WeightFormat format, const char* param,
                              const auto& change) {
    const DecoderConfig config = quantized_config_of(family, format);
    OpenedFolder written(config, format);
    change(written);
    const QuantizedMatrix matrix = quantized_matrices(config, format).at(param);
    std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes()));
    return std::string(written.open()->read_quantized(param, matrix, 0, bytes).status().message());
  };
  const std::string down = "model.layers.1.mlp.experts.down_proj",
                    q = "model.layers.0.self_attn.q_proj.weight";
  const auto set = [](const std::string& name, std::size_t at, const char* bytes) {
    return [=](OpenedFolder& f) { f.tensors.at(name).bytes.replace(at, std::strlen(bytes), bytes); };
  };
  EXPECT_THAT(
      error_after("gpt_oss", mxfp4, "layers.1.experts_out.weight", set(down + "_scales", 300, "\xff")),
      HasSubstr("element 300 of " + down + "_scales is nan; scales must be finite"));
  EXPECT_THAT(error_after("gpt_oss", mxfp4, "layers.1.experts_in.weight",
                          set("model.layers.1.mlp.experts.gate_up_proj_scales", 5, "\xfd")),
              HasSubstr("element 5 of model.layers.1.mlp.experts.gate_up_proj_scales is 8.507059e+37; scales "
                        "must be finite, and 6 times as much, too"));
  EXPECT_THAT(error_after("qwen3", fp8_block, "layers.0.qkv.weight", set(q + "_scale_inv", 6, "\xc0\x7f")),
              HasSubstr("element 1 of " + q + "_scale_inv is nan"));
  EXPECT_THAT(error_after("qwen3", fp8_block, "layers.0.qkv.weight", set(q, 777, "\xff")),
              HasSubstr("element 777 of " + q + " is nan; weights must be finite"));
  EXPECT_THAT(error_after("llama", int4, "layers.0.qkv.weight", set(q + "_scale", 22, "\x80\x7f")),
              HasSubstr("element 11 of " + q + "_scale is inf"));
}

// Routers have no tiles, and one matrix that has none makes the base one of values.
TEST(QuantizedFormsTest, AFolderWithOneMatrixInFullIsReadAsValues) {
  const DecoderConfig config = quantized_config_of("qwen3_moe", fp8_block);
  OpenedFolder written(config, fp8_block);
  const std::string up = "model.layers.1.mlp.experts.3.up_proj.weight";
  written.tensors.erase(up + "_scale_inv");
  written.tensors[up] = {"F32", {136, 192}, std::string(136 * 192 * 4, '\0')};
  const std::unique_ptr<HfFolder> folder = written.open();
  EXPECT_EQ(folder->quantized_to(), full);
  const QuantizedMatrix matrix = quantized_matrices(config, fp8_block).at("layers.1.experts_in.weight");
  std::vector<std::byte> bytes(100);
  EXPECT_FALSE(must(folder->read_quantized("layers.1.experts_in.weight", matrix, 0, bytes)));
  std::vector<float> values(static_cast<std::size_t>(matrix.n_elems()));
  must(folder->read("layers.1.experts_in.weight", values));
  const auto at = static_cast<std::size_t>((3 * 2 + 1) * 136 * 192);
  EXPECT_EQ(values[at], 0.0f);
  EXPECT_NE(values[at - 1], 0.0f);
}

}  // namespace
}  // namespace strata
