#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/text/text_markers.h>
#include <strata/runtime/io/io.h>
#include <strata/config/run_layout.h>
#include <strata/infer/pair_figures.h>
#include <strata/train/expert_figures.h>
#include <strata/train/folder_lock.h>
#include <strata/train/observer.h>

namespace strata {

/// The figures of a run that learns from answers that it samples: of its iteration, and of the step.
struct PolicyFigures {
  double n = 0;  ///< answers of the iteration; 0: there are no such figures
  double reward = 0, reward_deviation = 0;
  double equal_rewards = 0;  ///< the share of prompts whose answers, of several, all have the same reward
  /// Divergence of the policy from the reference, an estimate (k3) for each token of the answers.
  double kl = 0;
  double entropy = 0;  ///< nats for each of them
  double kl_coef = 0;
  double answer_tokens = 0;  ///< tokens of an answer
  double ended = 0;          ///< the share of answers that the model ended
  double packed = 0;         ///< the share of positions of micro-batches that hold a token
  double rollout_s = 0, reward_s = 0, score_s = 0;  ///< before the first step of the iteration, else 0
  double clip_fraction = 0;                         ///< the share of the step's tokens whose ratio is clipped
  double old_kl = 0;     ///< how far the policy is from the one that sampled, for each token
  double ratio_max = 0;  ///< the largest ratio of probabilities under these two
  /// Tokens of an iteration's first step whose log-probability in training has other bits than the sampler's;
  /// 0 in its other steps.
  double sampler_mismatch = 0;
  /// Figures of the critic's step, if there is one.
  double value_loss = 0, critic_grad_norm = 0, critic_s = 0;
};

/// The figures of a critic come last: as many as there are if `policy` has one.
inline constexpr std::size_t kPolicyFigures = 19, kCriticFigures = 3;
std::array<NamedFigure, kPolicyFigures> named_figures(const PolicyFigures& policy) noexcept;
/// How many of them a run has: none if it samples no answers.
std::size_t count_figures(const PolicyFigures& policy) noexcept;

/// One line of metrics.jsonl.
struct MetricsLine {
  std::int64_t step = 0;
  StepReport report;
  double lr = 0;
  double tokens_per_s = 0;
  TierBytes used{};
  MovedBytes moved;          ///< in this step
  double renew_bases_s = 0;  ///< before this step, if its subspaces are new
  double basis_energy = 0;   ///< the share of the gradients' squares that they capture
  PairFigures pairs;
  PolicyFigures policy;
  ExpertFigures experts;
  /// The norms that log.histograms asks for: of the gradient, of each trained tensor, and of what is before
  /// the layers, each layer, and what is behind them. Valid until the next step; not in metrics.jsonl.
  std::span<const double> tensor_norms{}, layer_norms{};
};

/// A validation between steps, on part of the validation data.
struct Validation {
  std::int64_t step = 0;
  double loss = 0;  ///< nats per token, or the mean over pairs
  PairFigures pairs{};
};

/// A line as metrics.jsonl has it, with its newline, in `buffer`; it allocates nothing.
inline constexpr std::size_t kMetricsLineBytes = 6144;
std::string_view metrics_json(const MetricsLine& line, std::span<char, kMetricsLineBytes> buffer);

/// Is told what a run writes into its folder, in the rank that writes it and between two steps.
class MetricsListener {
 public:
  virtual ~MetricsListener() = default;
  virtual void on_step(const MetricsLine& line) = 0;
  virtual void on_validation(const Validation& validation) = 0;
  virtual void on_sample(std::int64_t step, std::string_view text) = 0;
};

/// The files of a run. Each line of metrics is written with one write from its own buffer, so a killed run
/// leaves complete lines. Not thread-safe.
class RunFolder {
 public:
  enum class Mode : std::uint8_t { fresh, overwrite, resume };
  /// Checks whether open() would succeed, before a run does anything expensive. `inputs`: files that the
  /// command reads, which may be in the folder. Errors: `invalid` if the folder contains a run and the mode
  /// is `fresh`, or if it is not a run's and contains something that is not one's either; `not_found` if it
  /// contains none and the mode is `resume`.
  static Status check(Io& io, const std::string& path, Mode mode, std::span<const std::string> inputs = {});
  /// Locks the folder, which is created for its owner alone if it does not exist, and checks it again. Until
  /// begin() nothing else is written to it, and without begin() it is left as it was found. Only one process
  /// at a time can have a folder open. Errors: those of check(); `invalid` if another process has it open.
  static Result<std::unique_ptr<RunFolder>> open(Io& io, const std::string& path, Mode mode,
                                                 std::span<const std::string> inputs = {});
  /// The folder of a run that another rank writes: everything that would be written is dropped.
  static std::unique_ptr<RunFolder> follow(Io& io, const std::string& path);
  ~RunFolder();

