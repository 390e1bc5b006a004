// Folders whose matrices bitsandbytes has quantized.
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

#include "model/hf/bnb_folder.h"
#include "support/temp_dir.h"
#include "support/experts/tiny_experts.h"

namespace strata {
namespace {

using kernels::QuantizedMatrix;
using kernels::QuantizedPart;
using kernels::WeightFormat;
using ::testing::HasSubstr;
using enum kernels::WeightFormat;

DecoderConfig bnb_config_of(std::string_view family) {
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

/// Opens what it writes.
class BnbFolder : public test::BnbFolder {
 public:
  using test::BnbFolder::BnbFolder;
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

class BnbFolderTest : public ::testing::TestWithParam<std::pair<const char*, WeightFormat>> {};

// A parameter's bytes are those of the files, and what is read as f32 is what they stand for.
TEST_P(BnbFolderTest, ReadsTheQuantizedMatricesAsTheyAre) {
  const auto [family, format] = GetParam();
  const DecoderConfig config = bnb_config_of(family);
  BnbFolder written(config, format);
  const std::unique_ptr<HfFolder> folder = written.open();
  EXPECT_EQ(folder->quantized_to(), format);
  EXPECT_EQ(quantization_in_hf_config(folder->config_text()), format);
  for (const WeightParts& parts : weight_parts(config)) {
    std::int64_t columns = 0;
    for (const HfTensor& tensor : hf_tensors(config))
      if (tensor.param == parts.weight)
        columns =
            static_cast<std::int64_t>(tensor.shape[tensor.layout == HfTensor::Layout::transposed ? 0 : 1]);
    const QuantizedMatrix matrix = {format, columns, parts.rows};
    std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes())), pieces(bytes.size());
    ASSERT_TRUE(must(folder->read_quantized(parts.weight, matrix, 0, bytes))) << parts.weight;
    for (std::size_t at = 0; at < pieces.size(); at += 1000)
      ASSERT_TRUE(must(folder->read_quantized(
          parts.weight, matrix, static_cast<std::int64_t>(at),
          std::span(pieces).subspan(at).first(std::min<std::size_t>(1000, pieces.size() - at)))));
    EXPECT_EQ(pieces, bytes) << parts.weight;
    std::vector<float> want(static_cast<std::size_t>(matrix.n_elems())), got(want.size()), some(100);
    kernels::dequantize_matrix(matrix, bytes, 0, want);
    must(folder->read(parts.weight, got));
    EXPECT_EQ(got, want) << parts.weight;
    must(folder->read_part(parts.weight, 77, some));
    EXPECT_TRUE(std::equal(some.begin(), some.end(), want.begin() + 77)) << parts.weight;
    QuantizedMatrix other = matrix;
    other.format = format == nf4 ? nf4_dq : nf4;
    EXPECT_FALSE(must(folder->read_quantized(parts.weight, other, 0, bytes)));
    EXPECT_FALSE(must(folder->read_quantized("tokens.weight", matrix, 0, bytes)));
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, BnbFolderTest,
                         ::testing::Values(std::pair{"llama", nf4}, std::pair{"llama", nf4_dq},
                                           std::pair{"llama", int8}, std::pair{"gpt2", nf4_dq}),
                         [](const auto& test) {
                           return str(test.param.first, "_",
                                      test.param.second == nf4    ? "nf4"
                                      : test.param.second == int8 ? "int8"
                                                                  : "nf4_dq");
                         });

// A row has one scale, also if it does not end with a block of 64.
TEST(BnbFolderErrorsTest, RowsOf8BitsThatAreNoWholeBlocksAreReadAsFloats) {
  DecoderConfig config = bnb_config_of("llama");
  config.hidden = 72;
  config.head_dim = 16;
  BnbFolder written(config, int8);
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

TEST(BnbFolderErrorsTest, WhatIsDamagedOrNotSupportedIsNamed) {
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  const auto error_after = [&](WeightFormat format, const auto& change) {
    BnbFolder folder(bnb_config_of("llama"), format);
    change(folder);
    return folder.error_text();
  };
  EXPECT_THAT(error_after(nf4, [&](BnbFolder& f) { f.tensors.erase(q + ".absmax"); }),
              HasSubstr(q + ".absmax is missing"));
  EXPECT_THAT(error_after(nf4,
                          [&](BnbFolder& f) {
                            f.tensors[q + ".absmax"] = {"BF16", {1, 64}, std::string(128, '?')};
                          }),
              HasSubstr(q + ".absmax is BF16 [1, 64], and not F32: bitsandbytes has saved the model after an "
                            "evaluation on a CPU"));
  EXPECT_THAT(error_after(nf4_dq, [&](BnbFolder& f) { f.tensors.erase(q + ".nested_absmax"); }),
              HasSubstr(q + ".nested_absmax is missing"));
  EXPECT_THAT(error_after(nf4, [&](BnbFolder& f) { f.tensors.erase(q + ".quant_state.bitsandbytes__nf4"); }),
              HasSubstr(q + ".quant_state.bitsandbytes__nf4 is missing"));
  EXPECT_THAT(
      error_after(int8, [&](BnbFolder& f) { f.tensors.erase("model.layers.0.self_attn.q_proj.SCB"); }),
      HasSubstr("model.layers.0.self_attn.q_proj.SCB is missing"));
  EXPECT_THAT(
      error_after(nf4, [&](BnbFolder& f) { f.state(q, 64, 64, "", 128); }),
      HasSubstr(
          "is quantized to nf4 in blocks of 128; nf4 in blocks of 64, and groups of 256, is supported"));
  EXPECT_THAT(error_after(nf4, [&](BnbFolder& f) { f.state(q, 64, 32, ""); }),
              HasSubstr(q + " is a matrix [64, 32], but the model needs [64, 64]"));
  EXPECT_THAT(error_after(nf4, [&](BnbFolder& f) { f.tensors[q + ".quant_map"].bytes[5] ^= 1; }),
              HasSubstr(q + ".quant_map: code 1 stands for"));
  EXPECT_THAT(error_after(nf4,
                          [&](BnbFolder& f) {
                            f.tensors[q] = {"U8", {2047, 1}, std::string(2047, 'x')};
                          }),
              HasSubstr(q + " is U8 [2047, 1]; it must be U8 with 2048 elements"));
  EXPECT_THAT(error_after(nf4,
                          [&](BnbFolder& f) {
                            f.tensors[q + ".quant_state.bitsandbytes__nf4"] = {"U8", {3}, "{x}"};
                          }),
              HasSubstr(q + ".quant_state.bitsandbytes__nf4"));
  EXPECT_THAT(error_after(nf4,
                          [&](BnbFolder& f) {
                            f.tensors[q + ".quant_state.bitsandbytes__fp4"] = {"U8", {2}, "{}"};
                          }),
              HasSubstr(q + " is quantized to fp4, which is not supported; nf4 is"));
  EXPECT_THAT(
      error_after(nf4, [&](BnbFolder& f) { f.quantization = R"({"quant_method": "gptq"})"; }),
      HasSubstr("quantization_config.quant_method is 'gptq', not bitsandbytes, which is not supported"));
  EXPECT_THAT(error_after(nf4,
                          [&](BnbFolder& f) {
                            f.quantization = R"({"quant_method": "bitsandbytes", "load_in_4bit": true})";
                          }),
              HasSubstr("quantization_config.bnb_4bit_quant_type is not nf4"));
  EXPECT_THAT(error_after(nf4,
                          [&](BnbFolder& f) {
                            f.tensors["model.extra.absmax"] = {"F32", {1}, "abcd"};
                          }),
              HasSubstr("model.extra.absmax is not a tensor of this model"));
}

}  // namespace
}  // namespace strata
