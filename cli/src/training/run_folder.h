#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <strata/engine/engine.h>
#include <strata/runtime/io.h>

namespace strata::cli {

/// The configuration of a run with every auto decided.
inline constexpr const char* kResolvedConfig = "config.resolved.toml";

/// By which algorithms a GPU's products were made: record_of_products().
inline constexpr const char* kProductChoices = "products.txt";

/// One line of metrics.jsonl.
struct MetricsLine {
  std::int64_t step = 0;
  StepReport report;
  double lr = 0;
  double tokens_per_s = 0;
  TierBytes used{};
  MovedBytes moved;  ///< in this step
};

/// The files of a run. Lines of metrics go out whole, one write each, from a buffer of its own: a killed run
/// leaves whole lines. One thread.
class RunFolder {
 public:
  enum class Opening : std::uint8_t { fresh, overwrite, resume };
  /// Whether open() will refuse, asked before a run does anything costly. Errors: `invalid` when the folder
  /// holds a run and is neither resumed nor to be overwritten; `not_found` when it holds none and is to be
  /// resumed.
  static Status check(Io& io, const std::string& path, Opening opening);
  /// A new folder with `config` in it, or one to go on in: then metrics and samples after `resumed_step` are
  /// cut off. The configuration is the first file there is, so that whatever a kill leaves behind can be
  /// resumed. One process at a time has a folder open. Errors: `invalid` where another has.
  static Result<std::unique_ptr<RunFolder>> open(Io& io, const std::string& path, Opening opening,
                                                 std::int64_t resumed_step, std::string_view config);

  /// Of the last step before the resumed one; 0 for a new run.
  float resumed_loss() const noexcept { return resumed_loss_; }
  const std::string& path() const noexcept { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  Status add_metrics(const MetricsLine& line);
  Status add_sample(std::int64_t step, std::string_view prompt, std::string_view text);
  Status write(std::string_view name, std::string_view text) {
    return write_text_atomically(io_, file(name), text);
  }

 private:
  RunFolder(Io& io, std::string path) : io_(io), path_(std::move(path)) {}
  Status cut(std::int64_t last_step);
  Io& io_;
  const std::string path_;
  float resumed_loss_ = 0;
  std::unique_ptr<File> lock_, metrics_, samples_;
};

}  // namespace strata::cli
