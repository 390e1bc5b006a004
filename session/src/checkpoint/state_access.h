#pragma once

#include <array>
#include <span>
#include <vector>

#include <strata/session/state_context.h>
#include <strata/session/state_piece.h>

namespace strata::detail {

/// Whether a tensor is among them, by index in StatePlan::tensors.
using TensorSet = std::vector<bool>;

/// The states that a pass over them covers.
struct StateSelection {
  bool only_part = false;  ///< whether it covers only this rank's part of what the rank holds
  VisitScope scope = VisitScope::all;
  const TensorSet* tensors = nullptr;  ///< null: all
  bool joins_pieces = false;  ///< whether a visitor takes more than kMaxStatePieceElems values at once
  bool has(std::int32_t tensor) const {
    return tensors == nullptr || (*tensors)[static_cast<std::size_t>(tensor)];
  }
};

/// Initializes, reads and writes all states in bounded memory. States on the device pass through staging
/// memory of two slots, one of which is copied while the other is processed; states on the slow tier pass
/// through window slots.
class StateAccess {
 public:
  explicit StateAccess(StateContext& context) : context_(context) {}
  /// Sets moments to zero.
  Status clear_moments();
  /// Lets moving averages begin with the parameters as they are now.
  Status start_ema();
  /// Visits what this rank holds, or of each chunk the part whose gradient it sums.
  Status visit(Payload payload, const VisitState& visit) { return visit_range(payload, visit, {}); }
  Status visit_part(Payload payload, const VisitState& visit, VisitScope scope) {
    return visit_range(payload, visit, {.only_part = true, .scope = scope, .joins_pieces = true});
  }
  Status visit_tensors(Payload payload, const VisitState& visit, const TensorSet& tensors) {
    return visit_range(payload, visit, {.tensors = &tensors});
  }
  /// Changes parameters of `tensors` in place; sets `changed` before the first value is stored.
  Status edit(const TensorSet& tensors, const FillState& edit, bool& changed);
  /// `rounded`, if set, is called with the values of a piece as they are stored, after `fill` has given it,
  /// if that may have changed them: see rounds_params().
  Status fill(Payload payload, const FillState& fill, const VisitState& rounded = {});
  /// Whether parameters of the chunk are stored in fewer bits than they are filled with.
  bool rounds_params(ChunkId chunk) const;

 private:
  /// The payloads of a chunk that make up a state: the one requested and, for a parameter, Payload::master if
  /// the run holds it. A trainer's parameter has no pin for its values.
  struct Opened {
    ChunkId chunk = 0;
    Payload payload = Payload::param;
    Tier tier = Tier::pinned;
    ChunkPin values, rest;
  };
  /// Where the elements of a state are stored. A parameter has the payloads param and master; a moment has
  /// its values and its scales.
  struct Part {
    const ChunkPin* pin = nullptr;  ///< null if this run does not hold it
    std::size_t offset = 0, bytes = 0;
  };
  using Parts = std::array<Part, 2>;
  using Addresses = std::array<std::byte*, 2>;
  /// Elements of one tensor that are visited or filled in one call.
  struct Piece {
    std::int32_t tensor = 0;
    std::int64_t offset = 0, at = 0, n = 0;  ///< first element in the tensor, in what is held; count
  };
  /// Consecutive pieces that are copied at once.
  struct Run {
    std::size_t first = 0, end = 0;  ///< indices of the pieces
    std::int64_t at = 0, n = 0;      ///< elements of the chunk
  };

  Status visit_range(Payload payload, const VisitState& visit, const StateSelection& of);
  bool has_any(ChunkId chunk, const StateSelection& of) const;
  /// The pieces of the elements of the chunk that this rank holds, or of its part of them.
  std::vector<Piece> pieces_of(ChunkId chunk, const StateSelection& of = {}) const;
  void list_pieces(ChunkId chunk, const StateSelection& of, std::vector<Piece>& into) const;
  std::vector<Run> runs_of(const std::vector<Piece>& pieces) const;
  void list_runs(const std::vector<Piece>& pieces, std::vector<Run>& into) const;
  StatePiece piece_info(const Piece& piece) const;
  bool has(ChunkId chunk, Payload payload) const;
  bool joins_masters(ChunkId chunk) const;
  Parts parts_of(const Opened& chunk, std::int64_t at, std::int64_t n) const;
  Addresses in_place(const Opened& chunk, const Piece& piece) const;
  Addresses staged(const Opened& chunk, const Run& run, std::size_t slot, const Piece& piece) const;
  Result<Opened> open(ChunkId chunk, Payload payload, Intent intent);
  Status visit_in_ram(const Opened& chunk, const std::vector<Piece>& pieces, const VisitState& visit,
                      bool joins);
  Status visit_on_device(const Opened& chunk, const std::vector<Piece>& pieces, const VisitState& visit,
                         bool joins);
  template <class Fill>
  Status fill_pieces(Payload payload, const Fill& fill, const VisitState& rounded = {});
  template <class Fill>
  Status fill_in_ram(const Opened& chunk, const Fill& fill, const VisitState& rounded);
  template <class Fill>
  Status fill_on_device(const Opened& chunk, const Fill& fill, const VisitState& rounded);
  Status edit_in_ram(const Opened& chunk, const std::vector<Piece>& pieces, const FillState& edit,
                     bool& changed);
  Status edit_on_device(const Opened& chunk, const std::vector<Piece>& pieces, const FillState& edit,
                        bool& changed);
  Status edit_run(const Opened& chunk, const std::vector<Piece>& pieces, const Run& run, std::size_t slot,
                  const FillState& edit, bool& changed);
  Status tell_rounded(const Opened& chunk, const Addresses& from, const Piece& piece,
                      const VisitState& rounded);
  Status copy_run(const Opened& chunk, const Run& run, std::size_t slot, Intent intent);
  Status host_access(const Opened& chunk, const Run& run, std::size_t slot, bool writes);
  Status decode(const Opened& chunk, const Addresses& from, std::span<float> values) const;
  void encode(const Opened& chunk, const Addresses& into, std::span<const float> values) const;
  Stream& stream_of(const Opened& chunk, Intent intent) const noexcept;
  std::span<float> values_of(const Piece& piece) {
    return std::span(values_).first(static_cast<std::size_t>(piece.n));
  }
  /// Decodes pieces that lie at `at` in parallel and visits them; with `joins`, up to kVisitedPieces of one
  /// tensor that follow each other as one.
  template <class AddressesOf>
  Status visit_pieces(const Opened& chunk, std::span<const Piece> pieces, const AddressesOf& at,
                      const VisitState& visit, bool joins);

  static constexpr std::size_t kVisitedPieces = 4;

  StateContext& context_;
  std::vector<Piece> edited_pieces_;  // what edit() changes: once it has run, it allocates nothing
  std::vector<Run> edited_runs_;
  std::vector<float> values_ =
      std::vector<float>(kVisitedPieces * static_cast<std::size_t>(kMaxStatePieceElems));
  std::array<Event, 2> copied_;  // the last copy of each slot of the staging memory
};

}  // namespace strata::detail
