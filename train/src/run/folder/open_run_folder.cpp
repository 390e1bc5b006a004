#include <strata/train/run_folder.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include <strata/text/text_markers.h>
#include <strata/session/checkpoint.h>
#include <strata/profile/stalls.h>
#include <strata/report/samples_file.h>
#include <strata/runtime/str.h>
#include <strata/config/run_layout.h>
#include <strata/infer/pair_figures.h>

#include "run/folder/own_files.h"

namespace strata {
namespace {

constexpr std::uint64_t kTextLimit = std::uint64_t{1} << 32;

constexpr const char* kMetrics = kMetricsFile;
constexpr const char* kSamples = "samples.txt";
constexpr std::string_view kValidationBits = "\"val_loss_bits\": \"";

// The number after the first occurrence of `key`; -1 if there is none.
std::int64_t parse_number_after(std::string_view text, std::string_view key, int base = 10) {
  std::int64_t number = -1;
  if (const std::size_t at = text.find(key); at != std::string_view::npos)
    std::from_chars(text.data() + at + key.size(), text.data() + text.size(), number, base);
  return number;
}

// Calls take(line, its step, or -1) for each whole line of a file whose lines begin with their step.
template <class Take>
void for_each_line(std::string_view text, const Take& take) {
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) {
    const std::string_view line = text.substr(at, end + 1 - at);
    take(line, parse_number_after(line, "{\"step\": "));
  }
}

double parse_double_after(std::string_view text, std::string_view key) {
  const auto bits = static_cast<std::uint64_t>(parse_number_after(text, key, 16));
  return std::bit_cast<double>(bits);
}

}  // namespace

Status RunFolder::check(Io& io, const std::string& path, Mode mode, std::span<const std::string> inputs) {
  if (mode == Mode::fresh && is_run_folder(io, path))
    return Status::error(Code::invalid, str(path, " contains a run; continue it with --resume ", path,
                                            ", replace it with --overwrite, or name another --out"));
  if (mode == Mode::resume) return check_is_run(io, path);
  return detail::check_no_other_files(io, path, is_run_folder(io, path), inputs);
}

Result<std::unique_ptr<RunFolder>> RunFolder::open(Io& io, const std::string& path, Mode mode,
                                                   std::span<const std::string> inputs) {
  std::unique_ptr<RunFolder> folder(new RunFolder(io, path, mode));
  STRATA_TRY_ASSIGN(folder->found_, detail::own_names_in(io, path));
  STRATA_TRY(check(io, path, mode, inputs));
  STRATA_TRY_ASSIGN(folder->lock_, FolderLock::acquire(io, path));
  STRATA_TRY(folder->check_unchanged());
  return folder;
}

std::unique_ptr<RunFolder> RunFolder::follow(Io& io, const std::string& path) {
  return std::unique_ptr<RunFolder>(new RunFolder(io, path, Mode::resume));
}

RunFolder::~RunFolder() = default;

// Others may write names of a run into the folder, too, before it is locked and while the run is prepared.
Status RunFolder::check_unchanged() {
  if (mode_ == Mode::resume) return check(io_, path_, mode_);
  if (mode_ == Mode::fresh && is_run_folder(io_, path_)) return check(io_, path_, mode_);
  STRATA_TRY_ASSIGN(const std::vector<std::string> now, detail::own_names_in(io_, path_));
  for (const std::string& name : now)
    if (!std::binary_search(found_.begin(), found_.end(), name))
      return Status::error(Code::invalid, str(path_, " has got ", name,
                                              " from another program meanwhile; name a "
                                              "new or empty folder"));
  return {};
}

Status RunFolder::begin(std::int64_t resumed_step, std::string_view config,
                        const std::map<std::string, std::string>& files, bool ends_again) {
  STRATA_TRY(check_unchanged());
  lock_->keep();
  STRATA_TRY(lock_->mark(kBegunMark));
  if (mode_ != Mode::resume) STRATA_TRY(clear());
  STRATA_TRY(remove_temp_files());
  STRATA_TRY(remove_named(path_, kRankTracePrefix, kRankTraceSuffix));
  STRATA_TRY(remove_named(path_, kRanksPrefix, ""));
  for (const auto& [name, text] : files) {
    if (const std::size_t slash = name.rfind('/'); slash != std::string::npos)
      STRATA_TRY(io_.make_dirs(file(name.substr(0, slash))));
    STRATA_TRY(write(name, text));
  }
  STRATA_TRY(write(kResolvedConfig, config));
  if (mode_ == Mode::resume) STRATA_TRY(truncate_after(resumed_step, resumed_step - (ends_again ? 1 : 0)));
  STRATA_TRY_ASSIGN(metrics_, io_.open(file(kMetrics), OpenMode::append));
  STRATA_TRY_ASSIGN(samples_, io_.open(file(kSamples), OpenMode::append));
  return {};
}

