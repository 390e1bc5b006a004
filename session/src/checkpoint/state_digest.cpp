#include <map>

#include <strata/runtime/io/digest.h>
#include <strata/session/session.h>

namespace strata {

Result<std::string> Session::state_digest() {
  std::map<std::string, std::vector<Digest>, std::less<>> digests;
  Digester tensor;
  for (const Payload payload : state_plan().states())
    STRATA_TRY(visit(payload, [&](const StatePiece& piece, std::span<const float> values) {
      if (piece.offset == 0) tensor = Digester();
      tensor.update(std::as_bytes(values));
      if (piece.offset + std::ssize(values) == piece.n_elems)
        digests[std::string(piece.name)].push_back(tensor.digest());
      return Status::ok();
    }));
  Digester all;
  for (const auto& [name, parts] : digests) {
    all.update(std::as_bytes(std::span(name.data(), name.size())));
    for (const Digest& part : parts) all.update(part);
  }
  return to_hex(all.digest());
}

}  // namespace strata
