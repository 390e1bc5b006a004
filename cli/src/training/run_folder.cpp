#include "training/run_folder.h"

#include <array>
#include <bit>
#include <charconv>

#include <fmt/format.h>

#include <strata/runtime/str.h>

namespace strata::cli {
namespace {

constexpr std::uint64_t kMetricsLimit = std::uint64_t{1} << 32;

std::int64_t step_of_line(std::string_view line) {
  constexpr std::string_view kBegin = "{\"step\": ";
  std::int64_t step = -1;
  if (line.substr(0, kBegin.size()) == kBegin) std::from_chars(line.data() + kBegin.size(), line.data() + line.size(), step);
  return step;
}

// Steps after the checkpoint run again, so their lines go; so does a line that a kill cut short.
Status cut_metrics(Io& io, const std::string& path, std::int64_t last_step) {
  if (!io.exists(path)) return Status::ok();
  STRATA_TRY_ASSIGN(const std::string text, read_text(io, path, kMetricsLimit));
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    const std::string_view line(text.data() + at, end + 1 - at);
    if (const std::int64_t step = step_of_line(line); step >= 0 && step <= last_step) kept += line;
    at = end + 1;
  }
  return write_text_atomically(io, path, kept);
}

}  // namespace

Result<std::unique_ptr<RunFolder>> RunFolder::open(Io& io, const std::string& path, Opening opening, std::int64_t resumed_step) {
  std::unique_ptr<RunFolder> folder(new RunFolder(io, path));
  const std::string metrics = folder->file("metrics.jsonl");
  if (opening == Opening::fresh && io.exists(metrics))
    return Status::error(Code::invalid, str(path, " holds a run; go on with --resume ", path, ", replace it with --overwrite, or name another --out"));
  if (opening == Opening::overwrite)
    for (const char* name : {"metrics.jsonl", "samples.txt", "summary.json", "trace.json", "checkpoints"})
      if (io.exists(folder->file(name))) STRATA_TRY(io.remove_all(folder->file(name)));
  STRATA_TRY(io.make_dirs(path));
  if (opening == Opening::resume) STRATA_TRY(cut_metrics(io, metrics, resumed_step));
  STRATA_TRY_ASSIGN(folder->metrics_, io.open(metrics, OpenMode::append));
  STRATA_TRY_ASSIGN(folder->samples_, io.open(folder->file("samples.txt"), OpenMode::append));
  return folder;
}

Status RunFolder::add_metrics(const MetricsLine& l) {
  std::array<char, 1024> buffer;
  const auto end = fmt::format_to_n(buffer.data(), buffer.size(),
      "{{\"step\": {}, \"loss\": {:.6f}, \"loss_bits\": \"{:08x}\", \"lr\": {:.6g}, \"grad_norm\": {:.6g}, \"clip_factor\": {:.6g}, "
      "\"tokens_per_s\": {:.1f}, \"seconds\": {:.6f}, \"optimizer_s\": {:.6f}, \"nvme_wait_s\": {:.6f}, "
      "\"used_bytes\": {{\"device\": {}, \"pinned\": {}, \"nvme\": {}}}, "
      "\"moved_bytes\": {{\"h2d\": {}, \"d2h\": {}, \"nvme_read\": {}, \"nvme_write\": {}}}}}\n",
      l.step, l.report.loss, std::bit_cast<std::uint32_t>(l.report.loss), l.lr, l.report.grad_norm, l.report.clip_factor, l.tokens_per_s,
      l.report.seconds, l.report.optimizer_seconds, l.report.nvme_wait_seconds, l.used[0], l.used[1], l.used[2], l.moved.h2d, l.moved.d2h,
      l.moved.nvme_read, l.moved.nvme_write);
  return write_all(*metrics_, 0, std::as_bytes(std::span(buffer.data(), std::min(end.size, buffer.size()))));
}

Status RunFolder::add_sample(std::int64_t step, std::string_view prompt, std::string_view text) {
  const std::string block = str("--- step ", step, " ---\n", prompt, text, "\n\n");
  return write_all(*samples_, 0, std::as_bytes(std::span(block.data(), block.size())));
}

}  // namespace strata::cli
