// Runs that train adapters with dropout, of embeddings and heads, and beside whole modules and biases.
#include <filesystem>
#include <span>

#include <strata/runtime/convert.h>
#include <strata/runtime/io/safetensors.h>

#include "cli/e2e/adapters/adapter_runs.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliAdapterSettingsE2e : public AdapterRunsE2e {
 protected:
  /// A model whose head is its own.
  void make_untied_base() {
    succeeds(
        tiny("train", {"--out", "run-of-base", "train.steps=1", "train.dtype=f32", "model.family=llama"}));
    succeeds({"export", "run-of-base", "--out", "base"});
  }
  Words llama_run(const std::string& name, Words words) {
    words.insert(words.begin(), {"model.family=llama", "train.dtype=f32"});
    return run_of(name, words);
  }
  double loss_of(const Words& words) { return evaluated(words)["loss"].get<double>(); }
};

TEST_F(CliAdapterSettingsE2e, DropoutHasTheSameBitsInTiersInRanksAndAfterAStop) {
  make_base("base");
  expect_tiers_and_ranks_change_no_bit({"adapter.dropout=0.3"});
  expect_killed_run_resumes("adapter.dropout=0.3");
}

TEST_F(CliAdapterSettingsE2e, DropoutChangesTrainingAlone) {
  make_base("base");
  succeeds(run_of("plain"));
  succeeds(run_of("dropped", {"adapter.dropout=0.3"}));
  succeeds(run_of(
      "parts", {"adapter.dropout=0.3", "train.recompute=full", "offload.micro_batch_order=breadth_first"}));
  EXPECT_EQ(loss_bits("dropped")[0], loss_bits("plain")[0]) << "B is zero";
  EXPECT_NE(loss_bits("dropped"), loss_bits("plain"));
  EXPECT_EQ(loss_bits("parts"), loss_bits("dropped"));
  succeeds({"export", "dropped", "--out", "adapter", "--check"});
  EXPECT_EQ(nlohmann::json::parse(read_all(file("adapter/adapter_config.json")))["lora_dropout"], 0.3);
  EXPECT_NEAR(loss_of({"base", "--adapter", "adapter", "train.dtype=bf16"}), loss_of({"dropped"}), 1e-3);
  // A run that goes on has the folder's dropout, or another one.
  const auto more = [&](const std::string& name, Words words) {
    words.insert(words.begin(),
                 {"--out", name, "--init", "base", "--adapter", "adapter", "train.steps=3", "log.every=1"});
    succeeds(tiny("train", words));
  };
  more("more", {});
  more("none", {"adapter.dropout=0"});
  EXPECT_NE(loss_bits("more"), loss_bits("none"));
  EXPECT_THAT(refused(run_of("pairs", {"adapter.dropout=0.1", "train.objective=dpo"})),
              HasSubstr("adapter.dropout = 0.1, but train.objective is dpo"));
}

