#include <strata/runtime/memory/alloc_counter.h>

#include <atomic>

namespace strata {
namespace {

std::atomic<bool> armed_flag{false};
std::atomic<bool> hooked_flag{false};
std::atomic<std::uint64_t> allocations{0};
thread_local int third_party_depth = 0;
thread_local std::uint64_t thread_allocations = 0;
thread_local std::uint64_t failing_allocation = 0;

}  // namespace

bool AllocCounter::note() noexcept {
  hooked_flag.store(true, std::memory_order_relaxed);
  if (third_party_depth == 0 && armed_flag.load(std::memory_order_relaxed))
    allocations.fetch_add(1, std::memory_order_relaxed);
  return ++thread_allocations != failing_allocation;
}
void AllocCounter::set_armed(bool armed) noexcept { armed_flag.store(armed, std::memory_order_relaxed); }
std::uint64_t AllocCounter::count() noexcept { return allocations.load(std::memory_order_relaxed); }
bool AllocCounter::hooked() noexcept { return hooked_flag.load(std::memory_order_relaxed); }
std::uint64_t AllocCounter::thread_count() noexcept { return thread_allocations; }
void AllocCounter::fail_at(std::uint64_t number) noexcept { failing_allocation = number; }

ThirdPartyScope::ThirdPartyScope() noexcept { ++third_party_depth; }
ThirdPartyScope::~ThirdPartyScope() { --third_party_depth; }

}  // namespace strata
