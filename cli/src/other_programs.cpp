#include "other_programs.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/config/train_schema.h>
#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>

namespace strata::cli {
namespace {

/// A name that another program uses, and what this one has in its place.
struct OtherName {
  std::string_view name, means;
};

constexpr OtherName kOtherVerbs[] = {
    {"run", "generate MODEL \"TEXT\", or chat MODEL"},
    {"infer", "generate"},
    {"inference", "generate"},
    {"api", "serve"},
    {"server", "serve"},
    {"webchat", "serve, or chat in the terminal"},
    {"finetune", "train --init MODEL data.train=FILE --out RUN"},
    {"fine-tune", "train --init MODEL data.train=FILE --out RUN"},
    {"tune", "train --init MODEL data.train=FILE --out RUN"},
    {"pretrain", "train"},
    {"sft", "train --task full, lora or qlora"},
    {"lora", "train --task lora"},
    {"qlora", "train --task qlora"},
    {"dpo", "train --task dpo"},
    {"grpo", "train --task grpo"},
    {"ppo", "train --task ppo"},
    {"reward", "train --task reward"},
    {"resume", "train --resume RUN"},
    {"evaluate", "eval, or score for lm_eval"},
    {"perplexity", "eval MODEL --data FILE"},
    {"merge", "export BASE --adapter DIR --out FOLDER, or of a run export RUN --format merged --out FOLDER"},
    {"merge-lora",
     "export BASE --adapter DIR --out FOLDER, or of a run export RUN --format merged --out FOLDER"},
    {"convert", "export for models, config convert for configurations"},
    {"quantize", "export --format gguf, or train.base=nf4 for training and answers"},
    {"preprocess", "data pack"},
    {"tokenize", "tokenizer encode, or data pack for training data"},
    {"checkpoint", "ckpt"},
    {"env", "doctor"},
    {"info", "doctor for the machine, plan FOLDER for a model"},
    {"profile", "bench"},
    {"launch", "mpirun -n RANKS strata train"},
    {"pull", "nothing: models are folders, which hf download OWNER/NAME --local-dir FOLDER fetches"},
    {"download", "nothing: models are folders, which hf download OWNER/NAME --local-dir FOLDER fetches"},
    {"list", "report RUN ..., top, or ckpt ls RUN"},
    {"ls", "report RUN ..., top, or ckpt ls RUN"},
};

constexpr OtherName kOtherOptions[] = {
    {"-f", "--prompts"},
    {"-n", "--tokens"},
    {"--n-predict", "--tokens"},
    {"--max-new-tokens", "--tokens"},
    {"--max_new_tokens", "--tokens"},
    {"-c", "--context"},
    {"--ctx-size", "--context"},
    {"--max-model-len", "--context"},
    {"--max-num-seqs", "--batch"},
    {"--temp", "--temperature"},
    {"--lora", "--adapter"},
    {"--model", "--init"},
    {"-m", "--init"},
    {"-m", "the folder of the model as an argument"},
    {"--model", "the folder of the model as an argument"},
    {"-o", "--out"},
    {"--output", "--out"},
    {"-t", "cpu.threads=N"},
    {"-ngl", "memory.device=BYTES, with which layers that do not fit move by themselves"},
    {"--lr", "optim.lr=RATE"},
    {"--epochs", "train.epochs=N"},
    {"--steps", "train.steps=N"},
    {"--data", "data.train=FILE"},
    {"--config", "the file as an argument: train FILE"},
};

}  // namespace

std::string verb_that_is_meant(std::string_view word, std::span<const std::string_view> known) {
  for (const OtherName& other : kOtherVerbs)
    if (other.name == word) return str("; strata has for it: ", other.means);
  return str("; known: ", fmt::format("{}", fmt::join(known, ", ")), did_you_mean(word, known));
}

std::string option_that_is_meant(const std::string& name, const std::vector<std::string>& known) {
  for (const OtherName& other : kOtherOptions)
    if (other.name == name &&
        (!other.means.starts_with('-') || std::find(known.begin(), known.end(), other.means) != known.end()))
      return str("; use ", other.means);
  const std::string word = name.substr(name.find_first_not_of('-'));
  if (const OtherWord* const other = find_other_word(train_schema(), word); other != nullptr)
    return str("; use ", other->key, other->key.find('.') != std::string_view::npos ? "=VALUE" : "",
               other->note.empty() ? "" : ": ", other->note);
  for (const KeySpec& key : train_schema().keys)
    if (word == str(key.section, ".", key.name)) return str("; keys have no dashes: ", word, "=VALUE");
  return did_you_mean(name, std::vector<std::string_view>(known.begin(), known.end()));
}

}  // namespace strata::cli
