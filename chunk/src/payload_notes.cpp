#include <strata/chunk/payload_notes.h>

namespace strata {

PayloadNotes::PayloadNotes(Trace* trace) : notes_(trace == nullptr ? nullptr : &trace->notes()) {
  if (notes_ != nullptr) notes_->add_always({.what = "plan"});
}

void PayloadNotes::use(PayloadKey key, Tier tier, Intent intent, const Event& before,
                       const Event& last) noexcept {
  const char* const what = intent == Intent::read ? "use" : intent == Intent::update ? "update" : "overwrite";
  add(what, key, tier, last, before.sequence);
}

// Requests that complete at once, without a store, have no number.
void PayloadNotes::request(const char* what, PayloadKey key, Tier tier, IoTicket ticket) noexcept {
  if (!enabled()) return;
  notes_->add({.what = what,
               .kind = to_string(key.payload).data(),
               .number = key.chunk,
               .place = to_string(tier).data(),
               .last = {Trace::Work::kStore, ticket.sequence},
               .after = ticket.valid() ? ticket.sequence - 1 : 0});
}

void PayloadNotes::add(const char* what, PayloadKey key, Tier tier, const Event& last,
                       std::uint64_t after) noexcept {
  if (!enabled()) return;
  notes_->add({.what = what,
               .kind = to_string(key.payload).data(),
               .number = key.chunk,
               .place = to_string(tier).data(),
               .last = {last.stream, last.sequence},
               .after = after});
}

}  // namespace strata
