// Tests the meaning of folders that are written in older or unusual forms.
#include <fstream>

#include <strata/model/hf/folder.h>
#include <strata/runtime/str.h>

#include "model/hf/damaged_folder.h"

namespace strata {
namespace {

using nlohmann::json;

class HfSlidingTest : public test::DamagedFolder {
 protected:
  HfSlidingTest() : test::DamagedFolder("gemma2") {}
};

TEST_F(HfSlidingTest, FullAttentionHasAnOlderNameAndOtherLayersAreRefusedByTheirs) {
  edit_config([](json& j) { j["layer_types"] = {"sliding_attention", "attention"}; });
  EXPECT_EQ(must(HfFolder::open(posix_io(), path))->config().sliding, (std::vector<bool>{true, false}));
  for (const char* const other : {"mamba", "linear_attention"}) {
    edit_config([&](json& j) { j["layer_types"] = {"sliding_attention", other}; });
    expect_refused(Code::unsupported, {str("layer_types has \"", other, "\"")});
  }
}

class HfTiedTest : public test::DamagedFolder {
 protected:
  HfTiedTest() : test::DamagedFolder("gpt2") {}
};

TEST_F(HfTiedTest, AHeadAloneIsAlsoTheTokenEmbedding) {
  edit_tensors([](TensorSpec& spec) {
    if (spec.name == "transformer.wte.weight") spec.name = "lm_head.weight";
    return true;
  });
  const auto folder = must(HfFolder::open(posix_io(), path));
  std::vector<float> tokens(31 * 24, 1.0f);
  must(folder->read("tokens.weight", tokens));
  EXPECT_EQ(tokens, std::vector<float>(31 * 24));
  EXPECT_TRUE(folder->config().tied_head);
}

TEST_F(HfTiedTest, AHeadThatEqualsTheTokenEmbeddingStaysTied) {
  edit_tensors([](TensorSpec&) { return true; }, {{"lm_head.weight", "F32", {31, 24}}});
  const auto folder = must(HfFolder::open(posix_io(), path));
  EXPECT_TRUE(folder->config().tied_head);
  EXPECT_FALSE(folder->has_param("head.weight"));
}

TEST_F(HfTiedTest, AHeadThatDiffersFromTheTokenEmbeddingIsNotTied) {
  edit_tensors([](TensorSpec&) { return true; }, {{"lm_head.weight", "BF16", {31, 24}}});
  std::fstream raw(path + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  raw.seekp(-1, std::ios::end);  // the last element of the head
  raw.put('\x3f');
  raw.close();
  EXPECT_FALSE(must(HfFolder::config_of(posix_io(), path)).tied_head);
  const auto folder = must(HfFolder::open(posix_io(), path));
  EXPECT_FALSE(folder->config().tied_head);
  std::vector<float> tokens(31 * 24, 1.0f), head(31 * 24);
  must(folder->read("tokens.weight", tokens));
  must(folder->read("head.weight", head));
  EXPECT_EQ(tokens.back(), 0.0f);
  EXPECT_EQ(head.back(), 0.5f);
}

TEST_F(HfTiedTest, WithNeitherOfThePairTheTokenEmbeddingIsMissing) {
  edit_tensors([](TensorSpec& spec) { return spec.name != "transformer.wte.weight"; });
  expect_refused(Code::corrupt, {"transformer.wte.weight is missing"});
}

class HfGemma3Test : public test::DamagedFolder {
 protected:
  HfGemma3Test() : test::DamagedFolder("gemma3_text") {}
};

TEST_F(HfGemma3Test, OnlyTheCapOfLogitsIsApplied) {
  edit_config([](json& j) {
    j["attn_logit_softcapping"] = 50.0;
    j["final_logit_softcapping"] = 30.0;
  });
  const DecoderConfig found = must(HfFolder::open(posix_io(), path))->config();
  EXPECT_EQ(found.score_softcap, 0.0f);
  EXPECT_EQ(found.logit_softcap, 30.0f);
}

TEST_F(HfTiedTest, NamesWithoutTheirFirstPartAreAccepted) {
  edit_tensors([](TensorSpec& spec) {
    spec.name = spec.name.substr(spec.name.find('.') + 1);
    return true;
  });
  EXPECT_TRUE(HfFolder::open(posix_io(), path).has_value());
}

}  // namespace
}  // namespace strata
