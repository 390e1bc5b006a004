// Exports models as GGUF files.
#include <cstring>

#include "cli/e2e/adapters/adapter_runs.h"
#include "runtime/io/gguf_file.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliGgufE2e : public AdapterRunsE2e {
 protected:
  void train(const std::string& run, const Words& keys) {
    Words all = {"--out", run, "train.steps=2", "train.eval_every=0", "train.dtype=f32"};
    all.insert(all.end(), keys.begin(), keys.end());
    succeeds(tiny("train", all));
  }
  /// The values of an f32 tensor in `folder`/model.safetensors.
  std::vector<float> values_in(const std::string& folder, const std::string& tensor) const {
    const std::string text = read_all(file(folder + "/model.safetensors"));
    std::uint64_t header = 0;
    std::memcpy(&header, text.data(), sizeof header);
    const auto span = nlohmann::json::parse(text.substr(8, header))[tensor]["data_offsets"];
    std::vector<float> values((span[1].get<std::size_t>() - span[0].get<std::size_t>()) / 4);
    std::memcpy(values.data(), text.data() + 8 + header + span[0].get<std::size_t>(), values.size() * 4);
    return values;
  }
};

TEST_F(CliGgufE2e, AFileHasTheTokenizerAndTheValuesOfTheFolder) {
  train("run", {"model.family=qwen3"});
  succeeds({"export", "run", "--out", "hf"});
  const ProgramResult done =
      strata({"export", "run", "--format", "gguf", "--out", "deep/model.gguf", "--check"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out,
              AllOf(HasSubstr("wrote deep/model.gguf from run/checkpoints/step-00000002: qwen3, f32\n"),
                    HasSubstr("checked: every byte reads back")));
  EXPECT_EQ(list("deep"), std::vector<std::string>{"model.gguf"});
  const GgufFile gguf = GgufFile::open(file("deep/model.gguf"));
  EXPECT_EQ(gguf.metadata["general.architecture"], "qwen3");
  EXPECT_EQ(gguf.metadata["general.name"], "model");
  EXPECT_EQ(gguf.values("blk.0.attn_k.weight"), values_in("hf", "model.layers.0.self_attn.k_proj.weight"));
  EXPECT_EQ(gguf.values("token_embd.weight"), values_in("hf", "model.embed_tokens.weight"));
  const auto tokenizer = nlohmann::json::parse(read_all(file("hf/tokenizer.json")));
  EXPECT_EQ(gguf.metadata["tokenizer.ggml.merges"], tokenizer["model"]["merges"]);
  EXPECT_EQ(gguf.metadata["tokenizer.ggml.eos_token_id"],
            nlohmann::json::parse(read_all(file("hf/config.json")))["eos_token_id"]);
}

TEST_F(CliGgufE2e, AQuantizedFileIsAQuarterOfTheSize) {
  train("run", {"model.family=gpt2"});
  for (const std::string dtype : {"f32", "f16", "bf16", "q8_0"})
    succeeds({"export", "run", "--format", "gguf", "--dtype", dtype, "--out", dtype + ".gguf", "--check"});
  const auto size = [&](const std::string& name) { return std::filesystem::file_size(file(name)); };
  EXPECT_EQ(size("f16.gguf"), size("bf16.gguf"));
  EXPECT_LT(size("f16.gguf"), 0.6 * static_cast<double>(size("f32.gguf")));
  EXPECT_LT(size("q8_0.gguf"), 0.4 * static_cast<double>(size("f32.gguf")));
}

// Over a quantized base, whose values are those that it stands for.
TEST_F(CliGgufE2e, AnAdapterIsMerged) {
  make_base("base");
  for (const std::string base : {"full", "nf4"}) {
    succeeds(run_of("run", {"train.base=" + base, "train.dtype=f32", "--overwrite"}));
    succeeds({"export", "run", "--format", "merged", "--out", "merged-" + base});
    const ProgramResult done =
        strata({"export", "run", "--format", "gguf", "--out", base + ".gguf", "--check"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("with the adapter merged"));
    const GgufFile gguf = GgufFile::open(file(base + ".gguf"));
    EXPECT_EQ(gguf.metadata["general.architecture"], "gpt2");
    EXPECT_EQ(gguf.values("output_norm.weight"), values_in("merged-" + base, "transformer.ln_f.weight"));
    EXPECT_EQ(gguf.values("blk.0.attn_qkv.weight").size(),
              values_in("merged-" + base, "transformer.h.0.attn.c_attn.weight").size());
    EXPECT_EQ(gguf.values("blk.0.ffn_up.weight")[1],
              values_in("merged-" + base,
                        "transformer.h.0.mlp.c_fc.weight")[gguf.tensors.at("blk.0.ffn_up.weight").dims[1]]);
  }
}

TEST_F(CliGgufE2e, WhatAFileCannotHoldIsRefusedWithWhatToDo) {
  make_base("base");
  train("opt", {"model.family=opt"});
  EXPECT_THAT(
      refused({"export", "opt", "--format", "gguf", "--out", "x.gguf"}),
      HasSubstr("llama.cpp has no architecture for the family opt: export it as a Hugging Face folder"));
  succeeds(tiny("train", {"--out", "prompt", "--init", "base", "adapter.method=prompt",
                          "adapter.virtual_tokens=4", "model.seq=24", "train.steps=1"}));
  EXPECT_THAT(refused({"export", "prompt", "--format", "gguf", "--out", "x.gguf"}),
              AllOf(HasSubstr("--format gguf: the run trained a prompt of 4 virtual tokens"),
                    HasSubstr("its format is peft")));
  EXPECT_THAT(refused({"export", "opt", "--format", "gguf", "--dtype", "q3_k", "--out", "x.gguf"}),
              HasSubstr("--dtype q3_k is not one of f32, bf16, f16, q8_0, q6_k, q5_k_m, q4_k_m, q4_0"));
  EXPECT_THAT(refused({"export", "opt", "--format", "gguf", "--states", "--out", "x.gguf"}),
              HasSubstr("a GGUF file has no states of an optimizer"));
  EXPECT_THAT(refused({"export", "opt", "--dtype", "q8_0", "--out", "x"}),
              HasSubstr("--dtype q8_0 is not one of f32, bf16, f16"));
  EXPECT_FALSE(exists("x.gguf"));
}

TEST_F(CliGgufE2e, AFileIsReadWhereAFolderIsWithTheSameNumbers) {
  make_base("base");
  succeeds({"export", "base", "--format", "gguf", "--out", "base.gguf", "--check"});
  const auto text = [&](const std::string& model) {
    return strata({"generate", model, "--prompt", "Elizabeth ", "--tokens", "12", "--temperature", "0"}).out;
  };
  EXPECT_EQ(text("base.gguf"), text("base"));
  EXPECT_FALSE(text("base").empty());
  EXPECT_EQ(evaluated({"base.gguf"})["loss"], evaluated({"base"})["loss"]);
  succeeds(run_of("of-folder"));
  Words words = run_of("of-file");
  std::replace(words.begin(), words.end(), std::string("base"), std::string("base.gguf"));
  succeeds(words);
  EXPECT_EQ(loss_bits("of-file"), loss_bits("of-folder"));
  EXPECT_EQ(digest("of-file"), digest("of-folder"));
  succeeds({"export", "base.gguf", "--out", "back", "--check"});
  EXPECT_EQ(read_all(file("back/model.safetensors")), read_all(file("base/model.safetensors")));
}

TEST_F(CliGgufE2e, ADamagedFileIsRefusedWithTheOffset) {
  make_base("base");
  succeeds({"export", "base", "--format", "gguf", "--dtype", "q4_k_m", "--out", "base.gguf"});
  const std::string whole = read_all(file("base.gguf"));
  write("short.gguf", whole.substr(0, whole.size() / 2));
  const ProgramResult done = strata({"generate", "short.gguf"});
  EXPECT_NE(done.exit_code, 0);
  EXPECT_THAT(done.err, AllOf(HasSubstr("short.gguf: byte "), HasSubstr("the file ends after")));
}

TEST_F(CliGgufE2e, WhatLlamaCppDoesDifferentlyIsReported) {
  train("run", {"model.family=mistral"});
  succeeds({"export", "run", "--out", "hf"});
  auto config = nlohmann::json::parse(read_all(file("hf/config.json")));
  config["sliding_window"] = 9;
  write("hf/config.json", config.dump());
  train("narrow", {"--init", "hf"});
  const ProgramResult done = strata({"export", "narrow", "--format", "gguf", "--out", "narrow.gguf"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("strata export: note: the context is 9 of the model's 32 tokens"));
  EXPECT_THAT(strata({"export", "run", "--format", "gguf", "--out", "run.gguf"}).err, Not(HasSubstr("note")));
}

}  // namespace
}  // namespace strata::test
