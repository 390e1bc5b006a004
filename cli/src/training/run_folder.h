#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <strata/engine/engine.h>
#include <strata/runtime/io.h>

#include "training/folder_lock.h"

namespace strata::cli {

/// The configuration of a run with every auto decided.
inline constexpr const char* kResolvedConfig = "config.resolved.toml";

/// By which algorithms a GPU's products were made: gemm_algorithms_text().
inline constexpr const char* kGemmAlgorithmsFile = "gemm_algorithms.txt";

/// What a run that begins with a Hugging Face folder keeps of it, in its own folder `base`: it goes on, and
/// is exported, where that folder is no more.
inline constexpr const char* kBaseFiles[] = {"config.json", "tokenizer_config.json",
                                             "special_tokens_map.json", "generation_config.json"};

/// Whether there is a run in `path`.
bool is_run_folder(Io& io, const std::string& path);

/// One line of metrics.jsonl.
struct MetricsLine {
  std::int64_t step = 0;
  StepReport report;
  double lr = 0;
  double tokens_per_s = 0;
  TierBytes used{};
  MovedBytes moved;  ///< in this step
};

/// A validation between steps, over part of the data.
struct Validation {
  std::int64_t step = 0;
  double loss = 0;  ///< nats a token
};

/// The files of a run. Lines of metrics go out whole, one write each, from a buffer of its own: a killed run
/// leaves whole lines. One thread.
class RunFolder {
 public:
  enum class Mode : std::uint8_t { fresh, overwrite, resume };
  /// Whether open() will refuse, asked before a run does anything costly. Errors: `invalid` when the folder
  /// holds a run and is neither resumed nor to be overwritten; `not_found` when it holds none and is to be
  /// resumed.
  static Status check(Io& io, const std::string& path, Mode mode);
  /// Locks the folder, which is made where there is none, then checks it again. Until begin() nothing else in
  /// it is written, and a folder that never begins is left as it was found. One process at a time has a
  /// folder open. Errors: those of check(); `invalid` where another process has it.
  static Result<std::unique_ptr<RunFolder>> open(Io& io, const std::string& path, Mode mode);
  ~RunFolder();

  /// Writes `files` (by name, below the folder) and then `config`, which makes it a run: whatever a kill
  /// leaves behind is a run that can be resumed, or none. Of a run to be overwritten all that strata wrote
  /// goes first, of one that is resumed the metrics and samples after `resumed_step`.
  Status begin(std::int64_t resumed_step, std::string_view config,
               const std::map<std::string, std::string>& files);

  /// Of the last step before the resumed one; 0 for a new run.
  float resumed_loss() const noexcept { return history_.last_loss; }
  /// The last and the best so far, of a resumed run those before it too.
  const std::optional<Validation>& last_validation() const noexcept { return history_.last; }
  const std::optional<Validation>& best_validation() const noexcept { return history_.best; }
  const std::string& path() const noexcept { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  Status add_metrics(const MetricsLine& line);
  Status add_validation(const Validation& validation, std::int64_t micro_batches);
  Status add_sample(std::int64_t step, std::string_view prompt, std::string_view text);
  /// Errors: also those of check_not_moved().
  Status write(std::string_view name, std::string_view text);
  /// Errors: `io_error` where the folder was removed or renamed since it was opened.
  Status check_not_moved() const { return lock_->check_not_moved(); }
  /// Where the folder is now, absolute. Errors: `io_error` where it was removed.
  Result<std::string> place() const { return lock_->place(); }

 private:
  /// What its metrics say, of a resumed run those before it too.
  struct History {
    float last_loss = 0;
    std::optional<Validation> last, best;
    void add(const Validation& validation);
  };
  RunFolder(Io& io, std::string path, Mode mode) : io_(io), path_(std::move(path)), mode_(mode) {}
  Status clear();
  Status remove_temp_files();
  Status truncate_after(std::int64_t last_step);
  Result<std::string> metrics_up_to(std::int64_t last_step);

  Io& io_;
  const std::string path_;
  const Mode mode_;
  bool begun_ = false;
  History history_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<File> metrics_, samples_;
};

}  // namespace strata::cli
