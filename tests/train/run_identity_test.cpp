// Checkpoints store the identity of their run, so that older ones can be resumed only while no entry of it
// changes by a character: run_identity.txt has those of many runs as they have always been.
#include <strata/config/train_schema.h>
#include <strata/train/run_identity.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/load_config.h>
#include <strata/runtime/str.h>

#include "support/memory_io.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

using Arguments = std::vector<std::string>;
using Values = std::map<std::string, std::string>;

struct IdentityCase {
  const char* name;
  Arguments arguments;
};

const IdentityCase kRuns[] = {
    {"defaults", {}},
    {"sizes",
     {"model.layers=3", "model.hidden=96", "model.heads=6", "model.kv_heads=2", "model.ffn=160",
      "model.vocab=700", "model.seq=48", "model.family=qwen3"}},
    {"training",
     {"train.steps=77", "train.micro_batch=3", "train.grad_accum=5", "train.seed=9",
      "train.attention_backend=wgmma", "data.packing=pack", "data.train=a.txt,b.txt",
      "data.weights=0.7,1.25"}},
    {"f16", {"train.dtype=f16", "optim.loss_scale=1024"}},
    {"fp8", {"train.dtype=bf16", "train.fp8=true"}},
    {"adam", {"optim.name=adam", "optim.beta1=0.8", "optim.beta2=0.999", "optim.eps=1e-6"}},
    {"lion", {"optim.name=lion", "optim.lr=3e-5"}},
    {"lamb", {"optim.name=lamb", "optim.weight_decay=0.01"}},
    {"adagrad", {"optim.name=adagrad", "optim.eps=1e-10"}},
    {"sgd", {"optim.name=sgd", "optim.momentum=0.95", "optim.nesterov=true", "optim.clip=0"}},
    {"galore",
     {"optim.name=galore", "optim.weight_decay=0", "train.dtype=bf16", "optim.galore_rank=4",
      "optim.galore_scale=0.1", "optim.galore_gap=30", "optim.galore_svd=exact",
      "optim.galore_targets=q_proj,down_proj"}},
    {"galore f32", {"optim.name=galore", "optim.weight_decay=0"}},
    {"wsd", {"optim.schedule=wsd", "optim.decay_ratio=0.3", "optim.warmup=7", "optim.min_lr_ratio=0"}},
    {"linear", {"optim.schedule=linear"}},
    {"groups", {"optim.param_groups=layers.[01].* lr_scale=0.1,tokens.weight weight_decay=0"}},
    {"ema", {"optim.ema_decay=0.999"}},
    {"states", {"offload.states=int8"}},
    {"freeze", {"train.freeze=tokens.weight,layers.0.*", "train.dtype=bf16"}},
    {"freeze without masters",
     {"train.freeze=tokens.weight", "train.dtype=f16", "train.frozen_masters=false"}},
    {"freeze f32", {"train.freeze=tokens.weight"}},
    {"lora", {"adapter.method=lora"}},
    {"lora bf16",
     {"adapter.method=lora", "train.dtype=bf16", "train.base=nf4-dq", "train.frozen_masters=true"}},
    {"lora with all settings",
     {"adapter.method=lora", "adapter.rank=4", "adapter.alpha=16.5", "adapter.rslora=true",
      "adapter.init=pissa-subspace", "adapter.targets=q_proj,down_proj", "adapter.exclude=v_proj",
      "adapter.layers=0,1", "adapter.dropout=0.05", "adapter.modules_to_save=embed_tokens",
      "adapter.trainable_tokens=3,lm_head=7", "adapter.bias=lora_only"}},
    {"lora with patterns",
     {"adapter.method=lora", "adapter.dora=true", "adapter.rank_pattern=down_proj=32",
      "adapter.alpha_pattern=down_proj=64,q_proj=2.5", "adapter.bias=all"}},
    {"series",
     {"adapter.method=series", "adapter.bottleneck=48", "adapter.placement=mlp", "adapter.activation=gelu",
      "adapter.scale=0.3"}},
    {"parallel", {"adapter.method=parallel", "adapter.scale=4", "train.base=int8"}},
    {"prompt", {"adapter.method=prompt", "adapter.virtual_tokens=5"}},
    {"p-tuning", {"adapter.method=p-tuning", "adapter.encoder_width=24"}},
    {"prefix", {"adapter.method=prefix", "adapter.virtual_tokens=3", "train.dtype=bf16"}},
    {"reward", {"train.objective=reward"}},
    {"reward of adapters", {"train.objective=reward", "adapter.method=lora", "align.max_pairs=3"}},
    {"dpo", {"train.objective=dpo", "align.beta=0.2", "align.label_smoothing=0.1"}},
    {"ipo", {"train.objective=dpo", "align.loss=ipo", "align.max_pairs=2"}},
    {"grpo",
     {"train.objective=grpo", "align.reward=length:8", "align.max_tokens=8", "data.tokenizer=t.json"}},
    {"grpo with all settings",
     {"train.objective=grpo", "align.reward=length:8,0.5*ended", "align.max_tokens=9", "align.max_prompt=11",
      "align.prompts=4", "align.samples=6", "align.mini_batches=2", "align.epochs=3", "align.slots=5",
      "align.temperature=0.9", "align.clip=0.1", "align.clip_high=0.28", "align.kl=k3", "align.kl_coef=0",
      "align.loss=dapo", "data.mixture=m.txt", "align.mixture_weight=0.5", "align.mixture_batches=2",
      "data.tokenizer=t.json"}},
    {"ppo", {"train.objective=ppo", "align.reward=length:8", "align.max_tokens=8", "data.tokenizer=t.json"}},
    {"ppo with all settings",
     {"train.objective=ppo", "align.reward=length:8", "align.max_tokens=8", "data.tokenizer=t.json",
      "align.kl_target=6", "align.kl_horizon=500", "align.gamma=0.99", "align.lambda=0.9",
      "align.whiten=false", "align.value_clip=0.1", "align.critic_lr=1e-5", "adapter.method=lora"}},
};

