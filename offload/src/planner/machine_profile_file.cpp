// The text format of a machine profile: its keys, their checks, and how they are parsed and written.
#include <strata/offload/machine_profile.h>

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/config/config.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e-6, kNano = 1e-9, kKibi = 1024;

/// A number of the profile: its key, its unit in the file, and its field in the struct.
struct ScalarField {
  std::string_view section, name;
  double unit;
  double MachineProfile::*field;
  bool may_be_zero = false;
  std::string_view doc = {};
};
constexpr ScalarField kScalarFields[] = {
    {"device", "attention_tflops", kTera, &MachineProfile::attention_flops_per_s, false,
     "rate of attention, forward, 1e12 operations per second"},
    {"device", "attention_backward_tflops", kTera, &MachineProfile::attention_backward_flops_per_s, true,
     "rate of attention, backward; 0: as forward"},
    {"device", "wgmma_attention_tflops", kTera, &MachineProfile::wgmma_attention_flops_per_s, true,
     "rate of attention with train.attention_backend = wgmma, forward; 0: not known"},
    {"device", "wgmma_attention_backward_tflops", kTera,
     &MachineProfile::wgmma_attention_backward_flops_per_s, true, "the same backward; 0: as forward"},
    {"device", "cudnn_attention_tflops", kTera, &MachineProfile::cudnn_attention_flops_per_s, true,
     "rate of attention with train.attention_backend = cudnn, forward; 0: not known"},
    {"device", "cudnn_attention_backward_tflops", kTera,
     &MachineProfile::cudnn_attention_backward_flops_per_s, true, "the same backward; 0: as forward"},
    {"device", "memory_gb_per_s", kGiga, &MachineProfile::device_bytes_per_s, false,
     "rate of all ops that are not GEMMs, 1e9 bytes read or written per second"},
    {"device", "launch_us", kMicro, &MachineProfile::launch_s, true, "minimum time of an instruction"},
    {"device", "wake_us", kMicro, &MachineProfile::wake_s, true,
     "delay until a queue that waited for another one continues"},
    {"link", "h2d_gb_per_s", kGiga, &MachineProfile::h2d_bytes_per_s, false, "copies to the device"},
    {"link", "d2h_gb_per_s", kGiga, &MachineProfile::d2h_bytes_per_s, false, "copies from the device"},
    {"link", "both_gb_per_s", kGiga, &MachineProfile::link_bytes_per_s, false,
     "total of both directions at once"},
    {"link", "both_beside_update_gb_per_s", kGiga, &MachineProfile::link_beside_update_bytes_per_s, true,
     "total of both directions beside AdamW on all cores; 0: not known"},
    {"link", "latency_us", kMicro, &MachineProfile::link_latency_s, true, "latency of a copy"},
    {"host", "memory_gb_per_s", kGiga, &MachineProfile::host_bytes_per_s, false,
     "RAM, read and written by all cores"},
    {"host", "update_beside_copies_ns", kNano, &MachineProfile::update_beside_copies_s_per_param, true,
     "AdamW with fp32 states beside copies in both directions, nanoseconds per parameter; 0: not known"},
    {"disk", "read_gb_per_s", kGiga, &MachineProfile::read_bytes_per_s, true, "0: no disk"},
    {"disk", "write_gb_per_s", kGiga, &MachineProfile::write_bytes_per_s, true, "0: no disk"},
    {"disk", "both_gb_per_s", kGiga, &MachineProfile::disk_bytes_per_s, true,
     "total of reads and writes at once"},
    {"disk", "latency_us", kMicro, &MachineProfile::disk_latency_s, true, "latency of a request"},
    {"disk", "cpu_s_per_gb", 1 / kGiga, &MachineProfile::disk_cpu_s_per_byte, true,
     "core seconds to transfer 1e9 bytes and compute their checksums"},
    {"network", "gb_per_s", kGiga, &MachineProfile::network_bytes_per_s, true,
     "what a rank sends to others, 1e9 bytes per second; 0: not known"},
    {"network", "latency_us", kMicro, &MachineProfile::network_latency_s, true, "time of a small collective"},
    {"network", "ranks", 1, &MachineProfile::network_ranks, true, "processes with which it was measured"},
    {"network", "node_ranks", 1, &MachineProfile::node_ranks, true,
     "ranks of one node, which exchange data by the node_ rates; 0: by those above"},
    {"network", "node_gb_per_s", kGiga, &MachineProfile::node_bytes_per_s, true, "gb_per_s within a node"},
    {"network", "node_latency_us", kMicro, &MachineProfile::node_latency_s, true, "latency_us within a node"},
    {"network", "threads_gb_per_s", kGiga, &MachineProfile::thread_network_bytes_per_s, true,
     "gb_per_s of ranks that are threads of one process; 0: not known"},
    {"network", "threads_latency_us", kMicro, &MachineProfile::thread_network_latency_s, true,
     "latency_us of ranks that are threads of one process"},
};

