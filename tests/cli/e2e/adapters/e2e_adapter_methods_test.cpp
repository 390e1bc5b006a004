// Runs that train adapters other than LoRA.
#include <filesystem>

#include "cli/e2e/adapters/adapter_runs.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct MethodOfRun {
  const char* name;
  Words keys;
  const char* text;  // both the plan and the export say this
};
const MethodOfRun kMethods[] = {
    {"series",
     {"adapter.method=series", "adapter.bottleneck=8", "adapter.activation=gelu"},
     "series adapters of width 8 after attention and MLP"},
    {"mlp",
     {"adapter.method=series", "adapter.bottleneck=8", "adapter.placement=mlp"},
     "series adapters of width 8 after the MLP"},
    {"parallel",
     {"adapter.method=parallel", "adapter.bottleneck=8", "adapter.scale=4"},
     "parallel adapters of width 8 beside the MLP"},
    {"prompt", {"adapter.method=prompt", "adapter.virtual_tokens=6"}, "a prompt of 6 virtual tokens"},
    {"p_tuning",
     {"adapter.method=p-tuning", "adapter.virtual_tokens=6", "adapter.encoder_width=12"},
     "a prompt of 6 virtual tokens with an encoder of width 12"},
    {"prefix",
     {"adapter.method=prefix", "adapter.virtual_tokens=6"},
     "a prefix of 6 virtual tokens in every layer"},
};

const MethodOfRun& method_of(const std::string& name) {
  return *std::find_if(std::begin(kMethods), std::end(kMethods),
                       [&](const MethodOfRun& method) { return method.name == name; });
}

class CliAdapterMethodsE2e : public AdapterRunsE2e {
 protected:
  // The base has 32 positions, of which 24 are for tokens. `more` overrides the keys of all runs.
  static Words run_of_method(const std::string& name, const Words& keys, const Words& more = {}) {
    Words all = {"--out", name, "--init", "base", "model.seq=24", "log.every=1", "optim.lr=1e-2"};
    for (const std::string key : {"train.steps=6", "train.grad_accum=2", "train.dtype=f32"})
      if (std::none_of(more.begin(), more.end(), [&](const std::string& word) {
            return word.starts_with(key.substr(0, key.find('=') + 1));
          }))
        all.push_back(key);
    all.insert(all.end(), keys.begin(), keys.end());
    all.insert(all.end(), more.begin(), more.end());
    return tiny("train", all);
  }
  std::string text_of(Words words) {
    words.insert(words.begin(), "generate");
    words.insert(words.end(), {"--prompt", "She was ", "--tokens", "9", "--temperature", "0"});
    const ProgramResult done = strata(words);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.out;
  }
  double score_of(Words words) {
    write("in.jsonl", R"({"context": "She ", "continuation": "was very happy"})"
                      "\n");
    words.insert(words.begin(), "score");
    words.insert(words.end(), {"--in", "in.jsonl"});
    const ProgramResult done = strata(words);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.exit_code == 0 ? nlohmann::json::parse(done.out)["logprob"].get<double>() : 0;
  }
};

class CliAdapterMethodE2e : public CliAdapterMethodsE2e, public ::testing::WithParamInterface<std::string> {
 protected:
  const MethodOfRun& method = method_of(GetParam());
};

TEST_P(CliAdapterMethodE2e, ARunResumesFromTheAdapterAloneIsExportedAndGoesOn) {
  make_base("base");
  const ProgramResult whole = strata(run_of_method("whole", method.keys));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr(str("adapter  ", method.text, "\n")));
  succeeds(run_of_method("run", method.keys, {"train.max_time=0s"}));
  succeeds({"train", "--resume", "run", "train.max_time=none"});
  EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
  EXPECT_EQ(digest("run"), digest("whole"));
  const auto params = manifest("run/checkpoints/step-00000006")["files"][0]["tensors"];
  for (const auto& [tensor, digest] : params.items())
    EXPECT_THAT(tensor, ::testing::AnyOf(HasSubstr("_adapter."), HasSubstr("prompt."), HasSubstr(".prefix")));
  const ProgramResult exported = strata({"export", "run", "--out", "adapter", "--check"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr(method.text));
  // The folder has the adapter of the run.
  const double loss = evaluated({"run"})["loss"];
  const Words of_folder = {"base",         "--adapter",          "adapter", "train.dtype=f32",
                           "model.seq=24", "train.micro_batch=2"};
  EXPECT_NEAR(evaluated(of_folder)["loss"].get<double>(), loss, 2e-6);
  EXPECT_GT(std::abs(evaluated({"base", "train.dtype=f32", "model.seq=24"})["loss"].get<double>() - loss),
            1e-3);
  EXPECT_EQ(text_of({"run"}), text_of({"base", "--adapter", "adapter"}));
  EXPECT_NEAR(score_of({"run"}), score_of({"base", "--adapter", "adapter"}), 1e-5);
  EXPECT_GT(std::abs(score_of({"run"}) - score_of({"base"})), 1e-3);
  succeeds(tiny("train", {"--out", "more", "--init", "base", "--adapter", "adapter", "train.steps=2",
                          "train.dtype=f32", "log.every=1", "model.seq=24", "optim.lr=1e-2"}));
  EXPECT_LT(metrics("more").front()["loss"].get<double>(), metrics("run").front()["loss"].get<double>());
  EXPECT_THAT(refused({"export", "run", "--out", "merged", "--format", "merged"}),
              AllOf(HasSubstr("--format merged: the run trained "), HasSubstr(method.text)));
}

