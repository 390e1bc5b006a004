#include <strata/offload/machine_profile.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/config.h>
#include <strata/runtime/io.h>
#include <strata/runtime/str.h>
#include <strata/runtime/suggest.h>

namespace strata {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e-6, kNano = 1e-9;

/// A number of the profile: its key, its unit in the file, and where it is in the struct.
struct Figure {
  std::string_view section, name;
  double unit;
  double MachineProfile::*field;
  bool may_be_zero = false;
  std::string_view doc = {};
};
constexpr Figure kFigures[] = {
    {"device", "attention_tflops", kTera, &MachineProfile::attention_flops_per_s, false,
     "rate of attention, 1e12 operations a second"},
    {"device", "memory_gb_per_s", kGiga, &MachineProfile::device_bytes_per_s, false,
     "rate of everything that is no product, 1e9 bytes a second read or written"},
    {"device", "launch_us", kMicro, &MachineProfile::launch_s, true, "least time of an instruction"},
    {"device", "wake_us", kMicro, &MachineProfile::wake_s, true,
     "until a queue that waited for another goes on"},
    {"link", "h2d_gb_per_s", kGiga, &MachineProfile::h2d_bytes_per_s, false, "copies to the device"},
    {"link", "d2h_gb_per_s", kGiga, &MachineProfile::d2h_bytes_per_s, false, "copies from it"},
    {"link", "both_gb_per_s", kGiga, &MachineProfile::link_bytes_per_s, false,
     "both directions at once, added up"},
    {"link", "latency_us", kMicro, &MachineProfile::link_latency_s, true, "of a copy"},
    {"host", "memory_gb_per_s", kGiga, &MachineProfile::host_bytes_per_s, false,
     "RAM, read and written by all cores"},
    {"disk", "read_gb_per_s", kGiga, &MachineProfile::read_bytes_per_s, true, "0: no disk"},
    {"disk", "write_gb_per_s", kGiga, &MachineProfile::write_bytes_per_s, true, "0: no disk"},
    {"disk", "both_gb_per_s", kGiga, &MachineProfile::disk_bytes_per_s, true,
     "reads and writes at once, added up"},
    {"disk", "latency_us", kMicro, &MachineProfile::disk_latency_s, true, "of a request"},
    {"disk", "core_s_per_gb", 1 / kGiga, &MachineProfile::disk_core_s_per_byte, true,
     "of a core, to carry and sum 1e9 bytes"},
};

constexpr KeySpec number_key(const Figure& f) {
  return {.section = f.section,
          .name = f.name,
          .type = KeyType::number,
          .default_text = "0",
          .doc = f.doc,
          .min = 0,
          .max = 1e9};
}
constexpr KeySpec kOtherKeys[] = {
    {.section = "machine", .name = "name", .type = KeyType::text, .default_text = "", .doc = "its name"},
    {.section = "machine",
     .name = "source",
     .type = KeyType::text,
     .default_text = "",
     .doc = "where the figures are from"},
    {.section = "machine",
     .name = "cores",
     .type = KeyType::integer,
     .default_text = "0",
     .doc = "CPU cores that a run may use",
     .min = 0,
     .max = 4096},
    {.section = "machine",
     .name = "computes_on_cores",
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
    {.section = "device",
     .name = "product_sizes",
     .type = KeyType::number_list,
     .default_text = "",
     .doc = "smallest sides of products, ascending",
     .min = 1,
     .max = 1e9},
    {.section = "device",
     .name = "tflops_16bit",
     .type = KeyType::number_list,
     .default_text = "",
     .doc = "rates of products of these sizes in bf16 or f16",
     .min = 0,
     .max = 1e9},
    {.section = "device",
     .name = "tflops_f32",
     .type = KeyType::number_list,
     .default_text = "",
     .doc = "rates of products of these sizes in f32",
     .min = 0,
     .max = 1e9},
    {.section = "host",
     .name = "update_ns",
     .type = KeyType::number_list,
     .default_text = "",
     .doc = "AdamW on all cores, nanoseconds a parameter: states in fp32, bf16, int8",
     .min = 0,
     .max = 1e9},
};

const ConfigSchema& schema() {
  static const std::vector<KeySpec> keys = [] {
    std::vector<KeySpec> all(std::begin(kOtherKeys), std::end(kOtherKeys));
    for (const Figure& figure : kFigures) all.push_back(number_key(figure));
    return all;
  }();
  static const ConfigSchema schema{.keys = keys};
  return schema;
}

std::string key_of(const Figure& figure) { return str(figure.section, ".", figure.name); }

std::vector<double> times(const std::vector<double>& values, double unit) {
  std::vector<double> out = values;
  for (double& value : out) value *= unit;
  return out;
}

/// What no schema can see: what has to be there, and what contradicts each other.
class Checker {
 public:
  explicit Checker(const ConfigTree& tree) : tree_(tree) {}

  Status check(const MachineProfile& p) {
    for (const Figure& figure : kFigures)
      if (!figure.may_be_zero && tree_.number(key_of(figure)) <= 0)
        problem(key_of(figure), "has to be above 0");
    if (p.cores < 1) problem("machine.cores", "has to be at least 1");
    for (const char* key : {"memory.device", "memory.pinned"})
      if (tree_.bytes(key) == 0) problem(key, "has to be above 0");
    check_products(p);
    if (tree_.numbers("host.update_ns").size() != 3 ||
        *std::min_element(p.update_s_per_param.begin(), p.update_s_per_param.end()) <= 0)
      problem("host.update_ns", "has to be three numbers above 0: states in fp32, bf16, int8");
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
  void check_products(const MachineProfile& p) {
    if (p.product_sizes.empty()) return problem("device.product_sizes", "has to name at least one size");
    if (std::adjacent_find(p.product_sizes.begin(), p.product_sizes.end(), std::greater_equal<>()) !=
        p.product_sizes.end())
      problem("device.product_sizes", "has to ascend");
    for (const auto& [key, rates] :
         {std::pair{"device.tflops_16bit", &p.flops_16bit}, std::pair{"device.tflops_f32", &p.flops_f32}})
      if (rates->size() != p.product_sizes.size() || *std::min_element(rates->begin(), rates->end()) <= 0)
        problem(key, str("has to be a number above 0 for each of the ", p.product_sizes.size(),
                         " device.product_sizes"));
  }
  // Both together are no slower than the slower one alone, and no faster than both alone.
  void check_both(std::string_view key, double one, double other, double both) {
    if (both <= 0 || one <= 0 || other <= 0) return;  // told already
    constexpr double kNoise = 1.1;
    if (both * kNoise < std::min(one, other) || both > kNoise * (one + other))
      problem(key,
              fmt::format("has to lie between the slower direction and the sum of both, {:.4g} and {:.4g}",
                          std::min(one, other) / kGiga, (one + other) / kGiga));
  }
  void check_disk(const MachineProfile& p) {
    for (const char* key : {"disk.read_gb_per_s", "disk.write_gb_per_s", "disk.both_gb_per_s"})
      if (tree_.number(key) <= 0) problem(key, "has to be above 0 on a machine with a slow tier");
    check_both("disk.both_gb_per_s", p.read_bytes_per_s, p.write_bytes_per_s, p.disk_bytes_per_s);
  }

  const ConfigTree& tree_;
  std::vector<std::string> problems_;
};

Result<MachineProfile> profile_of(const ConfigSources& sources) {
  STRATA_TRY_ASSIGN(const ConfigTree tree, ConfigTree::build(schema(), sources));
  MachineProfile p;
  p.name = tree.text("machine.name");
  p.source = tree.text("machine.source");
  p.cores = static_cast<int>(tree.integer("machine.cores"));
  p.computes_on_cores = tree.flag("machine.computes_on_cores");
  for (std::size_t t = 0; t < kTiers; ++t)
    p.memory[t] = tree.bytes(str("memory.", to_string(static_cast<Tier>(t))));
  p.product_sizes = tree.numbers("device.product_sizes");
  p.flops_16bit = times(tree.numbers("device.tflops_16bit"), kTera);
  p.flops_f32 = times(tree.numbers("device.tflops_f32"), kTera);
  const std::vector<double> updates = times(tree.numbers("host.update_ns"), kNano);
  std::copy_n(updates.begin(), std::min<std::size_t>(updates.size(), 3), p.update_s_per_param.begin());
  for (const Figure& figure : kFigures) p.*figure.field = tree.number(key_of(figure)) * figure.unit;
  STRATA_TRY(Checker(tree).check(p));
  return p;
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
  const auto quoted = [](const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return out + "\"";
  };
  std::string text = fmt::format(
      "[machine]\nname = {}\nsource = {}\ncores = {}\ncomputes_on_cores = {}\n\n[memory]\ndevice = "
      "{}\npinned = "
      "{}\nnvme = {}\n\n[device]\nproduct_sizes = {}\ntflops_16bit = {}\ntflops_f32 = {}\n",
      quoted(p.name), quoted(p.source), p.cores, p.computes_on_cores, p.memory[0], p.memory[1], p.memory[2],
      numbers_text(p.product_sizes, 1), numbers_text(p.flops_16bit, kTera), numbers_text(p.flops_f32, kTera));
  std::string_view section = "device";
  for (const Figure& figure : kFigures) {
    if (figure.section != section) text += fmt::format("\n[{}]\n", figure.section);
    if (figure.section != section && figure.section == "host")
      text += fmt::format("update_ns = {}\n",
                          numbers_text({p.update_s_per_param.begin(), p.update_s_per_param.end()}, kNano));
    section = figure.section;
    text += fmt::format("{} = {:.6g}\n", figure.name, p.*figure.field / figure.unit);
  }
  return text;
}

std::string to_json(const MachineProfile& profile) {
  ConfigSources sources;
  sources.file = "profile.toml";
  sources.file_text = to_toml(profile);
  return must(ConfigTree::build(schema(), sources)).to_json(false);
}

double MachineProfile::product_flops_per_s(DType dtype, double smallest_side) const noexcept {
  const std::vector<double>& rates = dtype == DType::f32 ? flops_f32 : flops_16bit;
  const auto above = std::lower_bound(product_sizes.begin(), product_sizes.end(), smallest_side);
  if (above == product_sizes.end()) return rates.back();
  const auto i = static_cast<std::size_t>(above - product_sizes.begin());
  // Below the smallest a product has so much less to reuse.
  if (i == 0) return rates.front() * std::max(smallest_side, 1.0) / product_sizes.front();
  const double share =
      std::log(smallest_side / product_sizes[i - 1]) / std::log(product_sizes[i] / product_sizes[i - 1]);
  return rates[i - 1] * std::pow(rates[i] / rates[i - 1], share);
}

SimOptions MachineProfile::simulation() const noexcept {
  SimOptions o;
  o.rate(SimLane::h2d) = {h2d_bytes_per_s, link_latency_s};
  o.rate(SimLane::d2h) = {d2h_bytes_per_s, link_latency_s};
  o.rate(SimLane::nvme_read) = {read_bytes_per_s, disk_latency_s};
  o.rate(SimLane::nvme_write) = {write_bytes_per_s, disk_latency_s};
  // Two that together reach `both` of what they reach alone share so that each is slowed by as much.
  const auto share_of = [](double one, double other, double both) {
    return both > 0 ? (one + other) / (2 * both) : 0;
  };
  o.share(SimLane::h2d, SimResource::link) = o.share(SimLane::d2h, SimResource::link) =
      share_of(h2d_bytes_per_s, d2h_bytes_per_s, link_bytes_per_s);
  o.share(SimLane::nvme_read, SimResource::disk) = o.share(SimLane::nvme_write, SimResource::disk) =
      share_of(read_bytes_per_s, write_bytes_per_s, disk_bytes_per_s);
  const auto of_memory = [&](double bytes_per_s) { return std::min(1.0, bytes_per_s / host_bytes_per_s); };
  o.share(SimLane::cpu, SimResource::memory) = of_memory(kAdamWBytes / update_s_per_param[0]);
  o.share(SimLane::h2d, SimResource::memory) = of_memory(h2d_bytes_per_s);
  o.share(SimLane::d2h, SimResource::memory) = of_memory(d2h_bytes_per_s);
  o.share(SimLane::cpu, SimResource::cores) = 1;
  for (const auto& [lane, rate] :
       {std::pair{SimLane::nvme_read, read_bytes_per_s}, std::pair{SimLane::nvme_write, write_bytes_per_s}}) {
    o.share(lane, SimResource::memory) = of_memory(rate);
    o.share(lane, SimResource::cores) = std::min(1.0, rate * disk_core_s_per_byte / cores);
  }
  if (computes_on_cores) {
    o.share(SimLane::compute, SimResource::cores) = 1;
    // A copy is a core's work, and moves each byte twice.
    for (const SimLane lane : {SimLane::h2d, SimLane::d2h}) {
      o.share(lane, SimResource::cores) = 1.0 / cores;
      o.share(lane, SimResource::memory) = std::min(1.0, 2 * o.share(lane, SimResource::memory));
    }
  }
  o.queue_s = 1e-6;
  o.wake_s = wake_s;
  return o;
}

Result<MachineProfile> machine_named(const std::string& name_or_path) {
  std::vector<std::string_view> names;
  for (const ShippedMachine& machine : shipped_machines()) {
    if (machine.name == name_or_path)
      return parse_machine_profile(std::string(machine.toml), str(machine.name, ".toml"));
    names.push_back(machine.name);
  }
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml") ||
      name_or_path.ends_with(".json"))
    return read_machine_profile(name_or_path);
  return Status::error(Code::not_found,
                       fmt::format("no machine '{}'; there are {}, and files (.toml, .json){}", name_or_path,
                                   fmt::join(names, ", "), did_you_mean(name_or_path, names)));
}

}  // namespace strata
