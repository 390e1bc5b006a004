#include <strata/infer/batcher.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include <strata/runtime/assert.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::uint64_t kStream = 0x73616d706c65;  // random stream of the first prompt; later ones follow it

struct ProgramRows {
  std::size_t tokens = 0, logits = 0;
};
ProgramRows rows_of(const LoweredProgram& program) {
  return {static_cast<std::size_t>(program.find("tokens").shape.n_elems()),
          static_cast<std::size_t>(program.find("logit_indices").shape.n_elems())};
}

}  // namespace

struct Batcher::Place {
  BatchSequence sequence;
  std::shared_ptr<SequenceReceiver> receiver;  // null: the place is free
  std::int32_t length = 0;                     // tokens in the KV cache, virtual ones included
  std::int64_t n_tokens = 0;                   // sampled so far
  std::int32_t next = -1;                      // sampled, not in the KV cache yet
  bool keeps = false;                          // this pass ends where a snapshot is taken
  TokenCounts counts = {};                     // counts the tokens so far, if they are penalized
};

/// A row of logits: it predicts a token of the prompt, or the next token of the text.
struct Batcher::WantedRow {
  std::size_t place = 0;
  std::size_t prompt_index = 0;  // 0: the next token of the text
};

std::string_view to_string(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::end_of_text:
      return "end_of_text";
    case FinishReason::max_tokens:
      return "max_tokens";
    case FinishReason::context_full:
      return "context_full";
    case FinishReason::stopped:
      return "stopped";
  }
  return "";
}

Batcher::Batcher(Engine& engine, const BatchLimits& limits)
    : engine_(engine), limits_(limits), sampler_(*Sampler::create({})) {
  const ProgramRows decode = rows_of(engine.plan().of(ProgramRole::decode));
  model_rows_ = static_cast<std::int32_t>(engine.plan().of(ProgramRole::decode).find("logits").shape.dim(-1));
  const ProgramRows prefill = rows_of(engine.plan().of(ProgramRole::prefill));
  const ProgramRows& largest = prefill.tokens >= decode.tokens ? prefill : decode;
  rows_ = largest.tokens;
  logit_rows_ = largest.logits;
  places_.resize(std::min(decode.tokens, largest.logits));
}

Batcher::~Batcher() { end_all(Status::error(Code::cancelled, "the batch was given up")); }

std::size_t Batcher::n_places() const noexcept { return places_.size(); }

Status Batcher::check(const BatchSequence& sequence) const {
  const std::size_t n = sequence.prompt.size();
  if (n == 0 || n > static_cast<std::size_t>(limits_.context))
    return Status::error(Code::invalid,
                         str("the prompt has ", n, " tokens; a sequence has 1 to ", limits_.context));
  if (sequence.cached < 0 || static_cast<std::size_t>(sequence.cached) >= n)
    return Status::error(Code::invalid, str("the prompt has ", n, " tokens, of which ", sequence.cached,
                                            " are said to be in the KV cache"));
  if (sequence.keep_at < 0 || static_cast<std::size_t>(sequence.keep_at) > n)
    return Status::error(Code::invalid, str("the prompt has ", n,
                                            " tokens, and a snapshot is asked for after ", sequence.keep_at));
  for (const std::int32_t id : sequence.prompt)  // the engine would end all sequences for it
    if (id < 0 || id >= model_rows_)
      return Status::error(Code::invalid,
                           str("the prompt has token ", id, ", but the model has ", model_rows_, " tokens"));
  for (const LogitBias& each : sequence.sampling.logit_bias)
    if (each.id >= limits_.vocab)
      return Status::error(Code::invalid, str("the logits have a bias for token ", each.id,
                                              ", but the vocabulary has ", limits_.vocab, " tokens"));
  return Sampler::create(sequence.sampling).status();
}

