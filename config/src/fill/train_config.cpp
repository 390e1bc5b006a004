#include <strata/config/train_config.h>

#include <filesystem>
#include <system_error>

#include <strata/config/data_files.h>
#include <strata/runtime/str.h>

namespace strata {

TrainedPart trained_part(const TrainConfig& config) noexcept {
  if (config.adapter.method != "none") return TrainedPart::adapters;
  return config.optim.name == "galore" ? TrainedPart::subspaces : TrainedPart::parameters;
}

bool freezes(const TrainConfig& config) {
  return trained_part(config) == TrainedPart::adapters || !config.train.freeze.empty();
}

bool saves_frozen(const TrainConfig& config) {
  return trained_part(config) != TrainedPart::adapters || config.model.from.empty() ||
         !config.model.states.empty() || !config.train.freeze.empty();
}

int all_ranks(const TrainConfig& config) noexcept {
  return config.parallel.ranks.value_or(model_parallel(config).ranks());
}

ModelParallel model_parallel(const TrainConfig& config) noexcept {
  const TrainConfig::Parallel& parallel = config.parallel;
  ModelParallel model{
      .pp = parallel.pp, .cp = parallel.cp, .tp3 = parallel.tp3, .tp2 = parallel.tp2, .tp = parallel.tp};
  model.rank = config.parallel.rank % model.ranks();
  return model;
}

namespace {

// A pipeline's program has all micro-batches, so it adds up the gradients of each.
GradientReduce gradient_reduce(const TrainConfig::Parallel& parallel) noexcept {
  if (parallel.reduce == "once") return GradientReduce::once;
  return parallel.pp > 1 ? GradientReduce::in_program : GradientReduce::each;
}

}  // namespace

// Ranks of one machine share its cores; each has a GPU of its own.
DataParallel data_parallel(const TrainConfig& config) noexcept {
  const bool threads = config.parallel.transport == "threads";
  const int local_ranks = threads ? all_ranks(config) : config.parallel.local_ranks;
  const int sharing = model_parallel(config).ranks();
  return {.ranks = all_ranks(config) / sharing,
          .rank = config.parallel.rank / sharing,
          .zero = config.parallel.zero.value_or(0),
          .shard_ranks = config.parallel.shard_ranks,
          .reduce = gradient_reduce(config.parallel),
          .gather_ahead = config.parallel.gather_ahead,
          .threads = threads,
          .on_machine = config.memory.backend == "cuda" ? 1 : local_ranks};
}

void resolve_simple_autos(ConfigTree& tree, const CoreShare& share) {
  if (tree.is_auto("offload.step_mode") && tree.is_auto("offload.undo_log"))
    tree.resolve(
        "offload.step_mode", std::string("two_phase"),
        "during the next forward; with offload.undo_log also during backward while steps are not clipped");
  if (tree.is_auto("cpu.threads")) tree.resolve("cpu.threads", std::int64_t{share.threads()}, share.why);
  if (tree.is_auto("cpu.service_cores"))
    tree.resolve("cpu.service_cores", std::int64_t{share.service_cores},
                 share.service_cores > 0
                     ? "one with 8 or more cores, two with 32 or more"
                     : "none with fewer than 8 cores, or if the system places the threads");
}

// A pretrained model only understands the tokens of its own tokenizer, which is therefore the default.
std::string tokenizer_source(const TrainConfig& config) {
  if (config.data.tokenizer) return *config.data.tokenizer;
  return config.model.from.empty() ? std::string() : config.model.from + "/tokenizer.json";
}

std::string locate_data_file(const std::string& path, std::span<const std::string> data_dirs) {
  std::error_code ignored;  // an unreadable folder counts as one without the file
  if (path.empty() || path.front() == '/' || std::filesystem::exists(path, ignored)) return path;
  for (const std::string& dir : data_dirs) {
    std::string below = str(dir, "/", path);
    if (std::filesystem::exists(below, ignored)) return below;
  }
  return path;
}

std::vector<std::string> default_data_dirs() {
  // A package that is unpacked anywhere has its texts beside its program.
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return {(program.parent_path().parent_path() / "share/strata").string(), STRATA_INSTALLED_DATA_DIR,
          STRATA_SOURCE_DATA_DIR};
}

}  // namespace strata
