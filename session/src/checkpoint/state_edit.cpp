// Changing states in place.
#include <algorithm>

#include "checkpoint/state_access.h"

namespace strata::detail {

Status StateAccess::edit(const TensorSet& tensors, const FillState& edit, bool& changed) {
  ChunkManager& chunks = context_.chunks();
  const StateSelection of = {.tensors = &tensors};
  for (ChunkId chunk = 0; chunk < context_.plan().layout.n_chunks(); ++chunk) {
    if (!has(chunk, Payload::param) || !has_any(chunk, of)) continue;
    bool has_values = false, has_rest = false;
    {
      STRATA_TRY_ASSIGN(const Opened opened, open(chunk, Payload::param, Intent::update));
      has_values = static_cast<bool>(opened.values);
      has_rest = static_cast<bool>(opened.rest);
      list_pieces(chunk, of, edited_pieces_);
      STRATA_TRY(opened.tier == Tier::device ? edit_on_device(opened, edited_pieces_, edit, changed)
                                             : edit_in_ram(opened, edited_pieces_, edit, changed));
    }
    if (has_values) STRATA_TRY(chunks.write_back({chunk, Payload::param}));
    if (has_rest) STRATA_TRY(chunks.write_back({chunk, Payload::master}));
  }
  return chunks.status();
}

Status StateAccess::edit_in_ram(const Opened& chunk, const std::vector<Piece>& pieces, const FillState& edit,
                                bool& changed) {
  for (const Piece& piece : pieces) {
    Addresses at = in_place(chunk, piece);
    STRATA_TRY(decode(chunk, at, values_of(piece)));
    STRATA_TRY(edit(piece_info(piece), values_of(piece)));
    changed = true;
    for (std::size_t i = 0; i < at.size(); ++i)  // the master part that this run does not hold is ignored
      if (at[i] == nullptr) at[i] = context_.state_staging(0, i);
    encode(chunk, at, values_of(piece));
  }
  return {};
}

// The pieces of a run that is in a slot of the staging memory.
Status StateAccess::edit_run(const Opened& chunk, const std::vector<Piece>& pieces, const Run& run,
                             std::size_t slot, const FillState& edit, bool& changed) {
  STRATA_TRY(context_.backend().wait(copied_[slot]));
  STRATA_TRY(host_access(chunk, run, slot, true));
  for (std::size_t i = run.first; i < run.end; ++i) {
    const Addresses at = staged(chunk, run, slot, pieces[i]);
    STRATA_TRY(decode(chunk, at, values_of(pieces[i])));
    STRATA_TRY(edit(piece_info(pieces[i]), values_of(pieces[i])));
    encode(chunk, at, values_of(pieces[i]));
  }
  changed = true;
  return copy_run(chunk, run, slot, Intent::overwrite);
}

// The next run is copied while one is changed. The pin is of the h2d stream; what the d2h stream reads of the
// chunk is complete before the slot is changed.
Status StateAccess::edit_on_device(const Opened& chunk, const std::vector<Piece>& pieces,
                                   const FillState& edit, bool& changed) {
  list_runs(pieces, edited_runs_);
  const std::vector<Run>& runs = edited_runs_;
  const std::size_t slots = context_.pinned_layout().state_slots;
  STRATA_TRY(context_.backend().synchronize(context_.streams().d2h));  // in case a visit ended in an error
  for (std::size_t r = 0; r < std::min(slots, runs.size()); ++r)
    STRATA_TRY(copy_run(chunk, runs[r], r, Intent::read));
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::size_t slot = r % slots;
    STRATA_TRY(edit_run(chunk, pieces, runs[r], slot, edit, changed));
    if (r + slots >= runs.size()) continue;
    STRATA_TRY(context_.backend().wait(copied_[slot]));
    STRATA_TRY(copy_run(chunk, runs[r + slots], slot, Intent::read));
  }
  return context_.backend().synchronize(context_.streams().h2d);  // the staging memory is reused
}

}  // namespace strata::detail
