#include "mpi/leave_mailbox.h"

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {
constexpr int kLeaveTag = 1;
}

Status LeaveMailbox::error(int number) const {
  char text[160] = {};
  api_.describe(number, text, sizeof text);
  return Status::error(Code::lost_peer, str("MPI cannot tell which ranks have left: ", text));
}

Status LeaveMailbox::open() { return post(); }

Status LeaveMailbox::post() {
  const int failed =
      api_.irecv(MpiChannel::any, &incoming_, sizeof incoming_, kAnyRank, kLeaveTag, &receive_);
  open_ = failed == 0;
  return failed == 0 ? Status() : error(failed);
}

Status LeaveMailbox::send(const LeaveMessage& message, int to_world_rank) {
  auto send = std::make_unique<Send>(Send{message, {}});
  const int failed = api_.isend(MpiChannel::any, &send->message, sizeof send->message, to_world_rank,
                                kLeaveTag, &send->request);
  if (failed != 0) return error(failed);
  sends_.push_back(std::move(send));
  return {};
}

Result<LeaveMailbox::Arrived> LeaveMailbox::poll() {
  // A send that fails goes to a rank that has ended: there is nobody to tell.
  std::erase_if(sends_, [&](const std::unique_ptr<Send>& send) {
    int done = 0;
    MpiReceived ignored;
    (void)api_.test(&send->request, &done, &ignored);
    return done != 0;
  });
  int done = 0;
  MpiReceived received;
  if (!open_) return Arrived{};
  const int failed = api_.test(&receive_, &done, &received);
  if (failed != 0) {
    open_ = false;
    return error(failed);
  }
  if (done == 0) return Arrived{};
  const Arrived arrived{true, received.source, incoming_};
  STRATA_TRY(post());
  return arrived;
}

void LeaveMailbox::close() {
  if (!open_ || api_.cancel(&receive_) != 0) return;
  int done = 0;
  MpiReceived ignored;
  while (done == 0) (void)api_.test(&receive_, &done, &ignored);
  open_ = false;
}

}  // namespace strata::detail
