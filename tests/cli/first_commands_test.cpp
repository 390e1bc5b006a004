// Tests the first commands of people who come from other programs: each has the remedy in its message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/train_schema.h>

#include "cli/run_command.h"
#include "exit_code.h"

namespace strata::cli {
namespace {

using test::Outcome;
using test::strata_command;
using ::testing::HasSubstr;

struct FirstCommand {
  std::vector<std::string> words;
  const char* says;
};

class FirstCommandsTest : public ::testing::TestWithParam<FirstCommand> {};

TEST_P(FirstCommandsTest, TheMessageHasTheRemedy) {
  const Outcome refused = strata_command(GetParam().words);
  EXPECT_EQ(refused.code, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr(GetParam().says));
}

std::vector<FirstCommand> first_commands() {
  const auto check = [](const char* assignment, const char* says) {
    return FirstCommand{{"config", "check", assignment}, says};
  };
  return {
      // TRL and transformers
      check("train.learning_rate=1e-4", "unknown key 'train.learning_rate'; strata has optim.lr for it"),
      check("learning_rate=1e-4", "strata has optim.lr for it"),
      check("train.per_device_train_batch_size=8", "train.micro_batch"),
      check("train.gradient_accumulation_steps=4", "train.grad_accum"),
      check("train.max_steps=100", "train.steps"),
      check("train.num_train_epochs=3", "train.epochs"),
      check("optim.lr_scheduler_type=cosine", "optim.schedule"),
      check("train.warmup_ratio=0.03", "optim.warmup_ratio"),
      check("train.max_grad_norm=1", "optim.clip"),
      check("model.max_length=512", "model.seq"),
      check("model.model_name_or_path=x", "model.from for it: a folder, or --init DIR"),
      check("train.output_dir=x", "strata has --out for it"),
      check("train.bf16=true", "train.dtype for it: bf16, f16 or f32"),
      check("train.gradient_checkpointing=true", "train.recompute"),
      check("train.save_steps=10", "checkpoint.every"),
      check("log.logging_steps=1", "log.every"),
      check("align.num_generations=8", "align.samples"),
      // PEFT, LLaMA-Factory, axolotl, unsloth
      check("adapter.r=8", "unknown key 'adapter.r'; strata has adapter.rank for it"),
      check("adapter.lora_alpha=16", "adapter.alpha"),
      check("adapter.target_modules=q_proj", "adapter.targets"),
      check("train.finetuning_type=lora", "strata has --task for it: full, lora or qlora"),
      check("train.load_in_4bit=true", "train.base for it: nf4"),
      check("data.template=qwen", "data.chat_template"),
      check("model.cutoff_len=1024", "model.seq"),
      check("model.base_model=x", "model.from"),
      check("data.sample_packing=true", "data.packing"),
      check("train.deepspeed=ds.json", "strata config convert FILE"),
      // torchtune, nanoGPT
      check("train.batch_size=4", "train.micro_batch for it: sequences of a micro-batch"),
      check("model.block_size=256", "model.seq"),
      check("train.max_iters=500", "train.steps"),
      check("train.grad_clip=1", "optim.clip"),
      check("train.eval_interval=10", "train.eval_every"),
      // options
      {{"train", "--lr", "1e-4"}, "unknown option '--lr'; use optim.lr=RATE"},
      {{"train", "--learning_rate=1e-4"}, "unknown option '--learning_rate'; use optim.lr=VALUE"},
      {{"train", "--model", "x"}, "unknown option '--model'; use --init"},
      {{"train", "--batch-size", "8"}, "unknown option '--batch-size'; use train.micro_batch=VALUE"},
      {{"train", "--epochs", "3"}, "use train.epochs=N"},
      {{"train", "--output_dir", "x"}, "use --out"},
      {{"train", "--optim.lr", "1"}, "keys have no dashes: optim.lr=VALUE"},
      {{"train", "--data", "x.txt"}, "use data.train=FILE"},
      {{"generate", "Qwen/Qwen3-0.6B", "-p", "Dear"}, "hf download Qwen/Qwen3-0.6B --local-dir"},
      {{"chat", "meta-llama/Llama-3.2-1B"},
       "does not exist here; a model of this name on the Hugging Face Hub"},
      {{"serve", "Qwen/Qwen3-0.6B"}, "hf download"},
      {{"train", "--init", "Qwen/Qwen3-0.6B", "data.train=x.txt"},
       "model.from: Qwen/Qwen3-0.6B does not exist"},
      {{"data", "pack", "tatsu-lab/alpaca", "--out", "/nowhere/x", "--tokenizer", "x"},
       "hf download tatsu-lab/alpaca --repo-type dataset --local-dir tatsu-lab/alpaca"},
      {{"export", "Qwen/Qwen3-0.6B", "--out", "x"}, "hf download Qwen/Qwen3-0.6B --local-dir"},
      {{"train", "lora.yml"}, "strata config convert lora.yml > run.toml"},
      {{"train", "--config", "lora.yml"}, "use the file as an argument: train FILE"},
      // verbs
      {{"run", "x"}, "unknown verb 'run'; strata has for it: generate MODEL \"TEXT\", or chat MODEL"},
      {{"finetune", "x"}, "train --init MODEL data.train=FILE"},
      {{"sft"}, "train --task full, lora or qlora"},
      {{"pull", "qwen3"}, "hf download OWNER/NAME"},
      {{"quantize", "x"}, "export --format gguf"},
      {{"merge", "x"}, "export BASE --adapter DIR --out FOLDER"},
      {{"evaluate", "x"}, "eval, or score for lm_eval"},
      {{"env"}, "doctor"},
      {{"generate", "x", "-n", "8"}, "unknown option '-n'; use --tokens"},
      {{"generate", "-m", "x"}, "unknown option '-m'; use the folder of the model as an argument"},
      {{"generate", "x", "--temp", "0"}, "use --temperature"},
      {{"generate", "x", "--max_new_tokens", "9"}, "use --tokens"},
      {{"generate", "x", "-t", "2"}, "use cpu.threads=N"},
      {{"chat", "x", "-ngl", "99"}, "memory.device=BYTES"},
      {{"serve", "x", "--max-model-len", "64"}, "use --context"},
      {{"serve", "x", "--tensor-parallel-size", "2"}, "use parallel.tp=VALUE"},
      {{"export", "x", "-o", "y"}, "use --out"},
  };
}

TEST(FirstWordsTest, HelpAndVersionAreUnderstoodAsWords) {
  EXPECT_EQ(strata_command({"version"}).out, strata_command({"--version"}).out);
  EXPECT_EQ(strata_command({"help"}).out, strata_command({"--help"}).out);
  const Outcome of_train = strata_command({"help", "train"});
  EXPECT_EQ(of_train.code, kExitOk);
  EXPECT_EQ(of_train.out, strata_command({"train", "--help"}).out);
}

INSTANTIATE_TEST_SUITE_P(Words, FirstCommandsTest, ::testing::ValuesIn(first_commands()));

TEST(OtherWordsTest, EachNamesAKeyThatThereIs) {
  const ConfigSchema& schema = train_schema();
  for (const OtherWord& word : schema.other_words) {
    SCOPED_TRACE(word.word);
    const std::size_t dot = word.key.find('.');
    const auto is_word = [&](const KeySpec& key) { return key.name == word.word; };
    const bool is_key = std::any_of(schema.keys.begin(), schema.keys.end(), [&](const KeySpec& key) {
      return key.section == word.key.substr(0, dot) && key.name == word.key.substr(dot + 1);
    });
    EXPECT_TRUE(dot == std::string_view::npos || is_key) << word.key;
    EXPECT_TRUE(word.word == "device" ||  // a key of section memory
                std::none_of(schema.keys.begin(), schema.keys.end(), is_word))
        << "a key has this name";
  }
}

}  // namespace
}  // namespace strata::cli
