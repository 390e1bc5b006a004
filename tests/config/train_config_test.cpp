#include <strata/config/train_config.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/data_files.h>
#include <strata/config/train_schema.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "schema/sections.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<ConfigTree> tree_of(const ConfigSources& sources) {
  STRATA_TRY_ASSIGN(ConfigTree tree, ConfigTree::build(train_schema(), sources));
  CoreShare share;
  share.nodes = {{0, 3, {0, 1, 2}}};
  share.service_cores = 1;
  share.why = "3 threads of a test";
  resolve_simple_autos(tree, share);
  return tree;
}
Result<TrainConfig> config_of(const ConfigSources& sources) {
  STRATA_TRY_ASSIGN(const ConfigTree tree, tree_of(sources));
  return fill_train_config(tree);
}
std::string problems(std::vector<std::string> arguments) {
  return std::string(config_of({.arguments = std::move(arguments)}).status().message());
}

TEST(TrainSchemaTest, EveryKeyIsUniqueAndDocumented) {
  std::set<std::string> names, sections;
  std::string_view last;
  for (const KeySpec& spec : train_schema().keys) {
    EXPECT_TRUE(names.insert(str(spec.section, ".", spec.name)).second) << spec.name;
    EXPECT_FALSE(spec.doc.empty()) << spec.name;
    EXPECT_TRUE(spec.section == last || sections.insert(std::string(spec.section)).second) << spec.section;
    last = spec.section;
  }
}

TEST(TrainConfigTest, WidthsThatAFamilyHasNoKeyForAreRefused) {
  EXPECT_THAT(problems({"model.family=bloom", "model.hidden=32", "model.heads=2", "model.ffn=64"}),
              HasSubstr("model.ffn = 64, but the MLP of BLOOM is 4 x model.hidden = 128 wide"));
  EXPECT_EQ(problems({"model.family=bloom", "model.hidden=32", "model.heads=2", "model.ffn=128"}), "ok");
  for (const char* const family : {"gpt2", "opt", "bloom"})
    EXPECT_THAT(problems({str("model.family=", family), "model.hidden=32", "model.heads=2",
                          "model.kv_heads=1", "model.ffn=128"}),
                HasSubstr("model.kv_heads = 1, but "))
        << family;
}

TEST(TrainSchemaTest, EveryExampleIsAccepted) {
  for (const KeySpec& spec : train_schema().keys) {
    if (spec.example.empty()) continue;
    const ConfigSources sources{.arguments = {std::string(spec.example)}};
    EXPECT_TRUE(ConfigTree::build(train_schema(), sources).has_value()) << spec.example;
  }
}

TEST(TrainConfigTest, AnEmptyPromptOfSamplesIsFoundBeforeTheRun) {
  EXPECT_THAT(problems({"log.sample_prompt=", "log.sample_every=10"}),
              HasSubstr("log.sample_prompt is empty, but log.sample_every = 10"));
  EXPECT_EQ(problems({"log.sample_prompt=", "log.sample_every=0"}), problems({}));
}

// A value of another type than the field's would throw std::bad_variant_access.
TEST(TrainConfigTest, EveryKeyReachesItsField) {
  const ConfigTree tree = must(tree_of({}));
  std::set<FillField> fields;
  std::vector<std::string> without;
  for (std::size_t i = 0; i < train_keys().size(); ++i) {
    const KeySpec& spec = train_keys()[i].spec;
    const FillField fill = train_keys()[i].field.fill;
    TrainConfig config;
    EXPECT_NO_THROW(fill(tree.entries()[i], config)) << spec.section << "." << spec.name;
    if (fill == kNoField.fill)
      without.push_back(str(spec.section, ".", spec.name));
    else
      EXPECT_TRUE(fields.insert(fill).second)
          << spec.section << "." << spec.name << ": the field of another key";
  }
  EXPECT_THAT(without, ElementsAre("offload.auto_keys", "cpu.threads", "cpu.service_cores"));
}

TEST(TrainConfigTest, DefaultsAndEveryPresetAreComplete) {
  EXPECT_TRUE(config_of({}).has_value());
  for (const ConfigPreset& preset : train_schema().presets)
    EXPECT_TRUE(config_of({.preset = std::string(preset.name)}).has_value()) << preset.name;
}

