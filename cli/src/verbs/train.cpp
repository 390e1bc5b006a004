#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include <strata/config/train_config.h>
#include <strata/runtime/signals.h>
#include <strata/runtime/str.h>
#include <strata/align/tasks.h>
#include <strata/train/run.h>

#include "exit_code.h"
#include "launched_world.h"
#include "print.h"
#include "progress.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

int terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// Prints messages to stdout and warnings to stderr, and shows steps as log.progress specifies.
class TerminalObserver final : public Observer {
 public:
  explicit TerminalObserver(const Args& args) : args_(args), sink_(args.out) {}

  void on_start(const TrainConfig& config) override {
    progress_ = std::make_unique<Progress>(
        sink_, progress_options(config.log.progress, config.log.every, isatty(fileno(args_.out)) == 1,
                                terminal_width(), args_.environment));
  }
  void on_step(const StepProgress& step) noexcept override { progress_->update(step); }
  void on_message(std::string_view text) override {
    if (progress_)
      progress_->line(text);
    else
      print(args_.out, str(text, text.ends_with('\n') ? "" : "\n"));
  }
  void on_warning(std::string_view text) override { print(args_.err, str("strata train: ", text, "\n")); }

  /// Ends the line of the bar, before anything else is printed.
  void finish() { progress_.reset(); }

 private:
  const Args& args_;
  StreamSink sink_;
  std::unique_ptr<Progress> progress_;  // created by on_start()
};

// The ranks that this process is: the first one, and how many.
struct OwnRanks {
  int first = 0, count = 1;
};

// Returns the rank that failed if the message is another process's, as agree() words it; else nothing.
std::string rank_that_failed(std::string_view message, OwnRanks own) {
  constexpr std::string_view kRank = "rank ";
  const std::size_t colon = std::min(message.find(": "), message.size());
  if (!message.starts_with(kRank) || colon == message.size()) return {};
  const std::string_view number = message.substr(kRank.size(), colon - kRank.size());
  int rank = -1;
  if (std::from_chars(number.data(), number.data() + number.size(), rank).ptr !=
      number.data() + number.size())
    return {};
  return rank >= own.first && rank < own.first + own.count ? std::string() : std::string(number);
}

// Rank 0 prints what it has failed of, and so does each other rank. One that ends because of another says no
// more.
int end_of_other_rank(const Args& args, const std::string& rank, OwnRanks own,
                      const Result<RunResult>& result) {
  if (result.has_value()) return result->why_stopped.empty() ? kExitOk : kExitStopped;
  if (const std::string other = rank_that_failed(result.status().message(), own); !other.empty()) {
    if (other != "0") print(args.err, str("strata train: ", rank, " ends because of rank ", other, "\n"));
    return exit_code(result.status());
  }
  return print_error(args, "train", result.status().annotate(rank));
}

}  // namespace

int run_train(const Args& args) {
  TerminalObserver observer(args);  // outlives the world, which tells it of ranks that are late
  auto worlds = open_launched_worlds(args);
  if (!worlds.has_value()) return print_error(args, "train", worlds.status());
  const bool is_first = worlds->empty() || worlds->front()->rank() == 0;
  const std::string rank = worlds->empty() ? "" : worlds->front()->description();
  const OwnRanks own{worlds->empty() ? 0 : worlds->front()->rank(), static_cast<int>(worlds->size())};
  const auto signals = install_signals();
  if (!signals.has_value()) return print_error(args, "train", signals.status());
  (*signals)->set_answer("\nstrata train: stopping before the first step; press again to stop immediately");
  RunRequest request{args, args.out_dir, args.resume, args.overwrite, all_tasks()};
  const auto result = worlds->empty()
                          ? run_training(request, observer, **signals)
                          : run_training_of_ranks(request, observer, **signals, *std::move(worlds));
  observer.finish();
  if (!is_first) return end_of_other_rank(args, rank, own, result);
  if (!result.has_value()) return print_error(args, "train", result.status());
  print(args.out, result->summary);
  if (result->why_stopped.empty()) return kExitOk;
  print(args.out, str("stopped ", result->why_stopped, "; continue with --resume ", result->run, "\n"));
  return kExitStopped;
}

}  // namespace strata::cli
