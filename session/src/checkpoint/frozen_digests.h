#pragma once

#include <map>
#include <optional>
#include <string>

#include "checkpoint/part_digests.h"
#include "checkpoint/state_access.h"

namespace strata::detail {

/// Digests of the frozen tensors of a session whose checkpoints leave them out. They are taken while the
/// tensors are filled, since frozen values do not change afterwards.
class FrozenDigests {
 public:
  FrozenDigests(StateContext& context, StateAccess& access) : context_(context), access_(access) {}
  /// Fills all parameters; with several ranks, all of them call it, and errors are the same on all. Errors:
  /// those of StateAccess::fill() and World::all_gather(); then no digest is known.
  Status fill(const FillState& params);
  /// When the session saves its frozen tensors after all.
  void forget() noexcept { digests_.reset(); }
  bool known() const noexcept { return digests_.has_value(); }
  /// The digests of the values that the tensors were filled with, in hex, by name.
  std::map<std::string, std::string, std::less<>> given() const;
  /// The digest of a tensor of the layout as it is stored, which is what Session::visit() reads.
  const Digest& stored(std::int32_t tensor) const;

 private:
  enum Series : std::uint8_t { kGiven, kRounded, kAll };
  StateContext& context_;
  StateAccess& access_;
  std::optional<PartDigests> digests_;
};

}  // namespace strata::detail