// The folder of an adapter says a dropout, which a run of pairs keeps without using it.
TEST_F(CliAdapterSettingsE2e, ARunOfPairsFromAnAdapterWithDropoutResumesAndIsExported) {
  make_base("base");
  succeeds(run_of("dropped", {"adapter.dropout=0.3"}));
  succeeds({"export", "dropped", "--out", "adapter"});
  write("pairs.jsonl", "{\"prompt\": \"a \", \"chosen\": \"good\", \"rejected\": \"bad\"}\n");
  const ProgramResult trained =
      strata(tiny("train", {"--out", "pairs", "--init", "base", "--adapter", "adapter", "--task", "dpo",
                            "data.train=pairs.jsonl", "data.val=", "train.steps=2"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out,
              HasSubstr("lora_dropout = 0.3 of the adapter that the run begins with is not used: "
                        "the programs of train.objective = dpo have no dropout"));
  succeeds({"train", "--resume", "pairs", "train.steps=3"});
  succeeds({"export", "pairs", "--out", "more"});
  EXPECT_EQ(nlohmann::json::parse(read_all(file("more/adapter_config.json")))["lora_dropout"], 0.3);
}

/// Adds a tensor to a file of F32.
void add_tensor(const std::string& path, const std::string& name, const std::vector<std::uint64_t>& shape,
                const std::vector<float>& values) {
  std::vector<std::vector<std::byte>> contents;
  std::vector<TensorSpec> specs;
  {
    const auto file = must(SafetensorsFile::open(posix_io(), path));
    for (const SafetensorsEntry& entry : file->entries()) {
      specs.push_back({entry.name, entry.dtype, entry.shape});
      contents.emplace_back(static_cast<std::size_t>(entry.bytes));
      ASSERT_TRUE(file->read_range(entry, 0, contents.back()).is_ok());
    }
  }
  specs.push_back({name, "F32", shape});
  const auto bytes = std::as_bytes(std::span(values));
  contents.emplace_back(bytes.begin(), bytes.end());
  const auto writer = must(SafetensorsWriter::create(posix_io(), path + ".new", specs, {}));
  for (const auto& content : contents) ASSERT_TRUE(writer->append(content).is_ok());
  ASSERT_TRUE(writer->finish().is_ok());
  std::filesystem::rename(path + ".new", path);
}

// PEFT stores the table beside an adapter of it, which may have been trained or made larger before.
TEST_F(CliAdapterSettingsE2e, AnAdapterThatChangesItsBaseIsRefusedWhereARunWouldLoseTheChange) {
  make_untied_base();
  succeeds(llama_run("run", {"adapter.targets=q_proj,embed_tokens"}));
  succeeds({"export", "run", "--out", "same"});
  succeeds({"export", "run", "--out", "other"});
  const nlohmann::json config = nlohmann::json::parse(read_all(file("base/config.json")));
  const std::uint64_t rows = config["vocab_size"], columns = config["hidden_size"];
  const auto base = must(SafetensorsFile::open(posix_io(), file("base/model.safetensors")));
  const SafetensorsEntry& entry = *base->find("model.embed_tokens.weight");
  std::vector<float> table(rows * columns);
  std::vector<std::byte> raw(entry.bytes);
  ASSERT_TRUE(base->read_range(entry, 0, raw).is_ok());
  ASSERT_TRUE(widen_to_f32(*dtype_from_safetensors(entry.dtype), raw, table).is_ok());
  const std::string name = "base_model.model.model.embed_tokens.base_layer.weight";
  add_tensor(file("same/adapter_model.safetensors"), name, {rows, columns}, table);
  table[columns + 3] += 1;
  add_tensor(file("other/adapter_model.safetensors"), name, {rows, columns}, table);
  const auto more = [](const std::string& adapter) {
    return tiny("train", {"--out", "more-" + adapter, "--init", "base", "--adapter", adapter, "train.steps=2",
                          "train.dtype=f32"});
  };
  succeeds(more("same"));
  EXPECT_THAT(refused(more("other")), AllOf(HasSubstr(name), HasSubstr(str("at element ", columns + 3)),
                                            HasSubstr("strata export MODEL --adapter ADAPTER --out FOLDER")));
  succeeds({"export", "base", "--adapter", "other", "--out", "merged", "--check"});
  EXPECT_NEAR(loss_of({"merged", "train.dtype=f32"}),
              loss_of({"base", "--adapter", "other", "train.dtype=f32"}), 1e-5);
}

// The trained tensors are in the folder and in its checkpoints, and merged the model has the loss of the run.
TEST_F(CliAdapterSettingsE2e, TablesModulesAndBiasesAreTrainedExportedAndMerged) {
  make_untied_base();
  const std::pair<const char*, Words> kRuns[] = {
      {"tables", {"adapter.targets=q_proj,embed_tokens,lm_head"}},
      {"saved", {"adapter.targets=q_proj", "adapter.modules_to_save=lm_head,norm"}}};
  for (const auto& [name, words] : kRuns) {
    SCOPED_TRACE(name);
    succeeds(llama_run(name, words));
    const std::string adapter = str(name, "-adapter"), merged = str(name, "-merged");
    succeeds({"export", name, "--out", adapter, "--check"});
    succeeds({"export", name, "--out", merged, "--format", "merged", "--check"});
    const double trained = loss_of({name});
    EXPECT_LT(trained, loss_of({"base", "train.dtype=f32"}) - 1e-3);
    EXPECT_NEAR(loss_of({"base", "--adapter", adapter, "train.dtype=f32"}), trained, 1e-5);
    EXPECT_NEAR(loss_of({merged, "train.dtype=f32"}), trained, 1e-5);
    succeeds({"generate", "base", "--adapter", adapter, "--prompt", "She ", "--tokens", "4"});
    EXPECT_THAT(refused({"generate", "base", "--adapter", "a=" + adapter, "--prompt", "She "}),
                HasSubstr("give it alone, --adapter " + adapter));
  }
}

TEST_F(CliAdapterSettingsE2e, ARunOfTablesResumesBitForBit) {
  make_base("base");
  expect_tiers_and_ranks_change_no_bit(
      {"adapter.targets=c_attn,wte,lm_head", "adapter.bias=all", "adapter.modules_to_save=ln_f"});
  succeeds(run_of("stopped", {"adapter.targets=c_attn,wte,lm_head", "adapter.bias=all",
                              "adapter.modules_to_save=ln_f", "train.max_time=0s", "train.grad_accum=6"}));
  succeeds({"train", "--resume", "stopped", "train.max_time=none"});
  EXPECT_EQ(loss_bits("stopped"), loss_bits("whole"));
  EXPECT_THAT(refused({"export", "stopped", "--out", "merged", "--format", "merged"}),
              HasSubstr("but transformer.wte has an adapter, and the model ties its embedding to its head"));
}

// The head is tied, and has the rows, too.
TEST_F(CliAdapterSettingsE2e, RowsOfTokensHaveTheSameBitsInTiersInRanksAndAfterAStop) {
  make_base("base");
  const std::string tokens = "adapter.trainable_tokens=32,101,5";
  expect_tiers_and_ranks_change_no_bit({tokens});
  succeeds(run_of("parts", {tokens, "train.grad_accum=6", "train.recompute=full"}));
  EXPECT_EQ(loss_bits("parts"), loss_bits("whole"));
  succeeds(run_of("stopped", {tokens, "train.max_time=0s", "train.grad_accum=6"}));
  const auto held = manifest("stopped/checkpoints/step-00000001");
  EXPECT_TRUE(held["frozen"].contains("tokens.token_columns")) << "no checkpoint has constants";
  succeeds({"train", "--resume", "stopped", "train.max_time=none"});
  EXPECT_EQ(loss_bits("stopped"), loss_bits("whole"));
  EXPECT_EQ(digest("stopped"), digest("whole"));
}

TEST_F(CliAdapterSettingsE2e, RowsOfTokensAreExportedMergedAndTrainedFurther) {
  make_untied_base();
  make_base("tied");
  const std::pair<const char*, std::string> kRuns[] = {
      {"tied", "adapter.trainable_tokens=32,101"}, {"base", "adapter.trainable_tokens=32,101,lm_head=116"}};
  for (const auto& [base, tokens] : kRuns) {
    SCOPED_TRACE(base);
    const std::string run = str(base, "-run"), adapter = str(base, "-adapter"), merged = str(base, "-merged");
    succeeds(tiny("train", {"--out", run, "--init", base, "train.dtype=f32", "train.steps=6", "optim.lr=1e-2",
                            "adapter.method=lora", "adapter.targets=all-linear", tokens}));
    succeeds({"export", run, "--out", adapter, "--check"});
    succeeds({"export", run, "--out", merged, "--format", "merged", "--check"});
    const double trained = loss_of({run});
    EXPECT_NE(trained, loss_of({base, "train.dtype=f32"}));
    EXPECT_NEAR(loss_of({base, "--adapter", adapter, "train.dtype=f32"}), trained, 1e-5);
    EXPECT_NEAR(loss_of({merged, "train.dtype=f32"}), trained, 1e-5);
    const auto text = [&](Words model) {
      model.insert(model.begin(), "generate");
      model.insert(model.end(), {"--prompt", "She ", "--tokens", "8", "--temperature", "0"});
      return strata(model).out;
    };
    EXPECT_EQ(text({base, "--adapter", adapter}), text({merged}));
    EXPECT_EQ(text({run}), text({merged}));
    EXPECT_THAT(refused({"generate", base, "--adapter", "a=" + adapter, "--prompt", "She "}),
                HasSubstr("give it alone, --adapter " + adapter));
    succeeds(tiny("train", {"--out", run + "2", "--init", base, "--adapter", adapter, "train.steps=2",
                            "train.dtype=f32"}));
    const auto config = nlohmann::json::parse(read_all(file(adapter + "/adapter_config.json")));
    EXPECT_EQ(config["trainable_token_indices"],
              base == std::string("tied")
                  ? nlohmann::json({32, 101})
                  : nlohmann::json({{"model.embed_tokens", {32, 101}}, {"lm_head", {116}}}));
  }
}

TEST_F(CliAdapterSettingsE2e, TokensThatTheModelDoesNotHaveAreRefusedByKeyAndNumber) {
  make_base("base");
  const auto refusal = [&](const std::string& tokens) {
    return refused(run_of("run", {"adapter.trainable_tokens=" + tokens}));
  };
  EXPECT_THAT(refusal("3,x"), HasSubstr("adapter.trainable_tokens: 'x' is neither a token nor MODULE=TOKEN"));
  EXPECT_THAT(refusal("3,3"), HasSubstr("trainable_tokens has 3 twice"));
  EXPECT_THAT(refusal("-1"), HasSubstr("trainable_tokens has -1; the model has tokens 0 to "));
  EXPECT_THAT(refusal("100000"), HasSubstr("trainable_tokens has 100000; the model has tokens 0 to "));
  EXPECT_THAT(refusal("wpe=1"), HasSubstr("trainable_tokens of 'wpe': the token embedding, transformer.wte"));
}

TEST_F(CliAdapterSettingsE2e, AnAdapterThatIsNamedAsAModelIsRefusedWithItsBase) {
  make_base("base");
  succeeds(run_of("run"));
  succeeds({"export", "run", "--out", "adapter", "--check"});
  const std::string remedy = "base --adapter adapter";
  for (const Words& words :
       {Words{"generate", "adapter", "--prompt", "a"}, {"chat", "adapter"}, {"serve", "adapter"}})
    EXPECT_THAT(refused(words), HasSubstr(remedy)) << words.front();
}

}  // namespace
}  // namespace strata::test
