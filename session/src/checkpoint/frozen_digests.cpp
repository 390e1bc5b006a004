#include "checkpoint/frozen_digests.h"

#include <strata/parallel/agree.h>

namespace strata::detail {

Status FrozenDigests::fill(const FillState& params) {
  forget();
  const StatePlan& plan = context_.plan();
  PartDigests digests(
      plan, context_.world(), [&plan](ChunkId chunk) { return !plan.layout.group_of(chunk).saved; }, kAll);
  const auto fill = [&](const StatePiece& piece, std::span<float> values) -> Status {
    STRATA_TRY(params(piece, values));
    digests.add(piece, values, kGiven);
    return {};
  };
  const auto rounded = [&](const StatePiece& piece, std::span<const float> values) {
    digests.add(piece, values, kRounded);
    return Status::ok();
  };
  STRATA_TRY(agree(context_.world(), access_.fill(Payload::param, fill, rounded)));
  STRATA_TRY(digests.finish());
  digests_.emplace(std::move(digests));
  return {};
}

std::map<std::string, std::string, std::less<>> FrozenDigests::given() const {
  std::map<std::string, std::string, std::less<>> digests;
  for (std::int32_t tensor = 0; const LayoutTensor& spec : context_.plan().tensors.specs) {
    if (!spec.group.saved) digests.emplace(spec.name, to_hex(digests_->of(tensor, kGiven)));
    ++tensor;
  }
  return digests;
}

const Digest& FrozenDigests::stored(std::int32_t tensor) const {
  const bool rounded = access_.rounds_params(context_.plan().layout.slice(tensor).chunk);
  return digests_->of(tensor, rounded ? kRounded : kGiven);
}

}  // namespace strata::detail