// Removes the configuration first: from then on the folder contains no run. All that has these names is of
// runs: check() has seen to it.
Status RunFolder::clear() {
  for (const char* name : detail::kOwnFiles)
    if (io_.exists(file(name))) STRATA_TRY(io_.remove_all(file(name)));
  for (const char* name : kBaseFiles)
    if (const std::string path = str(file(detail::kBaseFolder), "/", name); io_.exists(path))
      STRATA_TRY(io_.remove_all(path));
  if (io_.exists(file(kOtherPartsFile))) STRATA_TRY(io_.remove_all(file(kOtherPartsFile)));
  STRATA_TRY(remove_named(path_, kRolloutsPrefix, kRolloutsSuffix));
  // Events are those of one run: TensorBoard would show all files of the folder as one.
  STRATA_TRY(remove_named(file(kEventsFolder), kEventsPrefix, kEventsSuffix));
  return mode_ == Mode::overwrite ? remove_checkpoints(io_, file("checkpoints")) : Status::ok();
}

Status RunFolder::remove_named(const std::string& dir, std::string_view prefix, std::string_view suffix) {
  if (!io_.exists(dir)) return {};
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io_.list(dir));
  for (const std::string& name : names)
    if (name.starts_with(prefix) && name.ends_with(suffix)) STRATA_TRY(io_.remove_all(str(dir, "/", name)));
  return {};
}

// Removes regular files only: strata creates nothing else with such a name.
Status RunFolder::remove_temp_files() {
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io_.list(path_));
  for (const std::string& name : names)
    if (detail::is_own_temp_file(name) && io_.open(file(name), OpenMode::read_no_follow).has_value())
      STRATA_TRY(io_.remove_all(file(name)));
  return {};
}

Status RunFolder::write(std::string_view name, std::string_view text) {
  STRATA_TRY(check_not_moved());
  if (follows()) return {};
  return write_text_atomically(io_, file(name), text);
}

void RunFolder::History::add(const Validation& validation) {
  last = validation;
  if (!best || validation.loss < best->loss) best = validation;
}

// The lines up to `last_step`: later steps run again. Drops an incomplete last line, too.
Result<std::string> RunFolder::metrics_up_to(std::int64_t last_step) {
  STRATA_TRY_ASSIGN(const std::string all, read_text(io_, file(kMetrics), kTextLimit));
  std::string kept;
  for_each_line(all, [&](std::string_view line, std::int64_t step) {
    if (step < 0 || step > last_step) return;
    kept += line;
    if (line.find(kValidationBits) != std::string_view::npos)
      history_.add({step, parse_double_after(line, kValidationBits)});
    else
      history_.last_loss =
          std::bit_cast<float>(static_cast<std::uint32_t>(parse_number_after(line, "\"loss_bits\": \"", 16)));
  });
  return kept;
}

Status RunFolder::truncate_after(std::int64_t last_step, std::int64_t last_sample) {
  if (io_.exists(file(kMetrics))) {
    STRATA_TRY_ASSIGN(const std::string kept, metrics_up_to(last_step));
    STRATA_TRY(write(kMetrics, kept));
  }
  if (io_.exists(file(kRolloutsFile))) {
    STRATA_TRY_ASSIGN(const std::string all, read_text(io_, file(kRolloutsFile), kTextLimit));
    std::string kept;
    for_each_line(all, [&](std::string_view line, std::int64_t step) {
      if (step >= 0 && step <= last_step) kept += line;
    });
    STRATA_TRY(write(kRolloutsFile, kept));
  }
  if (!io_.exists(file(kSamples))) return Status::ok();
  STRATA_TRY_ASSIGN(const std::string text, read_text(io_, file(kSamples), kTextLimit));
  return write(kSamples, samples_up_to(text, last_sample));
}

