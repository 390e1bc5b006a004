#include <unistd.h>

#include <strata/config/load_config.h>
#include <strata/profile/measure.h>
#include <strata/profile/profile_cache.h>
#include <strata/runtime/io/output_file.h>
#include <strata/runtime/str.h>
#include <strata/plan/plan_text.h>
#include <strata/plan/starter_config.h>
#include <strata/config/task.h>

#include "exit_code.h"
#include "terminal/line_reader.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr const char* kAustenNovels = "examples/data/austen/*.txt";

/// Asks on standard output; an empty line takes what is in brackets.
class Questions {
 public:
  explicit Questions(const Args& args) : args_(args), input_(STDIN_FILENO, kMaxAnswer) {}
  Status ask(const char* question, const std::string& usual, std::string& answer) {
    if (!answer.empty()) return {};
    answer = usual;
    if (args_.yes) return {};
    print(args_.out, str(question, " [", usual, "]: "));
    std::fflush(args_.out);
    std::string line;
    STRATA_TRY_ASSIGN(const LineReader::Got got, input_.next(true, line));
    if (got != LineReader::Got::line)
      return Status::error(
          Code::invalid, got == LineReader::Got::end
                             ? std::string("the input ended before all questions; --yes takes what is usual")
                             : str("the answer has more than ", kMaxAnswer, " bytes"));
    if (!line.empty()) answer = line;
    return {};
  }

 private:
  const Args& args_;
  static constexpr std::size_t kMaxAnswer = 65536;
  LineReader input_;
};

Result<StarterAnswers> ask_all(const Args& args) {
  Questions questions(args);
  StarterAnswers answers{args.model, args.data.empty() ? std::string() : args.data.front(), args.task,
                         args.nvme_dirs.empty() ? std::string() : args.nvme_dirs.front()};
  for (std::size_t i = 1; i < args.data.size(); ++i) answers.data += str(",", args.data[i]);
  STRATA_TRY(questions.ask("Model: a Hugging Face folder, or the size of a new one, such as 5m, 125m or 1.3b",
                           "5m", answers.model));
  STRATA_TRY(questions.ask("Data: text, .jsonl or packed files, with commas between them", kAustenNovels,
                           answers.data));
  STRATA_TRY(
      questions.ask("Train all parameters (full), adapters (lora) or adapters of a base in 4 bits (qlora)",
                    "auto", answers.task));
  STRATA_TRY(questions.ask("Folder on a fast disk for what does not fit into RAM, or none", "none",
                           answers.nvme_dir));
  if (answers.nvme_dir == "none") answers.nvme_dir.clear();
  if (answers.task != "auto") STRATA_TRY(task_layer(answers.task).status());
  return answers;
}

// The rates of this machine, which are measured if nobody has yet.
Result<std::optional<MachineProfile>> rates_of(const Args& args, const StarterAnswers& answers) {
  STRATA_TRY_ASSIGN(const LoadedConfig loaded, load_config({.items = {}, .environment = args.environment}));
  const std::string backend = starter_backend();
  STRATA_TRY_ASSIGN(const CachedProfile cached, load_local_profile(posix_io(), args.environment, backend,
                                                                   loaded.config.cpu.share.threads()));
  const bool lacks_disk =
      !answers.nvme_dir.empty() && cached.profile && cached.profile->read_bytes_per_s <= 0;
  if (cached.profile && cached.warning.empty() && !lacks_disk) return cached.profile;
  STRATA_TRY(make_starter_config(answers, args.environment, nullptr).status());  // before seconds are spent
  MeasureOptions options{.environment = args.environment};
  options.quick = true;
  options.backend = backend;
  if (!answers.nvme_dir.empty()) options.nvme_dirs = {answers.nvme_dir};
  options.report = [&](std::string_view what) { print(args.err, str("strata init: ", what, "\n")); };
  print(args.err, "strata init: measuring this machine in short; strata bench does it more exactly\n");
  STRATA_TRY_ASSIGN(const MachineProfile measured, measure_machine(options));
  const DeviceKind device = backend == "cuda" ? DeviceKind::cuda : DeviceKind::host;
  const std::string path = profile_path(args.environment, device);
  if (!path.empty()) STRATA_TRY(store_profile(posix_io(), measured, path));
  return std::optional(measured);
}

Status init(const Args& args) {
  const std::string file = args.items.empty() ? "run.toml" : args.items.front();
  if (!file.ends_with(".toml"))
    return Status::error(Code::invalid, str("the file ", file, " must end in .toml"));
  if (posix_io().exists(file) && !args.overwrite)
    return Status::error(Code::invalid,
                         str(file, " exists; name another file, or replace it with --overwrite"));
  const OutputFile output{"FILE", file, "a configuration of strata init", args.data, false, true};
  STRATA_TRY(check_output(output, [](std::string_view head) {
    return head.find(" training on this machine") != std::string_view::npos;
  }));
  STRATA_TRY_ASSIGN(const StarterAnswers answers, ask_all(args));
  STRATA_TRY_ASSIGN(const std::optional<MachineProfile> profile, rates_of(args, answers));
  STRATA_TRY_ASSIGN(const StarterConfig made,
                    make_starter_config(answers, args.environment, profile ? &*profile : nullptr));
  STRATA_TRY(write_text_atomically(posix_io(), file, made.toml));
  print(args.out, start_table(made.loaded.config, made.job, "opened when the run starts"));
  print(args.out, str("\nwrote ", file, "; look at it, then: strata train ", file, " --out runs/first\n"));
  return {};
}

}  // namespace

int run_init(const Args& args) {
  const Status status = init(args);
  return status.is_ok() ? static_cast<int>(kExitOk) : print_error(args, "init", status);
}

}  // namespace strata::cli
