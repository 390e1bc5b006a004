#include "checkpoint/frozen_source.h"

#include <strata/runtime/str.h>

namespace strata {

Status check_frozen(const Manifest& manifest, std::string_view name, const Digest& digest,
                    const std::string& source) {
  const auto want = manifest.frozen.find(name);
  const std::string found = to_hex(digest);
  if (want != manifest.frozen.end() && want->second == found) return {};
  return Status::error(
      Code::invalid,
      str("the base in ", source, " is not the one that this checkpoint was trained over: tensor ", name,
          " has the digest ", found, ", the checkpoint says ",
          want == manifest.frozen.end() ? std::string("nothing") : want->second));
}

namespace detail {

Status LeftOutTensors::check_source(const std::string& folder) const {
  if (manifest_.frozen.empty() || source_.read) return {};
  return Status::error(Code::invalid, str(folder, " holds what was trained; of ", manifest_.frozen.size(),
                                          " frozen tensors, such as ", manifest_.frozen.begin()->first,
                                          ", it has the digests. Their values are those of the folder that "
                                          "the run began with: set model.from"));
}

Status LeftOutTensors::read_in_order(const StatePiece& piece, std::span<float> values) {
  STRATA_TRY(read(piece, values));
  digester_.update(std::as_bytes(values));
  if (piece.offset + std::ssize(values) < piece.n_elems) return {};
  return check(piece.name, digester_.digest());
}

}  // namespace detail
}  // namespace strata
