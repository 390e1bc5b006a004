#include "mpi/mpi_thread.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "mpi/watch/shared_segments.h"

namespace strata::detail {
namespace {

using std::chrono::steady_clock;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

constexpr int kSpins = 50;
constexpr std::chrono::microseconds kNap{30};       // between tests of what is in flight
constexpr int kLongWait = 1000;                     // tests without a change, after which
constexpr std::chrono::microseconds kLongNap{300};  // a nap costs little beside what was waited for
constexpr std::chrono::milliseconds kIdleNap{5};    // while nothing is in flight
constexpr std::chrono::milliseconds kSettle{500};   // for messages of a failed exchange to end
constexpr std::size_t kManyExchanges = 64;          // in flight at once without an allocation

}  // namespace

MpiThread::MpiThread(const MpiApi& api, const MpiOptions& options)
    : api_(api), options_(options), mailbox_(api), thread_([this] { run(); }) {}

Result<std::shared_ptr<MpiThread>> MpiThread::start(const MpiApi& api, const MpiOptions& options) {
  std::shared_ptr<MpiThread> thread(new MpiThread(api, options));
  const MutexLock lock(thread->mutex_);
  while (!thread->started_) thread->changed_.wait(thread->mutex_);
  if (!thread->start_status_.is_ok()) return thread->start_status_;
  return thread;
}

MpiThread::~MpiThread() {
  const MutexLock lock(mutex_);
  stop_ = true;
  given_.notify_one();
}

void MpiThread::begin(Exchange& exchange) {
  if (exchange.empty()) return;
  const MutexLock lock(mutex_);
  if (!ended_.is_ok()) return exchange.fail(ended_, {});
  exchange.finished = false;
  begun_.push_back(&exchange);
  given_.notify_one();
}

Status MpiThread::wait(Exchange& exchange) {
  const MutexLock lock(mutex_);
  while (!exchange.finished) changed_.wait(mutex_);
  return exchange.status();
}

int MpiThread::next_group() {
  const MutexLock lock(mutex_);
  return static_cast<int>(groups_.size());
}

Peers& MpiThread::add_group(int id, int rank, std::vector<int> world_ranks) {
  const MutexLock lock(mutex_);
  STRATA_ASSERT(id >= std::ssize(groups_), "group ", id, " is created twice");
  groups_.resize(static_cast<std::size_t>(id));
  Peers& peers = groups_.emplace_back(std::make_unique<Group>(id, rank, std::move(world_ranks)))->peers;
  for (const LeaveMailbox::Arrived& arrived : early_)
    if (arrived.message.group == id) peers.note(arrived.message, arrived.from_world_rank);
  std::erase_if(early_, [&](const LeaveMailbox::Arrived& arrived) { return arrived.message.group <= id; });
  for (const MpiWatch::Loss& loss : lost_) peers.lose(loss.rank, loss.reason);
  return peers;
}

void MpiThread::leave(const Peers& peers) {
  const MutexLock lock(mutex_);
  const LeaveCause cause{peers.rank(), {}};
  leaving_.push_back({peers.id(), lost_peer(cause, peers.size()), cause});
  given_.notify_one();
}

void MpiThread::leave_all(const std::string& reason) {
  const MutexLock lock(mutex_);
  for (const auto& each : groups_) {
    if (each == nullptr) continue;
    const LeaveCause cause{each->peers.rank(), reason};
    leaving_.push_back({each->peers.id(), lost_peer(cause, each->peers.size()), cause});
  }
  given_.notify_one();
}

Status MpiThread::failure(const Peers& peers) {
  const MutexLock lock(mutex_);
  return group(peers.id()).failure;
}

Status MpiThread::peer_failure() {
  const MutexLock lock(mutex_);
  for (int rank = 0; rank < info_.size; ++rank)
    if (world_->has_left(rank) && !world_->cause_of(rank).reason.empty())
      return lost_peer(world_->cause_of(rank), info_.size);
  return group(0).closed ? Status() : group(0).failure;
}

void MpiThread::start_watch(std::vector<ProcessIdentity> identities) {
  const MutexLock lock(mutex_);
  identities_ = std::move(identities);
  watch_changed_ = true;
  given_.notify_one();
}

void MpiThread::set_watch(const WatchOptions& options) {
  const MutexLock lock(mutex_);
  watch_options_ = options;
  watch_changed_ = true;
  given_.notify_one();
}

void MpiThread::keep(std::shared_ptr<void> object) {
  const MutexLock lock(mutex_);
  kept_.push_back(std::move(object));
}

// --- the MPI thread ---

void MpiThread::run() noexcept {
  (void)::pthread_setname_np(::pthread_self(), "st-mpi");
  const Status opened = open();
  {
    const MutexLock lock(mutex_);
    start_status_ = opened;
    started_ = true;
    changed_.notify_all();
  }
  if (!opened.is_ok()) return;
  try {
    serve();
    if (!wait_for_others() || !clean_ || !broken_.is_ok()) return remove_segments();
    mailbox_.close();
    if (watch_) watch_->close();
    (void)api_.finalize();
  } catch (const std::exception& e) {
    end_by_error(Status::error(Code::internal, str("the MPI thread threw: ", e.what())));
  }
}

Status MpiThread::open() {
  info_.ranks_here = options_.ranks_here;
  info_.here = options_.here;
  if (const int error = api_.init(&info_); error != 0) {
    char text[160] = {};
    api_.describe(error, text, sizeof text);
    return Status::error(Code::unsupported, str("MPI does not start: ", text));
  }
  if (info_.largest_tag < kLargestTag)
    return Status::error(Code::unsupported, str("MPI does not start: its largest tag is ", info_.largest_tag,
                                                ", but ", kLargestTag, " is needed"));
  std::vector<int> ranks(static_cast<std::size_t>(info_.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  world_ = &add_group(0, info_.rank, std::move(ranks));
  active_.reserve(kManyExchanges);
  ending_.reserve(kManyExchanges);
  const MutexLock lock(mutex_);
  begun_.reserve(kManyExchanges);
  return mailbox_.open();
}

void MpiThread::serve() {
  while (take_commands()) {
    bool progressed = false;
    receive_leave_messages(progressed);
    watch_peers();
    progress_exchanges(progressed);
    pause(progressed);
  }
}

bool MpiThread::take_commands() {
  std::vector<Leaving> leaving;
  {
    const MutexLock lock(mutex_);
    for (Exchange* const exchange : begun_) {
      if (const Status& failure = group(exchange->peers().id()).failure; !failure.is_ok())
        exchange->fail(failure, {});
      active_.push_back(exchange);
    }
    if (!begun_.empty()) idle_rounds_ = 0;
    begun_.clear();
    leaving.swap(leaving_);
    if (stop_ && leaving.empty() && active_.empty() && ending_.empty()) return false;
  }
  for (const Leaving& group : leaving) leave_group(group);
  return true;
}

void MpiThread::receive_leave_messages(bool& progressed) {
  if (!broken_.is_ok()) return;
  Result<LeaveMailbox::Arrived> arrived = mailbox_.poll();
  if (!arrived.has_value()) return give_up(arrived.status());
  if (!arrived->any) return;
  progressed = true;
  const int id = arrived->message.group;
  if (id == 0 && !arrived->message.reason_text().empty()) clean_ = false;
  if (id == kLostRank) return note_lost({arrived->message.cause, arrived->message.reason_text()});
  const MutexLock lock(mutex_);
  if (id >= std::ssize(groups_))
    early_.push_back(*arrived);
  else if (groups_[static_cast<std::size_t>(id)] != nullptr)
    group(id).peers.note(arrived->message, arrived->from_world_rank);
}

void MpiThread::progress_exchanges(bool& progressed) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < active_.size(); ++i) {
    Exchange& exchange = *active_[i];
    const bool over =
        !exchange.status().is_ok() || exchange.advance(api_, options_.max_message_bytes, progressed);
    if (!over) {
      active_[kept++] = &exchange;
    } else if (exchange.status().is_ok()) {
      active_[i] = nullptr;  // it may be gone once it is finished
      finish(exchange);
    } else {
      leave_group({exchange.peers().id(), exchange.status(), exchange.cause()});
      exchange.cancel(api_);
      ending_.push_back({&exchange, steady_clock::now() + kSettle});
    }
  }
  active_.resize(kept);
  std::erase_if(ending_, [&](const Ending& ending) {
    if (!ending.exchange->settle(api_)) {
      if (steady_clock::now() < ending.give_up_at) return false;
      if (ending.exchange->abandon(api_)) clean_ = false;
    }
    finish(*ending.exchange);
    return true;
  });
}

// The watch makes system calls when it is created, so the mutex is not held.
void MpiThread::take_watch_options() {
  WatchOptions options;
  {
    const MutexLock lock(mutex_);
    if (!watch_changed_ || identities_.empty()) return;
    watch_changed_ = false;
    options = watch_options_;
  }
  if (!watch_) watch_.emplace(api_, identities_, info_.rank, progress_, now_ns());
  watch_->set(options);
}

void MpiThread::watch_peers() {
  take_watch_options();
  if (!watch_ || !broken_.is_ok()) return;
  const auto has_left = [&](int rank) { return world_->has_left(rank); };
  const std::optional<MpiWatch::Loss> loss = watch_->poll(!active_.empty(), now_ns(), has_left);
  const CollectiveBytes beats = watch_->take_bytes();
  count_control_bytes(beats.sent, beats.received);
  if (!loss) return;
  LeaveMessage message{.group = kLostRank, .cause = loss->rank};
  message.set_reason(loss->reason);
  for (int rank = 0; rank < info_.size; ++rank)
    if (rank != info_.rank && !world_->has_left(rank)) (void)mailbox_.send(message, rank);
  note_lost(*loss);
}

// Whoever waits for the rank, or comes to wait for it, gets an error.
void MpiThread::note_lost(const MpiWatch::Loss& loss) {
  if (loss.rank == info_.rank)
    return give_up(
        Status::error(Code::lost_peer, str("the other ranks have given this one up: ", loss.reason)));
  if (watch_) watch_->note_lost(loss.rank);
  clean_ = false;
  const MutexLock lock(mutex_);
  lost_.push_back(loss);
  for (const auto& each : groups_)
    if (each != nullptr) each->peers.lose(loss.rank, loss.reason);
}

void MpiThread::finish(Exchange& exchange) {
  const MutexLock lock(mutex_);
  exchange.finished = true;
  changed_.notify_all();
}

void MpiThread::leave_group(const Leaving& leaving) {
  if (leaving.group == 0 && !leaving.cause.reason.empty()) clean_ = false;
  const Peers* peers = nullptr;
  {
    const MutexLock lock(mutex_);
    Group& left = group(leaving.group);
    if (left.left) return;
    left.left = true;
    left.closed = leaving.cause.rank == left.peers.rank() && leaving.cause.reason.empty();
    left.failure = leaving.status;
    peers = &left.peers;
  }
  for (int rank = 0; rank < peers->size() && broken_.is_ok(); ++rank)
    if (rank != peers->rank())
      if (Status sent = mailbox_.send(peers->leave_message(rank, leaving.cause), peers->world_rank(rank));
          !sent.is_ok())
        give_up(sent);
  for (Exchange* const exchange : active_)
    if (exchange != nullptr && &exchange->peers() == peers && exchange->status().is_ok())
      exchange->fail(leaving.status, leaving.cause);
}

void MpiThread::pause(bool progressed) {
  idle_rounds_ = progressed ? 0 : std::min(idle_rounds_ + 1, kLongWait);
  if (idle_rounds_ < kSpins) return std::this_thread::yield();
  const MutexLock lock(mutex_);
  if (!begun_.empty() || !leaving_.empty() || stop_) return;
  if (active_.empty() && ending_.empty())
    given_.wait_for(mutex_, kIdleNap);
  else
    given_.wait_for(mutex_, idle_rounds_ < kLongWait ? kNap : kLongNap);
}

// Nothing works any more: whoever waits is told, now and later.
void MpiThread::give_up(const Status& status) noexcept {
  broken_ = status;
  const MutexLock lock(mutex_);
  for (const auto& each : groups_)
    if (each != nullptr && (each->failure.is_ok() || std::exchange(each->closed, false)))
      each->failure = status;
  for (Exchange* const exchange : active_)
    if (exchange != nullptr && exchange->status().is_ok()) exchange->fail(status, {});
}

// Nobody is left who would finish what the thread was given.
void MpiThread::end_by_error(const Status& status) noexcept {
  give_up(status);
  const MutexLock lock(mutex_);
  ended_ = status;
  for (Exchange* const exchange : begun_) {
    exchange->fail(status, {});
    exchange->finished = true;
  }
  for (Exchange* const exchange : active_) {
    if (exchange == nullptr) continue;
    exchange->cancel(api_);
    exchange->finished = true;
  }
  for (const Ending& ending : ending_) ending.exchange->finished = true;
  changed_.notify_all();
}

bool MpiThread::others_have_left() {
  for (int rank = 0; rank < info_.size; ++rank)
    if (rank != info_.rank && !world_->has_left(rank)) return false;
  return mailbox_.sent_all();
}

void MpiThread::remove_segments() {
  if (identities_.empty()) return;
  std::vector<int> local_ranks;
  const auto add = [&](int rank) {
    const ProcessIdentity& of = identities_[static_cast<std::size_t>(rank)];
    if (of.local_rank >= 0 && of.place == identities_[static_cast<std::size_t>(info_.rank)].place)
      local_ranks.push_back(of.local_rank);
  };
  add(info_.rank);
  {
    const MutexLock lock(mutex_);
    for (const MpiWatch::Loss& loss : lost_) add(loss.rank);
  }
  remove_shared_segments(local_ranks);
}

// MPI_Finalize would wait for ranks that have failed, and they do not wait for this one.
bool MpiThread::wait_for_others() {
  if (!clean_ || !broken_.is_ok()) remove_segments();  // the launcher may end this process while it waits
  leave_group({0, lost_peer({info_.rank, {}}, info_.size), {info_.rank, {}}});
  steady_clock::time_point last_news = steady_clock::now();
  while (!others_have_left()) {
    bool news = false;
    receive_leave_messages(news);
    const steady_clock::time_point now = steady_clock::now();
    if (news) last_news = now;
    if (!broken_.is_ok() || now - last_news > options_.leave_wait) return false;
    if (!news) std::this_thread::sleep_for(kNap);
  }
  return true;
}

}  // namespace strata::detail
