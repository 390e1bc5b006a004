#include "answer/answer_channel.h"

#include <utility>

namespace strata::detail {

void AnswerChannel::push(AnswerPiece piece) {
  const MutexLock lock(mutex_);
  pieces_.push_back(std::move(piece));
  changed_.notify_one();
}

void AnswerChannel::abandon() noexcept {
  const MutexLock lock(mutex_);
  abandoned_ = true;
  changed_.notify_one();
}

std::optional<AnswerPiece> AnswerChannel::pop(std::chrono::milliseconds limit) {
  const MutexLock lock(mutex_);
  if (pieces_.empty() && !abandoned_) changed_.wait_for(mutex_, limit);
  if (pieces_.empty()) {
    if (!abandoned_) return std::nullopt;
    return AnswerPiece{{}, 0, Status::heap_exhausted()};
  }
  AnswerPiece piece = std::move(pieces_.front());
  pieces_.pop_front();
  return piece;
}

}  // namespace strata::detail
