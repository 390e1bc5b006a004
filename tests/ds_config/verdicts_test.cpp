// Keys whose verdict depends on values, by the section that they belong to.
#include "ds_config/findings.h"

#include <gmock/gmock.h>

namespace strata {
namespace {

using test::findings_of;
using test::reason_of;
using test::verdict_of;
using ::testing::HasSubstr;

/// A document, one of its keys, and what the key sets.
struct Case {
  const char* json;
  const char* key;
  const char* expected;
};
void check(std::initializer_list<Case> cases) {
  for (const Case& one : cases) EXPECT_EQ(verdict_of(one.json, one.key), one.expected) << one.json;
}

TEST(DsVerdictTest, TheBatchDeterminesTheMicroBatchesOfAllRanks) {
  check({
      {R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})", "train_batch_size",
       "taken train.grad_accum=16"},
      {R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})",
       "gradient_accumulation_steps", "meaningless"},
      {R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})",
       "train_batch_size", "taken train.grad_accum=16"},
      {R"({"train_batch_size": 64, "gradient_accumulation_steps": 2})", "train_batch_size",
       "taken train.micro_batch=32"},
      {R"({"train_batch_size": 64, "gradient_accumulation_steps": 2})", "gradient_accumulation_steps",
       "taken train.grad_accum=2"},
      {R"({"train_batch_size": 64})", "train_batch_size",
       "taken train.micro_batch=64, taken train.grad_accum=1"},
      {R"({"train_batch_size": 66, "train_micro_batch_size_per_gpu": 4})", "train_batch_size", "refused"},
      {R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3})",
       "train_batch_size", "refused"},
      {R"({"train_batch_size": 0})", "train_batch_size", "refused"},
      {R"({"train_batch_size": "auto"})", "train_batch_size", "auto"},
      {R"({"gradient_clipping": 0})", "gradient_clipping", "taken optim.clip=0"},
      {R"({"gradient_allreduce_op": "mean"})", "gradient_allreduce_op", "meaningless"},
      {R"({"gradient_allreduce_op": "sum"})", "gradient_allreduce_op", "refused"},
  });
}

TEST(DsVerdictTest, AnOptimizerIsTheOneThatComputesTheSame) {
  check({
      {R"({"optimizer": {"type": "Adam"}})", "optimizer.type", "taken optim.name=\"adamw\""},
      {R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})", "optimizer.type",
       "taken optim.name=\"adam\""},
      {R"({"optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}}})", "optimizer.type",
       "taken optim.name=\"adamw\""},
      {R"({"optimizer": {"type": "Lion"}})", "optimizer.type", "taken optim.name=\"lion\""},
      {R"({"optimizer": {"type": "SGD"}})", "optimizer.type", "taken optim.name=\"sgd\""},
      {R"({"optimizer": {"type": "Lamb"}})", "optimizer.type", "refused"},
      {R"({"optimizer": {"type": "OneBitAdam"}})", "optimizer.type", "refused"},
      {R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}})", "optimizer.params.betas", "refused"},
      {R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9, 1]}}})", "optimizer.params.betas",
       "refused"},
      {R"({"optimizer": {"type": "Adam", "params": {"bias_correction": true}}})",
       "optimizer.params.bias_correction", "meaningless"},
      {R"({"optimizer": {"type": "Adam", "params": {"bias_correction": false}}})",
       "optimizer.params.bias_correction", "refused"},
      {R"({"optimizer": {"type": "Adam", "params": {"fp32_optimizer_states": false}}})",
       "optimizer.params.fp32_optimizer_states", "taken offload.states=\"bf16\""},
      {R"({"fp16": {"enabled": true}, "optimizer": {"params": {"fp32_optimizer_states": false}}})",
       "optimizer.params.fp32_optimizer_states", "refused"},
  });
}

TEST(DsVerdictTest, MuonIsRefusedByName) {
  check({
      {R"({"optimizer": {"type": "Muon"}})", "optimizer.type", "refused"},
      {R"({"optimizer": {"type": "Muon", "params": {"ns_method": "gram"}}})", "optimizer.params.ns_method",
       "refused"},
  });
}

