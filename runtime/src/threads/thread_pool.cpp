// Threads grouped by NUMA node. The state of a call is on its caller's stack: each node has a part of the
// items, which threads take one by one with an atomic cursor, those of their own node first. A lock per node
// guards who may join a call there; it is taken twice per call and thread, never per item.
#include <strata/runtime/threads/thread_pool.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <sched.h>
#include <unistd.h>

#include <strata/runtime/str.h>
#include <strata/runtime/thread_annotations.h>

#include "threads/affinity.h"
#include "threads/thread_refused.h"

namespace strata {
namespace {

using detail::bind_thread;

constexpr int kMaxThreads = 1024;
constexpr std::size_t kMaxNumaNodes = 64;

// How often an idle worker polls for a call before it sleeps: about 30 us. Waking a sleeping thread takes
// about as long, and calls in quick succession would pay that each time. The loop pauses rather than yields,
// because a yield gives the rest of the time slice to a busy neighbor.
constexpr int kSpins = 1000;

void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

class NodeThreadPool final : public ThreadPool {
 public:
  explicit NodeThreadPool(const CoreShare& share);
  ~NodeThreadPool() override;
  /// Errors: `out_of_memory` if the system starts no more threads, `unsupported` if it refuses to bind one.
  Status start(const CoreShare& share);

  int threads() const noexcept override { return threads_before_.back(); }
  std::span<const int> nodes() const noexcept override { return numbers_; }

 protected:
  void run(std::int64_t n, Function function, const void* context, Stealing stealing) override;

 private:
  struct Call;
  // On a cache line of its own, since threads contend for the cursor.
  struct alignas(64) NodeRange {
    std::atomic<std::int64_t> next = 0;
    std::int64_t end = 0;
    // Guarded by the node's mutex:
    int joins_left = 0;  // workers that may still join
    int joined = 0;      // workers that have joined and not left
    Call* call = nullptr;
    NodeRange* below = nullptr;

    bool has_items() const noexcept { return next.load(std::memory_order_relaxed) < end; }
  };
  struct Call {
    Function function;
    const void* context;
    std::size_t n_parts;
    bool node_local;
    std::array<NodeRange, kMaxNumaNodes> parts;

    bool has_items(std::size_t node) const noexcept {
      if (node_local) return parts[node].has_items();
      for (std::size_t k = 0; k < n_parts; ++k)
        if (parts[k].has_items()) return true;
      return false;
    }
    void run_items(std::size_t home) noexcept;
  };
  struct alignas(64) Node {
    Mutex mutex;
    Condition wake, left;
    NodeRange* top STRATA_GUARDED_BY(mutex) = nullptr;  // calls that may be joined, newest first
    bool stopping STRATA_GUARDED_BY(mutex) = false;
    std::atomic<std::uint32_t> published = 0;  // calls so far; written under the mutex, else a hint
  };

  std::int64_t begin_of(std::size_t node, std::int64_t n) const noexcept {
    return n / threads() * threads_before_[node] + n % threads() * threads_before_[node] / threads();
  }
  std::size_t callers_node() const noexcept;
  void publish(std::size_t node, Call& call, NodeRange& part) noexcept;
  void withdraw(std::size_t node, NodeRange& part) noexcept;
  Status add_worker(std::size_t node);
  void worker_loop(std::size_t node) noexcept;
  static void wait_for_call(Node& at) noexcept STRATA_REQUIRES(at.mutex);
  static NodeRange* joinable(const Node& at, std::size_t node) noexcept STRATA_REQUIRES(at.mutex);

