#include "execute/activation_slots.h"

#include <algorithm>

namespace strata::detail {
namespace {

// Spares only replace slots that turn out to be bad; rewriting needs none, since an activation that was
// loaded is discarded.
constexpr std::uint32_t kSpares = 1;

}  // namespace

std::vector<SlotClass> activation_slots(const LoweredProgram& program) {
  std::vector<SlotClass> classes;
  for (const LoweredProgram::Offload::Stored& stored : program.offload.stored) {
    const auto same = std::find_if(classes.begin(), classes.end(),
                                   [&](const SlotClass& of) { return of.slot_bytes == stored.slot_bytes; });
    if (same == classes.end())
      classes.push_back({stored.slot_bytes, 1 + kSpares});
    else
      ++same->slots;
  }
  return classes;
}

}  // namespace strata::detail
