#include <strata/train/generate/generator.h>

#include <algorithm>

#include <strata/runtime/clock.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::uint64_t kStream = 0x73616d706c65;  // random stream of the first prompt; later ones follow it

}  // namespace

struct Generator::Sequence {
  std::size_t request = 0;  // index of the request, and of its slot in the KV cache
  std::int32_t length = 0;  // tokens in the KV cache
  std::int32_t next = -1;   // sampled, not in the KV cache yet
  bool active = true;
  Completion out;
};

std::string_view to_string(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::end_of_text:
      return "end_of_text";
    case FinishReason::max_tokens:
      return "max_tokens";
    case FinishReason::context_full:
      return "context_full";
  }
  return "";
}

Generator::Generator(Engine& engine, Sampler sampler, const GenerateOptions& options)
    : engine_(engine),
      sampler_(std::move(sampler)),
      options_(options),
      prefill_rows_(
          static_cast<std::size_t>(engine.plan().of(ProgramRole::prefill).find("tokens").shape.n_elems())) {}

Result<std::vector<Completion>> Generator::run(std::span<const GenerationRequest> requests,
                                               const OnToken& on_token) {
  SteadyClock clock;
  std::vector<Sequence> sequences(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::size_t n = requests[i].prompt.size();
    if (n == 0 || n > static_cast<std::size_t>(options_.context))
      return Status::error(Code::invalid, str("prompt ", requests[i].index + 1, " has ", n,
                                              " tokens; a sequence has 1 to ", options_.context));
    if (requests[i].cached < 0 || static_cast<std::size_t>(requests[i].cached) >= n)
      return Status::error(Code::invalid,
                           str("prompt ", requests[i].index + 1, " has ", n, " tokens, of which ",
                               requests[i].cached, " are said to be in the KV cache"));
    sequences[i].request = i;
  }
  const std::int64_t begin = clock.now_ns();
  STRATA_TRY(prefill(requests, sequences, on_token));
  const std::int64_t prefilled_at = clock.now_ns();
  while (std::any_of(sequences.begin(), sequences.end(), [](const Sequence& s) { return s.active; }))
    STRATA_TRY(decode(requests, sequences, on_token));
  prefill_seconds_ += static_cast<double>(prefilled_at - begin) * 1e-9;
  decode_seconds_ += static_cast<double>(clock.now_ns() - prefilled_at) * 1e-9;
  std::vector<Completion> out;
  for (Sequence& sequence : sequences) out.push_back(std::move(sequence.out));
  return out;
}

// Concatenates all prompts and feeds them in batches of prefill_rows_ tokens, which may split a prompt. At
// the end of each prompt its first token is sampled.
Status Generator::prefill(std::span<const GenerationRequest> requests, std::vector<Sequence>& sequences,
                          const OnToken& on_token) {
  std::vector<SequenceToken> run;
  std::vector<std::int32_t> logit_indices;
  std::vector<std::size_t> ended;
  const auto flush = [&]() -> Status {
    STRATA_TRY_ASSIGN(const std::span<const float> logits, engine_.extend(run, logit_indices));
    const std::size_t vocab = ended.empty() ? 0 : logits.size() / ended.size();
    for (std::size_t k = 0; k < ended.size(); ++k)
      STRATA_TRY(
          sample_token(requests[ended[k]], sequences[ended[k]], logits.subspan(k * vocab, vocab), on_token));
    run.clear();
    logit_indices.clear();
    ended.clear();
    return Status::ok();
  };
  const auto feed = [&](Sequence& sequence, std::int32_t id) -> Status {
    if (run.size() == prefill_rows_) STRATA_TRY(flush());
    run.push_back({id, sequence.length++, static_cast<std::int32_t>(sequence.request),
                   requests[sequence.request].adapter});
    return {};
  };
  for (Sequence& sequence : sequences) {
    const std::vector<std::int32_t>& prompt = requests[sequence.request].prompt;
    const std::int32_t cached = requests[sequence.request].cached;
    if (cached > 0)
      sequence.length = options_.virtual_tokens + cached;
    else  // the program puts virtual tokens in the place of these
      for (std::int32_t i = 0; i < options_.virtual_tokens; ++i) STRATA_TRY(feed(sequence, 0));
    for (auto i = static_cast<std::size_t>(cached); i < prompt.size(); ++i) {
      STRATA_TRY(feed(sequence, prompt[i]));
      if (i + 1 < prompt.size()) continue;
      logit_indices.push_back(static_cast<std::int32_t>(run.size()) - 1);
      ended.push_back(sequence.request);
    }
  }
  return run.empty() ? Status::ok() : flush();
}

Status Generator::decode(std::span<const GenerationRequest> requests, std::vector<Sequence>& sequences,
                         const OnToken& on_token) {
  std::vector<SequenceToken> run;
  std::vector<std::int32_t> logit_indices;
  std::vector<std::size_t> rows;
  for (Sequence& sequence : sequences)
    if (sequence.active) {
      logit_indices.push_back(static_cast<std::int32_t>(run.size()));
      run.push_back({sequence.next, sequence.length++, static_cast<std::int32_t>(sequence.request),
                     requests[sequence.request].adapter});
      rows.push_back(sequence.request);
    }
  STRATA_TRY_ASSIGN(const std::span<const float> logits, engine_.extend(run, logit_indices));
  const std::size_t vocab = logits.size() / rows.size();
  for (std::size_t k = 0; k < rows.size(); ++k)
    STRATA_TRY(
        sample_token(requests[rows[k]], sequences[rows[k]], logits.subspan(k * vocab, vocab), on_token));
  return Status::ok();
}

Status Generator::sample_token(const GenerationRequest& request, Sequence& sequence,
                               std::span<const float> logits, const OnToken& on_token) {
  const std::size_t n = sequence.out.ids.size();
  const auto drawn =
      sampler_.sample(logits.first(std::min(logits.size(), static_cast<std::size_t>(options_.vocab))),
                      static_cast<double>(Rng(options_.seed, kStream + request.index).uniform(n)));
  if (!drawn.has_value())
    return drawn.status().annotate(
        str("prompt ", request.index + 1, ", token ", n + 1, " of the completion"));
  sequence.active = false;
  if (std::find(request.stop_ids.begin(), request.stop_ids.end(), *drawn) != request.stop_ids.end()) {
    sequence.out.finish_reason = FinishReason::end_of_text;
    return Status::ok();
  }
  sequence.out.ids.push_back(*drawn);
  sequence.next = *drawn;
  if (static_cast<std::int64_t>(n) + 1 >= options_.max_tokens)
    sequence.out.finish_reason = FinishReason::max_tokens;
  else if (sequence.length >= options_.context + options_.virtual_tokens)
    sequence.out.finish_reason = FinishReason::context_full;
  else
    sequence.active = true;
  return on_token(sequence.request, *drawn);
}

}  // namespace strata
