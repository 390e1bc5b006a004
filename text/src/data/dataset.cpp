#include <strata/text/dataset.h>

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata {

Status detail::check_tokens(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets,
                            std::int32_t vocab_size) {
  const auto is_wrong = [&](std::int32_t id) { return id < 0 || id >= vocab_size; };
  const auto is_wrong_target = [&](std::int32_t id) { return id != kIgnoreIndex && is_wrong(id); };
  const auto input = std::find_if(inputs.begin(), inputs.end(), is_wrong);
  const auto target = std::find_if(targets.begin(), targets.end(), is_wrong_target);
  for (const auto& [wrong, end] : {std::pair{input, inputs.end()}, std::pair{target, targets.end()}})
    if (wrong != end)
      return Status::error(
          Code::corrupt, str("token ", *wrong, " in a vocabulary of ", vocab_size,
                             ": the token cache has been overwritten while it was read; it is checked again, "
                             "and built again, when the run is started or resumed"));
  return {};
}

Status Dataset::fill_batch(std::uint64_t k0, std::int64_t n, const Batch& batch) const {
  return fill_padded_batch(k0, n, n, batch);
}

Status Dataset::fill_padded_batch(std::uint64_t k0, std::int64_t n, std::int64_t there,
                                  const Batch& batch) const {
  const auto width = static_cast<std::uint64_t>(seq());
  std::uint64_t elems = 0;
  const bool fits =
      there >= 0 && n >= there && !__builtin_mul_overflow(static_cast<std::uint64_t>(n), width, &elems);
  const auto optional = [&](std::span<std::int32_t> span) { return span.empty() || span.size() == elems; };
  if (!fits || batch.inputs.size() != elems || batch.targets.size() != elems || !optional(batch.doc_start) ||
      !optional(batch.positions))
    return Status::error(
        Code::invalid,
        str("a batch of ", n, " x ", width, " tokens does not match spans of ", batch.inputs.size(), ", ",
            batch.targets.size(), ", ", batch.doc_start.size(), " and ", batch.positions.size()));
  if (k0 > n_samples() || static_cast<std::uint64_t>(there) > n_samples() - k0)
    return Status::error(Code::invalid, str(there, " samples from index ", k0,
                                            " were requested, but there are ", n_samples()));
  for (std::uint64_t row = 0; row < static_cast<std::uint64_t>(n); ++row) {
    const auto part = [&](std::span<std::int32_t> span) {
      return span.empty() ? span : span.subspan(row * width, width);
    };
    const Batch into{part(batch.inputs), part(batch.targets), part(batch.doc_start), part(batch.positions)};
    if (row < static_cast<std::uint64_t>(there))
      fill_row(k0 + row, into);
    else
      pad_row(into, 0);
  }
  return detail::check_tokens(batch.inputs, batch.targets, vocab_size());
}

void Dataset::pad_row(const Batch& row, std::size_t first) noexcept {
  for (std::size_t t = first; t < row.inputs.size(); ++t) {
    row.inputs[t] = 0;
    row.targets[t] = kIgnoreIndex;
    if (!row.doc_start.empty()) row.doc_start[t] = static_cast<std::int32_t>(t);
    if (!row.positions.empty()) row.positions[t] = 0;
  }
}

TargetCount Dataset::count_targets(std::uint64_t k0, std::int64_t n) const noexcept {
  STRATA_ASSERT(n >= 0 && k0 <= n_samples() && static_cast<std::uint64_t>(n) <= n_samples() - k0, "samples ",
                k0, " and ", n, " on, there are ", n_samples());
  TargetCount all;
  for (std::uint64_t k = k0; k < k0 + static_cast<std::uint64_t>(n); ++k) {
    const TargetCount row = count_row(k);
    all.tokens += row.tokens;
    all.bytes += row.bytes;
  }
  return all;
}

}  // namespace strata
