#include <strata/align/rollout_file.h>

#include <cstring>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

struct RolloutsHeader {
  char magic[8] = {'s', 't', 'r', 'a', 't', 'a', 'A', '1'};
  std::int64_t iteration = 0;
  std::uint64_t n_rollouts = 0;
  Digest digest{};  // the digest of what follows
};

/// The record of one rollout; its ids follow.
struct RolloutRecord {
  std::uint32_t prompt = 0, n_prompt = 0, n_ids = 0;
  std::int32_t stop = -1;
  double reward = 0;
};

template <class T>
void append(std::string& bytes, std::span<const T> values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

/// Takes values from the front of bytes.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  bool take(std::span<T> values) {
    if (bytes_.size() < values.size_bytes()) return false;
    std::memcpy(values.data(), bytes_.data(), values.size_bytes());
    bytes_.remove_prefix(values.size_bytes());
    return true;
  }
  bool is_at_end() const noexcept { return bytes_.empty(); }
  std::size_t left() const noexcept { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

bool take_rollout(Reader& from, Rollout& rollout) {
  RolloutRecord record;
  if (!from.take(std::span(&record, 1)) || record.n_ids > from.left() / sizeof(std::int32_t)) return false;
  rollout = {record.prompt, record.n_prompt, record.stop, std::vector<std::int32_t>(record.n_ids),
             record.reward};
  return record.n_prompt > 0 && record.n_prompt <= record.n_ids && rollout.n_chosen() > 0 &&
         from.take(std::span(rollout.ids));
}

}  // namespace

std::string rollouts_bytes(std::int64_t iteration, const RolloutBatches& batches) {
  std::string bytes;
  for (const Rollout& rollout : batches.rollouts()) {
    const RolloutRecord record{rollout.prompt, rollout.n_prompt,
                               static_cast<std::uint32_t>(rollout.ids.size()), rollout.stop, rollout.reward};
    append(bytes, std::span(&record, 1));
    append(bytes, std::span(rollout.ids));
  }
  for (const TokenValue what : kAllTokenValues) append(bytes, std::span(batches.values(what)));
  RolloutsHeader header;
  header.iteration = iteration;
  header.n_rollouts = batches.rollouts().size();
  header.digest = digest_of(std::as_bytes(std::span(bytes)));
  std::string whole;
  append(whole, std::span<const RolloutsHeader>(&header, 1));
  return whole + bytes;
}

Status set_rollouts(std::string_view bytes, std::int64_t iteration, RolloutBatches& batches) {
  const auto damaged = [&] { return Status::error(Code::corrupt, "the answers are damaged or cut off"); };
  Reader from(bytes);
  RolloutsHeader header;
  const RolloutsHeader expected;
  if (!from.take(std::span(&header, 1)) ||
      std::memcmp(header.magic, expected.magic, sizeof header.magic) != 0 ||
      digest_of(std::as_bytes(std::span(bytes)).subspan(sizeof header)) != header.digest)
    return damaged();
  if (header.iteration != iteration)
    return Status::error(Code::invalid, str("these are the answers of iteration ", header.iteration + 1,
                                            ", but the checkpoint is in iteration ", iteration + 1));
  std::vector<Rollout> rollouts;
  for (std::uint64_t i = 0; i < header.n_rollouts; ++i)
    if (!take_rollout(from, rollouts.emplace_back())) return damaged();
  STRATA_TRY(batches.set(std::move(rollouts)).annotate("the answers"));
  for (const TokenValue what : kAllTokenValues)
    if (!from.take(std::span(batches.values(what)))) return damaged();
  return from.is_at_end() ? Status::ok() : damaged();
}

}  // namespace strata
