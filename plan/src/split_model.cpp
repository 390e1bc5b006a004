#include <strata/plan/split/split_model.h>

#include <strata/config/load_config.h>
#include <strata/graph/partition.h>
#include <strata/runtime/str.h>
#include <strata/config/split_annotations.h>

namespace strata {

namespace {

// How the tokens of a program's sequences are cut along cp.
Result<Cut> tokens_along_cp(const Program& program, const TrainConfig& config, bool zigzag) {
  const std::int64_t tokens = program.value(program.find("tokens")).shape.n_elems(), seq = config.model.seq;
  const std::int64_t parts = config.parallel.cp * (zigzag ? 2 : 1);
  if (config.parallel.cp > 1 && seq % parts != 0)
    return Status::error(Code::invalid,
                         str("sequences of model.seq = ", seq, " tokens cannot be cut into ", parts,
                             " equal parts for parallel.cp = ", config.parallel.cp, " ranks"));
  return Cut::of_sequences(tokens / seq, seq, config.parallel.cp, zigzag);
}

// Ways to cut the tokens of a program along an axis of the layers. Where collectives along the axes before
// gather and scatter rows, those of each part have to be cut alike.
std::vector<Cut> ways_to_cut_tokens(const Program& program, const ModelParallel& model, MeshAxis axis) {
  const std::int64_t tokens = program.value(program.find("tokens")).shape.n_elems();
  std::vector<Cut> ways = {{}};
  if (axis == MeshAxis::tp) return ways;
  for (std::int64_t parts = 2; parts <= std::int64_t{model.tp} * model.tp2; ++parts)
    if (std::int64_t{model.tp} * model.tp2 % parts == 0 && tokens % (parts * model.size(axis)) == 0)
      ways.push_back({{CutSegment{tokens / parts, 1}}, 1, parts});
  return ways;
}

// The part of a program that a rank along the axis has, with the cut of its tokens that exchanges the fewest
// bytes.
Result<Program> part_of(const Program& program, ShardAxis& axis, std::span<const ShardAnnotation> annotations,
                        const Program* like, std::span<const Cut> ways) {
  Result<Program> best = Status::error(Code::internal, "no way to cut tokens");
  for (const Cut& rows : ways) {
    axis.rows = rows;
    Result<Program> part = partition(program, axis, annotations, like);
    if (!best.has_value() || (part.has_value() && exchanged_bytes(*part) < exchanged_bytes(*best)))
      best = std::move(part);
  }
  return best;
}

Status split_along(MeshAxis axis, std::span<Program> programs, const TrainConfig& config,
                   const SplitAnnotations& annotations) {
  const ModelParallel model = model_parallel(config);
  const std::int32_t ranks = model.size(axis);
  if (ranks == 1) return {};
  const std::string name(to_string(axis));
  ShardAxis along{name,
                  static_cast<std::int32_t>(axis),
                  ranks,
                  model.place(axis),
                  {},
                  annotations.slices_gathers,
                  annotations.rings_attention};
  for (Program& program : programs) {
    std::vector<Cut> ways = ways_to_cut_tokens(program, model, axis);
    if (axis == MeshAxis::cp) {
      STRATA_TRY_ASSIGN(const Cut tokens, tokens_along_cp(program, config, annotations.zigzag));
      ways = {tokens};
    }
    auto part = part_of(program, along, annotations.along(axis),
                        &program == programs.data() ? nullptr : programs.data(), ways);
    if (!part.has_value()) return part.status().annotate(str("parallel.", name, " = ", ranks));
    program = *std::move(part);
  }
  return {};
}

}  // namespace

// Along cp last: collectives along the other axes are ops of rows, which cp then splits.
Status split_among_ranks(std::span<Program> programs, const TrainConfig& config, bool tied_head) {
  if (model_parallel(config).ranks() == 1) return {};
  STRATA_TRY_ASSIGN(const SplitAnnotations annotations, split_annotations(config, tied_head));
  for (const MeshAxis axis : {MeshAxis::tp, MeshAxis::tp2, MeshAxis::tp3, MeshAxis::cp})
    STRATA_TRY(split_along(axis, programs, config, annotations));
  return {};
}

int ranks_asked_for(const LoadedConfig& loaded) {
  for (const char* key : {"parallel.pp", "parallel.tp", "parallel.tp2", "parallel.tp3", "parallel.cp"})
    if (loaded.tree.entry(key).origin.starts_with("argument "))
      return static_cast<int>(model_parallel(loaded.config).ranks());
  return 1;
}

}  // namespace strata
