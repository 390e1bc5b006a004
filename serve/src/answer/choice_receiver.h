#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <strata/text/tokenizer.h>
#include <strata/text/utf8_stream.h>
#include <strata/runtime/clock.h>
#include <strata/serve/serve_metrics.h>
#include <strata/serve/stop_filter.h>
#include <strata/infer/batcher.h>

#include "answer/answer_channel.h"

namespace strata::detail {

/// The options of an answer besides the text that is generated.
struct ChoiceOptions {
  std::size_t index = 0;
  std::vector<std::string> stop;
  std::optional<std::size_t> n_top;  ///< scores of tokens are wanted, with so many of the most likely ones
  bool scores_stop = true;           ///< also that of a token that ends the answer and is not in its text
  bool echo = false;
  std::string prompt;                    ///< for echo
  std::vector<std::int32_t> prompt_ids;  ///< for echo with scores
  /// The number of them at the beginning, such as BOS, that its text does not have.
  std::size_t n_unwritten = 0;
};

/// Makes text of the tokens of one answer, on the batcher's thread, and ends it at a stop text. It is made
/// when the answer is asked for: its times count from then on.
class ChoiceReceiver final : public SequenceReceiver {
 public:
  ChoiceReceiver(ChoiceOptions options, const Tokenizer& tokenizer, std::shared_ptr<AnswerChannel> channel,
                 std::shared_ptr<ServeMetrics> metrics);
  ~ChoiceReceiver() override;
  ChoiceReceiver(const ChoiceReceiver&) = delete;
  ChoiceReceiver& operator=(const ChoiceReceiver&) = delete;

  bool is_cancelled() const noexcept override { return channel_->is_cancelled(); }
  void on_prompt_logits(std::size_t index, std::span<const float> logits) override;
  Result<bool> on_token(std::int32_t id, std::span<const float> logits) override;
  void on_stop_token(std::int32_t id, std::span<const float> logits) override;
  void on_end(const Result<FinishReason>& how) override;

 private:
  AnswerPiece begin_piece();
  AnswerPiece last_piece(const Result<FinishReason>& how);
  void score(std::int32_t id, std::span<const float> logits);
  void add_text(const std::string& text, ApiChoice& choice);
  double seconds() const noexcept;
  void note_token() noexcept;
  void add_scores(ApiChoice& choice, bool all);

  const ChoiceOptions options_;
  const Tokenizer& tokenizer_;
  const std::shared_ptr<AnswerChannel> channel_;
  const std::shared_ptr<ServeMetrics> metrics_;
  const std::int64_t begin_ns_ = SteadyClock().now_ns();
  Utf8Stream utf8_;
  StopFilter stop_;
  std::deque<TokenScore> scores_;  // the scores of tokens whose text is not certain yet
  std::size_t read_chars_ = 0;     // characters of the text so far, with what the filter holds back
  std::size_t certain_chars_ = 0;
  bool begun_ = false, ended_ = false, has_token_ = false;
};

}  // namespace strata::detail