constexpr KeySpec number_key(const ScalarField& f) {
  return {.section = f.section,
          .name = f.name,
          .type = KeyType::number,
          .default_text = "0",
          .doc = f.doc,
          .min = 0,
          .max = 1e9};
}
/// A list of numbers. With `axes` it has one number for each combination of their elements.
struct ListField {
  std::string_view section, name;
  double unit;
  std::vector<double> MachineProfile::*field;
  std::string_view doc;
  bool ascends = false;
  bool may_be_empty = true;
  std::span<const std::string_view> axes = {};
};
constexpr std::string_view kGemmAxis[] = {"device.gemm_sizes"};
constexpr std::string_view kThreads[] = {"host.update_threads"};
constexpr std::string_view kCopies[] = {"link.copy_kib"};
constexpr std::string_view kDiskGrid[] = {"disk.paths", "disk.block_kib", "disk.depths"};
constexpr ListField kListFields[] = {
    {"device", "gemm_sizes", 1, &MachineProfile::gemm_sizes, "smallest sides of GEMMs, ascending", true,
     false},
    {"device", "tflops_16bit", kTera, &MachineProfile::flops_16bit,
     "rates of GEMMs of these sizes in bf16 or f16", false, false, kGemmAxis},
    {"device", "tflops_f32", kTera, &MachineProfile::flops_f32, "rates of GEMMs of these sizes in f32", false,
     false, kGemmAxis},
    {"device", "tflops_8bit", kTera, &MachineProfile::flops_8bit,
     "rates of GEMMs of these sizes in 8 bits; empty: the 16-bit rates", false, true, kGemmAxis},
    {"host", "update_threads", 1, &MachineProfile::update_threads, "numbers of threads, ascending", true},
    {"host", "update_ns_by_threads", kNano, &MachineProfile::update_s_by_threads,
     "AdamW with fp32 states on that many threads, nanoseconds per parameter", false, true, kThreads},
    {"link", "copy_kib", kKibi, &MachineProfile::copy_sizes, "KiB of a copy, ascending", true},
    {"link", "h2d_by_size_gb_per_s", kGiga, &MachineProfile::h2d_by_size,
     "copies of these sizes to the device, from pinned memory", false, true, kCopies},
    {"link", "d2h_by_size_gb_per_s", kGiga, &MachineProfile::d2h_by_size,
     "copies of these sizes from the device, to pinned memory", false, true, kCopies},
    {"link", "h2d_pageable_gb_per_s", kGiga, &MachineProfile::h2d_pageable_by_size,
     "copies of these sizes to the device, from memory that is not pinned", false, true, kCopies},
    {"link", "d2h_pageable_gb_per_s", kGiga, &MachineProfile::d2h_pageable_by_size,
     "copies of these sizes from the device, to memory that is not pinned", false, true, kCopies},
    {"disk", "block_kib", kKibi, &MachineProfile::disk_blocks, "KiB of a block, ascending", true},
    {"disk", "depths", 1, &MachineProfile::disk_depths, "blocks in flight, ascending", true},
    {"disk", "reads_by_path_gb_per_s", kGiga, &MachineProfile::reads_by_path,
     "rates of each of disk.paths with each of disk.block_kib and each of disk.depths", false, true,
     kDiskGrid},
    {"disk", "writes_by_path_gb_per_s", kGiga, &MachineProfile::writes_by_path,
     "rates of each of disk.paths with each of disk.block_kib and each of disk.depths", false, true,
     kDiskGrid},
};
constexpr KeySpec list_key(const ListField& l) {
  return {.section = l.section,
          .name = l.name,
          .type = KeyType::number_list,
          .default_text = "",
          .doc = l.doc,
          .min = 0,
          .max = 1e9};
}
constexpr KeySpec kOtherKeys[] = {
    {.section = "machine", .name = "name", .type = KeyType::text, .default_text = "", .doc = "its name"},
    {.section = "machine",
     .name = "gpu",
     .type = KeyType::text,
     .default_text = "",
     .doc = "part of the name of the GPUs that a shipped profile is of"},
    {.section = "machine",
     .name = "source",
     .type = KeyType::text,
     .default_text = "",
     .doc = "where the figures come from"},
    {.section = "machine",
     .name = "format",
     .type = KeyType::integer,
     .default_text = "0",
     .doc = "how strata bench measured; 0: it did not",
     .min = 0,
     .max = 1000},
    {.section = "machine",
     .name = "cores",
     .type = KeyType::integer,
     .default_text = "0",
     .doc = "CPU cores that a run may use",
     .min = 0,
     .max = 4096},
    {.section = "machine",
     .name = "device_is_host",
     .type = KeyType::boolean,
     .default_text = "false",
     .doc = "the device is the host backend"},
    {.section = "memory",
     .name = "device",
     .type = KeyType::bytes,
     .default_text = "0",
     .doc = "that a run may use",
     .min = 0},
    {.section = "memory",
     .name = "pinned",
     .type = KeyType::bytes,
     .default_text = "0",
     .doc = "that a run may use",
     .min = 0},
    {.section = "memory",
     .name = "nvme",
     .type = KeyType::bytes,
     .default_text = "0",
     .doc = "that a run may use; 0: none",
     .min = 0},
    {.section = "host",
     .name = "update_ns",
     .type = KeyType::number_list,
     .default_text = "",
     .doc = "AdamW on all cores, nanoseconds per parameter: states in fp32, bf16, int8",
     .min = 0,
     .max = 1e9},
    {.section = "disk",
     .name = "paths",
     .type = KeyType::text_list,
     .default_text = "",
     .doc = "directories of the NVMe tier that were measured one by one"},
};