TrainConfig config_of(Arguments arguments) {
  for (const char* const given : {"memory.backend=host", "train.dtype=f32", "train.base=full",
                                  "data.val=", "train.grad_accum=1", "train.attention_backend=mma"})
    if (std::none_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
          return argument.starts_with(std::string(given).substr(0, std::string(given).find('=')));
        }))
      arguments.emplace_back(given);
  ConfigTree tree =
      must(ConfigTree::build(train_schema(), {.arguments = arguments, .preset = "austen-tiny"}));
  resolve_simple_autos(tree, {});
  return must(fill_train_config(tree));
}

/// Data in memory: texts, and pairs, whose validation has a digest of its own.
class RunIdentityTest : public ::testing::Test {
 protected:
  RunIdentityTest() {
    std::string text, pairs;
    for (int i = 0; i < 60; ++i) {
      text += str("It is a truth universally acknowledged, number ", i, ".\n");
      pairs += str("{\"prompt\": \"How many? \", \"chosen\": \"", i, " of them\", \"rejected\": \"none\"}\n");
    }
    io_.put("a.txt", text);
    io_.put("pairs.jsonl", pairs);
    io_.put("val.jsonl", pairs);
    texts_ = open({"data.train=a.txt", "data.val="});
    pairs_ = open({"data.train=pairs.jsonl", "data.val=val.jsonl", "train.objective=dpo"});
  }
  std::unique_ptr<TrainingData> open(Arguments arguments) {
    arguments.insert(arguments.end(),
                     {"data.cache_dir=cache", "data.chat_template=plain", "model.vocab=300"});
    return must(TrainingData::open(config_of(std::move(arguments)), io_));
  }
  Values identity_with(const TrainConfig& config) const {
    const bool of_pairs = config.train.objective == "dpo" || config.train.objective == "reward";
    Values identity = run_identity(config, of_pairs ? *pairs_ : *texts_);
    // What a CPU has depends on the machine.
    if (const auto gemm = identity.find(std::string(kGemmImplementation)); gemm != identity.end())
      gemm->second = "that of the machine";
    return identity;
  }
  Values identity_of(const Arguments& arguments) const { return identity_with(config_of(arguments)); }

