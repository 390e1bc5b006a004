#include "http/connection_threads.h"

#include <pthread.h>

#include <exception>
#include <utility>

#include <strata/runtime/str.h>

namespace strata::detail {

Result<std::unique_ptr<ConnectionThreads>> ConnectionThreads::create(std::size_t n) {
  std::unique_ptr<ConnectionThreads> made(new ConnectionThreads);
  try {
    while (made->threads_.size() < n) {
      made->threads_.emplace_back([threads = made.get()] { threads->run(); });
      (void)::pthread_setname_np(made->threads_.back().native_handle(), "st-http");
    }
  } catch (const std::exception& e) {
    return Status::error(Code::out_of_memory, str("of ", n, " threads for connections only ",
                                                  made->threads_.size(), " could be started: ", e.what()));
  }
  return made;
}

void ConnectionThreads::enqueue(std::function<void()> serve) {
  const MutexLock lock(mutex_);
  while (waiting_.size() >= kWaiting && !ended_) room_.wait(mutex_);
  waiting_.push_back(std::move(serve));
  changed_.notify_one();
}

void ConnectionThreads::shutdown() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    changed_.notify_all();
    room_.notify_all();
  }
  threads_.clear();
}

void ConnectionThreads::run() noexcept {
  for (;;) {
    std::function<void()> serve;
    {
      const MutexLock lock(mutex_);
      while (waiting_.empty() && !ended_) changed_.wait(mutex_);
      if (waiting_.empty()) return;
      serve = std::move(waiting_.front());
      waiting_.pop_front();
      room_.notify_one();
    }
    serve();  // catches what is thrown
  }
}

}  // namespace strata::detail
