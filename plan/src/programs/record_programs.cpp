#include <algorithm>
#include <array>

#include <strata/chunk/layout.h>
#include <strata/graph/op_list.h>
#include <strata/graph/partition.h>
#include <strata/graph/passes.h>
#include <strata/graph/subspace_passes.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/values/attention_order.h>
#include <strata/kernels/fp8.h>
#include <strata/model/decoder.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/plan/expert_rows.h>
#include <strata/plan/split/model_pipeline.h>
#include <strata/plan/split/split_model.h>
#include <strata/plan/subspaces.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>
#include <strata/plan/record_programs.h>
#include <strata/plan/activation_choices.h>

#include "programs/policy_programs.h"
#include "programs/training_program.h"

namespace strata {
namespace {

// Typical rates of a server GPU, or of the host backend on a few cores, whose link is a copy in RAM, and of
// an NVMe disk. They decide which activations are worth offloading.
OffloadOptions activation_offload_options(const TrainConfig& config, double share) {
  if (config.memory.backend == "cuda")
    return {.share = share,
            .flops_per_s = 4e14,
            .memory_bytes_per_s = 3e12,
            .link_bytes_per_s = 4e10,
            .store_bytes_per_s = 4e9};
  return {.share = share,
          .flops_per_s = 1e11,
          .memory_bytes_per_s = 1e10,
          .link_bytes_per_s = 5e9,
          .store_bytes_per_s = 1e9};
}

Status no_fp8_gemm(const TrainConfig& config) {
  const DecoderConfig model = decoder_config(config);
  return Status::error(Code::invalid,
                       str("train.fp8 = true, but no GEMM of a block has dimensions that are multiples of ",
                           kernels::kFp8Multiple, ": ", config.train.micro_batch, " * ", model.seq,
                           " tokens, model.hidden = ", model.hidden, ", model.ffn = ", model.ffn));
}

kernels::AttentionOrder attention_order(const TrainConfig& config) {
  // Programs that are recorded before a machine is known have what every GPU has.
  if (config.train.attention_backend == "auto")
    return {{kernels::AttentionBackend::mma}, {kernels::AttentionBackend::mma}};
  return must(kernels::parse_attention_order(config.train.attention_backend));  // checked when it was loaded
}

// A single backend must support the model; of several, each layer takes the first that does. Also checked on
// the host backend, whose attention does not depend on the setting: otherwise a run started there could not
// be continued on a GPU that refuses it.
Status check_attention_backend(const TrainConfig& config) {
  const kernels::AttentionOrder order = attention_order(config);
  if (order.forward.size() > 1 || order.forward.front() == kernels::AttentionBackend::mma) return {};
  const DecoderConfig d = with_derived_sizes(decoder_config(config));
  const std::int64_t seq = d.seq + virtual_tokens(config);
  kernels::AttentionHeads heads = {
      .heads = d.heads,
      .kv_heads = d.kv_heads,
      .seq = seq,
      .alibi = d.position == DecoderConfig::Position::alibi,
      .backend = order.forward.front(),
      .window = std::count(d.sliding.begin(), d.sliding.end(), false) == 0 && d.window < seq ? d.window : 0,
      .softcap = d.score_softcap,
      .scale = score_scale(d)};
  const bool packed = config.data.packing == "pack",
             of_cudnn = heads.backend == kernels::AttentionBackend::cudnn;
  const std::int64_t tokens = config.train.micro_batch * seq;
  std::int64_t head_dim = d.head_dim;
  const auto are_supported = [&] {
    return kernels::effective_attention_backend(heads, tokens, compute_dtype(config), head_dim, packed,
                                                false) == heads.backend;
  };
  if (are_supported()) {
    if (!d.full_heads) return {};
    heads.kv_heads = d.full_heads->kv_heads;
    head_dim = d.full_heads->head_dim;
    if (are_supported()) return {};
  }
  const std::string with = str(head_dim, " values in ", to_string(compute_dtype(config)));
  if (!of_cudnn)
    return Status::error(
        Code::invalid,
        str("train.attention_backend = wgmma, but it does not support the attention of this model: heads of ",
            with, heads.softcap > 0 ? ", with a soft cap" : "",
            "; it supports heads of 64 and 128 values in bf16 or f16 without a soft cap"));
  return Status::error(
      Code::invalid,
      str("train.attention_backend = cudnn, but it does not support the attention of this model: ",
          config.train.micro_batch, " sequences of ", seq, " tokens with ", d.heads, " heads of ", with,
          heads.alibi ? ", with ALiBi" : "", packed ? ", with packed documents" : "",
          heads.window > 0 ? ", with a window" : "", heads.softcap > 0 ? ", with a soft cap" : "",
          heads.scale > 0 ? ", with a custom scale" : "",
          "; it supports heads of 16 to 128 values, a multiple of 8, in bf16 or f16, without ALiBi, packed "
          "documents, windows, soft caps or custom scales, "
          "of 2 to 262144 tokens, and at most 1048576 of them in all sequences"));
}

}  // namespace

Program specialize_for_backend(Program program, const TrainConfig& config) {
  program = detail::with_expert_blocks(std::move(program), config);
  program = simplify_collectives(std::move(program));
  if (config.train.fp8) program = use_fp8(std::move(program));
  program = fuse_add_norm(std::move(program));
  if (config.memory.backend != "cuda") return program;
  program = select_attention_backend(std::move(program), attention_order(config));
  return assign_gemm_workspaces(std::move(program));
}

// Trains the head of a reward model, which the base lacks: an adapter freezes everything else.
Result<Program> with_trained_score(Result<Program> program) {
  if (!program.has_value()) return program;
  for (ParamInfo& param : program->params)
    if (param.name == kScoreWeight) param.trainable = true;
  return program;
}

namespace {

Result<Program> record_loss(const TrainConfig& config, AdapterUse use) {
  if (objective_of(config).data == RunData::pairs) {
    STRATA_TRY_ASSIGN(Program program,
                      record_pair_loss(decoder_config(config), pair_program(config), compute_dtype(config)));
    return with_trained_score(with_adapters(std::move(program), config, decoder_config(config)));
  }
  const DecoderRows rows = config.data.packing == "pack" ? DecoderRows::packed : DecoderRows::whole;
  STRATA_TRY_ASSIGN(Program program,
                    record_decoder(decoder_config(config), config.train.micro_batch, DecoderHead::loss, rows,
                                   compute_dtype(config),
                                   use == AdapterUse::training ? router_losses(config) : RouterLosses{}));
  if (has_expert_rows(config)) program = with_expert_rows(std::move(program));
  return with_adapters(std::move(program), config, decoder_config(config), use);
}

}  // namespace

Result<Program> record_evaluation(const TrainConfig& config) {
  return record_loss(config, AdapterUse::inference);
}

namespace {

/// The program that is trained: that of the evaluation, unless it drops something out or has losses of
/// routers.
Result<Program> training_forward(const TrainConfig& config, const Program& evaluation) {
  if (!has_dropout(config) && !router_losses(config).any()) return evaluation;
  return record_loss(config, AdapterUse::training);
}

// Applies the configuration's choices for a program with a backward pass and its arena.
Program with_activation_choice(Program program, const TrainConfig& config,
                               const ActivationChoice& activations) {
  program = specialize_for_backend(std::move(program), config);
  program =
      offload_activations(std::move(program), activation_offload_options(config, activations.offload_share));
  if (!activations.to_nvme) return program;
  return store_activations(std::move(program), activation_offload_options(config, 1));
}

std::int32_t micro_batches_of_rank(const TrainConfig& config) {
  return config.train.grad_accum / data_parallel(config).ranks;
}

}  // namespace

namespace detail {

Program with_expert_blocks(Program program, const TrainConfig& config) {
  ExpertBlocks blocks{.experts = config.offload.expert_block.value_or(0),
                      .align_elems = ChunkLayout::kSliceAlign};
  // A block is an instruction of each micro-batch, which a window of many gigabytes need not have.
  constexpr std::uint64_t kBlocksOfDevice = 128, kMostBytes = 512ull << 20;
  const std::uint64_t share = config.memory.device_bytes.value_or(0) / kBlocksOfDevice;
  blocks.bytes = std::max(blocks.bytes, static_cast<std::int64_t>(std::min(share, kMostBytes)));
  return split_experts(std::move(program), blocks);
}

Result<Program> with_trainable(Program program, const TrainConfig& config,
                               std::span<const LoraGroup> subspaces) {
  if (subspaces.empty()) return freeze_parameters(std::move(program), config.train.freeze);
  // with_subspaces() has frozen the others. To clip by it, a step computes the gradient of the matrices, too.
  if (measures_whole_gradients(config)) return program;
  return freeze_matrices(std::move(program), subspaces);
}

Result<Program> record_derivative(const TrainConfig& config, const ActivationChoice& activations,
                                  Program forward) {
  STRATA_TRY_ASSIGN(Program train, derive_backward(std::move(forward), "loss"));
  train = simplify_collectives(std::move(train));
  if (config.train.fp8) {
    train = use_fp8(std::move(train));
    if (!has_op(train, Op::fp8_gemm)) return no_fp8_gemm(config);
  }
  return with_expert_blocks(recompute_regions(std::move(train), activations.recompute), config);
}

Result<Program> record_training(const TrainConfig& config, const ActivationChoice& activations, Program train,
                                std::span<const LoraGroup> subspaces) {
  if (activations.breadth_first) train = interleave_micro_batches(train, micro_batches_of_rank(config));
  if (measures_whole_gradients(config)) {
    STRATA_TRY_ASSIGN(train, add_gradient_outside(std::move(train), subspaces));
  }
  return with_activation_choice(std::move(train), config, activations);
}

}  // namespace detail

namespace {

// The program that finds the bases of the run's subspaces from the gradients of a step.
Result<Program> record_refresh(const TrainConfig& config, const ActivationChoice& activations,
                               const Program& evaluation, std::span<const LoraGroup> subspaces) {
  STRATA_TRY_ASSIGN(Program forward, train_only_matrices(evaluation, subspaces));
  STRATA_TRY_ASSIGN(Program refresh, derive_backward(std::move(forward), "loss"));
  refresh = detail::with_expert_blocks(recompute_regions(std::move(refresh), activations.recompute), config);
  if (const std::int32_t n = micro_batches_of_rank(config); n > 1)
    refresh = interleave_micro_batches(refresh, n);
  const auto method =
      config.optim.galore_svd == "exact" ? kernels::SvdMethod::exact : kernels::SvdMethod::subspace;
  STRATA_TRY_ASSIGN(refresh, find_bases(std::move(refresh), subspaces, method));
  // The slow tier holds activations for a training program alone; those of this one stay in pinned RAM.
  ActivationChoice in_ram = activations;
  in_ram.to_nvme = false;
  return with_activation_choice(std::move(refresh), config, in_ram);
}

// The model for one sequence.
Result<Program> record_inference(const TrainConfig& config) {
  STRATA_TRY_ASSIGN(Program inference, record_decoder(decoder_config(config), 1, DecoderHead::logits,
                                                      DecoderRows::whole, compute_dtype(config)));
  return with_adapters(std::move(inference), config, decoder_config(config));
}

}  // namespace

Result<Program> record_micro_batch(const TrainConfig& config, const ActivationChoice& activations) {
  STRATA_TRY_ASSIGN(Program evaluation, record_evaluation(config));
  STRATA_TRY(split_among_ranks({&evaluation, 1}, config, decoder_config(config).tied_head));
  STRATA_TRY_ASSIGN(const std::vector<LoraGroup> subspaces, subspace_groups(config, decoder_config(config)));
  STRATA_TRY_ASSIGN(Program train, training_forward(config, evaluation));
  STRATA_TRY_ASSIGN(train, detail::with_trainable(std::move(train), config, subspaces));
  STRATA_TRY_ASSIGN(train, detail::record_derivative(config, activations, std::move(train)));
  return specialize_for_backend(std::move(train), config);
}

Result<Program> record_reference(const TrainConfig& config) {
  STRATA_TRY_ASSIGN(Program reference,
                    record_pair_scores(decoder_config(config), pair_program(config), compute_dtype(config)));
  STRATA_TRY_ASSIGN(reference, with_adapters(std::move(reference), config, decoder_config(config)));
  return specialize_for_backend(std::move(reference), config);
}

Result<ProgramSet> record_programs(const TrainConfig& config, const ActivationChoice& activations) {
  STRATA_TRY(check_attention_backend(config));
  if (objective_of(config).data == RunData::prompts)
    return detail::record_policy_programs(config, activations);
  std::array<Program, 2> forward;
  auto& [evaluation, inference] = forward;
  STRATA_TRY_ASSIGN(evaluation, record_evaluation(config));
  STRATA_TRY_ASSIGN(inference, record_inference(config));
  STRATA_TRY(split_among_ranks(forward, config, decoder_config(config).tied_head));
  STRATA_TRY_ASSIGN(const std::vector<LoraGroup> subspaces, subspace_groups(config, decoder_config(config)));
  STRATA_TRY_ASSIGN(Program train, training_forward(config, evaluation));
  STRATA_TRY_ASSIGN(train, detail::with_trainable(std::move(train), config, subspaces));
  STRATA_TRY_ASSIGN(train, detail::record_derivative(config, activations, std::move(train)));
  if (config.parallel.pp > 1) {
    STRATA_TRY_ASSIGN(const ModelPipeline pipeline, ModelPipeline::create(train, config));
    STRATA_TRY_ASSIGN(train, pipeline.training(train));
    for (Program& each : forward) {
      STRATA_TRY_ASSIGN(each, pipeline.forward(detail::with_expert_blocks(std::move(each), config)));
    }
  }
  STRATA_TRY_ASSIGN(train, detail::record_training(config, activations, std::move(train), subspaces));
  ProgramSet set;
  set.add({"train", ProgramRole::train, std::move(train)});
  if (!subspaces.empty()) {
    STRATA_TRY_ASSIGN(Program refresh, record_refresh(config, activations, evaluation, subspaces));
    set.add({"refresh", ProgramRole::refresh, std::move(refresh)});
  }
  set.add({"eval", ProgramRole::eval, specialize_for_backend(std::move(evaluation), config)});
  if (objective_of(config).scores) return set;  // it gives no tokens
  set.add({"infer", ProgramRole::infer, specialize_for_backend(std::move(inference), config)});
  if (!objective_of(config).has_reference) return set;
  STRATA_TRY_ASSIGN(Program reference, record_reference(config));
  set.add({kReferenceProgram, ProgramRole::forward, std::move(reference)});
  return set;
}

}  // namespace strata