Status Batcher::add(BatchSequence sequence, std::shared_ptr<SequenceReceiver> receiver) {
  STRATA_TRY(check(sequence));
  const auto free =
      std::find_if(places_.begin(), places_.end(), [](const Place& place) { return !place.receiver; });
  if (free == places_.end())
    return Status::error(Code::invalid, str("all ", places_.size(), " places of the KV cache are taken"));
  const std::int32_t length = sequence.cached > 0 ? limits_.virtual_tokens + sequence.cached : 0;
  order_.push_back(static_cast<std::size_t>(free - places_.begin()));
  if (!engine_.keeps_snapshots()) sequence.keep_at = 0;
  *free = {std::move(sequence), std::move(receiver), length, 0, -1};
  if (free->sequence.sampling.penalizes()) free->counts.add_prompt(free->sequence.prompt);
  return {};
}

void Batcher::end(Place& place, const Result<FinishReason>& how) {
  const std::shared_ptr<SequenceReceiver> receiver = std::move(place.receiver);
  std::erase(order_, static_cast<std::size_t>(&place - places_.data()));
  place = {};
  receiver->on_end(how);
}

void Batcher::end_all(const Status& why) {
  for (Place& place : places_)
    if (place.receiver) end(place, why);
}

Status Batcher::step() {
  for (Place& place : places_)
    if (place.receiver && place.receiver->is_cancelled())
      end(place, Status::error(Code::cancelled, "the text was cancelled"));
  tokens_.clear();
  wanted_.clear();
  rows_wanted_.clear();
  const std::uint64_t tokens_before = stats_.tokens, prompt_before = stats_.prompt_tokens;
  add_next_tokens();
  add_prompts();
  if (tokens_.empty()) return {};
  const SteadyClock clock;
  const std::int64_t begin = clock.now_ns();
  const auto logits = engine_.extend(tokens_, wanted_);
  Status status = logits.has_value() ? keep_snapshots() : logits.status();
  if (!status.is_ok()) {
    end_all(status);
    return status;
  }
  const std::size_t vocab = wanted_.empty() ? 0 : logits->size() / wanted_.size();
  for (std::size_t k = 0; k < rows_wanted_.size(); ++k)
    deliver(rows_wanted_[k], logits->subspan(k * vocab, vocab));
  const double seconds = static_cast<double>(clock.now_ns() - begin) * 1e-9;
  const bool prefills = stats_.prompt_tokens > prompt_before;
  (prefills ? stats_.prefill_seconds : stats_.decode_seconds) += seconds;
  if (!prefills) stats_.decode_tokens += stats_.tokens - tokens_before;
  ++stats_.passes;
  return {};
}

void Batcher::add_next_tokens() {
  for (std::size_t at = 0; at < places_.size(); ++at) {
    Place& place = places_[at];
    if (!place.receiver || place.next < 0) continue;
    want_row(at, 0);
    tokens_.push_back({place.next, place.length++, static_cast<std::int32_t>(at), place.sequence.adapter});
  }
}

// Prompts follow each other in the order in which they came; a pass may end in the middle of one.
void Batcher::add_prompts() {
  for (const std::size_t at : order_) {
    while (places_[at].next < 0 && !places_[at].keeps &&
           static_cast<std::size_t>(places_[at].length) <
               places_[at].sequence.prompt.size() + static_cast<std::size_t>(limits_.virtual_tokens))
      if (!add_prompt_row(at)) return;
  }
}

// Returns whether the pass had room for it.
bool Batcher::add_prompt_row(std::size_t at) {
  Place& place = places_[at];
  const std::vector<std::int32_t>& prompt = place.sequence.prompt;
  const bool is_virtual = place.length < limits_.virtual_tokens;
  const std::size_t index = is_virtual ? 0 : static_cast<std::size_t>(place.length - limits_.virtual_tokens);
  const bool is_last = !is_virtual && index + 1 == prompt.size();
  const bool is_wanted = is_last || (!is_virtual && place.sequence.scores_prompt);
  if (tokens_.size() == rows_ || (is_wanted && wanted_.size() == logit_rows_)) return false;
  if (is_wanted) want_row(at, is_last ? 0 : index + 1);
  // The program puts virtual tokens in the place of the first ones.
  tokens_.push_back({is_virtual ? 0 : prompt[index], place.length++, static_cast<std::int32_t>(at),
                     place.sequence.adapter});
  if (!is_virtual) ++stats_.prompt_tokens;
  place.keeps = !is_virtual && index + 1 == static_cast<std::size_t>(place.sequence.keep_at);
  return true;
}