  MemoryIo io_;
  std::unique_ptr<TrainingData> texts_, pairs_;
};

// All entries, then for each run those that the first lacks or has otherwise, and those that only it has.
std::string difference(const Values& first, const Values& run) {
  std::string text;
  for (const auto& [key, value] : run)
    if (const auto found = first.find(key); found == first.end() || found->second != value)
      text += str(key, " = '", value, "'\n");
  for (const auto& [key, value] : first)
    if (!run.contains(key)) text += str("no ", key, "\n");
  return text;
}

TEST_F(RunIdentityTest, OfEveryKindOfRunIsTheOneThatCheckpointsHave) {
  std::ifstream file(STRATA_SOURCE_DIR "/tests/train/run_identity.txt");
  const std::string recorded{std::istreambuf_iterator<char>(file), {}};
  Values first;
  std::string text;
  for (const IdentityCase& run : kRuns) {
    const Values identity = identity_of(run.arguments);
    text += str(text.empty() ? "" : "\n", "[", run.name, "]\n", difference(first, identity));
    if (first.empty()) first = identity;
  }
  EXPECT_EQ(text, recorded) << text;
}

TEST_F(RunIdentityTest, OfAModelFromAFolderHasTheSizesOfTheFolder) {
  const test::TempDir dir;
  must(write_text_atomically(posix_io(), dir.file("config.json"),
                             R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1,
      "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 300, "max_position_embeddings": 512})"));
  const LoadedConfig run =
      must(load_config({.items = {"model.from=" + dir.path(), "model.seq=24", "train.dtype=f32",
                                  "memory.backend=host", "train.steps=10"}}));
  const Values identity = identity_with(run.config);
  std::string sizes;
  for (const auto& [key, value] : identity)
    if (key.starts_with("model.")) sizes += str(key, " = ", value, "\n");
  EXPECT_EQ(sizes,
            "model.decoder = b1b832cca51b231415f874305ef7a1c7\nmodel.family = llama\nmodel.ffn = 64\n"
            "model.heads = 2\nmodel.hidden = 32\nmodel.layers = 1\nmodel.seq = 24\nmodel.vocab = 300\n");
}

TEST_F(RunIdentityTest, ACheckpointWithoutLaterKeysWasMadeWithWhatRunsThenHad) {
  const Values now = identity_of({"adapter.method=lora", "train.dtype=f32"});
  Values saved = now;
  for (const char* const later :
       {"data.packing", "offload.states", "data.weights", "train.fp8", "adapter.dora", "train.base",
        "adapter.init", "train.attention_backend", "train.objective", "train.freeze", "optim.param_groups",
        "model.decoder", "data.val"})
    saved.erase(later);
  EXPECT_TRUE(check_identity(saved, now).is_ok()) << check_identity(saved, now).message();
  saved.erase("adapter.method");
  EXPECT_EQ(std::string(check_identity(saved, now).message()),
            "adapter.method: the checkpoint was made with none, this run has lora");
}

TEST_F(RunIdentityTest, AllDifferencesAreReportedAtOnce) {
  const Values saved = identity_of({});
  const std::string found(
      check_identity(saved, identity_of({"optim.lr=1", "optim.ema_decay=0.5", "model.layers=3"})).message());
  EXPECT_EQ(found,
            "model.layers: the checkpoint was made with 2, this run has 3\n"
            "optim.ema_decay: the checkpoint was made with nothing, this run has 0.5\n"
            "optim.lr: the checkpoint was made with 0.003, this run has 1");
}

TEST_F(RunIdentityTest, ARunMayBeExtendedAndRunOnAnotherMachine) {
  const Values saved = identity_of({"train.dtype=bf16"});
  Values now = identity_of({"train.dtype=bf16", "train.steps=500"});
  now[std::string(kGemmImplementation)] = "another";
  EXPECT_TRUE(check_identity(saved, now).is_ok());
}

}  // namespace
}  // namespace strata