TEST(DsVerdictTest, DefaultsOfDeepSpeedAreSetWhereStratasDiffer) {
  check({
      {R"({"optimizer": {"type": "Adam"}})", "optimizer.params.betas",
       "taken optim.beta1=0.9, taken optim.beta2=0.999"},
      {R"({"optimizer": {"type": "Adam"}})", "optimizer.params.weight_decay", "taken optim.weight_decay=0.0"},
      {R"({"optimizer": {"type": "AdamW", "params": {"torch_adam": true}}})", "optimizer.params.weight_decay",
       "taken optim.weight_decay=0.01"},
      {R"({"optimizer": {"type": "Adagrad"}})", "optimizer.params.lr", "taken optim.lr=0.01"},
      {R"({"optimizer": {"type": "Adagrad"}})", "optimizer.params.betas", ""},
      {R"({"optimizer": {"type": "SGD"}})", "optimizer.params.momentum", "taken optim.momentum=0.0"},
      {R"({"optimizer": {"type": "Adam"}})", "scheduler.type",
       "taken optim.schedule=\"constant\", taken optim.warmup=0"},
      {R"({"optimizer": {"type": "Adam", "params": {"lr": "auto"}}})", "scheduler.type", ""},
      {R"({})", "bf16.enabled", "taken train.dtype=\"f32\""},
  });
  for (const DsFinding& one : findings_of(R"({"optimizer": {"type": "Adam", "params": {"lr": 1}}})"))
    EXPECT_EQ(one.is_default, one.key != "optimizer.type" && one.key != "optimizer.params.lr") << one.key;
}

TEST(DsVerdictTest, ASchedulerIsTakenIfItsRatesAreStratas) {
  const auto with = [](std::string_view type, std::string_view params) {
    return str(R"({"scheduler": {"type": ")", type, R"(", "params": {)", params, "}}}");
  };
  const std::string linear = R"("warmup_type": "linear")";
  EXPECT_EQ(verdict_of(with("WarmupLR", linear), "scheduler.type"), "taken optim.schedule=\"constant\"");
  EXPECT_EQ(verdict_of(with("WarmupDecayLR", linear), "scheduler.type"),
            "taken optim.schedule=\"linear\", taken optim.min_lr_ratio=0");
  EXPECT_EQ(verdict_of(with("WarmupDecayLR", linear), "scheduler.params.warmup_max_lr"),
            "taken optim.lr=0.001");
  EXPECT_EQ(verdict_of(with("WarmupCosineLR", linear), "scheduler.params.cos_min_ratio"),
            "taken optim.min_lr_ratio=0.0001");
  EXPECT_EQ(verdict_of(with("WarmupLR", ""), "scheduler.params.warmup_type"), "refused");
  EXPECT_THAT(reason_of(with("WarmupLR", ""), "scheduler.params.warmup_type"), HasSubstr("is log"));
  EXPECT_EQ(verdict_of(with("WarmupLR", ""), "scheduler.params.warmup_num_steps"), "taken optim.warmup=1000");
  EXPECT_EQ(verdict_of(with("WarmupLR", R"("warmup_num_steps": 1)"), "scheduler.params.warmup_num_steps"),
            "taken optim.warmup=2");
  EXPECT_EQ(verdict_of(with("WarmupLR", R"("warmup_min_lr": 0)"), "scheduler.params.warmup_min_lr"),
            "meaningless");
  EXPECT_EQ(verdict_of(with("WarmupLR", R"("warmup_min_lr": 1e-5)"), "scheduler.params.warmup_min_lr"),
            "refused");
  EXPECT_EQ(verdict_of(with("WarmupLR", R"("total_num_steps": 9)"), "scheduler.params.total_num_steps"),
            "refused");
  EXPECT_EQ(verdict_of(with("OneCycle", R"("cycle_min_lr": 0)"), "scheduler.type"), "refused");
  EXPECT_EQ(verdict_of(with("OneCycle", R"("cycle_min_lr": 0)"), "scheduler.params.warmup_type"), "");
}