// A quantized base, ranks, tiers and interleaved micro-batches.
TEST_P(CliAdapterMethodE2e, TiersAndRanksChangeNoBitOverAQuantizedBase) {
  const auto with = [](Words words) {
    words.insert(words.end(), {"train.base=nf4-dq", "train.grad_accum=6", "train.steps=3"});
    return words;
  };
  const Words& keys = method.keys;
  make_base("base");
  succeeds(run_of_method("whole", keys, with({})));
  succeeds(run_of_method("tiers", keys,
                         with({"memory.device=2MiB", "memory.pinned=3MiB", "memory.nvme=64MiB",
                               "offload.micro_batch_order=breadth_first"})));
  succeeds(run_of_method("ranks", keys, with({"parallel.ranks=2", "parallel.zero=3"})));
  for (const char* run : {"tiers", "ranks"}) {
    EXPECT_EQ(loss_bits(run), loss_bits("whole")) << run;
    EXPECT_EQ(digest(run), digest("whole")) << run;
  }
  text_of({"whole"});
}

INSTANTIATE_TEST_SUITE_P(Methods, CliAdapterMethodE2e,
                         ::testing::Values("series", "mlp", "parallel", "prompt", "p_tuning", "prefix"),
                         [](const auto& each) { return each.param; });

TEST_F(CliAdapterMethodsE2e, KeysOfOtherMethodsAreRefusedByNameAllAtOnce) {
  const auto planned = [&](const Words& keys) { return refused(tiny("plan", keys)); };
  EXPECT_THAT(planned({"adapter.method=prompt", "adapter.rank=8", "adapter.bottleneck=3"}),
              AllOf(HasSubstr("adapter.rank = 8 is of adapter.method = lora, but adapter.method is prompt"),
                    HasSubstr("adapter.bottleneck = 3 is of adapter.method = series, parallel, but "
                              "adapter.method is prompt")));
  EXPECT_THAT(planned({"adapter.virtual_tokens=9"}),
              HasSubstr("adapter.virtual_tokens = 9 is of adapter.method = prompt, p-tuning, prefix, but "
                        "adapter.method is none"));
  EXPECT_THAT(planned({"adapter.method=prefix", "adapter.virtual_tokens=3", "data.packing=pack"}),
              HasSubstr("data.packing = pack, but adapter.method = prefix puts virtual tokens before a row"));
  EXPECT_THAT(
      planned({"adapter.method=prompt", "adapter.virtual_tokens=9"}),
      HasSubstr("9 virtual tokens before sequences of 32 tokens: the model's table has 32 positions"));
  make_base("base");
  succeeds(run_of_method("run", method_of("prompt").keys));
  EXPECT_THAT(refused({"train", "--resume", "run", "train.steps=7", "adapter.virtual_tokens=5"}),
              HasSubstr("adapter.virtual_tokens: the checkpoint was made with 6, this run has 5"));
  succeeds({"export", "run", "--out", "adapter"});
  EXPECT_THAT(refused(tiny("train", {"--out", "other", "--init", "base", "--adapter", "adapter",
                                     "adapter.method=prefix"})),
              HasSubstr("adapter.method = prefix, but prompt according to adapter/adapter_config.json"));
}

TEST_F(CliAdapterMethodsE2e, APromptStartsFromAText) {
  make_base("base");
  const Words& keys = method_of("prompt").keys;
  succeeds(run_of_method("random", keys, {"train.steps=1"}));
  succeeds(run_of_method("text", keys, {"train.steps=1", "adapter.prompt_text=It was a truth"}));
  const auto first_loss = [&](const std::string& run) { return metrics(run).front()["loss"].get<double>(); };
  EXPECT_LT(first_loss("text"), first_loss("random"));
  EXPECT_THAT(refused(tiny("plan", {"adapter.method=prompt", "adapter.prompt_text=It"})),
              HasSubstr("adapter.prompt_text starts from embeddings of model.from, which is not set"));
}

// Records whose loss mask excludes parts are packed if nothing else is asked for, but not with virtual
// tokens.
TEST_F(CliAdapterMethodsE2e, RecordsAreNotPackedBehindVirtualTokens) {
  make_base("base");
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += R"({"prompt": "She was ", "completion": "very happy indeed."})"
             "\n";
  write("train.jsonl", lines);
  succeeds(run_of_method("run", method_of("prefix").keys, {"data.train=train.jsonl"}));
  EXPECT_THAT(read_all(file("run/config.resolved.toml")), HasSubstr("packing = \"stream\""));
}

}  // namespace
}  // namespace strata::test
