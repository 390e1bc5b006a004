#include "conversions.h"

// Keys for changes of data and models: refused where they would change the result.
namespace strata::detail {
namespace {

/// compile.offload_activation.
Outcome offload_activation(const TableRow&, const Json& value, const Document&) {
  if (!value.is_boolean()) return not_a_boolean();
  if (value == false) return meaningless("offload.activations decides");
  return taken("offload.activations", "pinned", "activations are in pinned RAM between forward and backward");
}

constexpr std::string_view kData = "strata trains on all data in its own order";
constexpr std::string_view kTensorParallel = "strata does not divide tensors of a layer among ranks";
constexpr std::string_view kPipeline = "strata does not divide layers among ranks";
constexpr std::string_view kExperts = "strata's models have no experts";
constexpr std::string_view kHybrid = "strata generates and trains in different commands";
constexpr std::string_view kElastic = "set the batch; a checkpoint resumes with any number of ranks";
constexpr std::string_view kCompiled = "strata compiles a model's program itself";
constexpr std::string_view kPlaced = "strata decides by the budgets what is offloaded";
constexpr TableRow kDataAndModelsRows[] = {
    {{"data_efficiency.enabled", DsVerdict::refused, "data.train", kData}, nullptr, "false"},
    {{"data_efficiency.seed", DsVerdict::meaningless, "train.seed", "of what data_efficiency switches on"}},
    {{"data_efficiency.data_sampling.enabled", DsVerdict::refused, "data.train", kData}, nullptr, "false"},
    {{"data_efficiency.data_sampling.num_epochs", DsVerdict::meaningless, "train.steps",
      "train.steps sets the length of a run"}},
    {{"data_efficiency.data_sampling.num_workers", DsVerdict::meaningless, "", "data is mapped, not loaded"}},
    {{"data_efficiency.data_sampling.pin_memory", DsVerdict::meaningless, "", "data is mapped, not loaded"}},
    {{"data_efficiency.data_sampling.curriculum_learning.enabled", DsVerdict::refused, "", kData},
     nullptr,
     "false"},
    {{"data_efficiency.data_sampling.curriculum_learning.*", DsVerdict::refused, "", kData}},
    {{"data_efficiency.data_sampling.dynamic_batching.enabled", DsVerdict::refused, "train.micro_batch",
      kData},
     nullptr,
     "false"},
    {{"data_efficiency.data_sampling.dynamic_batching.*", DsVerdict::refused, "train.micro_batch", kData}},
    {{"data_efficiency.data_sampling.*", DsVerdict::refused, "", kData}},
    {{"data_efficiency.data_routing.enabled", DsVerdict::refused, "", "strata drops no tokens"},
     nullptr,
     "false"},
    {{"data_efficiency.data_routing.random_ltd.enabled", DsVerdict::refused, "", "strata drops no tokens"},
     nullptr,
     "false"},
    {{"data_efficiency.data_routing.random_ltd.*", DsVerdict::refused, "", "strata drops no tokens"}},
    {{"curriculum_learning.enabled", DsVerdict::refused, "", kData}, nullptr, "false"},
    {{"curriculum_learning.*", DsVerdict::refused, "", kData}},
    {{"progressive_layer_drop.enabled", DsVerdict::refused, "", "strata drops no layers"}, nullptr, "false"},
    {{"progressive_layer_drop.*", DsVerdict::refused, "", "strata drops no layers"}},
    {{"sparse_attention.*", DsVerdict::refused, "train.attention_backend", "strata's attention is exact"}},
    {{"tensor_parallel.autotp_size", DsVerdict::refused, "", kTensorParallel}, nullptr, "0|1"},
    {{"tensor_parallel.dtype", DsVerdict::meaningless, "train.dtype", "of an engine that strata lacks"}},
    {{"tensor_parallel.tp_overlap_comm", DsVerdict::meaningless, "", "no layer waits for other ranks"}},
    {{"tensor_parallel.vocab_parallel_lm_head", DsVerdict::refused, "", kTensorParallel}, nullptr, "false"},
    {{"tensor_parallel.vocab_parallel_ce_backend", DsVerdict::meaningless, "",
      "the loss is computed by rows"}},
    {{"tensor_parallel.tp.tp_size", DsVerdict::refused, "", kTensorParallel}, nullptr, "1"},
    {{"tensor_parallel.tp.tp_grain_size", DsVerdict::meaningless, "", kTensorParallel}},
    {{"tensor_parallel.tp.mpu", DsVerdict::refused, "", kTensorParallel}},
    {{"tensor_parallel.tp.tp_group", DsVerdict::refused, "", kTensorParallel}},
    {{"tensor_parallel.injection_policy_tuple", DsVerdict::refused, "", kTensorParallel}},
    {{"tensor_parallel.partition_config", DsVerdict::refused, "", kTensorParallel}},
    {{"tensor_parallel.preset_model", DsVerdict::refused, "", kTensorParallel}},
    {{"tensor_parallel.keep_module_on_host", DsVerdict::meaningless, "", "weights are read where they live"}},
    {{"tensor_parallel.kernel_inject", DsVerdict::meaningless, "", "strata has its own kernels"}},
    {{"expert_parallel.enabled", DsVerdict::refused, "", kExperts}, nullptr, "false"},
    {{"expert_parallel.*", DsVerdict::refused, "", kExperts}},
    {{"pipeline.stages", DsVerdict::refused, "", kPipeline}, nullptr, "1|\"auto\"", 0, 0, true},
    {{"pipeline.partition", DsVerdict::meaningless, "", kPipeline}},
    {{"pipeline.seed_layers", DsVerdict::refused, "train.seed", "strata seeds by tensor"}, nullptr, "false"},
    {{"pipeline.activation_checkpoint_interval", DsVerdict::meaningless, "train.recompute",
      "strata decides by tensor what is recomputed"}},
    {{"pipeline.pipe_partitioned", DsVerdict::meaningless, "", kPipeline}},
    {{"pipeline.grad_partitioned", DsVerdict::meaningless, "", kPipeline}},
    {{"pipeline.*", DsVerdict::refused, "", kPipeline}},
    {{"hybrid_engine.enabled", DsVerdict::refused, "", kHybrid}, nullptr, "false"},
    {{"hybrid_engine.max_out_tokens", DsVerdict::refused, "", kHybrid}},
    {{"hybrid_engine.inference_tp_size", DsVerdict::refused, "", kHybrid}},
    {{"hybrid_engine.release_inference_cache", DsVerdict::refused, "", kHybrid}},
    {{"hybrid_engine.pin_parameters", DsVerdict::refused, "", kHybrid}},
    {{"hybrid_engine.tp_gather_partition_size", DsVerdict::refused, "", kHybrid}},
    {{"hybrid_engine.enable_cuda_graph", DsVerdict::refused, "", kHybrid}},
    {{"elasticity.enabled", DsVerdict::refused, "train.grad_accum", kElastic}, nullptr, "false"},
    {{"elasticity.*", DsVerdict::refused, "train.grad_accum", kElastic}},
    {{"graph_harvesting", DsVerdict::meaningless, "", kCompiled}},
    {{"compile.deepcompile", DsVerdict::meaningless, "", kCompiled}},
    {{"compile.autoep_non_moe", DsVerdict::meaningless, "", kCompiled}},
    {{"compile.enabled", DsVerdict::meaningless, "", kCompiled}},
    {{"compile.backend", DsVerdict::meaningless, "", kCompiled}},
    {{"compile.kwargs.*", DsVerdict::meaningless, "", kCompiled}},
    {{"compile.free_activation", DsVerdict::meaningless, "",
      "activations are given back after their last use"}},
    {{"compile.free_activation_threshold", DsVerdict::meaningless, "",
      "activations are given back after their last use"}},
    {{"compile.offload_activation", DsVerdict::taken, "offload.activations", "activations in RAM"},
     offload_activation},
    {{"compile.offload_activation_pin_memory", DsVerdict::meaningless, "", "strata's RAM is always pinned"}},
    {{"compile.offload_opt_states", DsVerdict::meaningless, "memory.device", kPlaced}},
    {{"compile.offload_parameters", DsVerdict::meaningless, "memory.device", kPlaced}},
    {{"compile.double_buffer", DsVerdict::meaningless, "offload.prefetch", kPlaced}},
    {{"compile.symmetric_memory", DsVerdict::meaningless, "", "how ranks exchange data changes no result"}},
    {{"compile.debug_log", DsVerdict::meaningless, "log.level", kCompiled}},
    {{"compile.sync_before_reduce", DsVerdict::meaningless, "",
      "streams wait for each other where they must"}},
    {{"compile.sync_after_reduce", DsVerdict::meaningless, "",
      "streams wait for each other where they must"}},
    {{"compile.sync_before_allgather", DsVerdict::meaningless, "",
      "streams wait for each other where they must"}},
    {{"compile.sync_after_allgather", DsVerdict::meaningless, "",
      "streams wait for each other where they must"}},
    {{"compile.keep_int_input_tensors", DsVerdict::meaningless, "", kCompiled}},
    {{"compile.keep_all_input_tensors", DsVerdict::meaningless, "", kCompiled}},
    {{"compile.passes", DsVerdict::meaningless, "", kCompiled}},
};

}  // namespace

std::span<const TableRow> data_and_model_rows() noexcept { return kDataAndModelsRows; }

}  // namespace strata::detail
