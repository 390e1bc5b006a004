#include "loop/sample_text.h"

#include <algorithm>
#include <vector>

#include <strata/model/sampling.h>
#include <strata/text/utf8_stream.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::size_t kShownBytes = 240;  // how much of a prompt is shown before each sample

}  // namespace

Result<SamplePrompt> sample_prompt(const std::string& text, const TrainingData& data) {
  const Tokenizer& tokenizer = data.tokenizer();
  if (text != "auto") {
    SamplePrompt given = {text, tokenizer.encode(text, SpecialTokens::as_text, AddSpecialTokens::yes)};
    if (given.ids.empty()) return Status::error(Code::invalid, "log.sample_prompt has no tokens");
    return given;
  }
  SamplePrompt own = {{}, data.first_prompt()};
  STRATA_TRY_ASSIGN(const std::string bytes, tokenizer.decode(own.ids));
  Utf8Stream stream;
  own.text = stream.push(bytes);
  own.text += stream.finish();
  if (own.text.size() <= kShownBytes) return own;
  std::size_t from = own.text.size() - kShownBytes;
  while (from < own.text.size() && (static_cast<unsigned char>(own.text[from]) & 0xc0U) == 0x80U) ++from;
  own.text = "..." + own.text.substr(from);
  return own;
}

Result<std::string> sample_text(Engine& engine, const Tokenizer& tokenizer,
                                std::span<const std::int32_t> prompt, const TextSampleOptions& options,
                                const Signals* signals) {
  const auto seq =
      static_cast<std::size_t>(engine.plan().of(ProgramRole::infer).find("tokens").shape.n_elems());
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  const std::size_t begin = text.size();
  STRATA_TRY_ASSIGN(Sampler sampler, Sampler::create({options.temperature, options.top_k, 1.0}));
  const Rng rng(options.seed, 0x73616d706c65);
  std::vector<std::int32_t> window(seq);
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    if (signals != nullptr && signals->stop_requested()) break;
    const std::size_t n = std::min(text.size(), seq);
    std::fill(window.begin(), window.end(), 0);
    std::copy(text.end() - static_cast<std::ptrdiff_t>(n), text.end(), window.begin());
    STRATA_TRY_ASSIGN(std::span<const float> logits, engine.infer(window, static_cast<std::int64_t>(n) - 1));
    logits = logits.first(std::min(logits.size(), static_cast<std::size_t>(tokenizer.vocab_size())));
    STRATA_TRY_ASSIGN(
        const std::int32_t next,
        sampler.sample(logits, static_cast<double>(rng.uniform(static_cast<std::uint64_t>(i)))));
    if (tokenizer.markers().is_end(next)) break;
    text.push_back(next);
  }
  return tokenizer.decode(std::span(text).subspan(begin));
}

}  // namespace strata
