#include "adapter/pissa.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace strata::detail {
namespace {

/// For each part [rank, columns], its rows of `x` and then those of `y`.
void stack(const LoraAttrs& parts, std::int64_t columns, std::span<const float> x, std::span<const float> y,
           std::span<float> into) {
  std::size_t at = 0;
  auto next = into.begin();
  for (const LoraPart& part : parts.all()) {
    const auto n = static_cast<std::size_t>(part.rank * columns);
    for (const std::span<const float> from : {x, y})
      next = std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), n, next);
    at += n;
  }
}

/// For each row [rank] of each part, that of `x` and then that of -`y`.
void join_rows(const LoraAttrs& parts, std::span<const float> x, std::span<const float> y,
               std::span<float> into) {
  auto from_x = x.begin(), from_y = y.begin();
  auto next = into.begin();
  for (const LoraPart& part : parts.all())
    for (std::int64_t row = 0; row < part.rows; ++row) {
      next = std::copy_n(from_x, part.rank, next);
      next = std::transform(from_y, from_y + part.rank, next, std::negate<>());
      from_x += part.rank;
      from_y += part.rank;
    }
}

}  // namespace

LoraSettings converted_pissa(const LoraSettings& settings) {
  LoraSettings converted = settings;
  converted.pissa.reset();
  converted.rank *= 2;
  converted.alpha *= settings.rslora ? std::sqrt(2.0) : 2.0;
  for (auto& [name, rank] : converted.rank_pattern) rank *= 2;
  for (auto& [name, alpha] : converted.alpha_pattern) alpha *= 2;
  return converted;
}

ParamSource converted_pissa_values(ParamSource source, const DecoderConfig& config,
                                   const LoraSettings& settings) {
  std::vector<LoraGroup> groups = lora_groups(must(lora_targets(config, settings)));
  return [source = std::move(source), groups = std::move(groups), inner = inner_extents(config)](
             std::string_view name, std::span<float> into) -> Status {
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const LoraGroup& g) { return g.a == name || g.b == name; });
    if (group == groups.end()) return source(name, into);
    std::vector<float> now(into.size() / 2), start(now.size());
    const bool is_a = group->a == name;
    STRATA_TRY(source(name, now));
    STRATA_TRY(source(is_a ? group->a0 : group->b0, start));
    if (is_a)
      stack(group->parts, inner.at(group->weight), now, start, into);
    else
      join_rows(group->parts, now, start, into);
    return {};
  };
}

}  // namespace strata::detail