TEST(DsVerdictTest, TheRateOfTheSchedulerIsTheOneThatCounts) {
  const char* const json = R"({"optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 2e-3, "warmup_type": "linear"}}})";
  EXPECT_EQ(verdict_of(json, "optimizer.params.lr"), "meaningless");
  EXPECT_EQ(verdict_of(json, "scheduler.params.warmup_max_lr"), "taken optim.lr=0.002");
}

TEST(DsVerdictTest, TheDtypeAndTheLossScale) {
  check({
      {R"({"fp16": {"enabled": true}, "bf16": {"enabled": false}})", "fp16.enabled",
       "taken train.dtype=\"f16\""},
      {R"({"fp16": {"enabled": true}, "bf16": {"enabled": false}})", "bf16.enabled", "meaningless"},
      {R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", "bf16.enabled", "refused"},
      {R"({"fp16": {"enabled": false}})", "fp16.enabled", "taken train.dtype=\"f32\""},
      {R"({"fp16": {"enabled": false}, "bf16": {"enabled": "auto"}})", "fp16.enabled", "meaningless"},
      {R"({"fp16": {"enabled": true, "initial_scale_power": 32}})", "fp16.initial_scale_power",
       "taken optim.loss_scale=16777216"},
      {R"({"fp16": {"enabled": false, "initial_scale_power": 8}})", "fp16.initial_scale_power",
       "meaningless"},
      {R"({"fp16": {"enabled": true, "loss_scale": 128}})", "fp16.loss_scale", "taken optim.loss_scale=128"},
      {R"({"fp16": {"enabled": true, "loss_scale": 100}})", "fp16.loss_scale", "refused"},
      {R"({"fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 4}})",
       "fp16.initial_scale_power", "meaningless"},
      {R"({"bf16": {"enabled": true, "check_grad_overflow": false}})", "bf16.check_grad_overflow",
       "taken optim.non_finite=\"stop\""},
      {R"({"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}})",
       "bf16.bf16_master_weights_and_grads", "refused"},
      {R"({"data_types": {"grad_accum_dtype": "fp32"}})", "data_types.grad_accum_dtype", "meaningless"},
      {R"({"data_types": {"grad_accum_dtype": "bf16"}})", "data_types.grad_accum_dtype", "refused"},
      {R"({"data_types": {"keep_in_fp32_modules": "auto"}})", "data_types.keep_in_fp32_modules",
       "meaningless"},
      {R"({"data_types": {"keep_in_fp32_modules": ["norm"]}})", "data_types.keep_in_fp32_modules", "refused"},
  });
}

TEST(DsVerdictTest, StagesAndChunks) {
  const auto zero = [](std::string_view body, std::string_view key) {
    return verdict_of(str(R"({"zero_optimization": {)", body, "}}"), str("zero_optimization.", key));
  };
  EXPECT_EQ(zero(R"("stage": 1)", "stage"), "taken parallel.zero=1, taken parallel.reduce=\"once\"");
  EXPECT_EQ(zero(R"("stage": 3)", "stage"), "taken parallel.zero=3");
  EXPECT_EQ(zero(R"("stage": 4)", "stage"), "refused");
  EXPECT_EQ(verdict_of(R"({"zero_optimization": true})", "zero_optimization"),
            "taken parallel.zero=1, taken parallel.reduce=\"once\"");
  EXPECT_EQ(zero(R"("sub_group_size": 1e9)", "sub_group_size"), "meaningless");
  EXPECT_EQ(zero(R"("sub_group_size": 5e7)", "sub_group_size"), "taken offload.chunk=49807360");
  EXPECT_EQ(zero(R"("sub_group_size": 10000)", "sub_group_size"), "taken offload.chunk=8192");
  EXPECT_EQ(zero(R"("sub_group_size": 10)", "sub_group_size"), "taken offload.chunk=4096");
  EXPECT_EQ(zero(R"("stage3_prefetch_bucket_size": 5e7)", "stage3_prefetch_bucket_size"), "meaningless");
  EXPECT_EQ(
      zero(R"("sub_group_size": 10000, "stage3_prefetch_bucket_size": 10000)", "stage3_prefetch_bucket_size"),
      "taken offload.prefetch=2");
  EXPECT_EQ(zero(R"("mics_shard_size": 8)", "mics_shard_size"), "taken parallel.shard_ranks=8");
  EXPECT_EQ(zero(R"("mics_shard_size": -1)", "mics_shard_size"), "meaningless");
  EXPECT_EQ(zero(R"("zero_quantized_gradients": true)", "zero_quantized_gradients"), "refused");
  EXPECT_EQ(zero(R"("zero_quantized_gradients": false)", "zero_quantized_gradients"), "meaningless");
}

