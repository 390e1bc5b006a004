#pragma once

#include <map>
#include <span>
#include <string_view>
#include <vector>

#include <strata/graph/partition.h>
#include <strata/parallel/device_mesh.h>

namespace strata {

struct TrainConfig;

/// The requests of parallel.shard for parameters and activations.
struct SplitAnnotations {
  bool rings_attention = false;  ///< ShardAxis::rings_attention, along cp
  bool zigzag = false;           ///< each rank along cp has an early and a late part of every sequence
  bool slices_gathers = false;   ///< ShardAxis::slices_gathers, along tp
  std::map<MeshAxis, std::vector<ShardAnnotation>> of_axis;
  std::span<const ShardAnnotation> along(MeshAxis axis) const;
};

/// A named list of annotations of the decoder.
struct SplitPreset {
  std::string_view name;
  std::string_view technique;  ///< in words, with its source
  std::span<const std::string_view> annotations;
  bool rings_attention = false, zigzag = false, slices_gathers = false;
};
std::span<const SplitPreset> split_presets() noexcept;

/// Presets and annotations of parallel.shard for a model whose head is its embedding or not; without any,
/// megatron along tp and ulysses along cp. Errors: `invalid`, all problems at once: a name that is no preset,
/// an annotation without its form, an axis with one rank or none of the mesh's, an axis with several ranks
/// and no annotation.
Result<SplitAnnotations> split_annotations(const TrainConfig& config, bool tied_head);

}  // namespace strata
