#include "ranks/rank_facets.h"

#include <strata/simd/isa.h>
#include <strata/parallel/compare_ranks.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

RankFacet settings(const StatePlan& plan) {
  const SessionOptions& o = plan.options;
  const cpuopt::OptimizerParams& p = o.optimizer;
  RankFacet facet{"settings",
                  {str("micro-batches of a step = ", o.grad_accum), str("clip = ", o.clip),
                   str("optimizer = ", cpuopt::to_string(p.optimizer), ", betas ", p.beta1, " ", p.beta2,
                       ", eps ", p.eps, ", momentum ", p.momentum, p.nesterov ? ", nesterov" : ""),
                   str("rounding seed = ", o.rounding_seed), str("loss scale = ", o.loss_scale),
                   str("not finite = ", o.non_finite == NonFinite::stop ? "stop" : "skip"),
                   str("frozen parameters are ", o.saves_frozen ? "saved" : "left out of checkpoints"),
                   str("ranks = ", o.ranks.ranks, ", zero = ", o.ranks.zero,
                       ", shard_ranks = ", o.ranks.shard_ranks, ", reduce = ", to_string(o.ranks.reduce)),
                   str("the model is shared by ", to_string(o.model))}};
  if (exchanges_norms(o))  // in the order of the updates
    facet.lines.push_back(
        str("updates = ", o.step_mode == StepMode::serial ? "at the end of the step" : "before their use"));
  return facet;
}

RankFacet tensors(const StatePlan& plan) {
  RankFacet facet{"tensors", {}};
  for (const std::int32_t number : plan.tensors.tensor_of_param) {  // the order of first use may differ
    const auto tensor = static_cast<std::size_t>(number);
    std::string line = str(plan.tensors.specs[tensor].name, " ", to_string(plan.tensors.whole_shape(tensor)));
    if (plan.trains()) {
      const UpdateRule& rule = plan.rules[static_cast<std::size_t>(plan.rule_of_tensor[tensor])];
      line += str(": lr times ", rule.lr_scale, ", weight decay ", rule.weight_decay);
    }
    facet.lines.push_back(std::move(line));
  }
  return facet;
}

// The layout is compared between the ranks that have the same part of the model.
RankFacet layout(const StatePlan& plan) {
  RankFacet facet{"layout of chunks", {}, plan.options.model.rank};
  for (const LayoutTensor& tensor : plan.tensors.specs)
    facet.lines.push_back(str(tensor.name, ": ", tensor.n_elems, " elements"));
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
    const GroupKey& group = plan.layout.group_of(chunk);
    facet.lines.push_back(str("chunk ", chunk, ": ", plan.layout.chunk(chunk).n_elems, " elements, ",
                              to_string(group.compute), " parameters, ", to_string(group.grad),
                              " gradients, ", to_string(group.accum), " sums, ",
                              group.trainable ? to_string(group.format) : "frozen"));
  }
  return facet;
}

// In the order in which a pass queues them.
RankFacet collectives(const PassSchedule& training, std::int32_t group) {
  RankFacet facet{"collectives", {}, group};
  const GatherSchedule none;
  for (const GatherSchedule::Gather& gather :
       (training.parts.empty() ? none : training.parts.front().gathers).gathers)
    facet.lines.push_back(str("gather chunk ", gather.chunk, " before instruction ", gather.begin,
                              ", used by ", gather.first, " to ", gather.last));
  for (const auto& [position, chunk] : training.ready)
    facet.lines.push_back(str("reduce chunk ", chunk, " after instruction ", position));
  return facet;
}

}  // namespace

Status check_ranks_agree(StateContext& context, const PassSchedule& training) {
  if (context.world() == nullptr) return {};
  const StatePlan& plan = context.plan();
  const RankFacet facets[] = {{"build of strata", {build_id()}},
                              {"instruction set", {std::string(simd::to_string(simd::active_isa()))}},
                              settings(plan),
                              tensors(plan),
                              layout(plan),
                              collectives(training, plan.options.model.rank)};
  return compare_ranks(*context.world(), facets);
}

}  // namespace strata::detail