const ConfigSchema& schema() {
  static const std::vector<KeySpec> keys = [] {
    std::vector<KeySpec> all(std::begin(kOtherKeys), std::end(kOtherKeys));
    for (const ScalarField& scalar : kScalarFields) all.push_back(number_key(scalar));
    for (const ListField& list : kListFields) all.push_back(list_key(list));
    return all;
  }();
  static const ConfigSchema schema{.keys = keys};
  return schema;
}

template <class Row>
std::string key_of(const Row& row) {
  return str(row.section, ".", row.name);
}

std::vector<double> scaled(const std::vector<double>& values, double unit) {
  std::vector<double> out = values;
  for (double& value : out) value *= unit;
  return out;
}

/// Checks that the schema cannot express: required values, and values that contradict each other.
class Checker {
 public:
  explicit Checker(const ConfigTree& tree) : tree_(tree) {}

  Status check(const MachineProfile& p) {
    for (const ScalarField& scalar : kScalarFields)
      if (!scalar.may_be_zero && tree_.number(key_of(scalar)) <= 0)
        problem(key_of(scalar), "must be above 0");
    if (p.cores < 1) problem("machine.cores", "must be at least 1");
    for (const char* key : {"memory.device", "memory.pinned"})
      if (tree_.bytes(key) == 0) problem(key, "must be above 0");
    for (const ListField& list : kListFields) check_list(list);
    if (tree_.numbers("host.update_ns").size() != 3 ||
        *std::min_element(p.update_s_per_param.begin(), p.update_s_per_param.end()) <= 0)
      problem("host.update_ns", "must be three numbers above 0: states in fp32, bf16, int8");
    check_both("link.both_gb_per_s", p.h2d_bytes_per_s, p.d2h_bytes_per_s, p.link_bytes_per_s);
    if (p.memory[2] > 0 || p.read_bytes_per_s > 0 || p.write_bytes_per_s > 0) check_disk(p);
    return config_problems(problems_);
  }

 private:
  void problem(std::string_view key, std::string_view what) {
    const ConfigEntry& entry = tree_.entry(key);
    problems_.push_back(
        str(entry.origin, ": ", key, " = ", entry.raw.empty() ? "nothing" : entry.raw, "; it ", what));
  }
  std::size_t length_of(std::string_view key) const {
    return key == "disk.paths" ? tree_.texts(key).size() : tree_.numbers(key).size();
  }
  void check_list(const ListField& list) {
    const std::string key = key_of(list);
    const std::vector<double>& values = tree_.numbers(key);
    if (values.empty()) {
      if (!list.may_be_empty) problem(key, "must have at least one number");
      return;
    }
    if (*std::min_element(values.begin(), values.end()) <= 0) problem(key, "must have only numbers above 0");
    if (list.ascends &&
        std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) != values.end())
      problem(key, "must ascend");
    std::size_t wanted = 1;
    for (const std::string_view axis : list.axes) wanted *= length_of(axis);
    if (!list.axes.empty() && values.size() != wanted)
      problem(key, fmt::format("must have {} numbers, one for each of {}", wanted,
                               fmt::join(list.axes, " at each of ")));
  }
  // Both directions at once reach at least the rate of the slower one and at most the sum of both.
  void check_both(std::string_view key, double one, double other, double both) {
    if (both <= 0 || one <= 0 || other <= 0) return;  // already reported
    constexpr double kNoise = 1.1;
    if (both * kNoise < std::min(one, other) || both > kNoise * (one + other))
      problem(key,
              fmt::format(
                  "must be between the rate of the slower direction and the sum of both, {:.4g} and {:.4g}",
                  std::min(one, other) / kGiga, (one + other) / kGiga));
  }
  void check_disk(const MachineProfile& p) {
    for (const char* key : {"disk.read_gb_per_s", "disk.write_gb_per_s", "disk.both_gb_per_s"})
      if (tree_.number(key) <= 0) problem(key, "must be above 0 on a machine with NVMe");
    check_both("disk.both_gb_per_s", p.read_bytes_per_s, p.write_bytes_per_s, p.disk_bytes_per_s);
  }

  const ConfigTree& tree_;
  std::vector<std::string> problems_;
};