namespace {

// A number as JSON; NaN and infinity, which JSON lacks, become null. Does not allocate, since it is used in a
// step.
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

// Writes what precedes a step with new subspaces; nothing for other steps.
std::size_t write_renewal_json(std::span<char> into, const MetricsLine& line) {
  if (line.renew_bases_s <= 0) return 0;
  return fmt::format_to_n(into.data(), into.size(), "\"renew_bases_s\": {:.6f}, \"basis_energy\": {}, ",
                          line.renew_bases_s,
                          JsonNumber(static_cast<float>(line.basis_energy), 6, 'f').view())
      .size;
}

// Writes the figures of a run that compares pairs; nothing for others.
std::size_t write_pairs_json(std::span<char> into, const PairFigures& pairs, std::string_view prefix) {
  if (pairs.n <= 0) return 0;
  std::size_t at = 0;
  for (const NamedFigure& figure : named_figures(pairs))
    at += fmt::format_to_n(into.data() + at, into.size() - at, "\"{}{}\": {}, ", prefix, figure.name,
                           JsonNumber(figure.value, 6, 'g').view())
              .size;
  return at;
}

// Writes how evenly experts are used; nothing for a model without experts.
std::size_t write_experts_json(std::span<char> into, const ExpertFigures& experts) {
  if (experts.n <= 0) return 0;
  std::size_t at = 0;
  for (const NamedFigure& figure : named_figures(experts)) {
    if (*figure.name == '\0') continue;
    at += fmt::format_to_n(into.data() + at, into.size() - at, "\"{}\": {}, ", figure.name,
                           JsonNumber(figure.value, 6, 'g').view())
              .size;
  }
  if (experts.layers.empty() || experts.layers.size() > kMostLayerLoads) return at;
  const char* before = "\"expert_loads\": {";
  for (const ExpertFigures::LayerLoad& layer : experts.layers) {
    at += fmt::format_to_n(into.data() + at, into.size() - at, "{}\"{}\": {}", before, layer.layer,
                           JsonNumber(layer.load, 3, 'g').view())
              .size;
    before = ", ";
  }
  at += fmt::format_to_n(into.data() + at, into.size() - at, "}}, ").size;
  return at;
}

// Writes the figures of a run that samples answers; nothing for others.
std::size_t write_policy_json(std::span<char> into, const PolicyFigures& policy) {
  const auto figures = named_figures(policy);
  std::size_t at = 0;
  for (std::size_t i = 0; i < count_figures(policy); ++i)
    at += fmt::format_to_n(into.data() + at, into.size() - at, "\"{}\": {}, ", figures[i].name,
                           JsonNumber(figures[i].value, 6, 'g').view())
              .size;
  return at;
}

}  // namespace

std::array<NamedFigure, kPolicyFigures> named_figures(const PolicyFigures& policy) noexcept {
  return {{{"reward", policy.reward},
           {"reward_deviation", policy.reward_deviation},
           {"equal_rewards", policy.equal_rewards},
           {"kl", policy.kl},
           {"kl_coef", policy.kl_coef},
           {"entropy", policy.entropy},
           {"answer_tokens", policy.answer_tokens},
           {"ended", policy.ended},
           {"packed", policy.packed},
           {"clip_fraction", policy.clip_fraction},
           {"old_kl", policy.old_kl},
           {"ratio_max", policy.ratio_max},
           {"sampler_mismatch", policy.sampler_mismatch},
           {"rollout_s", policy.rollout_s},
           {"reward_s", policy.reward_s},
           {"score_s", policy.score_s},
           {"value_loss", policy.value_loss},
           {"critic_grad_norm", policy.critic_grad_norm},
           {"critic_s", policy.critic_s}}};
}

std::size_t count_figures(const PolicyFigures& policy) noexcept {
  if (policy.n <= 0) return 0;
  return policy.critic_s > 0 ? kPolicyFigures : kPolicyFigures - kCriticFigures;
}

