#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <strata/engine/engine.h>
#include <strata/runtime/io.h>

namespace strata::cli {

/// One line of metrics.jsonl.
struct MetricsLine {
  std::int64_t step = 0;
  StepReport report;
  double lr = 0;
  double tokens_per_s = 0;
  TierBytes used{};
  MovedBytes moved;  ///< in this step
};

/// The files of a run. Lines of metrics go out whole, one write each, from a buffer of its own: a killed run leaves
/// whole lines. One thread.
class RunFolder {
 public:
  /// A new folder, or one to go on in: then metrics after `resumed_step` are cut off. Errors: `invalid` when the
  /// folder holds a run and is neither resumed nor to be overwritten.
  enum class Opening : std::uint8_t { fresh, overwrite, resume };
  static Result<std::unique_ptr<RunFolder>> open(Io& io, const std::string& path, Opening opening, std::int64_t resumed_step);

  const std::string& path() const noexcept { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  Status add_metrics(const MetricsLine& line);
  Status add_sample(std::int64_t step, std::string_view prompt, std::string_view text);
  Status write(std::string_view name, std::string_view text) { return write_text_atomically(io_, file(name), text); }

 private:
  RunFolder(Io& io, std::string path) : io_(io), path_(std::move(path)) {}
  Io& io_;
  const std::string path_;
  std::unique_ptr<File> metrics_, samples_;
};

}  // namespace strata::cli
