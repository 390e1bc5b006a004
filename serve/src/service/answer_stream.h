#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
               std::function<ClientState()> client);
  ~AnswerReader() { channel_->cancel(); }
  AnswerReader(const AnswerReader&) = delete;
  AnswerReader& operator=(const AnswerReader&) = delete;

  /// Nullopt if the client has left, or must be asked whether it has.
  std::optional<AnswerPiece> next();
  /// Whether something should be sent to a client that sends no more: if it has left, the next piece tells.
  /// Once.
  bool take_question() noexcept { return std::exchange(asks_, false); }
  bool all_ended() const noexcept { return n_open_ == 0; }
  const ApiUsage& usage() const noexcept { return usage_; }
  std::size_t n_answers() const noexcept { return n_answers_; }

 private:
  const std::shared_ptr<AnswerChannel> channel_;
  const std::function<ClientState()> client_;
  const std::size_t n_answers_;
  std::size_t n_open_;
  ApiUsage usage_;
  bool asks_ = false, asked_ = false;
};

/// Waits for all answers. A client that sends no more gets a stream, which begins with a space: before JSON
/// it means nothing, and sending it tells whether the client has left.
ApiResponse whole_response(std::unique_ptr<AnswerReader> reader, ResponseWriter writer,
                           std::shared_ptr<RequestCount> count);
/// Waits for the first piece; the rest is a stream. For a client that sends no more it begins with a comment.
ApiResponse streamed_response(std::unique_ptr<AnswerReader> reader, ResponseWriter writer, bool with_usage,
                              std::shared_ptr<RequestCount> count);

}  // namespace strata::detail
