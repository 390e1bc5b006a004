#include <map>

#include <strata/session/session.h>

#include "checkpoint/frozen_digests.h"
#include "checkpoint/part_digests.h"

namespace strata {

namespace {

// Digests the parts of all ranks that share a copy of the model: the first ranks of the run share one.
Result<std::string> digest_of_model(World& world, std::int32_t sharing, const std::string& own) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> parts, world.all_gather(own));
  Digester all;
  for (std::int32_t rank = 0; rank < sharing; ++rank) all.update(parts[static_cast<std::size_t>(rank)]);
  return to_hex(all.digest());
}

}  // namespace

// Frozen values whose digests are known are not read again.
Result<std::string> Session::state_digest() {
  const StatePlan& plan = state_plan();
  const bool knows_frozen = frozen_ != nullptr && frozen_->known();
  const VisitScope scope = knows_frozen ? VisitScope::saved : VisitScope::all;
  std::map<std::string_view, std::vector<Digest>> digests;
  for (const Payload payload : plan.states()) {
    detail::PartDigests of_tensors(
        plan, world(), [&](ChunkId chunk) { return covers(scope, plan.layout.group_of(chunk).saved); });
    of_tensors.use(context().pool());
    STRATA_TRY(visit_part(
        payload,
        [&](const StatePiece& piece, std::span<const float> values) {
          of_tensors.add(piece, values);
          return Status::ok();
        },
        scope));
    STRATA_TRY(of_tensors.finish());
    for (std::int32_t tensor = 0; const LayoutTensor& spec : plan.tensors.specs) {
      if (plan.holds(tensor, payload))
        digests[spec.name].push_back(knows_frozen && !spec.group.saved ? frozen_->stored(tensor)
                                                                       : of_tensors.of(tensor));
      ++tensor;
    }
  }
  Digester all;
  for (const auto& [name, parts] : digests) {
    all.update(name);
    for (const Digest& part : parts) all.update(part);
  }
  if (plan.options.model.ranks() == 1) return to_hex(all.digest());
  return digest_of_model(*world(), plan.options.model.ranks(), to_hex(all.digest()));
}

}  // namespace strata
