#include "answer/choice_receiver.h"

#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "answer/token_scores.h"

namespace strata::detail {
namespace {

const char* finish_reason_of(FinishReason reason) {
  return reason == FinishReason::end_of_text || reason == FinishReason::stopped ? "stop" : "length";
}

}  // namespace

ChoiceReceiver::ChoiceReceiver(ChoiceOptions options, const Tokenizer& tokenizer,
                               std::shared_ptr<AnswerChannel> channel, std::shared_ptr<ServeMetrics> metrics)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      channel_(std::move(channel)),
      metrics_(std::move(metrics)),
      stop_(options_.stop) {
  if (!options_.n_top || options_.prompt_ids.empty()) return;
  // The offset of a token in the prompt.
  Utf8Stream prompt;
  std::size_t chars = 0;
  for (std::size_t i = 0; i < options_.prompt_ids.size(); ++i) {
    const std::int32_t id = options_.prompt_ids[i];
    scores_.push_back({id, std::nullopt, {}, chars});
    if (i >= options_.n_unwritten) chars += n_characters(prompt.push(tokenizer_.token(id)));
  }
}

// The batcher's thread drops a sequence without a word only if it has no memory.
ChoiceReceiver::~ChoiceReceiver() {
  if (!ended_) channel_->abandon();
}

double ChoiceReceiver::seconds() const noexcept {
  return static_cast<double>(SteadyClock().now_ns() - begin_ns_) * 1e-9;
}

void ChoiceReceiver::note_token() noexcept {
  if (!std::exchange(has_token_, true)) metrics_->first_token(seconds());
}

void ChoiceReceiver::on_prompt_logits(std::size_t index, std::span<const float> logits) {
  TokenScore& score = scores_[index];
  const std::size_t offset = score.offset;
  score = score_token(logits, score.id, *options_.n_top);
  score.offset = offset;
}

// The first piece begins with the prompt.
AnswerPiece ChoiceReceiver::begin_piece() {
  AnswerPiece piece;
  piece.choice.index = options_.index;
  if (std::exchange(begun_, true) || !options_.echo) return piece;
  piece.choice.text = options_.prompt;
  add_scores(piece.choice, true);
  read_chars_ = certain_chars_ = n_characters(options_.prompt);
  return piece;
}

void ChoiceReceiver::add_text(const std::string& text, ApiChoice& choice) {
  read_chars_ += n_characters(text);
  const std::string certain = stop_.push(text);
  certain_chars_ += n_characters(certain);
  choice.text += certain;
}

void ChoiceReceiver::add_scores(ApiChoice& choice, bool all) {
  while (!scores_.empty() && (all || scores_.front().offset < certain_chars_)) {
    choice.scores.push_back(std::move(scores_.front()));
    scores_.pop_front();
  }
}

void ChoiceReceiver::score(std::int32_t id, std::span<const float> logits) {
  if (!options_.n_top) return;
  scores_.push_back(score_token(logits, id, *options_.n_top));
  scores_.back().offset = read_chars_;
}

// Completions have its score, though it is no part of the text: programs that ask for one token rely on there
// being one. In OpenAI's chats only tokens of the content have one.
void ChoiceReceiver::on_stop_token(std::int32_t id, std::span<const float> logits) {
  note_token();
  if (!options_.scores_stop) return;
  AnswerPiece piece = begin_piece();
  score(id, logits);
  channel_->push(std::move(piece));
}

Result<bool> ChoiceReceiver::on_token(std::int32_t id, std::span<const float> logits) {
  note_token();
  AnswerPiece piece = begin_piece();
  piece.tokens = 1;
  score(id, logits);
  STRATA_TRY_ASSIGN(const std::string bytes, tokenizer_.decode(std::span(&id, 1)));
  add_text(utf8_.push(bytes), piece.choice);
  add_scores(piece.choice, false);
  channel_->push(std::move(piece));
  return !stop_.stopped();
}

AnswerPiece ChoiceReceiver::last_piece(const Result<FinishReason>& how) {
  AnswerPiece piece = begin_piece();
  if (how.has_value()) {
    add_text(utf8_.finish(), piece.choice);
    const std::string held = stop_.finish();
    certain_chars_ += n_characters(held);
    piece.choice.text += held;
    add_scores(piece.choice, !stop_.stopped());
    piece.choice.finish_reason = stop_.stopped() ? "stop" : finish_reason_of(*how);
  } else {
    piece.status = how.status();
  }
  return piece;
}

// Before the last piece: who has read an answer finds it in the figures.
void ChoiceReceiver::on_end(const Result<FinishReason>& how) {
  using End = ServeMetrics::AnswerEnd;
  const bool stops = how.has_value() && std::string_view(finish_reason_of(*how)) == "stop";
  metrics_->answer_ended(!how.has_value() ? End::abort : stops ? End::stop : End::length, seconds());
  try {
    channel_->push(last_piece(how));
    ended_ = true;
  } catch (const std::bad_alloc&) {  // the destructor says so
  }
}

}  // namespace strata::detail
