#include "execute/sequences/kv_cache_tracker.h"

#include <algorithm>
#include <limits>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/runtime/str.h>

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
  const auto first_of = [&](Op op) {
    return std::find_if(decode.code.begin(), decode.code.end(),
                        [op](const LoweredInstr& instr) { return instr.op == op; });
  };
  // Whatever layers with a state compute, they begin with a convolution.
  const auto convolution = first_of(Op::cached_causal_conv), attention = first_of(Op::cached_attention);
  has_states_ = convolution != decode.code.end();
  std::int64_t slots = 0;
  if (has_states_) slots = convolution->in[5].shape.dim(0);
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
  begun_.resize(lengths_.size());
}

void KvCacheTracker::forget() noexcept { std::fill(lengths_.begin(), lengths_.end(), 0); }

Status KvCacheTracker::check_token(const SequenceToken& t) {
  const auto slots = static_cast<std::int32_t>(lengths_.size());
  if (t.slot < 0 || t.slot >= slots)
    return Status::error(Code::invalid,
                         str("slot ", t.slot, " is out of range; slots of the cache: ", slots));
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
  if (begun_[slot] != 0 ? t.position != end : t.position > end)
    return Status::error(Code::invalid, str("position ", t.position, " of sequence ", t.slot,
                                            " does not continue its first ", end, " tokens"));
  if (has_states_ && t.position != end && t.position > 0)
    return Status::error(
        Code::invalid,
        str("position ", t.position, " of sequence ", t.slot, " is before the end of its ", end,
            " tokens, and layers of this model have a state of all of them; start it again"));
  if (t.position > 0 && t.adapter != next_adapters_[slot])
    return Status::error(Code::invalid,
                         str("position ", t.position, " of sequence ", t.slot, " has adapter ", t.adapter,
                             ", but the tokens before it have adapter ", next_adapters_[slot]));
  begun_[slot] = 1;
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
  std::fill(begun_.begin(), begun_.end(), std::uint8_t{0});
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