  /// Writes `files` (contents by name relative to the folder) and then `config`, which makes the folder a
  /// run: if the process is killed meanwhile, it leaves either a run that can be resumed or no run. With mode
  /// `overwrite` all files of the previous run are removed first; with `resume`, metrics and samples after
  /// `resumed_step`, and with `ends_again` the sample of that step, which is written at the end of a run.
  /// Traces of ranks other than 0 are removed, since there may be fewer ranks now.
  Status begin(std::int64_t resumed_step, std::string_view config,
               const std::map<std::string, std::string>& files, bool ends_again = false);

  /// The training loss of the last step before resuming; 0 for a new run.
  float resumed_loss() const noexcept { return history_.last_loss; }
  /// The last and the best validation so far, including those before resuming.
  const std::optional<Validation>& last_validation() const noexcept { return history_.last; }
  const std::optional<Validation>& best_validation() const noexcept { return history_.best; }
  const std::string& path() const noexcept { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  Status add_metrics(const MetricsLine& line);
  /// To be called between that step and the next one: tells the listener. Errors: those of check_not_moved().
  Status after_step(const MetricsLine& line);
  /// Null: nobody. It outlives the folder, or is taken back.
  void set_listener(MetricsListener* listener) noexcept { listener_ = follows() ? nullptr : listener; }
  Status add_validation(const Validation& validation, std::int64_t micro_batches);
  /// Tells the listener alone of a validation behind the last step: it counts all of the data, is no loss of
  /// the metrics, which a run that goes on would have twice, and is in the summary.
  void tell_last_validation(const Validation& validation) {
    if (listener_ != nullptr) listener_->on_validation(validation);
  }
  /// Adds lines of JSON to rollouts.jsonl, each with the step before which they were sampled.
  Status add_rollouts(std::string_view lines);
  Status add_sample(std::int64_t step, std::string_view prompt, std::string_view text);
  /// Errors: also those of check_not_moved().
  Status write(std::string_view name, std::string_view text);
  /// Errors: `io_error` if the folder was removed or renamed since it was opened.
  Status check_not_moved() const { return follows() ? Status::ok() : lock_->check_not_moved(); }
  /// The absolute path of the folder now. Errors: `io_error` if it was removed.
  Result<std::string> place() const { return follows() ? Result<std::string>(path_) : lock_->place(); }

 private:
  /// Results read from the metrics, including those before resuming.
  struct History {
    float last_loss = 0;
    std::optional<Validation> last, best;
    void add(const Validation& validation);
  };
  bool follows() const noexcept { return lock_ == nullptr; }
  RunFolder(Io& io, std::string path, Mode mode) : io_(io), path_(std::move(path)), mode_(mode) {}
  Status check_unchanged();
  Status clear();
  Status remove_temp_files();
  Status remove_named(const std::string& dir, std::string_view prefix, std::string_view suffix);
  Status truncate_after(std::int64_t last_step, std::int64_t last_sample);
  Result<std::string> metrics_up_to(std::int64_t last_step);

  Io& io_;
  const std::string path_;
  const Mode mode_;
  std::vector<std::string> found_;  // names of a run when the folder was opened
  MetricsListener* listener_ = nullptr;
  History history_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<File> metrics_, samples_, rollouts_;  // the last one once it is written
};

}  // namespace strata
