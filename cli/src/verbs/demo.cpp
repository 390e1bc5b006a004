#include <string>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

#include "command_line.h"
#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr const char* kIntroduction =
    "A language model of five million parameters learns from two novels. Its states do not fit into the "
    "memory\n"
    "that the run may use on the device, nor into that and its RAM together; the rest is on disk.\n";

struct DemoFile {
  const char *name, *what;
};
constexpr DemoFile kFiles[] = {
    {"config.resolved.toml", "every setting, and where its value came from"},
    {"plan.json", "the plan: bytes by tier, chunk size, step mode"},
    {"metrics.jsonl", "one line per step: loss, gradient norm, tokens/s, bytes by tier and lane"},
    {"summary.json", "the outcome: losses, peak and planned bytes, waits by cause, digest of all states"},
    {"samples.txt", "text samples from during training"},
    {"tokenizer.json", "the vocabulary learned from the novels"},
    {"checkpoints", "from which a run can resume"},
    {"model", "the model as a Hugging Face folder"},
};

// Earlier results are never overwritten.
std::string free_folder(const std::string& wanted) {
  std::string folder = wanted;
  for (int i = 2; posix_io().exists(folder); ++i) folder = str(wanted, "-", i);
  return folder;
}

// As a shell would need the word.
std::string quoted(const std::string& word) {
  if (word.find_first_of(" \t\n\"'\\$&|;<>()*?[]#~`!{}") == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// Shows a command of strata and runs it as the shell would.
int run_shown(const Args& args, const std::vector<std::string>& words) {
  std::string line = "\n$ strata";
  for (const std::string& word : words) line += str(" ", quoted(word));
  print(args.out, line + "\n");
  std::fflush(args.out);
  return run_command_line(words, args.environment, args.out, args.err);
}

std::string what_there_is(const std::string& folder) {
  std::string text = str("\nThe run is in ", folder, ":\n");
  for (const DemoFile& file : kFiles)
    if (posix_io().exists(str(folder, "/", file.name)))
      text +=
          str("  ", file.name, std::string(25 - std::string_view(file.name).size(), ' '), file.what, "\n");
  return text + str("Next: strata report ", quoted(folder), " makes a page of charts, strata generate ",
                    quoted(folder),
                    " --prompt TEXT\ncontinues your own text, and strata init writes a configuration for "
                    "your own data.\n");
}

}  // namespace

int run_demo(const Args& args) {
  const std::string folder = free_folder(args.out_dir.empty() ? "strata-demo" : args.out_dir);
  const std::string model = folder + "/model";
  print(args.out, kIntroduction);
  std::vector<std::string> train = {"train", "--preset", "austen-5m", "--out", folder};
  train.insert(train.end(), args.items.begin(), args.items.end());
  const std::vector<std::string> steps[] = {
      train,
      {"export", folder, "--out", model, "--check"},
      {"generate", model, "--prompt", "Elizabeth ", "--tokens", "64"},
  };
  for (const std::vector<std::string>& words : steps)
    if (const int code = run_shown(args, words); code != kExitOk) return code;
  print(args.out, what_there_is(folder));
  return kExitOk;
}

}  // namespace strata::cli