// Earlier versions of strata bench measured AdamW within the CPU's caches, several times too fast.
Status check_format(const MachineProfile& p, const std::string& file) {
  if (!p.source.starts_with(kMeasuredSource) || p.format == MachineProfile::kMeasuredFormat) return {};
  return Status::error(
      Code::unsupported,
      str(file, " was measured by another version of strata bench (machine.format = ", p.format, ", here ",
          MachineProfile::kMeasuredFormat, "): measure again with strata bench"));
}

Result<MachineProfile> profile_of(const ConfigSources& sources) {
  STRATA_TRY_ASSIGN(const ConfigTree tree, ConfigTree::build(schema(), sources));
  MachineProfile p;
  p.name = tree.text("machine.name");
  p.gpu = tree.text("machine.gpu");
  p.source = tree.text("machine.source");
  p.format = static_cast<int>(tree.integer("machine.format"));
  STRATA_TRY(check_format(p, sources.file));
  p.cores = static_cast<int>(tree.integer("machine.cores"));
  p.device_is_host = tree.flag("machine.device_is_host");
  for (std::size_t t = 0; t < kTiers; ++t)
    p.memory[t] = tree.bytes(str("memory.", to_string(static_cast<Tier>(t))));
  for (const ListField& list : kListFields) p.*list.field = scaled(tree.numbers(key_of(list)), list.unit);
  p.disk_paths = tree.texts("disk.paths");
  const std::vector<double> updates = scaled(tree.numbers("host.update_ns"), kNano);
  std::copy_n(updates.begin(), std::min<std::size_t>(updates.size(), 3), p.update_s_per_param.begin());
  for (const ScalarField& scalar : kScalarFields) p.*scalar.field = tree.number(key_of(scalar)) * scalar.unit;
  STRATA_TRY(Checker(tree).check(p));
  return p;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

std::string numbers_text(const std::vector<double>& values, double unit) {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(fmt::format("{:.6g}", value / unit));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

}  // namespace

Result<MachineProfile> parse_machine_profile(const std::string& text, const std::string& origin) {
  ConfigSources sources;
  sources.file = origin;
  sources.file_text = text;
  return profile_of(sources);
}

Result<MachineProfile> read_machine_profile(const std::string& path) {
  ConfigSources sources;
  sources.file = path;
  return profile_of(sources);
}

std::string to_toml(const MachineProfile& p) {
  std::string text = fmt::format(
      "[machine]\nname = {}\n{}source = {}\nformat = {}\ncores = {}\ndevice_is_host = {}\n\n[memory]\ndevice "
      "= {}\n"
      "pinned = {}\nnvme = {}\n",
      quoted(p.name), p.gpu.empty() ? "" : str("gpu = ", quoted(p.gpu), "\n"), quoted(p.source), p.format,
      p.cores, p.device_is_host, p.memory[0], p.memory[1], p.memory[2]);
  for (const std::string_view section : {"device", "link", "host", "disk", "network"}) {
    text += fmt::format("\n[{}]\n", section);
    for (const ScalarField& scalar : kScalarFields)
      if (scalar.section == section)
        text += fmt::format("{} = {:.6g}\n", scalar.name, p.*scalar.field / scalar.unit);
    if (section == "host")
      text += fmt::format("update_ns = {}\n",
                          numbers_text({p.update_s_per_param.begin(), p.update_s_per_param.end()}, kNano));
    if (section == "disk" && !p.disk_paths.empty()) {
      std::vector<std::string> paths;
      for (const std::string& path : p.disk_paths) paths.push_back(quoted(path));
      text += fmt::format("paths = [{}]\n", fmt::join(paths, ", "));
    }
    for (const ListField& list : kListFields)
      if (list.section == section && !(p.*list.field).empty())
        text += fmt::format("{} = {}\n", list.name, numbers_text(p.*list.field, list.unit));
  }
  return text;
}

std::string to_json(const MachineProfile& profile) {
  ConfigSources sources;
  sources.file = "profile.toml";
  sources.file_text = to_toml(profile);
  return must(ConfigTree::build(schema(), sources)).to_json(false);
}

}  // namespace strata
