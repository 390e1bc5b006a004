#include "execute/sequences/kv_cache_tracker.h"

#include <algorithm>
#include <limits>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/runtime/str.h>

#include "execute/sequences/state_rows.h"

namespace strata::detail {

KvCacheTracker::Limits KvCacheTracker::limits_of(const LoweredProgram& program) {
  return {static_cast<std::size_t>(program.find("tokens").shape.n_elems()),
          static_cast<std::size_t>(program.find("logit_indices").shape.n_elems())};
}

KvCacheTracker::KvCacheTracker(const RunPlan& plan) {
  const LoweredProgram& decode = plan.of(ProgramRole::decode);
  if (decode.empty()) return;
  prefill_ = limits_of(plan.of(ProgramRole::prefill));
  decode_ = limits_of(decode);
  vocab_ = static_cast<std::int32_t>(decode.find("logits").shape.dim(-1));
  for (const LoweredInstr& instr : decode.code)
    if (instr.op == Op::lora_rows)
      n_adapters_ = std::max(n_adapters_, instr.attrs.as<LoraRowsAttrs>().adapter + 1);
  const auto attention = std::find_if(decode.code.begin(), decode.code.end(), [](const LoweredInstr& instr) {
    return instr.op == Op::cached_attention;
  });
  const StateRows states(decode);
  has_states_ = !states.empty();
  std::int64_t slots = states.slots();
  if (attention != decode.code.end()) {
    const Shape& keys = attention->in[3].shape;  // [sequences, kv_heads, capacity, d]
    slots = keys.dim(0);
    capacity_ = static_cast<std::int32_t>(keys.dim(2));
  } else {
    capacity_ = std::numeric_limits<std::int32_t>::max();  // no state grows with the sequence
  }
  lengths_.resize(static_cast<std::size_t>(slots));
  next_ = lengths_;
  adapters_.resize(lengths_.size(), -1);
  next_adapters_ = adapters_;
  first_.resize(lengths_.size(), -1);
  states_.resize(lengths_.size());
  restores_.reserve(lengths_.size());
  snapshots_ = SnapshotRing(lengths_.size(), has_states_ ? plan.snapshots : 0);
}

void KvCacheTracker::forget() noexcept {
  std::fill(lengths_.begin(), lengths_.end(), 0);
  std::fill(states_.begin(), states_.end(), 0);
  snapshots_.clear();
}

void KvCacheTracker::advance() noexcept {
  lengths_.swap(next_);
  adapters_.swap(next_adapters_);
  for (std::size_t slot = 0; slot < first_.size(); ++slot) {
    if (first_[slot] < 0) continue;
    states_[slot] = lengths_[slot];
    snapshots_.drop_beyond(static_cast<std::int32_t>(slot), first_[slot]);
  }
}

void KvCacheTracker::lose() noexcept {
  for (std::size_t slot = 0; slot < first_.size(); ++slot) {
    if (first_[slot] < 0) continue;
    lengths_[slot] = std::min(lengths_[slot], first_[slot]);
    if (has_states_) states_[slot] = -1;
    snapshots_.drop_beyond(static_cast<std::int32_t>(slot), first_[slot]);
  }
}

std::int32_t KvCacheTracker::continues_from(std::int32_t slot, std::int32_t position) const noexcept {
  if (slot < 0 || static_cast<std::size_t>(slot) >= lengths_.size()) return 0;
  const std::int32_t end = lengths_[static_cast<std::size_t>(slot)];
  position = std::clamp(position, 0, end);
  if (!has_states_ || position == states_[static_cast<std::size_t>(slot)]) return position;
  return snapshots_.latest(slot, position);
}

Result<bool> KvCacheTracker::wants_snapshot(std::int32_t slot) const {
  STRATA_TRY(check_slot(slot));
  if (!has_states_) return false;
  if (snapshots_.per_slot() == 0)
    return Status::error(Code::invalid, str("a snapshot of sequence ", slot,
                                            " is asked for, but the run has room for 0 of each sequence; "
                                            "ProgramSet::set_snapshots() plans some"));
  const auto at = static_cast<std::size_t>(slot);
  if (states_[at] != lengths_[at])
    return Status::error(Code::invalid, str("the states of sequence ", slot, " of ", lengths_[at],
                                            " tokens were lost in an error, so no snapshot is taken"));
  return lengths_[at] > 0 && snapshots_.find(slot, lengths_[at]) < 0;
}

Status KvCacheTracker::check_slot(std::int32_t slot) const {
  const auto slots = static_cast<std::int32_t>(lengths_.size());
  if (slot >= 0 && slot < slots) return {};
  return Status::error(Code::invalid, str("slot ", slot, " is out of range; slots of the cache: ", slots));
}

Status KvCacheTracker::refuse_position(const SequenceToken& t) const {
  const std::int32_t end = lengths_[static_cast<std::size_t>(t.slot)];
  const std::string kept = snapshots_.text(t.slot);
  const std::string where = str("position ", t.position, " of sequence ", t.slot, " is ");
  const std::string then =
      kept.empty() ? "start it again" : str("it goes on from its snapshots at ", kept, ", or starts again");
  return Status::error(
      Code::invalid, t.position < end
                         ? str(where, "before the end of its ", end,
                               " tokens, and layers of this model have a state of all of them; ", then)
                         : str(where, "the end of its ", end,
                               " tokens, whose state in layers of this model was lost in an error; ", then));
}

// The first token of a sequence in a call.
Status KvCacheTracker::begin_at(const SequenceToken& t) {
  const auto slot = static_cast<std::size_t>(t.slot);
  first_[slot] = t.position;
  if (!has_states_ || t.position == 0 || t.position == states_[slot]) return {};
  const std::int32_t place = snapshots_.find(t.slot, t.position);
  if (place < 0) return refuse_position(t);
  restores_.push_back({t.slot, place});
  return {};
}

Status KvCacheTracker::check_token(const SequenceToken& t) {
  STRATA_TRY(check_slot(t.slot));
  if (t.token < 0 || t.token >= vocab_)
    return Status::error(Code::invalid,
                         str("token ", t.token, " is out of range; size of the vocabulary: ", vocab_));
  if (t.position < 0 || t.position >= capacity_)
    return Status::error(Code::invalid,
                         str("position ", t.position, " of sequence ", t.slot,
                             " is out of range; the cache has ", capacity_, " positions per sequence"));
  if (t.adapter < -1 || t.adapter >= n_adapters_)
    return Status::error(Code::invalid, str("adapter ", t.adapter, " of sequence ", t.slot,
                                            " is out of range; adapters of the program: ", n_adapters_));
  const auto slot = static_cast<std::size_t>(t.slot);
  const std::int32_t end = next_[slot];
  const bool is_begun = first_[slot] >= 0;
  if (is_begun ? t.position != end : t.position > end)
    return Status::error(Code::invalid, str("position ", t.position, " of sequence ", t.slot,
                                            " does not continue its first ", end, " tokens"));
  if (!is_begun) STRATA_TRY(begin_at(t));
  if (t.position > 0 && t.adapter != next_adapters_[slot])
    return Status::error(Code::invalid,
                         str("position ", t.position, " of sequence ", t.slot, " has adapter ", t.adapter,
                             ", but the tokens before it have adapter ", next_adapters_[slot]));
  next_adapters_[slot] = t.adapter;
  next_[slot] = t.position + 1;
  return Status::ok();
}

Status KvCacheTracker::check(std::span<const SequenceToken> tokens, std::span<const std::int32_t> wanted) {
  const std::size_t rows = std::max(prefill_.rows, decode_.rows);
  const std::size_t logit_rows = std::max(prefill_.logit_rows, decode_.logit_rows);
  if (tokens.empty() || tokens.size() > rows || wanted.size() > logit_rows ||
      (!fits_decode(tokens, wanted) &&
       (tokens.size() > prefill_.rows || wanted.size() > prefill_.logit_rows)))
    return Status::error(Code::invalid,
                         str("a run accepts 1 to ", rows, " tokens and returns up to ", logit_rows,
                             " rows of logits; requested: ", tokens.size(), " and ", wanted.size()));
  for (const std::int32_t index : wanted)
    if (index < 0 || static_cast<std::size_t>(index) >= tokens.size())
      return Status::error(Code::invalid, str("no such row of logits: token ", index, " of ", tokens.size()));
  next_ = lengths_;
  next_adapters_ = adapters_;
  std::fill(first_.begin(), first_.end(), -1);
  restores_.clear();
  for (const SequenceToken& token : tokens) STRATA_TRY(check_token(token));
  return Status::ok();
}

bool KvCacheTracker::fits_decode(std::span<const SequenceToken> tokens,
                                 std::span<const std::int32_t> wanted) const noexcept {
  return tokens.size() <= decode_.rows && wanted.size() <= decode_.logit_rows;
}

void KvCacheTracker::write(const BatchView& inputs, std::span<const SequenceToken> tokens,
                           std::span<const std::int32_t> wanted) {
  const std::span<std::int32_t> token = inputs["tokens"], position = inputs["positions"],
                                slot = inputs["slots"], index = inputs["logit_indices"],
                                adapter = inputs["adapters"];  // none, if the program has no adapters
  std::fill(token.begin(), token.end(), 0);
  std::fill(position.begin(), position.end(), 0);
  std::fill(slot.begin(), slot.end(), -1);
  std::fill(index.begin(), index.end(), 0);
  std::fill(adapter.begin(), adapter.end(), -1);
  for (std::size_t i = 0; i < std::min(tokens.size(), token.size()); ++i) {
    token[i] = tokens[i].token;
    position[i] = tokens[i].position;
    slot[i] = tokens[i].slot;
    if (!adapter.empty()) adapter[i] = tokens[i].adapter;
  }
  std::copy_n(wanted.begin(), std::min(wanted.size(), index.size()), index.begin());
}

std::vector<SequenceToken> KvCacheTracker::fill(const LoweredProgram& program) const {
  const std::size_t rows = limits_of(program).rows;
  std::vector<SequenceToken> tokens;
  for (std::int32_t slot = 0; slot < static_cast<std::int32_t>(lengths_.size()); ++slot)
    for (std::int32_t position = 0; position < capacity_ && tokens.size() < rows; ++position)
      tokens.push_back({0, position, slot});
  return tokens;
}

}  // namespace strata::detail
