#include <strata/batches/pair_batches.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>

namespace strata {

Status PairBatches::fill(std::int64_t index, const BatchView& batch) {
  const auto k = static_cast<std::uint64_t>(index);
  const std::span<float> weights = batch.floats("weights");
  STRATA_TRY(
      data_.fill(k, {batch["tokens"], batch["targets"], batch["doc_start"], batch["segments"], weights}));
  const std::span<float> reference = batch.floats("reference");
  if (reference.empty()) return {};
  std::fill(reference.begin(), reference.end(), 0.0f);
  const std::span<const std::uint32_t> pairs = data_.pairs_of(k);
  for (std::size_t i = 0; i < pairs.size() && reference_ != nullptr; ++i)
    for (std::size_t side = 0; side < 2; ++side)
      reference[2 * i + side] = (*reference_)[2 * std::size_t{pairs[i]} + side];
  return {};
}

std::int64_t PairBatches::n_batches() const {
  return data_.options().order == SampleOrder::sequential ? static_cast<std::int64_t>(data_.stats().n_batches)
                                                          : std::numeric_limits<std::int64_t>::max();
}

TargetCount PairBatches::counted(std::int64_t index, std::int64_t n) const {
  TargetCount count;
  for (std::int64_t k = index; k < index + n; ++k)
    count.tokens += data_.pairs_of(static_cast<std::uint64_t>(k)).size();
  return count;
}

Status compute_reference(Engine& engine, PairBatches& pairs,
                         const std::function<void(std::int64_t, std::int64_t)>& on_progress) {
  const PairDataset& data = pairs.data();
  const auto n = static_cast<std::int64_t>(data.stats().n_batches);
  std::vector<float> scores(2 * data.n_pairs_of_cache());
  for (std::int64_t k = 0; k < n; ++k) {
    STRATA_TRY(engine.forward(kReferenceProgram, pairs, k));
    const std::span<const float> found = engine.output(kReferenceProgram, "scores");
    const std::span<const std::uint32_t> numbers = data.pairs_of(static_cast<std::uint64_t>(k));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      for (std::size_t side = 0; side < 2; ++side) {
        const float score = found[2 * i + side];
        if (!std::isfinite(score))
          return Status::error(
              Code::diverged, str("the reference's log-probability of pair ", numbers[i] + 1, " is ", score));
        scores[2 * std::size_t{numbers[i]} + side] = score;
      }
    on_progress(k + 1, n);
  }
  pairs.set_reference(std::move(scores));
  return {};
}

namespace {

struct ReferenceHeader {
  char magic[8] = {'s', 't', 'r', 'a', 't', 'a', 'R', '1'};
  std::uint64_t n = 0;
  Digest digest{};
};

}  // namespace

Result<std::vector<float>> read_reference(Io& io, const std::string& path, std::size_t n) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 36;
  STRATA_TRY_ASSIGN(const std::string bytes, read_text(io, path, kMaxBytes));
  ReferenceHeader header;
  const ReferenceHeader expected;
  if (bytes.size() < sizeof header) return Status::error(Code::corrupt, str(path, " is cut off"));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, expected.magic, sizeof header.magic) != 0 ||
      bytes.size() != sizeof header + header.n * sizeof(float))
    return Status::error(Code::corrupt, str(path, " is no file of reference scores, or is cut off"));
  if (header.n != n)
    return Status::error(Code::invalid, str(path, " has ", header.n, " scores, but the pairs have ", n));
  std::vector<float> scores(n);
  std::memcpy(scores.data(), bytes.data() + sizeof header, n * sizeof(float));
  if (digest_of(std::as_bytes(std::span(scores))) != header.digest)
    return Status::error(Code::corrupt, str(path, " is damaged: its digest differs"));
  return scores;
}

}  // namespace strata
