#include "execute/activation_slots.h"

#include <algorithm>

namespace strata::detail {
namespace {

// Spares only replace slots that turn out to be bad; rewriting needs none, since an activation that was
// loaded is discarded.
constexpr std::uint32_t kSpares = 1;

}  // namespace

ActivationSlots activation_slots(const LoweredProgram& program) {
  ActivationSlots slots;
  for (const LoweredProgram::Offload::Stored& stored : program.offload.stored) {
    auto same = std::find_if(slots.classes.begin(), slots.classes.end(),
                             [&](const SlotClass& of) { return of.slot_bytes == stored.slot_bytes; });
    if (same == slots.classes.end()) same = slots.classes.insert(same, SlotClass{stored.slot_bytes, kSpares});
    ++same->slots;
    slots.class_of.push_back(static_cast<std::uint32_t>(same - slots.classes.begin()));
  }
  return slots;
}

}  // namespace strata::detail
