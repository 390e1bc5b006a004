#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <strata/runtime/cut.h>
#include <strata/graph/program.h>

namespace strata {

/// Where the elements of a value are along one axis of the mesh (Xu et al. 2021, arXiv 2105.04663).
struct ShardPlacement {
  enum class Kind : std::uint8_t {
    replicated,  ///< every rank has the value, and computes its whole gradient
    copied,      ///< every rank has the value, and computes a part of its gradient, which is the sum of all
    split,       ///< every rank has a shard
    partial,     ///< the value is the sum of what the ranks have; every rank computes its whole gradient
  };
  Kind kind = Kind::replicated;
  int dim = -1;  ///< that is split
  Cut cut = {};  ///< how that dimension is cut

  static ShardPlacement replicated() noexcept { return {}; }
  static ShardPlacement copied() noexcept { return {Kind::copied, -1, {}}; }
  static ShardPlacement split(int dim, const Cut& cut) noexcept { return {Kind::split, dim, cut}; }
  static ShardPlacement partial() noexcept { return {Kind::partial, -1, {}}; }
  bool is_split() const noexcept { return kind == Kind::split; }
  friend bool operator==(const ShardPlacement&, const ShardPlacement&) = default;
};
/// "replicated", "split 1 (8 x 64)".
std::string to_string(const ShardPlacement& placement);

/// An axis of the mesh, as a rank along it sees it.
struct ShardAxis {
  std::string name = "tp";
  std::int32_t number = 0;  ///< the number by which collectives name it
  int ranks = 1;
  int rank = 0;
  /// How rows of activations are cut, where an annotation splits them; no segments: evenly. Of values with
  /// more or fewer rows, each part is cut alike.
  Cut rows = {};
  /// Whether linear layers gather rows in slices, each of which travels on while it is multiplied.
  bool slices_gathers = false;
  /// Whether keys and values go round the ranks, instead of being gathered for attention.
  bool rings_attention = false;

  /// How so many rows are cut.
  Cut cut_of_rows(std::int64_t extent) const;
};

/// An instruction as the rule of its op sees it.
struct ShardQuery {
  std::span<const ValueInfo* const> in;  ///< whole values
  /// The placements of the operands, as far as they are placed; else null.
  std::span<const ShardPlacement* const> placed;
  const ValueInfo& out;  ///< the first result
  const Cut& columns;    ///< how readers of the result want its columns to be cut
  const Attrs& attrs;
  const ShardAxis& axis;

  /// Whether operand i is split in that dimension by a cut that is known.
  bool is_split(int i, int dim) const;
  /// How dimension `dim` of operand i is cut: as it is, if it is split there, else like the rows of the axis,
  /// or evenly.
  Cut cut_of(int i, int dim) const;
  /// The same of operands of one shape: as the first that is split there, else as the readers of the result
  /// want it.
  Cut common_cut(int dim) const;
};

/// Adds instructions to a program on shards.
class ShardedCode {
 public:
  virtual ~ShardedCode() = default;
  /// Returns the results of the instruction.
  virtual std::vector<ValueId> add(Op op, std::vector<ValueId> in, const Attrs& attrs) = 0;
  /// Another number each time.
  virtual std::int32_t new_number() = 0;
};

/// One way in which an op runs on shards: where its operands have to be, and where its first result is then.
/// Its other results are local to the rank.
struct ShardStrategy {
  std::vector<ShardPlacement> in;  ///< the placements of all operands; absent ones have one, too
  ShardPlacement out;
  std::optional<Attrs> attrs = std::nullopt;  ///< attributes of the instruction on shards, if they are others
  /// Adds what runs in place of the instruction on shards, and returns its results as far as they are read;
  /// null: the instruction itself does.
  std::vector<ValueId> (*lower)(const Instr& on_shards, const ShardAxis& axis, ShardedCode& code) = nullptr;
  double bytes = 0;  ///< that these exchange, forward and backward together
};

}  // namespace strata
