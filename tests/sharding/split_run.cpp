#include "sharding/split_run.h"

#include <algorithm>
#include <bit>

#include <strata/config/train_config.h>
#include <strata/graph/partition.h>
#include <strata/plan/split/model_pipeline.h>
#include <strata/plan/split/split_model.h>

#include "support/temp_dir.h"
#include "support/experts/tiny_experts.h"

namespace strata::test {

DecoderConfig split_model(std::string_view family, bool in_threes) {
  DecoderConfig config = decoder_for_family(family).value();
  const bool grouped = config.norm == DecoderConfig::Norm::rms;
  config.layers = 2;
  config.hidden = in_threes ? 48 : 64;
  config.heads = in_threes ? 6 : 8;
  config.kv_heads = grouped ? config.heads / 2 : config.heads;
  config.ffn = 96;
  config.vocab = kSplitVocab;
  config.seq = in_threes ? 12 : 16;
  set_tiny_experts(config);
  return config;
}

namespace {

DecoderConfig model_of(const SplitCase& c) {
  DecoderConfig model = split_model(c.family, c.in_threes());
  model.layers = c.layers();
  return model;
}

TrainConfig split_config(const SplitCase& c, std::int32_t rank, std::int64_t seq = 0) {
  TrainConfig config;
  config.model.seq = seq > 0 ? seq : split_model(c.family, c.in_threes()).seq;
  config.parallel.shard = c.shard;
  config.parallel.tp = c.tp;
  config.parallel.tp2 = c.tp2;
  config.parallel.tp3 = c.tp3;
  config.parallel.cp = c.cp;
  config.parallel.pp = c.pp;
  config.parallel.schedule = c.schedule;
  config.parallel.virtual_stages = c.virtual_stages;
  config.parallel.reduce = c.reduce == GradientReduce::once ? "once" : "each";
  config.parallel.zero = c.zero;
  config.parallel.shard_ranks = c.shard_ranks;
  config.parallel.ranks = c.ranks();
  config.parallel.rank = rank;
  config.train.grad_accum = kSplitGradAccum;
  return config;
}

}  // namespace

Result<ProgramSet> split_programs(const DecoderConfig& model, const SplitCase& c, std::int32_t rank) {
  const TrainConfig config = split_config(c, rank, model.seq);
  STRATA_TRY_ASSIGN(Program whole,
                    record_decoder(model, kSplitSequences, DecoderHead::loss, DecoderRows::whole, c.compute));
  STRATA_TRY(split_among_ranks({&whole, 1}, config, model.tied_head));
  ProgramSet set;
  STRATA_TRY_ASSIGN(Program train, derive_backward(whole, "loss"));
  train = recompute_regions(simplify_collectives(std::move(train)), c.recompute);
  if (c.pp > 1) {
    STRATA_TRY_ASSIGN(const ModelPipeline pipeline, ModelPipeline::create(train, config));
    STRATA_TRY_ASSIGN(train, pipeline.training(train));
    STRATA_TRY_ASSIGN(whole, pipeline.forward(whole));
  }
  set[ProgramRole::train] = fuse_add_norm(std::move(train));
  set[ProgramRole::eval] = fuse_add_norm(simplify_collectives(std::move(whole)));
  return set;
}

Result<ProgramSet> split_programs(const SplitCase& c, std::int32_t rank) {
  return split_programs(model_of(c), c, rank);
}

namespace {

SessionOptions split_options(const SplitCase& c, const std::string& dir) {
  SessionOptions options = swapping_options(dir, c.mode);
  options.grad_accum = kSplitGradAccum;
  options.clip = c.clip;
  options.chunk_elems = 4096 * c.copies;
  options.prefetch = 2;
  options.undo_bytes = 3000000;
  return options;
}

}  // namespace

Result<std::unique_ptr<const RunPlan>> plan_alone(SplitCase c, const std::string& dir) {
  const DecoderConfig model = model_of(c);
  c.pp = c.tp = c.tp2 = c.tp3 = c.cp = 1;
  STRATA_TRY_ASSIGN(const ProgramSet programs, split_programs(model, c, 0));
  return Engine::plan(programs, split_options(c, dir));
}

Result<std::unique_ptr<const RunPlan>> plan_split(const SplitCase& c, std::int32_t rank,
                                                  const std::string& dir) {
  SessionOptions options = split_options(c, dir);
  options.ranks = data_parallel(split_config(c, rank));
  options.model = model_parallel(split_config(c, rank));
  STRATA_TRY_ASSIGN(const ProgramSet programs, split_programs(c, rank));
  const bool assigns = c.assign_homes != nullptr && (!c.ranks_differ || rank % 2 == 1);
  return assigns ? Engine::plan_with(programs, options, c.assign_homes) : Engine::plan(programs, options);
}

void mixed_homes(const ChunkLayout& layout, Placement& placement) {
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::accum})
      if (layout.has(chunk, payload))
        placement.homes[chunk][static_cast<std::size_t>(payload)] =
            chunk % 4 == 0                                     ? Tier::device
            : (chunk + static_cast<ChunkId>(payload)) % 2 == 0 ? Tier::pinned
                                                               : Tier::nvme;
}

Status collect_parts(Engine& engine, RankOutcome& outcome) {
  const TensorTable& tensors = engine.state_plan().tensors;
  for (const Payload payload : engine.state_plan().states())
    STRATA_TRY(engine.visit(payload, [&](const StatePiece& piece, std::span<const float> values) {
      const auto t = static_cast<std::size_t>(piece.tensor);
      const TensorPart part =
          tensors.parts.empty() ? TensorPart::all_of(tensors.shapes[t]) : tensors.parts[t];
      std::vector<float>& tensor = outcome.states[std::string(to_string(payload))][std::string(piece.name)];
      tensor.resize(static_cast<std::size_t>(part.whole.n_elems()), RankRun::kAbsent);
      part.for_each_run(piece.offset, std::ssize(values),
                        [&](std::int64_t whole, std::int64_t own, std::int64_t n) {
                          std::copy_n(values.begin() + (own - piece.offset), n, tensor.begin() + whole);
                        });
      return Status::ok();
    }));
  return {};
}

Status train_split(Engine& engine, RankOutcome& outcome, int steps) {
  CountingBatches batches(kSplitVocab);
  for (int step = 0; step < steps; ++step) {
    StepReport report;
    STRATA_TRY(engine.train_step(batches, 1e-3, report));
    outcome.bits.push_back(std::bit_cast<std::uint32_t>(report.loss));
    outcome.bits.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
    outcome.losses.push_back(report.loss);
    outcome.clipped += report.clip_factor < 1 ? 1 : 0;
  }
  STRATA_TRY_ASSIGN(const double loss, engine.evaluate(batches, 3));
  outcome.evaluated.push_back(static_cast<float>(loss));
  return collect_parts(engine, outcome);
}

RankOutcome run_split(const SplitCase& c, const RankBody& body) {
  const TempDir dir;
  const RankRun run{.plan = [&](std::int32_t rank) { return plan_split(c, rank, dir.path()); },
                    .ranks = c.ranks()};
  return run.run(body);
}
RankOutcome train_split(const SplitCase& c) {
  return run_split(c, [&](Engine& engine, RankOutcome& outcome) {
    STRATA_TRY(engine.initialize(3));
    return train_split(engine, outcome, c.steps);
  });
}

}  // namespace strata::test
