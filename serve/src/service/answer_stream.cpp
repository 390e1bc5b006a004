#include "service/answer_stream.h"

#include <utility>

namespace strata::detail {
namespace {

constexpr std::chrono::milliseconds kConnectionCheck{100};

constexpr const char* kComment = ":\n\n";  // an event that says nothing

ApiResponse client_left() {
  ApiResponse response;
  response.status = kClientLeft;
  return response;
}

/// The events of a stream.
class EventStream {
 public:
  EventStream(std::unique_ptr<AnswerReader> reader, ResponseWriter writer, bool with_usage,
              std::shared_ptr<RequestCount> count, std::optional<AnswerPiece> first)
      : reader_(std::move(reader)),
        writer_(std::move(writer)),
        with_usage_(with_usage),
        count_(std::move(count)),
        first_(std::move(first)),
        asks_(!first_),
        begun_(reader_->n_answers(), false) {}
  ~EventStream() {
    if (!ended_) count_->status = kClientLeft;
  }
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  std::optional<std::string> next() {
    std::string events = std::exchange(asks_, false) ? kComment : "";
    while (events.empty() && !ended_) {
      const std::optional<AnswerPiece> piece = first_ ? std::exchange(first_, std::nullopt) : reader_->next();
      if (!piece && reader_->take_question()) return kComment;
      if (!piece) return std::nullopt;
      add(*piece, events);
    }
    if (events.empty()) return std::nullopt;
    return events;
  }

 private:
  void add(const AnswerPiece& piece, std::string& events) {
    if (!piece.status.is_ok()) {
      const ApiError error = api_error(piece.status);
      count_->status = error.http_status;
      events += error_event(to_json(error));
      return end();
    }
    const ApiChoice& choice = piece.choice;
    if (!begun_[choice.index]) events += writer_.begin_event(choice.index);
    begun_[choice.index] = true;
    if (!choice.text.empty() || !choice.scores.empty() || piece.is_last()) events += writer_.event(choice);
    if (!reader_->all_ended()) return;
    if (with_usage_) events += writer_.usage_event(reader_->usage());
    events += kLastEvent;
    end();
  }
  void end() {
    ended_ = true;
    count_->count();
  }

  const std::unique_ptr<AnswerReader> reader_;
  const ResponseWriter writer_;
  const bool with_usage_;
  const std::shared_ptr<RequestCount> count_;
  std::optional<AnswerPiece> first_;
  bool asks_;
  std::vector<bool> begun_;
  bool ended_ = false;
};

}  // namespace

AnswerReader::AnswerReader(std::shared_ptr<AnswerChannel> channel, std::size_t n_answers,
                           std::size_t prompt_tokens, std::function<ClientState()> client)
    : channel_(std::move(channel)),
      client_(std::move(client)),
      n_answers_(n_answers),
      n_open_(n_answers),
      usage_{prompt_tokens, 0} {}

std::optional<AnswerPiece> AnswerReader::next() {
  for (ClientState client = client_(); client != ClientState::left; client = client_()) {
    if (client == ClientState::sends_no_more && !std::exchange(asked_, true)) {
      asks_ = true;
      return std::nullopt;
    }
    std::optional<AnswerPiece> piece = channel_->pop(kConnectionCheck);
    if (!piece) continue;
    usage_.completion_tokens += piece->tokens;
    if (piece->is_last()) --n_open_;
    return piece;
  }
  return std::nullopt;
}

namespace {

/// Answers until all have ended.
class WholeAnswer {
 public:
  WholeAnswer(std::unique_ptr<AnswerReader> reader, ResponseWriter writer)
      : reader_(std::move(reader)), writer_(std::move(writer)), choices_(reader_->n_answers()) {}

  /// Nullopt if the client must be asked whether it has left.
  std::optional<ApiResponse> wait() {
    while (!reader_->all_ended()) {
      std::optional<AnswerPiece> piece = reader_->next();
      if (!piece && reader_->take_question()) return std::nullopt;
      if (!piece) return client_left();
      if (!piece->status.is_ok()) return response_of(api_error(piece->status));
      add(*std::move(piece));
    }
    ApiResponse response;
    response.body = writer_.whole(choices_, reader_->usage());
    return response;
  }

 private:
  void add(AnswerPiece piece) {
    ApiChoice& choice = choices_[piece.choice.index];
    choice.index = piece.choice.index;
    choice.text += piece.choice.text;
    choice.finish_reason = std::move(piece.choice.finish_reason);
    for (TokenScore& score : piece.choice.scores) choice.scores.push_back(std::move(score));
  }

  const std::unique_ptr<AnswerReader> reader_;
  const ResponseWriter writer_;
  std::vector<ApiChoice> choices_;
};

}  // namespace

ApiResponse whole_response(std::unique_ptr<AnswerReader> reader, ResponseWriter writer,
                           std::shared_ptr<RequestCount> count) {
  const auto answer = std::make_shared<WholeAnswer>(std::move(reader), std::move(writer));
  if (auto response = answer->wait()) return *std::move(response);
  ApiResponse response;
  response.next = [answer, count = std::move(count), turn = 0]() mutable -> std::optional<std::string> {
    count->status = turn == 0 ? kClientLeft : count->status;  // unless the rest is asked for
    if (turn++ == 0) return " ";
    if (turn > 2) return std::nullopt;
    const ApiResponse whole = answer->wait().value_or(client_left());
    count->status = whole.status;
    count->count();
    return whole.status == kClientLeft ? std::nullopt : std::optional(whole.body);
  };
  return response;
}

ApiResponse streamed_response(std::unique_ptr<AnswerReader> reader, ResponseWriter writer, bool with_usage,
                              std::shared_ptr<RequestCount> count) {
  std::optional<AnswerPiece> first = reader->next();
  if (!first && !reader->take_question()) return client_left();
  if (first && !first->status.is_ok()) return response_of(api_error(first->status));
  ApiResponse response;
  response.content_type = "text/event-stream";
  const auto stream = std::make_shared<EventStream>(std::move(reader), std::move(writer), with_usage,
                                                    std::move(count), std::move(first));
  response.next = [stream] { return stream->next(); };
  return response;
}

}  // namespace strata::detail
