#include <strata/yaml_config/yaml_config.h>

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>

namespace strata {
namespace {

using ::testing::HasSubstr;

/// "taken optim.lr = 0.0002", or "refused: why"; those of a key that sets several, separated by commas.
std::string what_becomes_of(const std::string& key, const std::string& yaml) {
  const auto conversion = convert_trainer_yaml(yaml);
  if (!conversion.has_value()) return std::string(conversion.status().message());
  std::string text;
  for (const DsFinding& one : conversion->findings) {
    if (one.key != key) continue;
    text += str(text.empty() ? "" : ", ", to_string(one.verdict));
    text +=
        one.strata_value.empty() ? str(": ", one.reason) : str(" ", one.strata_key, " = ", one.strata_value);
  }
  return text;
}
std::string of_axolotl(const std::string& key, const std::string& value, const std::string& others = "") {
  return what_becomes_of(key, str("base_model: m\n", others, key, ": ", value, "\n"));
}
std::string of_factory(const std::string& key, const std::string& value, const std::string& others = "") {
  return what_becomes_of(key, str("model_name_or_path: m\n", others, key, ": ", value, "\n"));
}
struct Refusal {
  const char *data, *why;
};
std::string toml_of(const std::string& yaml) {
  const YamlConversion conversion = must(convert_trainer_yaml(yaml));
  return ds_config_toml(conversion.findings);
}

constexpr const char* kAxolotl = R"(
base_model: models/Llama-3.2-1B
load_in_8bit: false
load_in_4bit: true
strict: false
datasets:
  - path: ./alpaca.jsonl
    type: alpaca
dataset_prepared_path:
output_dir: ./outputs/qlora-out
adapter: qlora
sequence_len: 2048
sample_packing: true
lora_r: 32
lora_alpha: 16
lora_target_modules:
  - gate_proj
  - down_proj
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 1
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
learning_rate: 2e-4
bf16: true
tf32: false
gradient_checkpointing: true
attn_implementation: flash_attention_2
warmup_steps: 10
weight_decay: 0.01
special_tokens:
  pad_token: "<|end_of_text|>"
)";

TEST(YamlConfigTest, AnExampleOfAxolotlBecomesAConfiguration) {
  const YamlConversion conversion = must(convert_trainer_yaml(kAxolotl));
  EXPECT_EQ(conversion.trainer, "axolotl");
  EXPECT_TRUE(ds_config_problems(conversion.findings).is_ok())
      << ds_config_problems(conversion.findings).message();
  EXPECT_EQ(ds_config_toml(conversion.findings), R"([adapter]
method = "lora"
rank = 32
alpha = 16
targets = ["gate_proj","down_proj"]

[data]
train = ["./alpaca.jsonl"]
packing = "pack"

[model]
from = "models/Llama-3.2-1B"
seq = 2048

[offload]
states = "int8"

[optim]
name = "adamw"
schedule = "cosine"
min_lr_ratio = 0
lr = 0.0002
warmup = 10
weight_decay = 0.01
beta2 = 0.999

[train]
base = "nf4-dq"
grad_accum = 4
micro_batch = 2
epochs = 1
dtype = "bf16"
)");
}

TEST(YamlConfigTest, AnExampleOfLlamaFactoryBecomesAConfigurationAndWhatIsNotTakenIsNamed) {
  const YamlConversion conversion = must(convert_trainer_yaml(R"(
model_name_or_path: models/Qwen3-4B
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
dataset: identity,alpaca_en_demo
template: qwen3_nothink
cutoff_len: 2048
max_samples: 1000
preprocessing_num_workers: 16
output_dir: saves/qwen3-4b
logging_steps: 10
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
)"));
  EXPECT_EQ(conversion.trainer, "LLaMA-Factory");
  EXPECT_EQ(ds_config_toml(conversion.findings), R"([adapter]
method = "lora"
rank = 8
alpha = 16
targets = ["all-linear"]

[data]
train = ["data/identity.json","data/alpaca_en_demo.json"]
chat_template = "own"
packing = "pack"

[log]
every = 10

[model]
from = "models/Qwen3-4B"
seq = 2048

[optim]
lr = 0.0001
schedule = "cosine"
min_lr_ratio = 0
warmup_ratio = 0.1
weight_decay = 0
beta2 = 0.999

[train]
objective = "lm"
micro_batch = 1
grad_accum = 8
epochs = 3.0
dtype = "bf16"
)");
  const std::string problems(ds_config_problems(conversion.findings).message());
  EXPECT_EQ(problems, "max_samples = 1000: all records are trained: name a shorter file");
}

TEST(YamlConfigTest, AFileOfNeitherTrainerIsRefused) {
  EXPECT_THAT(what_becomes_of("a", "model: x\n"),
              HasSubstr("neither a configuration of axolotl, which has base_model"));
}

TEST(YamlConfigTest, UnknownKeysAreNamedWithTheNearestOne) {
  EXPECT_EQ(of_axolotl("lora_rr", "1"),
            "unknown: no key of axolotl that is known here; did you mean 'lora_r'?");
}

TEST(YamlConfigTest, NumbersInQuotesAreNumbersAndNullIsNotSet) {
  EXPECT_EQ(of_axolotl("learning_rate", "'2e-5'"), "taken optim.lr = 2e-05");
  EXPECT_EQ(of_axolotl("weight_decay", "null"), "meaningless: null: not set, taken optim.weight_decay = 0");
}

TEST(YamlConfigTest, StepsAndSharesOfWarmUpAreTaken) {
  EXPECT_EQ(of_axolotl("warmup_ratio", "0.1"), "taken optim.warmup_ratio = 0.1");
  EXPECT_EQ(of_axolotl("warmup_ratio", "0.1", "warmup_steps: 7\n"),
            "meaningless: warmup_steps takes precedence");
  EXPECT_THAT(of_axolotl("warmup_steps", "0.1"), HasSubstr("taken optim.warmup_ratio = 0.1"));
  EXPECT_EQ(of_axolotl("warmup_steps", "'10'"), "taken optim.warmup = 10");
  EXPECT_EQ(of_axolotl("num_epochs", "3", "max_steps: 95\n"), "meaningless: max_steps takes precedence");
}

TEST(YamlConfigTest, WhatChangesNumbersAndHasNoCounterpartIsRefusedUnlessItIsOff) {
  for (const char* key : {"val_set_size", "group_by_length", "early_stopping_patience"}) {
    EXPECT_THAT(of_axolotl(key, "0.05"), testing::StartsWith("refused: ")) << key;
    EXPECT_THAT(of_axolotl(key, "0"), testing::StartsWith("meaningless: ")) << key;
  }
  for (const char* key : {"neftune_noise_alpha", "mask_history", "use_badam", "val_size"})
    EXPECT_THAT(of_factory(key, "0.05"), testing::StartsWith("refused: ")) << key;
  EXPECT_THAT(of_axolotl("optimizer", "muon"), testing::StartsWith("refused: strata has no such optimizer"));
  EXPECT_THAT(of_axolotl("lr_scheduler", "rex"), testing::StartsWith("refused: strata has cosine"));
}

TEST(YamlConfigTest, DataOfTheHubAndKeysOfDataThatRenameFieldsAreRefused) {
  const Refusal kRefusals[] = {
      {"[{path: a.json, type: {system_prompt: x}}]", "'type' has fields and a format of its own"},
      {"[{path: a.json, split: 'train[:10%]'}]", "'split' = \"train[:10%]\" is a part of the records"},
      {"[{path: a.json, message_property_mappings: {role: speaker}}]", "has role: \"speaker\""},
      {"[{type: alpaca}]", "each entry must have a path"},
  };
  for (const auto& [data, why] : kRefusals)
    EXPECT_THAT(of_axolotl("datasets", data),
                testing::AllOf(testing::StartsWith("refused: "), HasSubstr(why)));
  EXPECT_EQ(of_axolotl("datasets", "[{path: tatsu-lab/alpaca, type: alpaca}]"),
            "taken data.train = [\"tatsu-lab/alpaca\"]");
  EXPECT_EQ(of_axolotl("datasets", "[{path: a/b, data_files: c.json, split: train}]"),
            "taken data.train = [\"a/b/c.json\"]");
  EXPECT_EQ(of_axolotl("datasets",
                       "[{path: a.json, field_messages: conversations, "
                       "message_property_mappings: {role: from, content: value}}]"),
            "taken data.train = [\"a.json\"]");
  EXPECT_THAT(of_axolotl("datasets", "[{path: a.json, field_instruction: q}]"),
              HasSubstr("'field_instruction'"));
  EXPECT_EQ(of_axolotl("datasets", "[{path: json, data_files: [a.json, b.json]}]"),
            "taken data.train = [\"a.json\",\"b.json\"]");
}

TEST(YamlConfigTest, TwoKeysMayNotSetOneToDifferentValues) {
  EXPECT_EQ(of_axolotl("fp16", "true", "bf16: true\n"), "refused: bf16 sets train.dtype to \"bf16\"");
  EXPECT_THAT(toml_of("base_model: m\nlr_scheduler: cosine\ncosine_min_lr_ratio: 0.1\n"),
              HasSubstr("min_lr_ratio = 0.1"));
}

TEST(YamlConfigTest, DefaultsThatAreNotStratasAreSet) {
  EXPECT_THAT(toml_of("model_name_or_path: m\n"),
              testing::AllOf(HasSubstr("lr = 5e-05"), HasSubstr("schedule = \"linear\""),
                             HasSubstr("micro_batch = 8"), HasSubstr("rank = 8\nalpha = 16"),
                             HasSubstr("epochs = 3")));
  EXPECT_THAT(toml_of("model_name_or_path: m\nfinetuning_type: full\n"), testing::Not(HasSubstr("rank")));
}

TEST(YamlConfigTest, KeysThatTheTrainerDoesNotLookAtAreMeaningless) {
  EXPECT_EQ(of_axolotl("lora_r", "32"), "meaningless: the file asks for no adapter");
  EXPECT_EQ(of_axolotl("lora_r", "32", "adapter: lora\n"), "taken adapter.rank = 32");
  EXPECT_EQ(of_factory("lora_rank", "32", "finetuning_type: full\n"),
            "meaningless: the file asks for no adapter");
  EXPECT_EQ(of_factory("lora_rank", "32", "adapter_name_or_path: x\n"),
            "meaningless: the folder of adapter_name_or_path says it");
  EXPECT_THAT(toml_of("model_name_or_path: m\nadapter_name_or_path: x\n"), testing::Not(HasSubstr("rank")));
  EXPECT_EQ(of_axolotl("s2_attention", "", ""), "meaningless: null: not set");
}

TEST(YamlConfigTest, WhatAdaptersHaveIsTaken) {
  const std::string lora = "adapter: lora\n";
  EXPECT_EQ(of_axolotl("lora_dropout", "0.05", lora), "taken adapter.dropout = 0.05");
  EXPECT_EQ(of_axolotl("lora_modules_to_save", "[embed_tokens, lm_head]", lora),
            "taken adapter.modules_to_save = [\"embed_tokens\",\"lm_head\"]");
  EXPECT_EQ(of_factory("additional_target", "embed_tokens,lm_head"),
            "taken adapter.modules_to_save = [\"embed_tokens\",\"lm_head\"]");
  EXPECT_EQ(of_axolotl("lora_target_modules", R"('layers\.\d{1,2}\..*(q|v)_proj')", lora),
            R"(taken adapter.targets = ["layers\\.\\d{1,2}\\..*(q|v)_proj"])");
  EXPECT_EQ(of_axolotl("lora_target_modules", "[q_proj]", lora + "lora_target_linear: true\n"),
            "meaningless: lora_target_linear takes all linear layers");
  EXPECT_EQ(of_axolotl("lora_rank_pattern", "{q_proj: 4}", lora),
            "taken adapter.rank_pattern = [\"q_proj=4\"]");
  EXPECT_EQ(of_axolotl("peft_trainable_token_indices", "{lm_head: [3, 4]}", lora),
            "taken adapter.trainable_tokens = [\"lm_head=3\",\"lm_head=4\"]");
  EXPECT_EQ(of_factory("pissa_init", "true", "pissa_iter: -1\n"), "taken adapter.init = \"pissa\"");
  EXPECT_EQ(of_factory("pissa_init", "true"), "taken adapter.init = \"pissa-subspace\"");
  EXPECT_EQ(of_factory("use_galore", "true"), "taken optim.name = \"galore\"");
}

TEST(YamlConfigTest, DtypesAreThoseOfTheFile) {
  EXPECT_EQ(of_axolotl("float16", "true"), "taken train.dtype = \"f16\"");
  EXPECT_EQ(of_axolotl("bf16", "false", "fp16: false\n"), "taken train.dtype = \"f32\"");
  EXPECT_EQ(of_axolotl("bf16", "false", "fp16: true\n"), "meaningless: not asked for");
}

TEST(YamlConfigTest, ChangesWithoutAWordAreRefused) {
  EXPECT_THAT(of_factory("quantization_type", "fp4"), testing::StartsWith("refused: "));
  EXPECT_THAT(of_axolotl("save_steps", "0.1"),
              HasSubstr("refused: it is a share of the steps; checkpoint.every is a number of steps"));
  EXPECT_THAT(of_factory("template", "alpaca"), testing::StartsWith("refused: "));
  EXPECT_EQ(of_factory("template", "qwen3"), "taken data.chat_template = \"own\"");
  EXPECT_EQ(of_axolotl("max_steps", "'100'"), "taken train.steps = 100");
}

TEST(YamlConfigTest, BitsOfABaseHaveTheirFormats) {
  EXPECT_EQ(of_factory("quantization_bit", "4"), "taken train.base = \"nf4-dq\"");
  EXPECT_EQ(of_factory("quantization_bit", "4", "double_quantization: false\n"),
            "taken train.base = \"nf4\"");
  EXPECT_EQ(of_factory("quantization_bit", "8"), "taken train.base = \"int8\"");
  EXPECT_THAT(of_factory("quantization_bit", "2"), testing::StartsWith("refused"));
}

}  // namespace
}  // namespace strata
