#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include <strata.h>
#include <strata/runtime/status.h>

#include "c_session.h"
#include "session_slot.h"

namespace strata::capi {

/// Stores the message for strata_last_error() and returns the code.
strata_status report(const Status& status) noexcept;
strata_status report(strata_status status, std::string_view text) noexcept;
const char* last_error() noexcept;

/// Runs `body`, which returns a Status. No exception leaves it.
template <class Body>
strata_status call(const Body& body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(STRATA_OUT_OF_MEMORY, "the heap is exhausted");
  } catch (const std::exception& e) {
    return report(STRATA_INTERNAL, e.what());
  } catch (...) {
    return report(STRATA_INTERNAL, "an unknown exception");
  }
}

/// Runs `body(object)` with the object of a handle. STRATA_CLOSED if there is none. `closed`: the message
/// then.
template <class Table, class Body>
strata_status call_open(const Table& table_of, std::uint64_t handle, const char* closed,
                        const Body& body) noexcept {
  bool is_open = true;
  const strata_status status = call([&]() -> Status {
    STRATA_TRY_ASSIGN(auto* const table, table_of());
    const auto object = table->find(handle);
    is_open = object != nullptr;
    if (is_open) return body(*object);
    return Status::error(Code::invalid, closed);
  });
  return is_open ? status : STRATA_CLOSED;
}

/// Runs `body(lock)` with the session of a handle, alone among the calls to it.
template <class Body>
strata_status call_locked(strata_session handle, const Body& body) noexcept {
  constexpr const char* kClosed = "the handle belongs to no session, or to one that was closed";
  bool is_open = true;
  const strata_status status = call_open(session_table, handle, kClosed, [&](SessionSlot& slot) -> Status {
    STRATA_TRY_ASSIGN(const SessionSlot::Lock lock, slot.lock());
    is_open = static_cast<bool>(lock);
    if (is_open) return body(lock);
    return Status::error(Code::invalid, kClosed);
  });
  return is_open ? status : STRATA_CLOSED;
}
/// Runs `body(session)` in the same way.
template <class Body>
strata_status call(strata_session handle, const Body& body) noexcept {
  return call_locked(handle, [&](const SessionSlot::Lock& lock) -> Status { return body(lock.session()); });
}

}  // namespace strata::capi
