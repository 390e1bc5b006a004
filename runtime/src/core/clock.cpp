#include <strata/runtime/clock.h>

#include <thread>

namespace strata {

void SteadyClock::wait_until(std::int64_t deadline_ns) {
  std::this_thread::sleep_until(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns)));
}

}  // namespace strata