TEST(TrainConfigTest, TheAustenPresetFillsTheStruct) {
  const TrainConfig config = must(config_of({.preset = "austen-5m"}));
  EXPECT_EQ(config.model.layers, 6);
  EXPECT_EQ(config.data.train.size(), 2u);
  EXPECT_FALSE(config.data.tokenizer.has_value());
  EXPECT_EQ(config.train.steps, 400);
  EXPECT_DOUBLE_EQ(config.train.max_time_s, 90);
  EXPECT_EQ(config.train.recompute, "full");
  EXPECT_DOUBLE_EQ(config.optim.lr, 0.002);
  EXPECT_EQ(config.memory.device_bytes, 32 * kMiB);
  EXPECT_EQ(config.memory.nvme_bytes, 48 * kMiB);
  EXPECT_FALSE(config.offload.chunk_elems.has_value());
  EXPECT_EQ(config.offload.step_mode, "two_phase");
  EXPECT_EQ(config.io.block_bytes, 4 * kMiB);
  EXPECT_TRUE(config.log.trace.empty());
}

TEST(TrainConfigTest, UserValuesAreNotOverwrittenByResolve) {
  EXPECT_EQ(must(tree_of({.arguments = {"cpu.threads=1"}})).integer("cpu.threads"), 1);
  EXPECT_TRUE(std::isinf(must(config_of({.arguments = {"train.max_time=none"}})).train.max_time_s));
  EXPECT_EQ(must(config_of({.arguments = {"data.tokenizer=t.json"}})).data.tokenizer, "t.json");
}

