// Folders whose matrices are quantized: by bitsandbytes, or in tiles of FP8.
#include <cmath>
#include <cstring>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/kernels/weight_quant.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/folder.h>
#include <strata/model/hf/tensors.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

#include "model/hf/quantized_folder.h"
#include "support/temp_dir.h"
#include "support/experts/tiny_experts.h"

namespace strata {
namespace {

using kernels::QuantizedMatrix;
using kernels::QuantizedPart;
using kernels::WeightFormat;
using ::testing::AllOf;
using ::testing::HasSubstr;
using enum kernels::WeightFormat;

DecoderConfig small_config_of(std::string_view family) {
  DecoderConfig c = decoder_for_family(family).value();
  c.layers = 2;
  c.hidden = 64;
  c.heads = 4;
  c.kv_heads = family == "gpt2" ? 4 : 2;
  c.ffn = 128;
  c.vocab = 31;
  c.positions = 64;
  test::set_tiny_experts(c);
  return c;
}

/// Extents that end within a tile of FP8.
DecoderConfig config_of(std::string_view family, WeightFormat format) {
  DecoderConfig c = small_config_of(family);
  if (format == mxfp4) c.ffn = 96;
  if (format != fp8_block) return c;
  c.hidden = 192;
  c.head_dim = 48;
  c.ffn = 160;
  if (c.experts.n > 0) c.experts.ffn = 136;
  return c;
}

/// Opens what it writes.
class QuantizedFolder : public test::QuantizedFolder {
 public:
  using test::QuantizedFolder::QuantizedFolder;
  std::unique_ptr<HfFolder> open() { return must(written()); }
  Status error() { return written().status(); }
  std::string error_text() { return std::string(error().message()); }

 private:
  Result<std::unique_ptr<HfFolder>> written() {
    const std::string path = dir_.file(str("model", n_++));
    write(path);
    return HfFolder::open(posix_io(), path);
  }

  const test::TempDir dir_;
  int n_ = 0;
};

class QuantizedFolderTest : public ::testing::TestWithParam<std::pair<const char*, WeightFormat>> {};

// A parameter's bytes are those of the files, and what is read as f32 is what they stand for.
TEST_P(QuantizedFolderTest, ReadsTheQuantizedMatricesAsTheyAre) {
  const auto [family, format] = GetParam();
  const DecoderConfig config = config_of(family, format);
  QuantizedFolder written(config, format);
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
                                           std::pair{"qwen3_moe", fp8_block}, std::pair{"gpt_oss", mxfp4}),
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
  QuantizedFolder written(config, int8);
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
    QuantizedFolder folder(small_config_of("llama"), format);
    change(folder);
    return folder.error_text();
  };
  EXPECT_THAT(error_after(nf4, [&](QuantizedFolder& f) { f.tensors.erase(q + ".absmax"); }),
              HasSubstr(q + ".absmax is missing"));
  EXPECT_THAT(error_after(nf4,
                          [&](QuantizedFolder& f) {
                            f.tensors[q + ".absmax"] = {"BF16", {1, 64}, std::string(128, '?')};
                          }),
              HasSubstr(q + ".absmax is BF16 [1, 64], and not F32: bitsandbytes has saved the model after an "
                            "evaluation on a CPU"));
  EXPECT_THAT(error_after(nf4_dq, [&](QuantizedFolder& f) { f.tensors.erase(q + ".nested_absmax"); }),
              HasSubstr(q + ".nested_absmax is missing"));
  EXPECT_THAT(
      error_after(nf4, [&](QuantizedFolder& f) { f.tensors.erase(q + ".quant_state.bitsandbytes__nf4"); }),
      HasSubstr(q + ".quant_state.bitsandbytes__nf4 is missing"));
  EXPECT_THAT(
      error_after(int8, [&](QuantizedFolder& f) { f.tensors.erase("model.layers.0.self_attn.q_proj.SCB"); }),
      HasSubstr("model.layers.0.self_attn.q_proj.SCB is missing"));
  EXPECT_THAT(
      error_after(nf4, [&](QuantizedFolder& f) { f.state(q, 64, 64, "", 128); }),
      HasSubstr(
          "is quantized to nf4 in blocks of 128; nf4 in blocks of 64, and groups of 256, is supported"));
  EXPECT_THAT(error_after(nf4, [&](QuantizedFolder& f) { f.state(q, 64, 32, ""); }),
              HasSubstr(q + " is a matrix [64, 32], but the model needs [64, 64]"));
  EXPECT_THAT(error_after(nf4, [&](QuantizedFolder& f) { f.tensors[q + ".quant_map"].bytes[5] ^= 1; }),
              HasSubstr(q + ".quant_map: code 1 stands for"));
  EXPECT_THAT(error_after(nf4,
                          [&](QuantizedFolder& f) {
                            f.tensors[q] = {"U8", {2047, 1}, std::string(2047, 'x')};
                          }),
              HasSubstr(q + " is U8 [2047, 1]; it must be U8 with 2048 elements"));
  EXPECT_THAT(error_after(nf4,
                          [&](QuantizedFolder& f) {
                            f.tensors[q + ".quant_state.bitsandbytes__nf4"] = {"U8", {3}, "{x}"};
                          }),
              HasSubstr(q + ".quant_state.bitsandbytes__nf4"));
  EXPECT_THAT(error_after(nf4,
                          [&](QuantizedFolder& f) {
                            f.tensors[q + ".quant_state.bitsandbytes__fp4"] = {"U8", {2}, "{}"};
                          }),
              HasSubstr(q + " is quantized to fp4, which is not supported; nf4 is"));
  EXPECT_THAT(
      error_after(nf4, [&](QuantizedFolder& f) { f.quantization = R"({"quant_method": "gptq"})"; }),
      HasSubstr("quantization_config.quant_method is 'gptq', neither bitsandbytes, fp8 nor mxfp4, which is "
                "not supported"));
  EXPECT_THAT(error_after(nf4,
                          [&](QuantizedFolder& f) {
                            f.quantization = R"({"quant_method": "bitsandbytes", "load_in_4bit": true})";
                          }),
              HasSubstr("quantization_config.bnb_4bit_quant_type is not nf4"));
  EXPECT_THAT(error_after(nf4,
                          [&](QuantizedFolder& f) {
                            f.tensors["model.extra.absmax"] = {"F32", {1}, "abcd"};
                          }),
              HasSubstr("model.extra.absmax is not a tensor of this model"));
}

