#pragma once

#include <cstdint>

namespace strata::test {

/// The failures that can be injected into this program, whose operator new and system calls are replaced
/// (failing_allocations.cpp, failing_system_calls.cpp).
enum class Failure : std::uint8_t {
  none,
  allocation,  ///< operator new, in all its forms
  mapping,     ///< mmap, for slabs
  thread,      ///< pthread_create, by std::thread
  io,          ///< calls on files: EIO, or ENOSPC where space is allocated
  no_space,    ///< writes to files: ENOSPC
  short_io,    ///< reads and writes move about half of what was asked, io_uring_enter moves nothing
};

/// The `nth` event of one kind fails, counted from 1 over all threads; with `goes_on` also all later ones
/// until the call of the C interface in which it happened has returned.
struct FailureAt {
  Failure kind = Failure::none;
  std::uint64_t nth = 0;
  bool goes_on = false;
};

void start_failures(const FailureAt& at) noexcept;  ///< counts from 1
void stop_failures() noexcept;                      ///< nothing fails any more
bool has_failed() noexcept;                         ///< whether an event was made to fail
std::uint64_t events() noexcept;                    ///< counted since start_failures()
/// Asked by the replaced functions: counts an event and says whether it fails.
bool fails(Failure kind) noexcept;
/// io_uring is refused, so that the store uses pread and pwrite.
void refuse_uring(bool refused) noexcept;
bool is_uring_refused() noexcept;

/// While it lives, the thread is in a call of the C interface. Threads that tests start are not counted
/// outside of such; those that the library starts always are.
class CallScope {
 public:
  CallScope() noexcept;
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
};
/// The thread is the test's.
void mark_test_thread() noexcept;

/// The memory that is held now.
struct Held {
  std::int64_t allocations = 0, bytes = 0, mapped_bytes = 0;
  friend bool operator==(const Held&, const Held&) = default;
};
Held held() noexcept;
void note_mapped(std::int64_t bytes) noexcept;

}  // namespace strata::test
