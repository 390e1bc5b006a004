#include <strata/parallel/agree.h>

#include <strata/runtime/str.h>

namespace strata {
namespace {

// The code as one character, and the message or text.
std::string encode(const Status& status, std::string_view text) {
  std::string encoded(1, static_cast<char>(status.code()));
  return encoded += status.is_ok() ? text : status.message();
}

Status decode(std::string_view encoded, int from, int me) {
  const auto code = static_cast<Code>(encoded.front());
  if (code == Code::ok) return {};
  const std::string message(encoded.substr(1));
  return Status::error(code, from == me ? message : str("rank ", from, ": ", message));
}

}  // namespace

Status agree(World* world, const Status& mine) {
  if (world == nullptr) return mine;
  STRATA_TRY_ASSIGN(const std::vector<std::string> all, world->all_gather(encode(mine, "")));
  for (int rank = 0; rank < world->size(); ++rank)
    STRATA_TRY(decode(all[static_cast<std::size_t>(rank)], rank, world->rank()));
  return {};
}

Result<std::string> from_first_rank(World* world, const Result<std::string>& mine) {
  if (world == nullptr) return mine;
  const std::string_view text = mine.has_value() ? std::string_view(*mine) : std::string_view();
  STRATA_TRY_ASSIGN(const std::vector<std::string> all,
                    world->all_gather(world->rank() == 0 ? encode(mine.status(), text) : std::string()));
  STRATA_TRY(decode(all.front(), 0, world->rank()));
  return all.front().substr(1);
}

}  // namespace strata
