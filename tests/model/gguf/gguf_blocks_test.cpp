// Blocks of values against ggml's quantizers, and the mixes of formats.
#include <cmath>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

#include <strata/runtime/io/gguf/encoding.h>
#include <strata/runtime/io/gguf/layout.h>
#include "gguf/mix.h"
#include "model/gguf/ggml_blocks.h"

namespace strata {
namespace {

using detail::GgufMixOf;

// The same as block_values() of scripts/make_gguf_fixtures.py.
std::vector<float> block_values() {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 4096; ++i) {
    const std::uint64_t draw = (i * 2654435761u & 0xffffffffu) >> 16;
    const float value =
        (static_cast<float>(draw % 2001) - 1000) * std::exp2(-10.0f - static_cast<float>(i / 128 % 23));
    const bool is_zero = i >= 3584 && i % 32 != 5;
    values.push_back(i < 3072 || i >= 3584 ? value * (is_zero ? 0.0f : 1.0f) : i < 3328 ? 0.0f : -0.25f);
  }
  return values;
}

std::uint64_t fnv(std::span<const std::byte> data) {
  std::uint64_t digest = 0xcbf29ce484222325u;
  for (const std::byte byte : data) digest = (digest ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
  return digest;
}

std::vector<std::byte> encoded(std::span<const float> values, GgufFormat format) {
  std::vector<std::byte> bytes(gguf_bytes(format, values.size()));
  must(encode_gguf(values, format, bytes));
  return bytes;
}
std::vector<float> decoded(std::span<const std::byte> bytes, GgufFormat format, std::size_t n) {
  std::vector<float> values(n);
  must(decode_gguf(bytes, format, values));
  return values;
}

class GgufBlocksTest : public ::testing::TestWithParam<test::GgmlBlocks> {};

TEST_P(GgufBlocksTest, BytesAreThoseOfGgmlsReferenceQuantizer) {
  EXPECT_EQ(fnv(encoded(block_values(), GetParam().format)), GetParam().bytes);
}

TEST_P(GgufBlocksTest, ValuesAreThoseOfThePackageGguf) {
  const std::vector<float> values = block_values();
  const std::vector<std::byte> bytes = encoded(values, GetParam().format);
  const std::vector<float> back = decoded(bytes, GetParam().format, values.size());
  EXPECT_EQ(fnv(std::as_bytes(std::span(back))), GetParam().values);
}

// A code is off by half a step, of which there are as many in the range of a block as bits allow; searched
// scales, and scales of 6 and 8 bits, make it no worse than a whole step.
TEST_P(GgufBlocksTest, AValueIsOffByAStepOfItsBlockAtMost) {
  const GgufFormat format = GetParam().format;
  const Rng rng(7, 1);
  std::vector<float> values(256 * 40);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = rng.normal(i);
  const std::vector<float> back = decoded(encoded(values, format), format, values.size());
  const bool four = format == GgufFormat::q4_0 || format == GgufFormat::q4_1 || format == GgufFormat::q4_k;
  const bool is_mxfp4 = format == GgufFormat::mxfp4;  // which saturates a value of 4 at 3
  const float levels = is_mxfp4                     ? 9
                       : format == GgufFormat::q8_0 ? 255
                       : format == GgufFormat::q6_k ? 63
                       : four                       ? 15
                                                    : 31;
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(back[i], values[i], 2 * 4.5f / levels) << i;
}

TEST_P(GgufBlocksTest, PartsOfBlocksAreRefusedWithBothNumbers) {
  const GgufFormat format = GetParam().format;
  const std::uint64_t n = gguf_block(format).elems;
  std::vector<std::byte> bytes(gguf_block(format).bytes);
  std::vector<float> values(n + 1);
  for (const Status& status : {encode_gguf(values, format, bytes), decode_gguf(bytes, format, values)}) {
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_THAT(status.message(), ::testing::HasSubstr(str(n + 1, " values and ", bytes.size(), " bytes")));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GgufBlocksTest, ::testing::ValuesIn(test::kGgmlBlocks),
                         [](const auto& of) { return std::string(to_string(of.param.format)); });

// E2M1: a sign, an exponent of two bits with bias 1, and a bit of the fraction.
float e2m1(int code) {
  constexpr float kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code < 8 ? kMagnitudes[code] : -kMagnitudes[code - 8];
}

// OCP Microscaling Formats 1.0, sections 5.3.3 and 5.4.1.
TEST(GgufMxfp4Test, EveryCodeAndScaleStandForWhatTheirDefinitionSays) {
  std::vector<std::byte> bytes(17);
  for (int exponent = 0; exponent < 255; ++exponent) {
    bytes[0] = static_cast<std::byte>(exponent);
    for (int j = 0; j < 16; ++j)
      bytes[static_cast<std::size_t>(1 + j)] = static_cast<std::byte>(j | (15 - j) << 4);
    const std::vector<float> values = decoded(bytes, GgufFormat::mxfp4, 32);
    for (int i = 0; i < 32; ++i)
      ASSERT_EQ(values[static_cast<std::size_t>(i)], std::ldexp(e2m1(i < 16 ? i : 31 - i), exponent - 127))
          << exponent << " " << i;
  }
  bytes[0] = std::byte{255};
  EXPECT_TRUE(std::isnan(decoded(bytes, GgufFormat::mxfp4, 32)[0]));
}

// Also where the largest code of a block is not one of the two that its scale is chosen for.
TEST(GgufMxfp4Test, ValuesOfABlockOfAnyScaleStayWhatTheyAre) {
  const Rng rng(3, 1);
  std::vector<float> values(32);
  for (int exponent = 0; exponent < 253; ++exponent)
    for (const int most : {1, 2, 3, 5, 7}) {
      for (std::size_t i = 0; i < 32; ++i) {
        const float u = rng.uniform(static_cast<std::uint64_t>(exponent * 160 + most * 32) + i);
        const int code = i == 9 ? most : static_cast<int>(u * static_cast<float>(most + 1));
        values[i] = std::ldexp(e2m1(i % 2 == 0 ? code : code | 8), exponent - 127);
      }
      const std::vector<float> back = decoded(encoded(values, GgufFormat::mxfp4), GgufFormat::mxfp4, 32);
      for (std::size_t i = 0; i < 32; ++i)
        ASSERT_EQ(back[i], values[i]) << exponent << " " << most << " " << i;
    }
}

std::string formats_of(const GgufMixOf& of, const std::string& part) {
  std::string out;
  for (std::int64_t layer = 0; layer < of.layers; ++layer)
    out +=
        str(to_string(detail::gguf_matrix_format(of, {str("blk.", layer, ".", part, ".weight"), {512, 512}})),
            " ");
  return out;
}

TEST(GgufMixTest, MediumMixesGiveMoreBitsToValuesAndDownProjectionsOfSomeLayers) {
  const GgufMixOf of{GgufMix::q4_k_m, 16, false, true};
  const std::string want = "q6_k q6_k q4_k q4_k q6_k q4_k q4_k q6_k q4_k q4_k q6_k q4_k q4_k q6_k q6_k q6_k ";
  for (const char* part : {"attn_v", "attn_qkv", "ffn_down"}) EXPECT_EQ(formats_of(of, part), want) << part;
  for (const char* part : {"attn_q", "attn_k", "attn_output", "ffn_up", "ffn_gate"})
    EXPECT_EQ(formats_of(of, part).find("q6_k"), std::string::npos) << part;
  EXPECT_EQ(formats_of({GgufMix::q5_k_m, 3, false, true}, "ffn_down"), "q5_k q5_k q6_k ");
}

TEST(GgufMixTest, TheHeadIsQ6KAndSoIsATokenEmbeddingThatIsTheHead) {
  const GgufTensor tokens{"token_embd.weight", {600, 512}}, head{"output.weight", {600, 512}};
  for (const GgufMix mix : {GgufMix::q4_0, GgufMix::q4_k_m, GgufMix::q5_k_m, GgufMix::q6_k}) {
    EXPECT_EQ(detail::gguf_matrix_format({mix, 2, false, true}, head), GgufFormat::q6_k);
    EXPECT_EQ(detail::gguf_matrix_format({mix, 2, false, false}, tokens), GgufFormat::q6_k);
  }
  EXPECT_EQ(detail::gguf_matrix_format({GgufMix::q4_0, 2, false, true}, tokens), GgufFormat::q4_0);
  EXPECT_EQ(detail::gguf_matrix_format({GgufMix::q8_0, 2, false, true}, head), GgufFormat::q8_0);
}

TEST(GgufMixTest, RowsThatAreNoWholeBlocksFallBack) {
  const auto fitting = [](GgufFormat format, std::uint64_t columns) {
    return detail::gguf_fitting_format(format, columns);
  };
  EXPECT_EQ(fitting(GgufFormat::q4_k, 512), GgufFormat::q4_k);
  EXPECT_EQ(fitting(GgufFormat::q4_k, 544), GgufFormat::q5_0);
  EXPECT_EQ(fitting(GgufFormat::q5_k, 544), GgufFormat::q5_1);
  EXPECT_EQ(fitting(GgufFormat::q6_k, 544), GgufFormat::q8_0);
  for (const GgufFormat format : {GgufFormat::q4_0, GgufFormat::q4_k, GgufFormat::q6_k, GgufFormat::q8_0})
    EXPECT_EQ(fitting(format, 100), GgufFormat::f16);
}

TEST(GgufMixTest, ModelsThatLlamaCppTakesFor70BHaveMoreBitsForValues) {
  DecoderConfig config;
  config.layers = 80;
  config.heads = 64;
  config.kv_heads = 8;
  const GgufTensor value{"blk.10.attn_v.weight", {1024, 8192}};
  const auto format = [&](std::string_view architecture) {
    const detail::GgufArchitecture& row = detail::find_family(architecture)->gguf;
    return detail::gguf_matrix_format(detail::gguf_mix_of(GgufMix::q4_k_m, row, config, true), value);
  };
  EXPECT_EQ(format("llama"), GgufFormat::q5_k);
  EXPECT_EQ(format("qwen3"), GgufFormat::q4_k);
  config.kv_heads = 64;
  EXPECT_EQ(format("llama"), GgufFormat::q4_k);
}

}  // namespace
}  // namespace strata