TEST(TrainConfigTest, OneNvmeDirectoryMayBeAStringAndSeveralAreAList) {
  const auto dirs = [](const char* value) {
    return must(config_of({.file_text = str("[memory]\nnvme_dir = ", value, "\n")})).memory.nvme_dirs;
  };
  EXPECT_EQ(dirs("\"/mnt/a, b\""), std::vector<std::string>{"/mnt/a, b"});
  EXPECT_EQ(dirs("[\"a\", \"b\"]"), (std::vector<std::string>{"a", "b"}));
  const TrainConfig given = must(config_of({.arguments = {"memory.nvme_dir=a,b", "memory.nvme_rates=3,1"}}));
  EXPECT_EQ(given.memory.nvme_dirs, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(given.memory.nvme_rates, (std::vector<double>{3, 1}));
}

TEST(TrainConfigTest, TheWriteBudgetIsUnlimitedUnlessGiven) {
  EXPECT_EQ(must(config_of({})).io.write_budget_bytes, kUnlimitedBytes);
  EXPECT_EQ(must(config_of({.environment = {"STRATA_IO_WRITE_BUDGET=2GiB"}})).io.write_budget_bytes,
            2 * kGiB);
}

TEST(TrainConfigTest, TheShareResolvesTheThreadsAndServiceCores) {
  const ConfigTree tree = must(tree_of({}));
  EXPECT_EQ(tree.integer("cpu.threads"), 3);
  EXPECT_EQ(tree.integer("cpu.service_cores"), 1);
  EXPECT_EQ(tree.entry("cpu.threads").why, "3 threads of a test");
}

TEST(TrainConfigTest, ModesThatDoNotExistAreRefusedWithTheKnownOnes) {
  EXPECT_THAT(problems({"offload.step_mode=overlapped"}),
              HasSubstr("'overlapped' is not one of auto, serial, two_phase"));
  EXPECT_THAT(problems({"train.dtype=fp8"}), HasSubstr("'fp8' is not one of auto, bf16, f16, f32"));
  EXPECT_THAT(problems({"model.family=lama"}), HasSubstr("'lama' is not one of gpt2"));
}

TEST(TrainConfigTest, AHeadMayHaveAnyWidthWhereFilesOfTheFamilySayIt) {
  EXPECT_EQ(problems({"model.family=qwen3", "model.heads=3", "model.head_dim=128"}), "ok");
  EXPECT_EQ(problems({"model.family=gpt2", "model.head_dim=64"}), "ok");
  EXPECT_THAT(
      problems({"model.family=gpt2", "model.head_dim=32"}),
      HasSubstr("argument model.head_dim=32: model.head_dim = 32, but the 4 heads of GPT-2 are together as "
                "wide as model.hidden = 256 (default)"));
}

TEST(TrainConfigTest, KeysThatContradictEachOtherNameBothOrigins) {
  const std::string text =
      problems({"model.heads=3", "memory.nvme=1MiB", "memory.nvme_dir=", "io.block=5000"});
  EXPECT_THAT(
      text,
      HasSubstr("argument model.heads=3: model.heads = 3 does not divide model.hidden = 256 (default)"));
  EXPECT_THAT(text, HasSubstr("argument memory.nvme_dir=: memory.nvme_dir is empty"));
  EXPECT_THAT(text, HasSubstr("io.block = 5000 is not a multiple of 4096"));
  EXPECT_THAT(problems({"offload.policy=nvme"}), HasSubstr("memory.nvme is 0"));
  EXPECT_THAT(problems({"offload.activations=nvme"}), HasSubstr("memory.nvme is 0"));
  EXPECT_THAT(problems({"offload.activation_share=0.5", "offload.activations=none"}),
              HasSubstr("offload.activation_share = 0.5, but offload.activations is none (argument"));
  EXPECT_THAT(problems({"memory.nvme_dir=a,b", "memory.nvme_rates=3"}),
              HasSubstr("memory.nvme_rates: 1 rate, but memory.nvme_dir has 2 folders (argument"));
}

TEST(TrainConfigTest, RenamedKeysAndValuesAreRefusedWithTheirPresentNames) {
  const std::string text =
      problems({"offload.order=layer", "train.recompute=block", "offload.step_mode=twin"});
  EXPECT_THAT(text, HasSubstr("key 'offload.order' is now 'offload.micro_batch_order'"));
  EXPECT_THAT(text, HasSubstr("train.recompute=block is now train.recompute=full"));
  EXPECT_THAT(text, HasSubstr("offload.step_mode=twin is now offload.step_mode=hybrid"));
  const Result<TrainConfig> config = config_of({.environment = {"STRATA_DATA_CHAT=plain"}});
  ASSERT_FALSE(config.has_value());
  EXPECT_THAT(std::string(config.status().message()),
              HasSubstr("environment STRATA_DATA_CHAT is now STRATA_DATA_CHAT_TEMPLATE"));
}

TEST(TrainConfigTest, SpecialVariablesReachTheirKeys) {
  const TrainConfig config = must(config_of({.environment = {"STRATA_PROGRESS=none", "STRATA_CPU_ISA=avx2",
                                                             "STRATA_CONFIG=x", "STRATA_LIBRARY=y"}}));
  EXPECT_EQ(config.log.progress, "none");
  EXPECT_EQ(config.cpu.isa, "avx2");
}

TEST(LocateDataFileTest, TheCurrentFolderComesBeforeTheDataFolders) {
  const std::string dir = str("/tmp/strata_data_", ::getpid());
  std::filesystem::create_directories(dir + "/sub");
  std::ofstream(dir + "/sub/a.txt") << "x";
  const std::vector<std::string> dirs = {"/nowhere", dir};
  EXPECT_EQ(locate_data_file("sub/a.txt", dirs), dir + "/sub/a.txt");
  EXPECT_EQ(locate_data_file("sub/b.txt", dirs), "sub/b.txt");
  EXPECT_EQ(locate_data_file("/etc/absent", dirs), "/etc/absent");
  EXPECT_EQ(locate_data_file(".", dirs), ".");
  std::filesystem::remove_all(dir);
}

TEST(AdapterConfigTest, TheStartOfAnAdapterIsReadAndWhatItCannotBeCombinedWithIsNamed) {
  const auto pissa_of = [](const char* init) {
    return must(lora_settings(must(config_of({.arguments = {"adapter.method=lora", init}})))).pissa;
  };
  EXPECT_EQ(pissa_of("adapter.init=default"), std::nullopt);
  EXPECT_EQ(pissa_of("adapter.init=pissa"), kernels::SvdMethod::exact);
  EXPECT_EQ(pissa_of("adapter.init=pissa-subspace"), kernels::SvdMethod::subspace);
  const std::string found =
      problems({"adapter.method=lora", "adapter.init=pissa", "adapter.dora=true", "adapter.rslora=true",
                "adapter.alpha_pattern=c_fc=3", "model.states=nowhere"});
  for (const char* problem :
       {"adapter.init = pissa, but adapter.dora = true", "adapter.init = pissa, but adapter.alpha_pattern = ",
        "adapter.init = pissa, but model.states = nowhere"})
    EXPECT_THAT(found, HasSubstr(problem));
  EXPECT_THAT(problems({"adapter.init=gaussian"}), HasSubstr("adapter.init"));
}

}  // namespace
}  // namespace strata
