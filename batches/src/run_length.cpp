#include <strata/batches/run_length.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include <strata/config/load_config.h>
#include <strata/config/train_config.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/config/decide.h>
#include <strata/config/objective.h>

#include <strata/config/implied_values.h>

namespace strata {
namespace {

constexpr double kManyEpochs = 10, kFarRate = 10;

/// Returns what a step reads, in the units of DataSize::epoch_rows.
double rows_of_step(const TrainConfig& config) {
  const double rows = objective_of(config).data == RunData::pairs ? 1 : config.train.micro_batch;
  return rows * config.train.grad_accum;
}

double epochs_of(const TrainConfig& config, const DataSize& size) {
  return static_cast<double>(config.train.steps) * rows_of_step(config) /
         static_cast<double>(size.epoch_rows);
}

std::string documents_text(const TrainConfig& config, const TrainingData& data) {
  const std::uint64_t n = data.size().n_documents;
  if (objective_of(config).data == RunData::pairs) return plural_grouped(n / 2, "pair");
  return plural_grouped(n, data.has_conversations() ? "conversation" : "document");
}

}  // namespace

void decide_by_data(LoadedConfig& loaded, const TrainingData& data) {
  TrainConfig& config = loaded.config;
  ConfigTree& tree = loaded.tree;
  config.data.packing = data.packing();
  if (tree.is_auto("model.seq")) {
    decide(loaded, "model.seq", data.seq(), str("the longest document, at most ", config.model.seq));
    config.model.seq_is_most = false;
  }
  if (tree.is_auto("train.steps")) {
    const double exact =
        *config.train.epochs * static_cast<double>(data.size().epoch_rows) / rows_of_step(config);
    decide(loaded, "train.steps",
           std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(exact - 1e-9))),
           str("train.epochs = ", *config.train.epochs, " of data.train"));
  }
  detail::decide_warmup(tree, config.train.steps);
  config.optim.warmup = tree.integer("optim.warmup");
}

std::string run_length_text(const TrainConfig& config, const TrainingData& data) {
  const DataSize& size = data.size();
  if (data.prompts() != nullptr) return plural_grouped(size.n_documents, "prompt");
  const std::int64_t tokens =
      std::int64_t{config.train.micro_batch} * config.train.grad_accum * config.model.seq;
  const std::string epochs = fmt::format("{:.3g}", epochs_of(config, size));
  return str(documents_text(config, data), ", ", plural_grouped(size.n_tokens, "token"), ", longest ",
             grouped(size.longest), "; ", plural_grouped(config.train.steps, "step"), " of ", grouped(tokens),
             " tokens are ", epochs, epochs == "1" ? " epoch" : " epochs");
}

std::vector<std::string> run_length_warnings(const TrainConfig& config, const TrainingData& data) {
  std::vector<std::string> warnings;
  const DataSize& size = data.size();
  if (size.n_split > 0)
    warnings.push_back(str(grouped(size.n_split), " of ", documents_text(config, data),
                           " are longer than model.seq = ", config.model.seq,
                           " and are split; the longest has ", grouped(size.longest), " tokens"));
  if (config.model.from.empty() || data.prompts() != nullptr) return warnings;
  if (const double epochs = epochs_of(config, size); epochs > kManyEpochs)
    warnings.push_back(
        fmt::format("the run reads data.train {:.3g} times, after which a fine-tuned model often "
                    "repeats it and is worse on other text; set train.epochs, for example to 3",
                    epochs));
  const double usual = detail::implied_rate(config);
  const double rate = config.optim.lr;
  if (usual > 0 && rate > 0 && (rate > kFarRate * usual || rate < usual / kFarRate))
    warnings.push_back(fmt::format("optim.lr = {:g} is {:.3g} times {:g}, the default of such a run", rate,
                                   rate / usual, usual));
  return warnings;
}

}  // namespace strata