// gpt-oss: the rows of gates and ups are in turn, [experts, rows, columns / 32, 16].
TEST(QuantizedFolderErrorsTest, RowsOfMxfp4MoveAsTheyAre) {
  const DecoderConfig config = config_of("gpt_oss", mxfp4);
  const std::int64_t rows = 2 * 96, columns = 64, experts = config.experts.n;
  QuantizedFolder written(config, mxfp4);
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

TEST(QuantizedFolderErrorsTest, WhatIsDamagedInMxfp4IsNamed) {
  const std::string down = "model.layers.0.mlp.experts.down_proj";
  const auto error_after = [&](DecoderConfig config, const auto& change) {
    QuantizedFolder folder(config, mxfp4);
    change(folder);
    return folder.error_text();
  };
  const DecoderConfig config = config_of("gpt_oss", mxfp4);
  EXPECT_THAT(error_after(config, [&](QuantizedFolder& f) { f.tensors.erase(down + "_scales"); }),
              HasSubstr(down + "_scales is missing"));
  EXPECT_THAT(
      error_after(config, [&](QuantizedFolder& f) { f.tensors.erase(down + "_blocks"); }),
      AllOf(HasSubstr(down + " is missing"), HasSubstr(down + "_scales is not a tensor of this model")));
  EXPECT_THAT(error_after(config,
                          [&](QuantizedFolder& f) {
                            f.tensors[down + "_scales"] = {"U8", {7}, "1234567"};
                          }),
              HasSubstr(down + "_scales is U8 [7]; it must be U8 with "));
}

TEST(QuantizedFolderErrorsTest, WhatIsDamagedInTilesOfFp8IsNamed) {
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  const auto error_after = [&](const auto& change) {
    QuantizedFolder folder(config_of("qwen3", fp8_block), fp8_block);
    change(folder);
    return folder.error_text();
  };
  EXPECT_THAT(error_after([&](QuantizedFolder& f) { f.tensors.erase(q + "_scale_inv"); }),
              HasSubstr(q + "_scale_inv is missing"));
  EXPECT_THAT(error_after([&](QuantizedFolder& f) {
                f.tensors[q + "_scale_inv"].shape = {4, 1};
              }),
              HasSubstr(q + "_scale_inv is F32 [4, 1]; it must be F32 [2, 2]"));
  EXPECT_THAT(error_after([&](QuantizedFolder& f) {
                f.tensors[q + "_scale_inv"] = {"BF16", {2, 2}, std::string(8, 'x')};
              }),
              HasSubstr(q + "_scale_inv is BF16 [2, 2]; it must be F32 with 4 elements"));
  EXPECT_THAT(error_after([&](QuantizedFolder& f) {
                f.tensors[q] = {"F8_E4M3", {191, 192}, std::string(191 * 192, 'x')};
              }),
              HasSubstr(q + " is F8_E4M3 [191, 192]; it must be F8_E4M3 with 36864 elements"));
  EXPECT_THAT(error_after([&](QuantizedFolder& f) { f.quantization = R"({"quant_method": "fp8"})"; }),
              HasSubstr("quantization_config.weight_block_size is not there, not [128,128]"));
  EXPECT_THAT(error_after([&](QuantizedFolder& f) {
                f.quantization =
                    R"({"quant_method": "fp8", "weight_block_size": [64, 128], "scale_fmt": "ue8m0"})";
              }),
              AllOf(HasSubstr("quantization_config.weight_block_size is [64,128], not [128,128]"),
                    HasSubstr("quantization_config.scale_fmt is 'ue8m0', not float")));
}

// A NaN of E4M3 is reported where it is.
TEST(QuantizedFolderErrorsTest, ANaNInATileIsRefusedByItsElement) {
  QuantizedFolder written(config_of("qwen3", fp8_block), fp8_block);
  const std::string down = "model.layers.1.mlp.down_proj.weight";
  written.tensors[down].bytes[777] = '\x7f';
  const std::unique_ptr<HfFolder> folder = written.open();
  std::vector<float> values(192 * 160);
  EXPECT_THAT(std::string(folder->read("layers.1.mlp_out.weight", values).message()),
              HasSubstr("element 777 of " + down + " is nan"));
}

// Routers have no tiles, and one matrix that has none makes the base one of values.
TEST(QuantizedFolderErrorsTest, AFolderWithOneMatrixInFullIsReadAsValues) {
  const DecoderConfig config = config_of("qwen3_moe", fp8_block);
  QuantizedFolder written(config, fp8_block);
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
