// The work that is queued on streams.
#include <cstring>

#include "support/nccl/fake_nccl_state.h"

namespace strata::test::fake_nccl {
namespace {

Message* find(const Clique* clique, int from, int to, long number) {
  for (Message& message : messages)
    if (message.clique == clique && message.from == from && message.to == to && message.number == number)
      return &message;
  return nullptr;
}
void remove(const Transfer* transfer) {
  std::erase_if(messages, [&](const Message& message) { return message.transfer == transfer; });
}

// Returns whether the whole work is done.
bool advance(Work& work) {
  Comm& comm = *work.comm;
  bool done = true;
  for (Transfer* t = work.transfers; t != work.transfers + work.n; ++t) {
    if (!t->sends && !t->done)
      if (Message* const message = find(comm.clique.get(), t->peer, comm.rank, t->number)) {
        Transfer* const from = message->transfer;
        if (from->bytes != t->bytes) die("a message has another size than its receiver expects");
        std::memcpy(t->data, from->data, t->bytes);
        t->done = from->done = true;
        remove(from);
        changed.notify_all();
      }
  }
  for (int i = 0; i < work.n; ++i) done = done && work.transfers[i].done;
  return done;
}

void run(void* argument) {
  Work& work = *static_cast<Work*>(argument);
  std::unique_lock lock(mutex);
  Comm& comm = *work.comm;
  work.runs = true;
  for (int i = 0; i < work.n && !comm.dead; ++i)
    if (work.transfers[i].sends)
      messages.push_back({comm.clique.get(), comm.rank, work.transfers[i].peer, work.transfers[i].number,
                          &work.transfers[i]});
  changed.notify_all();
  changed.wait(lock, [&] { return comm.dead || advance(work); });
  for (int i = 0; i < work.n; ++i) remove(&work.transfers[i]);
  work.used = work.runs = false;
}

Work* claim(Comm& comm, void* stream) {
  for (Work& work : works)
    if (!work.used) {
      work.used = true;
      work.comm = &comm;
      work.stream = stream;
      work.n = 0;
      return &work;
    }
  works.emplace_back();
  return claim(comm, stream);
}

// A stream may make the caller wait until it has run other work.
int end_group(std::unique_lock<std::mutex>& lock) {
  Work* const work = std::exchange(group, nullptr);
  const int failed = std::exchange(group_error, 0);
  if (work == nullptr) return failed;
  if (failed == 0) {
    const int state = started(*work->comm);
    lock.unlock();
    if (launch.load()(work->stream, run, work) == 0) return state;
    lock.lock();
  }
  work->used = false;
  return failed != 0 ? failed : error(1, "the stream refuses work");
}

}  // namespace

int add(void* handle, void* stream, int peer, bool sends, const void* data, std::size_t bytes) {
  Comm& comm = live(handle);
  if (is_busy(comm)) return group_error = error(kInvalidArgument, "the communicator is in progress");
  if (peer < 0 || peer >= comm.clique->size) return group_error = error(kInvalidArgument, "no such peer");
  if (group == nullptr) group = claim(comm, stream);
  if (group->comm != &comm || group->stream != stream || group->n == kMaxTransfers) die("unexpected group");
  long& number = sends ? comm.sends[peer] : comm.receives[peer];
  group->transfers[group->n++] = {
      sends, false, peer, number++, static_cast<std::byte*>(const_cast<void*>(data)), bytes};
  return 0;
}

void start_group() { ++depth; }
int finish(std::unique_lock<std::mutex>& lock, int result) {
  if (--depth > 0) return result;
  const int ended = end_group(lock);
  return result != 0 ? result : ended;
}

}  // namespace strata::test::fake_nccl
