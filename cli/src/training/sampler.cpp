#include "training/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata::cli {
namespace {

std::int32_t pick(std::span<const float> logits, const SampleOptions& options, const Rng& rng,
                  std::uint64_t index) {
  if (options.temperature <= 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const std::size_t n =
      options.top_k > 0 ? std::min(static_cast<std::size_t>(options.top_k), ids.size()) : ids.size();
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const float x = logits[static_cast<std::size_t>(a)],
                                  y = logits[static_cast<std::size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  std::vector<double> weights(n);
  const double top = logits[static_cast<std::size_t>(ids[0])];
  for (std::size_t i = 0; i < n; ++i)
    weights[i] = std::exp((logits[static_cast<std::size_t>(ids[i])] - top) / options.temperature);
  double left = rng.uniform(index) * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    left -= weights[i];
    if (left < 0) return ids[i];
  }
  return ids[n - 1];
}

}  // namespace

Result<std::string> sample_text(Engine& engine, const Tokenizer& tokenizer, std::string_view prompt,
                                const SampleOptions& options) {
  const auto seq = static_cast<std::size_t>(engine.plan().infer.find("tokens").shape.n_elems());
  std::vector<std::int32_t> text = tokenizer.encode(prompt);
  if (text.empty()) return Status::error(Code::invalid, "the prompt is empty");
  const std::size_t begin = text.size();
  const Rng rng(options.seed, 0x73616d706c65);
  std::vector<std::int32_t> window(seq);
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const std::size_t n = std::min(text.size(), seq);
    std::fill(window.begin(), window.end(), 0);
    std::copy(text.end() - static_cast<std::ptrdiff_t>(n), text.end(), window.begin());
    STRATA_TRY_ASSIGN(std::span<const float> logits, engine.infer(window, static_cast<std::int64_t>(n) - 1));
    logits = logits.first(std::min(logits.size(), static_cast<std::size_t>(tokenizer.vocab_size())));
    const std::int32_t next = pick(logits, options, rng, static_cast<std::uint64_t>(i));
    if (next == tokenizer.end_of_text()) break;
    text.push_back(next);
  }
  return tokenizer.decode(std::span(text).subspan(begin));
}

}  // namespace strata::cli