  std::vector<int> numbers_;               // operating system's numbers of the nodes, if the workers are
                                           // bound
  std::vector<int> threads_before_ = {0};  // for each node: number of threads of the nodes before it; then
                                           // the total
  std::vector<std::uint8_t> node_of_cpu_;  // kMaxNumaNodes: CPU belongs to no node of the share
  std::vector<Node> nodes_;
  std::vector<std::jthread> workers_;  // last: joined before anything above is destroyed
};

// The pool that this thread is working for, and its node: a nested call starts there.
thread_local const void* t_pool = nullptr;
thread_local std::size_t t_node = 0;

NodeThreadPool::NodeThreadPool(const CoreShare& share) : nodes_(share.nodes.size()) {
  for (std::size_t k = 0; k < share.nodes.size(); ++k) {
    const CoreShare::Node& node = share.nodes[k];
    threads_before_.push_back(threads_before_.back() + node.threads);
    if (share.bound) numbers_.push_back(node.index);
    for (const int cpu : node.cpus) {
      const auto at = static_cast<std::size_t>(cpu);
      if (at >= node_of_cpu_.size()) node_of_cpu_.resize(at + 1, kMaxNumaNodes);
      node_of_cpu_[at] = static_cast<std::uint8_t>(k);
    }
  }
}

NodeThreadPool::~NodeThreadPool() {
  for (Node& node : nodes_) {
    const MutexLock lock(node.mutex);
    node.stopping = true;
    node.wake.notify_all();
  }
}

// A bound node gets all its threads, although one of them idles while a caller on that node takes part,
// because callers may be on any node. Callers of a pool that is not bound take part on its only node.
Status NodeThreadPool::start(const CoreShare& share) {
  if (threads() == 1) return {};
  for (std::size_t k = 0; k < share.nodes.size(); ++k)
    for (int i = share.bound ? 0 : 1; i < share.nodes[k].threads; ++i) {
      STRATA_TRY(add_worker(k));
      std::jthread& worker = workers_.back();
      (void)::pthread_setname_np(worker.native_handle(), str("st-cpu-", k, "-", i).substr(0, 15).c_str());
      if (share.bound) STRATA_TRY(bind_thread(worker.native_handle(), share.nodes[k].cpus));
    }
  return {};
}

Status NodeThreadPool::add_worker(std::size_t node) {
  try {
    workers_.emplace_back([this, node] { worker_loop(node); });
    return {};
  } catch (const std::system_error& error) {
    return detail::thread_refused(str("thread ", workers_.size() + 1, " of a pool of ", threads()), error);
  }
}

void NodeThreadPool::Call::run_items(std::size_t home) noexcept {
  for (std::size_t hop = 0; hop < (node_local ? 1 : n_parts); ++hop) {
    NodeRange& part = parts[(home + hop) % n_parts];
    while (part.has_items()) {
      const std::int64_t i = part.next.fetch_add(1, std::memory_order_relaxed);
      if (i < part.end) function(context, i);
    }
  }
}

std::size_t NodeThreadPool::callers_node() const noexcept {
  if (t_pool == this) return t_node;
  const int cpu = ::sched_getcpu();
  if (cpu < 0 || static_cast<std::size_t>(cpu) >= node_of_cpu_.size()) return 0;
  const std::uint8_t node = node_of_cpu_[static_cast<std::size_t>(cpu)];
  return node < nodes_.size() ? node : 0;
}

void NodeThreadPool::publish(std::size_t node, Call& call, NodeRange& part) noexcept {
  if (part.joins_left <= 0) return;
  Node& at = nodes_[node];
  const int joins_left = part.joins_left;
  part.call = &call;
  {
    const MutexLock lock(at.mutex);
    part.below = at.top;
    at.top = &part;
    at.published.fetch_add(1, std::memory_order_relaxed);
  }
  for (int i = 0; i < joins_left; ++i) at.wake.notify_one();
}

// The cursors do not order memory: the caller sees what the workers wrote because they leave under the lock.
// Items are left at this point only if the caller took none; workers leave only when none are left.
void NodeThreadPool::withdraw(std::size_t node, NodeRange& part) noexcept {
  if (part.call == nullptr) return;  // was never published
  Node& at = nodes_[node];
  const MutexLock lock(at.mutex);
  while (part.joined > 0 || part.has_items()) at.left.wait(at.mutex);
  for (NodeRange** link = &at.top; *link != nullptr; link = &(*link)->below)
    if (*link == &part) {
      *link = part.below;
      break;
    }
}

void NodeThreadPool::run(std::int64_t n, Function function, const void* context, Stealing stealing) {
  if (n <= 0) return;
  const bool nested = t_pool == this;
  const bool node_local = stealing == Stealing::within_node && !nested && nodes_.size() > 1;
  if (threads() == 1 || (n == 1 && !node_local)) {
    for (std::int64_t i = 0; i < n; ++i) function(context, i);
    return;
  }
  const std::size_t home = callers_node();
  Call call{function, context, nodes_.size(), node_local, {}};
  for (std::size_t k = 0; k < nodes_.size(); ++k) {
    NodeRange& part = call.parts[k];
    part.next.store(begin_of(k, n), std::memory_order_relaxed);
    part.end = begin_of(k + 1, n);
  }
  for (std::size_t k = 0; k < nodes_.size(); ++k) {
    NodeRange& part = call.parts[k];
    const int caller = !node_local && k == home ? 1 : 0;
    const std::int64_t items = part.end - part.next.load(std::memory_order_relaxed);
    part.joins_left =
        static_cast<int>(std::min<std::int64_t>(threads_before_[k + 1] - threads_before_[k], items) - caller);
  }
  for (std::size_t k = 0; k < nodes_.size(); ++k) publish(k, call, call.parts[k]);
  if (!node_local) call.run_items(home);
  for (std::size_t k = 0; k < nodes_.size(); ++k) withdraw(k, call.parts[k]);
}

NodeThreadPool::NodeRange* NodeThreadPool::joinable(const Node& at, std::size_t node) noexcept {
  for (NodeRange* part = at.top; part != nullptr; part = part->below)
    if (part->joins_left > 0 && part->call->has_items(node)) return part;
  return nullptr;
}

// May return without a call to join.
void NodeThreadPool::wait_for_call(Node& at) noexcept {
  const std::uint32_t seen = at.published.load(std::memory_order_relaxed);
  at.mutex.unlock();
  for (int i = 0; i < kSpins && at.published.load(std::memory_order_relaxed) == seen; ++i) cpu_relax();
  at.mutex.lock();
  if (at.published.load(std::memory_order_relaxed) == seen && !at.stopping) at.wake.wait(at.mutex);
}

void NodeThreadPool::worker_loop(std::size_t node) noexcept {
  t_pool = this;
  t_node = node;
  Node& at = nodes_[node];
  at.mutex.lock();
  while (!at.stopping) {
    NodeRange* const part = joinable(at, node);
    if (part == nullptr) {
      wait_for_call(at);
      continue;
    }
    --part->joins_left;
    ++part->joined;
    at.mutex.unlock();
    part->call->run_items(node);
    at.mutex.lock();
    if (--part->joined == 0) at.left.notify_all();
  }
  at.mutex.unlock();
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads) {
  if (threads < 0 || threads > kMaxThreads)
    return Status::error(Code::invalid, str("cpu.threads is ", threads,
                                            "; it must be from 0 (this process's share) to ", kMaxThreads));
  if (threads > 0) return create({.nodes = {{0, threads, {}}}, .why = {}});
  std::vector<std::string> environment;
  for (char** word = environ; word != nullptr && *word != nullptr; ++word) environment.emplace_back(*word);
  STRATA_TRY_ASSIGN(const CoreShare share, process_core_share(environment));
  return create(share);
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(const CoreShare& share) {
  const int threads = share.threads();
  if (threads < 1 || threads > kMaxThreads || share.nodes.size() > kMaxNumaNodes)
    return Status::error(Code::invalid, str("a share of ", threads, " threads on ", share.nodes.size(),
                                            " NUMA nodes; a pool has 1 to ", kMaxThreads, " threads on 1 to ",
                                            kMaxNumaNodes, " nodes"));
  auto pool = std::make_unique<NodeThreadPool>(share);
  STRATA_TRY(pool->start(share));
  return Result<std::unique_ptr<ThreadPool>>(std::move(pool));
}

}  // namespace strata
