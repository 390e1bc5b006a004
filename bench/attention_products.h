#pragma once

#include <cstdint>
#include <vector>

#include <strata/runtime/threads/thread_pool.h>

namespace strata::bench {

/// The matrix products of causal attention and of its backward on the host, with nothing between them: blocks
/// of 64 queries and the keys that they see, in f32, two products forward and five backward. Heads are
/// computed in parallel, and a row has q, k and v of all heads.
class AttentionProducts {
 public:
  AttentionProducts(std::int64_t sequences, std::int64_t seq, std::int64_t heads, std::int64_t head_dim);
  void run(ThreadPool& pool);

 private:
  std::int64_t sequences_, seq_, heads_, head_dim_;
  std::vector<float> qkv_, gradients_, out_;
};

}  // namespace strata::bench
