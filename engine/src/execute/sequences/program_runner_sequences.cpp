#include <algorithm>

#include <strata/runtime/str.h>

#include "execute/program_runner.h"

// Passes that read logits back: those of one sequence, and those that continue sequences.

namespace strata::detail {

// Waits for rows of logits and returns them; valid until the next call.
Result<std::span<const float>> ProgramRunner::read_logits(const Operand& logits, std::int64_t first_row,
                                                          std::size_t rows) {
  const auto vocab = static_cast<std::size_t>(logits.shape.dim(-1));
  const std::size_t bytes = rows * vocab * sizeof(float);
  STRATA_TRY(read_back(reinterpret_cast<std::byte*>(memory_.logits()),
                       memory_.arena(logits) + static_cast<std::size_t>(first_row) * vocab * sizeof(float),
                       bytes));
  STRATA_TRY(context_.backend().wait(arena_free_));
  STRATA_TRY(
      context_.backend().host_access({reinterpret_cast<const std::byte*>(memory_.logits()), bytes, false}));
  return std::span<const float>(memory_.logits(), rows * vocab);
}

Result<std::span<const float>> ProgramRunner::infer(std::span<const std::int32_t> tokens, std::int64_t row) {
  const Replay* const replay = find(ProgramRole::infer);
  if (replay == nullptr) return Status::error(Code::unsupported, "this run has no program for inference");
  const Operand input = replay->program().find("tokens");
  STRATA_TRY(machine_.broken());
  if (static_cast<std::int64_t>(tokens.size()) != input.shape.n_elems() || row < 0 ||
      row >= input.shape.n_elems())
    return Status::error(Code::invalid,
                         str("inference needs ", input.shape.n_elems(),
                             " tokens and the row of one of them; given ", tokens.size(), " and row ", row));
  Result<std::span<const float>> logits = infer_row(*replay, tokens, row);
  if (!logits.has_value()) return fail(logits.status());
  return logits;
}

Result<std::span<const float>> ProgramRunner::infer_row(const Replay& replay,
                                                        std::span<const std::int32_t> tokens,
                                                        std::int64_t row) {
  const LoweredProgram& program = replay.program();
  activate(replay);
  STRATA_TRY_ASSIGN(const BatchView batch, open_inputs(program, 0));
  const std::span<std::int32_t> into = batch["tokens"];
  std::copy_n(tokens.begin(), into.size(), into.begin());
  STRATA_TRY(upload(program));
  STRATA_TRY(run(replay));
  return read_logits(program.find("logits"), row, 1);
}

Result<std::span<const float>> ProgramRunner::extend(std::span<const SequenceToken> tokens,
                                                     std::span<const std::int32_t> wanted) {
  if (find(ProgramRole::decode) == nullptr)
    return Status::error(Code::unsupported, "this run has no programs that continue sequences");
  STRATA_TRY(machine_.broken());
  STRATA_TRY(kv_cache_.check(tokens, wanted));
  const Replay& replay =
      *find(kv_cache_.fits_decode(tokens, wanted) ? ProgramRole::decode : ProgramRole::prefill);
  Result<std::span<const float>> logits = run_extension(replay, tokens, wanted);
  if (!logits.has_value()) {
    kv_cache_.lose();
    return fail(logits.status());
  }
  kv_cache_.advance();
  return logits;
}

// Takes a snapshot of a slot's states, or makes it the states again. On the compute stream it comes behind
// what was queued before, and before what reads it.
Status ProgramRunner::copy_snapshot(std::int32_t slot, std::int32_t place, bool restores) {
  std::byte* const snapshot =
      memory_.snapshots() + static_cast<std::size_t>(place) * state_rows_.snapshot_bytes();
  for (const StateRows::Row& row : state_rows_.rows()) {
    std::byte* const state = memory_.states() + row.begin + static_cast<std::size_t>(slot) * row.bytes;
    std::byte* const kept = snapshot + row.in_snapshot;
    STRATA_TRY(context_.backend().copy_async({restores ? state : kept, row.bytes},
                                             {restores ? kept : state, row.bytes},
                                             context_.streams().compute));
  }
  return {};
}

Status ProgramRunner::keep_snapshot(std::int32_t slot) {
  if (find(ProgramRole::decode) == nullptr)
    return Status::error(Code::unsupported, "this run has no programs that continue sequences");
  STRATA_TRY(machine_.broken());
  STRATA_TRY_ASSIGN(const bool is_new, kv_cache_.wants_snapshot(slot));
  if (!is_new) return {};
  SnapshotRing& ring = kv_cache_.snapshots();
  const std::int32_t place = ring.make_room(slot);
  if (const Status status = copy_snapshot(slot, place, false); !status.is_ok()) return fail(status);
  ring.set(place, kv_cache_.length(slot));
  return {};
}

Result<std::span<const float>> ProgramRunner::run_extension(const Replay& replay,
                                                            std::span<const SequenceToken> tokens,
                                                            std::span<const std::int32_t> wanted) {
  const LoweredProgram& program = replay.program();
  activate(replay);
  STRATA_TRY_ASSIGN(const BatchView batch, open_inputs(program, 0));
  KvCacheTracker::write(batch, tokens, wanted);
  for (const KvCacheTracker::Restore& restore : kv_cache_.restores())
    STRATA_TRY(copy_snapshot(restore.slot, restore.place, true));
  STRATA_TRY(upload(program));
  STRATA_TRY(run(replay));
  if (wanted.empty()) {  // more tokens follow, so no logits are read and nothing is waited for
    STRATA_TRY_ASSIGN(arena_free_, context_.backend().record(context_.streams().compute));
    return std::span<const float>();
  }
  return read_logits(program.find("logits"), 0, wanted.size());
}

}  // namespace strata::detail
