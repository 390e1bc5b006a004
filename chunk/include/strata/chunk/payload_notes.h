#pragma once

#include <cstdint>

#include <strata/chunk/types.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/io/io_ticket.h>
#include <strata/runtime/trace/trace.h>

namespace strata {

/// Notes in a trace what happens to payloads, so that the spans of lanes can be told which payload they move
/// or use. Without a trace, and while it is disabled, a note costs a branch; it never allocates. Used by one
/// thread, in the order in which the manager decides.
///
/// - `plan`: the chunks of a plan begin; earlier notes are of others.
/// - `read`, `write`: from nvme to pinned memory, and back, by the store's request.
/// - `copy`: to the place, from the other memory, by the copy.
/// - `use`, `update`, `overwrite`: pinned in the place, as the Intent says, for what was queued meanwhile.
/// - `absent`: the place no longer has a copy.
/// - `give`, `take`: the contents of the first become those of the second, in the place.
class PayloadNotes {
 public:
  /// `trace` may be null, and outlives the notes. Notes that a plan begins.
  explicit PayloadNotes(Trace* trace);

  bool enabled() const noexcept { return notes_ != nullptr && notes_->enabled(); }
  void read(PayloadKey key, IoTicket ticket) noexcept { request("read", key, Tier::pinned, ticket); }
  void write(PayloadKey key, IoTicket ticket) noexcept { request("write", key, Tier::nvme, ticket); }
  /// `done` follows the copy.
  void copy(PayloadKey key, Tier to, const Event& done) noexcept {
    add("copy", key, to, done, done.sequence - 1);
  }
  /// `before` and `last`: recorded on the stream when the pin began and ended.
  void use(PayloadKey key, Tier tier, Intent intent, const Event& before, const Event& last) noexcept;
  void absent(PayloadKey key, Tier tier) noexcept { add("absent", key, tier, {}, 0); }
  void transfer(PayloadKey from, PayloadKey to, Tier tier) noexcept {
    add("give", from, tier, {}, 0);
    add("take", to, tier, {}, 0);
  }

 private:
  void request(const char* what, PayloadKey key, Tier tier, IoTicket ticket) noexcept;
  void add(const char* what, PayloadKey key, Tier tier, const Event& last, std::uint64_t after) noexcept;

  Trace::Notes* const notes_;
};

}  // namespace strata
