#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <strata/serve/api_call.h>
#include <strata/serve/api_response.h>

#include "answer/answer_channel.h"
#include "service/request_count.h"

namespace strata::detail {

/// The answers to one request, as they arrive. Used by the client's thread; gives them up at its end.
class AnswerReader {
 public:
  AnswerReader(std::shared_ptr<AnswerChannel> channel, std::size_t n_answers, std::size_t prompt_tokens,
               std::function<bool()> is_connected);
  ~AnswerReader() { channel_->cancel(); }
  AnswerReader(const AnswerReader&) = delete;
  AnswerReader& operator=(const AnswerReader&) = delete;

  /// Nullopt if the client has left.
  std::optional<AnswerPiece> next();
  bool all_ended() const noexcept { return n_open_ == 0; }
  const ApiUsage& usage() const noexcept { return usage_; }
  std::size_t n_answers() const noexcept { return n_answers_; }

 private:
  const std::shared_ptr<AnswerChannel> channel_;
  const std::function<bool()> is_connected_;
  const std::size_t n_answers_;
  std::size_t n_open_;
  ApiUsage usage_;
};

/// Waits for all answers.
ApiResponse whole_response(AnswerReader& reader, const ResponseWriter& writer);
/// Waits for the first piece; the rest is a stream.
ApiResponse streamed_response(std::unique_ptr<AnswerReader> reader, ResponseWriter writer, bool with_usage,
                              std::shared_ptr<RequestCount> count);

}  // namespace strata::detail
