#pragma once

#include <vector>

#include <strata/graph/shard_placement.h>

namespace strata::detail {

/// linear_cross_entropy where each rank has a part of the weight's rows (Shoeybi et al. 2019, arXiv
/// 1909.08053, section 3): the ranks tell each other two numbers a token, and no rank ever has all logits.
std::vector<ValueId> lower_vocab_cross_entropy(const Instr& on_shards, const ShardAxis& axis,
                                               ShardedCode& code);

}  // namespace strata::detail