// Copies the states of places whose prompt has come to where it wants a snapshot.
Status Batcher::keep_snapshots() {
  for (std::size_t at = 0; at < places_.size(); ++at)
    if (std::exchange(places_[at].keeps, false))
      STRATA_TRY(engine_.keep_snapshot(static_cast<std::int32_t>(at)));
  return {};
}

// The logits of the row that is added next.
void Batcher::want_row(std::size_t place, std::size_t prompt_index) {
  wanted_.push_back(static_cast<std::int32_t>(tokens_.size()));
  rows_wanted_.push_back({place, prompt_index});
}

void Batcher::deliver(const WantedRow& row, std::span<const float> logits) {
  Place& place = places_[row.place];
  STRATA_ASSERT(place.receiver != nullptr, "logits of a free place", row.place);
  if (row.prompt_index > 0) return place.receiver->on_prompt_logits(row.prompt_index, logits);
  if (place.sequence.max_tokens == 0) return end(place, FinishReason::max_tokens);
  sample(place, logits);
}

// The logits of what may be sampled, which the next call may overwrite.
Result<std::span<const float>> Batcher::allowed(const BatchSequence& sequence,
                                                std::span<const float> logits) {
  logits = logits.first(std::min(logits.size(), static_cast<std::size_t>(limits_.vocab)));
  if (sequence.constraint == nullptr) return logits;
  masked_.assign(logits.begin(), logits.end());
  for (const std::int32_t id : sequence.stop_ids)
    if (const auto at = static_cast<std::size_t>(id); at < masked_.size())
      masked_[at] = -std::numeric_limits<float>::infinity();
  STRATA_TRY(sequence.constraint->mask(masked_));
  return std::span<const float>(masked_);
}

void Batcher::sample(Place& place, std::span<const float> logits) {
  const BatchSequence& sequence = place.sequence;
  const auto n = static_cast<std::uint64_t>(place.n_tokens);
  if (const Status status = sampler_.set_options(sequence.sampling); !status.is_ok())
    return end(place, status);
  const auto choice = allowed(sequence, logits);
  if (!choice.has_value()) return end(place, choice.status());
  const auto drawn = sampler_.sample(
      *choice, static_cast<double>(Rng(sequence.seed, kStream + sequence.index).uniform(n)), place.counts);
  if (!drawn.has_value())
    return end(place, drawn.status().annotate(str("token ", n + 1, " of the completion")));
  if (std::find(sequence.stop_ids.begin(), sequence.stop_ids.end(), *drawn) != sequence.stop_ids.end()) {
    place.receiver->on_stop_token(*drawn, logits);
    return end(place, FinishReason::end_of_text);
  }
  place.next = *drawn;
  ++place.n_tokens;
  if (sequence.sampling.penalizes()) place.counts.add_generated(*drawn);
  ++stats_.tokens;
  const bool is_complete = sequence.constraint != nullptr && sequence.constraint->accept(*drawn);
  const Result<bool> goes_on = place.receiver->on_token(*drawn, logits);
  if (!goes_on.has_value()) return end(place, goes_on.status());
  if (!*goes_on) return end(place, FinishReason::stopped);
  if (is_complete) return end(place, FinishReason::end_of_text);
  if (place.n_tokens >= sequence.max_tokens) return end(place, FinishReason::max_tokens);
  if (place.length >= positions()) end(place, FinishReason::context_full);
}

}  // namespace strata
