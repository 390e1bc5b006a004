#include "training/run_folder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <charconv>

#include <fmt/format.h>

#include <strata/runtime/str.h>

#include "training/stalls.h"

namespace strata::cli {
namespace {

constexpr std::uint64_t kTextLimit = std::uint64_t{1} << 32;

constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kSamples = "samples.txt";
constexpr const char* kLock = ".lock";

// The number behind `key`, whose first occurrence counts; -1 where there is none.
std::int64_t number_behind(std::string_view text, std::string_view key, int base = 10) {
  std::int64_t number = -1;
  if (const std::size_t at = text.find(key); at != std::string_view::npos)
    std::from_chars(text.data() + at + key.size(), text.data() + text.size(), number, base);
  return number;
}

struct Kept {
  std::string text;
  float last_loss = 0;
};

// Steps after the checkpoint run again, so their lines go; so does a line that a kill cut short.
Kept kept_metrics(std::string_view text, std::int64_t last_step) {
  Kept kept;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) {
    const std::string_view line = text.substr(at, end + 1 - at);
    const std::int64_t step = number_behind(line, "{\"step\": ");
    if (step < 0 || step > last_step) continue;
    kept.text += line;
    kept.last_loss =
        std::bit_cast<float>(static_cast<std::uint32_t>(number_behind(line, "\"loss_bits\": \"", 16)));
  }
  return kept;
}

// The same for samples, which stand in the order of their steps.
std::string_view kept_samples(std::string_view text, std::int64_t last_step) {
  constexpr std::string_view kHead = "--- step ";
  for (std::size_t at = text.find(kHead); at != std::string_view::npos; at = text.find(kHead, at + 1))
    if ((at == 0 || text[at - 1] == '\n') && number_behind(text.substr(at), kHead) > last_step)
      return text.substr(0, at);
  return text;
}

}  // namespace

Status RunFolder::check(Io& io, const std::string& path, Opening opening) {
  const bool holds_run = io.exists(path + "/" + kResolvedConfig) || io.exists(path + "/" + kMetrics);
  if (opening == Opening::fresh && holds_run)
    return Status::error(Code::invalid, str(path, " holds a run; go on with --resume ", path,
                                            ", replace it with --overwrite, or name another --out"));
  if (opening == Opening::resume && !io.exists(path + "/" + kResolvedConfig))
    return Status::error(Code::not_found, str(path, " holds no run: there is no ", path, "/", kResolvedConfig,
                                              "; start one with --out ", path));
  return Status::ok();
}

Result<std::unique_ptr<RunFolder>> RunFolder::open(Io& io, const std::string& path, Opening opening,
                                                   std::int64_t resumed_step, std::string_view config) {
  STRATA_TRY(check(io, path, opening));
  STRATA_TRY(io.make_dirs(path));
  std::unique_ptr<RunFolder> folder(new RunFolder(io, path));
  STRATA_TRY_ASSIGN(folder->lock_, io.open(folder->file(kLock), OpenMode::append));
  STRATA_TRY(folder->lock_->lock().annotate(str(path, " is in use by another run")));
  if (opening == Opening::overwrite)
    for (const char* name :
         {kMetrics, kSamples, "summary.json", "trace.json", "checkpoints", kProductChoices, kResolvedConfig})
      if (io.exists(folder->file(name))) STRATA_TRY(io.remove_all(folder->file(name)));
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(path));
  for (const std::string& name : names)  // what a kill left of write_text_atomically
    if (name.find(".tmp-") != std::string::npos) STRATA_TRY(io.remove_all(folder->file(name)));
  STRATA_TRY(folder->write(kResolvedConfig, config));
  if (opening == Opening::resume) STRATA_TRY(folder->cut(resumed_step));
  STRATA_TRY_ASSIGN(folder->metrics_, io.open(folder->file(kMetrics), OpenMode::append));
  STRATA_TRY_ASSIGN(folder->samples_, io.open(folder->file(kSamples), OpenMode::append));
  return folder;
}

Status RunFolder::cut(std::int64_t last_step) {
  if (io_.exists(file(kMetrics))) {
    STRATA_TRY_ASSIGN(const std::string text, read_text(io_, file(kMetrics), kTextLimit));
    const Kept kept = kept_metrics(text, last_step);
    resumed_loss_ = kept.last_loss;
    STRATA_TRY(write(kMetrics, kept.text));
  }
  if (!io_.exists(file(kSamples))) return Status::ok();
  STRATA_TRY_ASSIGN(const std::string text, read_text(io_, file(kSamples), kTextLimit));
  return write(kSamples, kept_samples(text, last_step));
}

namespace {

// A number as JSON has it, which knows neither NaN nor infinity. Allocates nothing: a step writes it.
struct JsonNumber {
  std::array<char, 64> text{};
  std::size_t n = 0;
  JsonNumber(double x, int digits, char form) {
    const auto end = std::isfinite(x) && form == 'f'
                         ? fmt::format_to_n(text.data(), text.size(), "{:.{}f}", x, digits)
                     : std::isfinite(x) ? fmt::format_to_n(text.data(), text.size(), "{:.{}g}", x, digits)
                                        : fmt::format_to_n(text.data(), text.size(), "null");
    n = std::min(end.size, text.size());
  }
  std::string_view view() const { return {text.data(), n}; }
};

}  // namespace

Status RunFolder::add_metrics(const MetricsLine& l) {
  std::array<char, 1536> buffer;
  std::array<char, 512> stalls;
  const std::size_t stalls_length = write_stalls_json(stalls.data(), stalls.size(), l.report.times);
  const auto end = fmt::format_to_n(
      buffer.data(), buffer.size(),
      "{{\"step\": {}, \"loss\": {}, \"loss_bits\": \"{:08x}\", \"lr\": {:.6g}, \"grad_norm\": {}, "
      "\"clip_factor\": {:.6g}, \"loss_scale\": {:.0f}, \"redone\": {}, \"skipped\": {}, "
      "\"tokens_per_s\": {:.1f}, \"seconds\": {:.6f}, {}, \"speculated\": {}, \"undone\": {}, "
      "\"used_bytes\": {{\"device\": {}, \"pinned\": {}, \"nvme\": {}}}, "
      "\"moved_bytes\": {{\"h2d\": {}, \"d2h\": {}, \"nvme_read\": {}, \"nvme_write\": {}}}}}\n",
      l.step, JsonNumber(l.report.loss, 6, 'f').view(), std::bit_cast<std::uint32_t>(l.report.loss), l.lr,
      JsonNumber(l.report.grad_norm, 6, 'g').view(), l.report.clip_factor, l.report.loss_scale,
      l.report.redone, l.report.skipped, l.tokens_per_s, l.report.seconds,
      std::string_view(stalls.data(), stalls_length), l.report.speculated, l.report.undone, l.used[0],
      l.used[1], l.used[2], l.moved.h2d, l.moved.d2h, l.moved.nvme_read, l.moved.nvme_write);
  return write_all(*metrics_, 0, std::as_bytes(std::span(buffer.data(), std::min(end.size, buffer.size()))));
}

Status RunFolder::add_sample(std::int64_t step, std::string_view prompt, std::string_view text) {
  const std::string block = str("--- step ", step, " ---\n", prompt, text, "\n\n");
  return write_all(*samples_, 0, std::as_bytes(std::span(block.data(), block.size())));
}

}  // namespace strata::cli
