#include <map>

#include <strata/session/session.h>

#include "checkpoint/part_digests.h"

namespace strata {

Result<std::string> Session::state_digest() {
  std::map<std::string_view, std::vector<Digest>> digests;
  for (const Payload payload : state_plan().states()) {
    detail::PartDigests of_tensors(state_plan(), world());
    STRATA_TRY(visit_part(payload, [&](const StatePiece& piece, std::span<const float> values) {
      of_tensors.add(piece, values);
      return Status::ok();
    }));
    STRATA_TRY(of_tensors.finish());
    for (std::int32_t tensor = 0; tensor < std::ssize(state_plan().tensors.specs); ++tensor)
      if (state_plan().holds(tensor, payload))
        digests[state_plan().tensors.specs[static_cast<std::size_t>(tensor)].name].push_back(
            of_tensors.of(tensor));
  }
  Digester all;
  for (const auto& [name, parts] : digests) {
    all.update(name);
    for (const Digest& part : parts) all.update(part);
  }
  return to_hex(all.digest());
}

}  // namespace strata
