#pragma once

#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/kernels/values/expert_rules.h>
#include <strata/runtime/float16.h>

/// The router of one token: the same code on the host and on CUDA, hence the same bits. `Lanes` is HalfWarp,
/// or EmulatedHalfWarp on the host. What one lane writes to the token's RouterSpace, others read after
/// lanes_sync().
namespace strata::kernels::detail {

/// The most experts of a layer: those that the shared memory of a block has room for.
inline constexpr std::int64_t kMostExperts = 1024;

/// What is kept of a token while its experts are chosen: on the host a thread's, on CUDA in shared memory.
struct RouterSpace {
  float* scores;  ///< one for each expert
  float* groups;  ///< the sums by which groups are chosen
};

/// A key by which scores are compared as integers: larger for a larger score and, of equal ones, for the
/// lower index. NaN is below all numbers. No key is 0 or ~0.
using RouterKey = std::uint64_t;
inline constexpr RouterKey kNoKey = 0, kAboveAllKeys = ~RouterKey{0};
STRATA_HD RouterKey router_key(float score, std::int64_t index) {
  const float x = score + 0.0f;  // the zeros are equal
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const std::uint32_t order = x != x ? 1u : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return (RouterKey{order} << 32) | (0xFFFFFFFEu - static_cast<std::uint32_t>(index));
}
STRATA_HD std::int32_t index_of_key(RouterKey key) {
  return static_cast<std::int32_t>(0xFFFFFFFEu - static_cast<std::uint32_t>(key));
}

/// The largest of a lane's keys in every lane: the only step that needs the lanes to exchange integers.
#ifdef __CUDACC__
__device__ inline RouterKey largest_of_lanes(const dispatch::HalfWarp&, RouterKey key) {
  const unsigned mask = 0xFFFFu << (threadIdx.x % 32 / dispatch::kLanes * dispatch::kLanes);
  for (int width = dispatch::kLanes / 2; width > 0; width /= 2) {
    const RouterKey other = __shfl_xor_sync(mask, key, width);
    key = other > key ? other : key;
  }
  return key;
}
__device__ inline void lanes_sync(const dispatch::HalfWarp&) {
  __syncwarp(0xFFFFu << (threadIdx.x % 32 / dispatch::kLanes * dispatch::kLanes));
}
#endif
template <class Lanes>
STRATA_HD RouterKey largest_of_lanes(const Lanes&, RouterKey key) {
  return key;
}
template <class Lanes>
STRATA_HD void lanes_sync(const Lanes&) {}

/// The largest of key(i) below `bound` for i < n; kNoKey if there is none.
template <class Lanes, class Key>
STRATA_DEVICE_INLINE RouterKey largest_key_below(const Lanes& lanes, RouterKey bound, std::int64_t n,
                                                 const Key& key) {
  RouterKey best = kNoKey;
  lanes.for_each(n, [&](std::int64_t i) {
    const RouterKey each = key(i);
    if (each < bound && each > best) best = each;
  });
  return largest_of_lanes(lanes, best);
}

/// What all tokens share.
struct RouterShape {
  RouterRule rule;
  std::int64_t experts, chosen;
  STRATA_HD bool has_groups() const { return rule.top_groups < rule.groups; }
  /// Floats of a token's RouterSpace.
  STRATA_HD std::int64_t scratch_floats() const { return experts + (has_groups() ? rule.groups : 0); }
  STRATA_HD std::int64_t group_length() const { return experts / rule.groups; }
};

/// Computes the scores of a token.
template <class Lanes>
STRATA_DEVICE_INLINE void router_scores(const Lanes& lanes, const RouterShape& shape, const float* logits,
                                        float* scores) {
  if (shape.rule.score == RouterRule::Score::sigmoid) {
    lanes.for_each(shape.experts, [&](std::int64_t i) { scores[i] = simd::sigmoid_of(logits[i]).value; });
  } else {
    const float top =
        lanes.max(shape.experts, -__builtin_huge_valf(), [&](std::int64_t i) { return logits[i]; });
    const float sum = lanes.template sum<float>(
        shape.experts, [&](std::int64_t i) { return simd::exp_of(logits[i] - top); });
    lanes.for_each(shape.experts, [&](std::int64_t i) { scores[i] = simd::exp_of(logits[i] - top) / sum; });
  }
  lanes_sync(lanes);
}

/// A group is chosen by the sum of its two best values, or by the best one.
template <class Value>
STRATA_HD float group_score(const RouterRule& rule, std::int64_t first, std::int64_t length,
                            const Value& value) {
  RouterKey best = kNoKey, second = kNoKey;
  for (std::int64_t i = first; i < first + length; ++i) {
    const RouterKey key = router_key(value(i), i);
    if (key > best) {
      second = best;
      best = key;
    } else if (key > second) {
      second = key;
    }
  }
  if (rule.by_best) return value(index_of_key(best));
  return value(index_of_key(best)) + value(index_of_key(second));
}

/// Whether experts of group `g` can be chosen, for the smallest key of a chosen group.
STRATA_HD bool is_chosen_group(const float* groups, std::int64_t g, RouterKey smallest) {
  return router_key(groups[g], g) >= smallest;
}

/// The experts and weights of one token. A NaN among the logits makes every weight a NaN.
template <class Lanes>
STRATA_DEVICE_INLINE void route_token(const Lanes& lanes, const RouterShape& shape, const RouterSpace& space,
                                      const float* logits, const float* bias, std::int32_t* experts,
                                      float* weights) {
  const RouterRule& rule = shape.rule;
  router_scores(lanes, shape, logits, space.scores);
  const auto choice = [&](std::int64_t i) {
    return bias != nullptr ? space.scores[i] + bias[i] : space.scores[i];
  };
  RouterKey smallest = kNoKey;
  const std::int64_t length = shape.group_length();
  if (shape.has_groups()) {
    lanes.for_each(rule.groups,
                   [&](std::int64_t g) { space.groups[g] = group_score(rule, g * length, length, choice); });
    lanes_sync(lanes);
    smallest = kAboveAllKeys;
    for (std::int32_t i = 0; i < rule.top_groups; ++i)
      smallest = largest_key_below(lanes, smallest, rule.groups,
                                   [&](std::int64_t g) { return router_key(space.groups[g], g); });
  }
  const auto key = [&](std::int64_t i) {
    if (shape.has_groups() && !is_chosen_group(space.groups, i / length, smallest)) return kNoKey;
    return router_key(choice(i), i);
  };
  RouterKey last = kAboveAllKeys;
  float sum = 0.0f;
  for (std::int64_t j = 0; j < shape.chosen; ++j) {
    last = largest_key_below(lanes, last, shape.experts, key);
    const std::int32_t expert = index_of_key(last);
    sum = sum + space.scores[expert];
    if (lanes.is_leader()) experts[j] = expert;
  }
  const float nans = lanes.template sum<float>(
      shape.experts, [&](std::int64_t i) { return logits[i] != logits[i] ? logits[i] : 0.0f; });
  if (!lanes.is_leader()) return;
  for (std::int64_t j = 0; j < shape.chosen; ++j) {
    const float score = space.scores[experts[j]];
    const float weight = rule.scale * (rule.renormalize ? score / (rule.eps + sum) : score);
    weights[j] = nans != nans ? nans : weight;
  }
}

/// An expert's number within the bounds of a tensor, whatever was read.
STRATA_HD std::int32_t bounded_expert(std::int32_t expert, std::int64_t experts) {
  return expert >= 0 && expert < experts ? expert : static_cast<std::int32_t>(experts - 1);
}

/// The gradient of one token's logits.
template <class T, class Lanes>
STRATA_DEVICE_INLINE void route_token_backward(const Lanes& lanes, const RouterShape& shape,
                                               const RouterSpace& space, const float* logits,
                                               const std::int32_t* experts, const float* dweights,
                                               T* dlogits) {
  const RouterRule& rule = shape.rule;
  router_scores(lanes, shape, logits, space.scores);
  const auto expert_of = [&](std::int64_t j) { return bounded_expert(experts[j], shape.experts); };
  float sum = 0.0f, weighted = 0.0f;
  for (std::int64_t j = 0; j < shape.chosen; ++j) {
    const float score = space.scores[expert_of(j)];
    sum = sum + score;
    weighted = weighted + dweights[j] * score;
  }
  const float total = rule.eps + sum;
  const auto dscore = [&](std::int64_t j) {
    if (!rule.renormalize) return rule.scale * dweights[j];
    return rule.scale * ((dweights[j] - weighted / total) / total);
  };
  float mean = 0.0f;  // the softmax's sum of ds s
  for (std::int64_t j = 0; j < shape.chosen; ++j) mean = mean + dscore(j) * space.scores[expert_of(j)];
  lanes.for_each(shape.experts, [&](std::int64_t i) {
    float d = 0.0f;
    for (std::int64_t j = 0; j < shape.chosen; ++j)
      if (expert_of(j) == i) d = d + dscore(j);
    if (rule.score == RouterRule::Score::sigmoid) {
      const auto s = simd::sigmoid_of(logits[i]);
      dlogits[i] = from_f32<T>(d * (s.value * s.complement));
    } else {
      dlogits[i] = from_f32<T>(space.scores[i] * (d - mean));
    }
  });
}

}  // namespace strata::kernels::detail
