#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <vector>

#include "mpi/mpi_api.h"

namespace strata::detail {

/// Messages between ranks of one process, which are copied from buffer to buffer: OpenMPI does not say that
/// such a message was too long. Matched by sender, receiver and tag, in the order in which they were posted.
/// Allocates only if more are under way than ever before. Not thread-safe.
class LocalMessages {
 public:
  struct Message {
    bool sends = false;
    int from = 0, to = 0, tag = 0;
    const void* source = nullptr;  ///< set for a send
    void* target = nullptr;        ///< set for a receive
    std::size_t bytes = 0;
    bool done = false;
    MpiReceived received = {};

    bool matches(const Message& other) const {
      return sends != other.sends && from == other.from && to == other.to && tag == other.tag;
    }
  };

  Message* post(const Message& message) {
    if (free_.empty()) free_.push_back(&all_.emplace_back());
    Message* const posted = free_.back();
    free_.pop_back();
    *posted = message;
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Message* each) { return each->matches(message); });
    if (found == waiting_.end()) {
      waiting_.push_back(posted);
      return posted;
    }
    Message* const other = *found;
    waiting_.erase(found);
    posted->sends ? deliver(*posted, *other) : deliver(*other, *posted);
    return posted;
  }
  /// Whether it is done; then it is gone.
  bool test(Message* message, MpiReceived* received) {
    if (!message->done) return false;
    *received = message->received;
    free_.push_back(message);
    return true;
  }
  void cancel(Message* message) {
    std::erase(waiting_, message);
    if (!message->done) message->received.cancelled = true;
    message->done = true;
  }
  void abandon(Message* message) {
    std::erase(waiting_, message);
    free_.push_back(message);
  }

 private:
  static void deliver(Message& sent, Message& receive) {
    const std::size_t moved = std::min(sent.bytes, receive.bytes);
    if (moved > 0) std::memcpy(receive.target, sent.source, moved);
    sent.done = receive.done = true;
    receive.received = {sent.from, moved, false, sent.bytes > receive.bytes};
  }

  std::deque<Message> all_;
  std::vector<Message*> free_, waiting_;
};

}  // namespace strata::detail