std::string_view metrics_json(const MetricsLine& l, std::span<char, kMetricsLineBytes> buffer) {
  std::array<char, 512> stalls;
  const std::size_t stalls_length = write_stalls_json(stalls.data(), stalls.size(), l.report.times);
  std::array<char, 128> renewal;
  const std::size_t renewal_length = write_renewal_json(renewal, l);
  std::array<char, 192> pairs;
  const std::size_t pairs_length = write_pairs_json(pairs, l.pairs, "");
  std::array<char, 640> policy;
  const std::size_t policy_length = write_policy_json(policy, l.policy);
  std::array<char, 3072> experts;
  const std::size_t experts_length = write_experts_json(experts, l.experts);
  const auto end = fmt::format_to_n(
      buffer.data(), buffer.size(),
      "{{\"step\": {}, \"loss\": {}, \"loss_bits\": \"{:08x}\", \"lr\": {:.6g}, \"grad_norm\": {}, "
      "\"clip_factor\": {:.6g}, \"loss_scale\": {:.0f}, \"overflow_retries\": {}, \"skipped\": {}, "
      "\"tokens_per_s\": {:.1f}, \"step_s\": {:.6f}, {}{}{}{}{}, \"speculated\": {}, \"rolled_back\": {}, "
      "\"used_bytes\": {{\"device\": {}, \"pinned\": {}, \"nvme\": {}}}, "
      "\"moved_bytes\": {{\"h2d\": {}, \"d2h\": {}, \"nvme_read\": {}, \"nvme_write\": {}, \"network\": "
      "{}}}}}\n",
      l.step, JsonNumber(l.report.loss, 6, 'f').view(), std::bit_cast<std::uint32_t>(l.report.loss), l.lr,
      JsonNumber(l.report.grad_norm, 6, 'g').view(), l.report.clip_factor, l.report.loss_scale,
      l.report.overflow_retries, l.report.skipped, l.tokens_per_s, l.report.seconds,
      std::string_view(pairs.data(), pairs_length), std::string_view(policy.data(), policy_length),
      std::string_view(experts.data(), experts_length), std::string_view(renewal.data(), renewal_length),
      std::string_view(stalls.data(), stalls_length), l.report.speculated, l.report.rolled_back, l.used[0],
      l.used[1], l.used[2], l.moved.h2d, l.moved.d2h, l.moved.nvme_read, l.moved.nvme_write, l.moved.network);
  return {buffer.data(), std::min(end.size, buffer.size())};
}

Status RunFolder::add_metrics(const MetricsLine& line) {
  if (follows()) return {};
  std::array<char, kMetricsLineBytes> buffer;
  return write_all(*metrics_, 0, std::as_bytes(std::span(metrics_json(line, buffer))));
}

Status RunFolder::after_step(const MetricsLine& line) {
  STRATA_TRY(check_not_moved());
  if (listener_ != nullptr) listener_->on_step(line);
  return {};
}

Status RunFolder::add_validation(const Validation& validation, std::int64_t micro_batches) {
  history_.add(validation);
  if (follows()) return {};
  std::array<char, 192> pairs;
  const std::size_t pairs_length = write_pairs_json(pairs, validation.pairs, "val_");
  const std::string line =
      fmt::format("{{\"step\": {}, \"val_loss\": {}, {}{:016x}\", {}\"val_micro_batches\": {}}}\n",
                  validation.step, JsonNumber(validation.loss, 6, 'f').view(), kValidationBits,
                  std::bit_cast<std::uint64_t>(validation.loss), std::string_view(pairs.data(), pairs_length),
                  micro_batches);
  STRATA_TRY(write_all(*metrics_, 0, std::as_bytes(std::span(line))));
  if (listener_ != nullptr) listener_->on_validation(validation);
  return {};
}

Status RunFolder::add_rollouts(std::string_view lines) {
  if (follows()) return {};
  if (rollouts_ == nullptr) {
    STRATA_TRY_ASSIGN(rollouts_, io_.open(file(kRolloutsFile), OpenMode::append));
  }
  return write_all(*rollouts_, 0, std::as_bytes(std::span(lines.data(), lines.size())));
}

Status RunFolder::add_sample(std::int64_t step, std::string_view prompt, std::string_view text) {
  if (follows()) return {};
  const std::string block = sample_block(step, str(prompt, text));
  STRATA_TRY(write_all(*samples_, 0, std::as_bytes(std::span(block.data(), block.size()))));
  if (listener_ != nullptr) listener_->on_sample(step, str(prompt, text));
  return {};
}

}  // namespace strata
