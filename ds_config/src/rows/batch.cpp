#include <cstdint>

#include <strata/runtime/str.h>

#include "conversions.h"

// The batch, gradients and ranks.
namespace strata::detail {
namespace {

constexpr std::string_view kBatch = "train_batch_size", kMicro = "train_micro_batch_size_per_gpu",
                           kAccumulation = "gradient_accumulation_steps";

/// The count that a key gives, or 0.
std::int64_t count_of(const Document& document, std::string_view key) {
  const Json* const value = document.value(key);
  if (value == nullptr || !is_integer(*value) || value->get<double>() < 1) return 0;
  return value->get<std::int64_t>();
}

bool is_count(const TableRow& row, const Json& value) {
  return is_integer(value) && value.get<double>() >= 1 && value.get<double>() <= row.max;
}

/// DeepSpeed: batch = micro batch * accumulation * ranks. Strata's train.grad_accum counts the micro-batches
/// of all ranks, so that the batch and the micro batch determine it.
Outcome batch(const TableRow& row, const Json& value, const Document& document) {
  if (!is_count(row, value)) return not_in_range(row, "an integer");
  const auto total = value.get<std::int64_t>();
  const std::int64_t micro = count_of(document, kMicro), accumulation = count_of(document, kAccumulation);
  const std::int64_t of_rank = (micro > 0 ? micro : 1) * (accumulation > 0 ? accumulation : 1);
  if (total % of_rank != 0)
    return refused(str("it is not a multiple of ", micro > 0 ? kMicro : kAccumulation,
                       micro > 0 && accumulation > 0 ? str(" * ", kAccumulation) : "", " = ", of_rank));
  if (micro > 0)
    return taken("train.grad_accum", total / micro,
                 str("train_batch_size / ", kMicro, ": the micro-batches of a step, of all ranks together"));
  Outcome outcome = taken("train.micro_batch", total / of_rank,
                          "for one rank; with N ranks a micro-batch of DeepSpeed has an Nth of it");
  if (accumulation == 0) outcome.settings.push_back({"train.grad_accum", "1"});
  return outcome;
}

Outcome accumulation(const TableRow& row, const Json& value, const Document& document) {
  if (!is_count(row, value)) return not_in_range(row, "an integer");
  if (count_of(document, kBatch) > 0 && count_of(document, kMicro) > 0)
    return meaningless("train_batch_size sets train.grad_accum, which counts the micro-batches of all ranks");
  return taken("train.grad_accum", value.get<std::int64_t>(),
               "for one rank; train.grad_accum counts the micro-batches of all ranks: multiply it by them");
}

constexpr TableRow kBatchRows[] = {
    {{kBatch, DsVerdict::taken, "train.grad_accum train.micro_batch", "the sequences of a step"},
     batch,
     {},
     1,
     1 << 30},
    {{kMicro, DsVerdict::taken, "train.micro_batch", "sequences of a micro-batch"},
     to_integer,
     {},
     1,
     1 << 30},
    {{kAccumulation, DsVerdict::taken, "train.grad_accum", "micro-batches of a step"},
     accumulation,
     {},
     1,
     1 << 30},
    {{"managed_gradient_accumulation", DsVerdict::refused, "train.grad_accum",
      "strata counts the micro-batches of a step itself"},
     nullptr,
     "true"},
    {{"gradient_clipping", DsVerdict::taken, "optim.clip", "maximum norm of the gradient; 0: no clipping"},
     to_number,
     {},
     0,
     1e30},
    {{"prescale_gradients", DsVerdict::meaningless, "",
      "gradients are added in f32, which needs no division beforehand"}},
    {{"gradient_predivide_factor", DsVerdict::meaningless, "",
      "gradients are added in f32, which needs no division beforehand"}},
    {{"gradient_allreduce_op", DsVerdict::refused, "", "strata divides the gradient by the micro-batches"},
     nullptr,
     "\"mean\""},
    {{"sparse_gradients", DsVerdict::meaningless, "",
      "gradients of embeddings are dense; the sums are the same"}},
    {{"communication_data_type", DsVerdict::meaningless, "parallel.reduce",
      "what ranks exchange is not rounded: the bits are those of one rank"}},
    {{"seq_parallel_communication_data_type", DsVerdict::meaningless, "",
      "strata decides in which dtype ranks exchange values"}},
    {{"disable_allgather", DsVerdict::meaningless, "", "how parameters are gathered changes no result"}},
    {{"allgather_size", DsVerdict::meaningless, "offload.chunk", "chunks are gathered, one at a time"}},
    {{"data_parallel_size", DsVerdict::taken, "parallel.ranks", "ranks that train together"},
     to_integer,
     {},
     1,
     65536},
    {{"sequence_parallel_size", DsVerdict::refused, "",
      "remove it and set parallel.cp, which divides sequences among ranks"},
     nullptr,
     "1"},
    {{"dataloader_drop_last", DsVerdict::meaningless, "data.packing",
      "every micro-batch is whole; an epoch continues in the next"}},
    {{"use_data_before_expert_parallelism", DsVerdict::meaningless, "",
      "there are no groups of experts whose order it could set"}},
    {{"vocabulary_size", DsVerdict::meaningless, "model.vocab",
      "DeepSpeed only warns about its alignment; the model has its own"}},
    {{"disable_python_gc", DsVerdict::meaningless, "", "no Python runs in a step"}},
};

}  // namespace

std::span<const TableRow> batch_rows() noexcept { return kBatchRows; }

}  // namespace strata::detail