TEST(DsVerdictTest, OffloadNamesTiersAndFolders) {
  const auto zero = [](std::string_view body, std::string_view key) {
    return verdict_of(str(R"({"zero_optimization": {)", body, "}}"), str("zero_optimization.", key));
  };
  const std::string nvme = R"("offload_param": {"device": "nvme", "nvme_path": "/a"})";
  EXPECT_EQ(zero(R"("offload_optimizer": {"device": "none"})", "offload_optimizer.device"), "meaningless");
  EXPECT_EQ(zero(R"("offload_optimizer": {"device": "gpu"})", "offload_optimizer.device"), "refused");
  EXPECT_EQ(zero(nvme, "offload_param.device"), "taken memory.nvme=\"unlimited\"");
  EXPECT_EQ(zero(nvme, "offload_param.nvme_path"), "taken memory.nvme_dir=\"/a\"");
  EXPECT_EQ(zero(nvme + R"(, "offload_optimizer": {"device": "nvme", "nvme_path": "/a"})",
                 "offload_param.nvme_path"),
            "taken memory.nvme_dir=\"/a\"");
  EXPECT_EQ(zero(nvme + R"(, "offload_optimizer": {"device": "cpu", "nvme_path": "/b"})",
                 "offload_optimizer.nvme_path"),
            "meaningless");
  EXPECT_EQ(zero(R"("cpu_offload": true)", "cpu_offload"), "taken memory.pinned=\"auto\"");
  EXPECT_EQ(zero(R"("offload_optimizer": {"super_offload": true})", "offload_optimizer.super_offload"),
            "taken offload.step_mode=\"speculative\"");
  EXPECT_EQ(zero(R"("zenflow": {})", "zenflow"), "refused");
  EXPECT_EQ(zero(R"("zenflow": null)", "zenflow"), "meaningless");
  EXPECT_EQ(verdict_of(R"({"aio": {"block_size": 10000}})", "aio.block_size"), "taken io.block=8192");
  EXPECT_EQ(verdict_of(R"({"aio": {"queue_depth": 5000}})", "aio.queue_depth"), "refused");
}

TEST(DsVerdictTest, ASectionThatIsOffAsksForNothing) {
  check({
      {R"({"data_efficiency": {"enabled": false, "data_sampling": {"enabled": true}}})",
       "data_efficiency.data_sampling.enabled", "meaningless"},
      {R"({"hybrid_engine": {"max_out_tokens": 8}})", "hybrid_engine.max_out_tokens", "meaningless"},
      {R"({"hybrid_engine": {"enabled": true, "max_out_tokens": 8}})", "hybrid_engine.max_out_tokens",
       "refused"},
      {R"({"weight_quantization": {"num_bits": 4}})", "weight_quantization.num_bits", "refused"},
      {R"({"weight_quantization": {"enabled": false, "num_bits": 4}})", "weight_quantization.num_bits",
       "meaningless"},
      {R"({"elasticity": {"enabled": true}})", "elasticity.enabled", "refused"},
  });
}

}  // namespace
}  // namespace strata
