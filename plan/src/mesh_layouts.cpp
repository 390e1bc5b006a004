#include <strata/plan/split/mesh_layouts.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>

#include <strata/model/decoder.h>
#include <strata/parallel/simulated_group.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>

namespace strata {
namespace {

constexpr double kStateBytes = 12, kSumBytes = 4;  // master and moments; a gradient's sum

/// Sizes of the model and of a micro-batch, in elements and flops.
struct Sizes {
  std::int64_t layers, heads, hidden, ffn, seq;
  double tokens, layer_params, head_params, layer_flops, attention_flops, head_flops, kv_width, kept;
  double element;  // bytes of a parameter or activation
};
Sizes sizes_of(const TrainConfig& c) {
  const DecoderConfig d = with_derived_sizes(decoder_config(c));
  const auto h = static_cast<double>(d.hidden), f = static_cast<double>(d.ffn),
             q = static_cast<double>(d.heads * d.head_dim), kv = static_cast<double>(d.kv_heads * d.head_dim);
  Sizes s{};
  s.layers = d.layers;
  s.heads = d.heads;
  s.hidden = d.hidden;
  s.ffn = d.ffn;
  s.seq = d.seq;
  s.element = static_cast<double>(size_of(compute_dtype(c)));
  s.tokens = static_cast<double>(c.train.micro_batch) * static_cast<double>(d.seq);
  s.layer_params = h * (q + 2 * kv) + q * h + (is_gated(d.mlp) ? 3 : 2) * h * f;
  s.head_params = static_cast<double>(d.vocab) * h;
  s.attention_flops = 2 * s.tokens * static_cast<double>(d.seq) * q;  // half of the scores are masked
  s.layer_flops = 2 * s.tokens * s.layer_params + s.attention_flops;
  s.head_flops = 2 * s.tokens * s.head_params;
  s.kv_width = 2 * kv;
  s.kept = s.element * s.tokens * (6 * h + 2 * kv + (is_gated(d.mlp) ? 3 : 2) * f);
  return s;
}

std::vector<int> divisors(int n) {
  std::vector<int> all;
  for (int i = 1; i <= n; ++i)
    if (n % i == 0) all.push_back(i);
  return all;
}

bool is_wanted(const std::optional<int>& wanted, int value) { return !wanted || *wanted == value; }

/// The layouts that divide the model and the step, whatever they take.
class Layouts {
 public:
  Layouts(const TrainConfig& c, const Sizes& sizes, const MachineProfile& machine)
      : c_(c), sizes_(sizes), node_ranks_(static_cast<int>(machine.node_ranks)) {}

  std::vector<MeshLayout> of(const MeshRequest& request) const {
    std::vector<MeshLayout> all;
    for (const int tp : divisors(request.ranks))
      for (const int cp : divisors(request.ranks / tp))
        for (const int pp : divisors(request.ranks / tp / cp))
          add({.dp = request.ranks / tp / cp / pp, .pp = pp, .tp = tp, .cp = cp}, request, all);
    return all;
  }

 private:
  bool divides(const MeshLayout& layout, const MeshRequest& request) const {
    const bool in_node = node_ranks_ == 0 || node_ranks_ % layout.tp == 0 || request.tp.has_value();
    return is_wanted(request.tp, layout.tp) && is_wanted(request.cp, layout.cp) &&
           is_wanted(request.pp, layout.pp) && in_node && sizes_.heads % layout.tp == 0 &&
           sizes_.ffn % layout.tp == 0 && (layout.cp == 1 || sizes_.seq % (2 * layout.cp) == 0) &&
           layout.pp <= sizes_.layers && c_.train.grad_accum % layout.dp == 0;
  }
  void add(MeshLayout layout, const MeshRequest& request, std::vector<MeshLayout>& all) const {
    if (!divides(layout, request)) return;
    const std::vector<int> stages = layout.dp == 1 ? std::vector<int>{0} : std::vector<int>{2, 3};
    for (const int zero : stages) {
      if (layout.dp > 1 && !is_wanted(request.zero, zero)) continue;
      layout.zero = zero;
      if (layout.pp == 1)
        all.push_back(layout);
      else
        add_schedules(layout, request, all);
    }
  }
  void add_schedules(MeshLayout layout, const MeshRequest& request, std::vector<MeshLayout>& all) const {
    const int micro_batches = c_.train.grad_accum / layout.dp;
    for (const char* schedule : {"1f1b", "zb-h1", "interleaved", "breadth-first"}) {
      if (request.schedule && *request.schedule != schedule) continue;
      const bool interleaves = std::string_view(schedule) == "interleaved",
                 several = interleaves || std::string_view(schedule) == "breadth-first";
      for (const int v : {1, 2, 3, 4, 6, 8}) {
        if ((v > 1) != several || !is_wanted(request.virtual_stages, v)) continue;
        if (several && sizes_.layers % (layout.pp * v) != 0) continue;
        if (interleaves && micro_batches % layout.pp != 0) continue;
        layout.schedule = schedule;
        layout.virtual_stages = v;
        all.push_back(layout);
      }
    }
  }

  const TrainConfig& c_;
  const Sizes& sizes_;
  const int node_ranks_;
};

class Estimator {
 public:
  Estimator(const TrainConfig& c, const Sizes& sizes, const MachineProfile& machine)
      : c_(c), s_(sizes), p_(machine) {
    for (std::size_t t = 0; t < kTiers; ++t) budget_[t] = static_cast<double>(machine.memory[t]);
    if (c.memory.device_bytes) budget_[0] = static_cast<double>(*c.memory.device_bytes);
    if (c.memory.pinned_bytes) budget_[1] = static_cast<double>(*c.memory.pinned_bytes);
    if (c.memory.nvme_bytes > 0) budget_[2] = static_cast<double>(c.memory.nvme_bytes);
  }

  /// Estimates the memory that the layout needs, and its times only if it fits.
  LayoutEstimate of(const MeshLayout& layout) const {
    LayoutEstimate e{.layout = layout};
    const int m = c_.train.grad_accum / layout.dp;
    const double ways = layout.tp * layout.cp, layers = layers_of(layout),
                 params = (layers * s_.layer_params + s_.head_params) / layout.tp;
    const double live =
        is_breadth_first(layout)
            ? m
            : std::min<double>(m, layout.pp) *
                  (layout.virtual_stages > 1 ? 1 + (layout.pp - 1.0) / (layout.pp * layout.virtual_stages)
                                             : 1);
    const double shards = layout.zero >= 2 ? layout.dp : 1, gathered = layout.zero == 3 ? shards : 1;
    const double kept = live * layers * kept_bytes(layout),
                 inputs = live * layers * s_.element * s_.tokens * static_cast<double>(s_.hidden) / ways +
                          kept_bytes(layout);
    e.work_bytes = 4 * s_.element * s_.layer_params / layout.tp;
    e.state_bytes = params * (s_.element / gathered + kStateBytes / shards + kSumBytes);
    // The program of a pipeline holds the gradient of its stage on the device, and copies hold its gathered
    // parameters.
    if (layout.pp > 1) {
      e.work_bytes += params * kSumBytes;
      e.state_bytes += params * (kSumBytes + (layout.dp > 1 ? s_.element : 0));
    }
    e.recomputes = c_.train.recompute == "full" ||
                   (c_.train.recompute == "auto" && kept + e.work_bytes + e.state_bytes > budget_[0]);
    e.activation_bytes = e.recomputes ? inputs : kept;
    if (!fits(e)) return e;
    add_times(layout, m, layers, params, e);
    e.step_s = e.compute_s + e.bubble_s + e.layers_s + e.copies_s + e.update_s + e.link_s;
    return e;
  }
  bool fits(const LayoutEstimate& e) const {
    return e.activation_bytes + e.work_bytes <= budget_[0] &&
           e.activation_bytes + e.state_bytes <= all_tiers();
  }
  /// Why the smallest of `estimates` does not fit.
  std::string refusal(const std::vector<LayoutEstimate>& estimates) const {
    const auto excess = [&](const LayoutEstimate& e) {
      return std::max((e.activation_bytes + e.work_bytes) / budget_[0],
                      (e.activation_bytes + e.state_bytes) / all_tiers());
    };
    const auto least = std::min_element(estimates.begin(), estimates.end(),
                                        [&](const auto& a, const auto& b) { return excess(a) < excess(b); });
    const auto bytes = [](double n) { return format_bytes(static_cast<std::uint64_t>(n)); };
    return str("the smallest, ", to_string(least->layout), ", needs ",
               bytes(least->activation_bytes + least->work_bytes), " on the device, which has ",
               bytes(budget_[0]), ", and ", bytes(least->activation_bytes + least->state_bytes),
               " in all, where the three tiers of a rank have ", bytes(all_tiers()));
  }

 private:
  double all_tiers() const { return budget_[0] + budget_[1] + budget_[2]; }
  // The bytes that a layer keeps of a micro-batch. Ranks along tp keep what is gathered for their GEMMs, in
  // attention and in the MLP; with rings, partial results and what travels take about as much again.
  double kept_bytes(const MeshLayout& layout) const {
    const double shared = s_.kept / (layout.tp * layout.cp),
                 gathered = layout.tp > 1
                                ? 2 * s_.element * s_.tokens * static_cast<double>(s_.hidden) / layout.cp
                                : 0;
    return (shared + gathered) * (layout.cp > 1 ? 2 : 1);
  }
  static bool is_breadth_first(const MeshLayout& layout) { return layout.schedule == "breadth-first"; }
  // The layers of the rank that has the most.
  double layers_of(const MeshLayout& layout) const {
    const int stages = layout.pp * layout.virtual_stages;
    return std::ceil(static_cast<double>(s_.layers) / stages) * layout.virtual_stages;
  }
  NetworkRate rate(int neighbours, int stride) const {
    const int node = static_cast<int>(p_.node_ranks);
    if (node > 0 && neighbours * stride <= node) return {p_.node_bytes_per_s, p_.node_latency_s};
    const auto [bytes_per_s, latency_s] = p_.network(false);
    return {bytes_per_s, latency_s};
  }
  static double time_of(const NetworkRate& rate, double bytes, double calls) {
    return rate.bytes_per_s > 0 ? bytes / rate.bytes_per_s + calls * rate.latency_s : 0;
  }

  void add_times(const MeshLayout& layout, int m, double layers, double params, LayoutEstimate& e) const {
    const double ways = layout.tp * layout.cp, passes = e.recomputes ? 4 : 3, rows = s_.tokens / layout.cp;
    const double side =
        std::min({rows, static_cast<double>(s_.hidden), static_cast<double>(s_.ffn) / layout.tp});
    const double flops_per_s = p_.gemm_flops_per_s(compute_dtype(c_), side);
    // Besides GEMMs, a layer reads and writes what it keeps a few times.
    const double layer_s =
        passes * s_.layer_flops / ways / flops_per_s + passes * s_.kept / ways / p_.device_bytes_per_s;
    const double head_s = 3 * s_.head_flops / ways / flops_per_s;
    e.compute_s = m * (layers * layer_s + (layout.pp == 1 ? head_s : 0));
    const double idle = (layout.pp - 1.0) * e.compute_s / (m * layout.virtual_stages);
    e.bubble_s = layout.schedule == "zb-h1" ? idle / 3 : idle;
    if (layout.pp > 1) e.bubble_s += m * head_s;  // the last stage has the head, too

    const double all_gathers = (e.recomputes ? 12.0 : 8.0) * (layout.tp - 1) / layout.tp;
    const double hidden_bytes = rows * static_cast<double>(s_.hidden) * s_.element;
    const double by_heads = time_of(rate(layout.tp, 1), all_gathers * hidden_bytes, layout.tp > 1 ? 8 : 0);
    const double hops = 3 * (layout.cp - 1) * rows * s_.kv_width * s_.element / layout.tp;
    const double ring = time_of(rate(layout.cp, layout.tp), hops, 3 * (layout.cp - 1.0)),
                 attention = passes * s_.attention_flops / ways / p_.attention_flops_per_s;
    e.layers_s = m * layers * (by_heads + std::max(0.0, ring - attention));
    if (layout.pp > 1)
      e.layers_s +=
          2 * (layout.pp - 1) * time_of(rate(layout.pp, layout.tp * layout.cp), hidden_bytes / layout.tp, 1);
    add_copies(layout, m, params, e);

    const double own = params / (layout.zero >= 2 ? layout.dp : 1);
    const double room = budget_[0] - e.activation_bytes;
    const bool on_device = e.state_bytes <= room;
    e.update_s = on_device ? own * 2 * kStateBytes / p_.device_bytes_per_s : own * p_.update_s_per_param[0];
    const double streamed = on_device ? 0 : std::max(0.0, params * s_.element - room);
    // How often the streamed parameters are read.
    const double reads = 2 * (is_breadth_first(layout) ? 1 : m);
    const double moved = streamed * reads + (on_device ? 0 : own * (kSumBytes + s_.element));
    e.link_s = std::max(0.0, moved / p_.h2d_bytes_per_s - e.compute_s);
  }

  void add_copies(const MeshLayout& layout, int m, double params, LayoutEstimate& e) const {
    if (layout.dp == 1) return;
    const NetworkRate among = rate(layout.dp, layout.pp * layout.tp * layout.cp);
    const double others = (layout.dp - 1.0) / layout.dp;
    const bool each = c_.parallel.reduce != "once", in_program = each && layout.pp > 1;
    const double sums = each ? m : 1, width = in_program ? 2 * kSumBytes : each ? s_.element : kSumBytes;
    const double gradients = time_of(among, sums * others * params * width, sums);
    const double backward = e.compute_s * 2 / 3;
    e.copies_s = in_program ? gradients : std::max(0.0, gradients - (each ? backward : backward / m));
    const double gathers = layout.zero == 3 ? 2 * m : 1;
    e.copies_s +=
        std::max(0.0, time_of(among, gathers * others * params * s_.element, gathers) - e.compute_s / 3);
  }

  const TrainConfig& c_;
  const Sizes& s_;
  const MachineProfile& p_;
  std::array<double, kTiers> budget_{};
};

// The nearest number of ranks that has a layout; the smaller one of two.
int nearest(const Layouts& layouts, MeshRequest request) {
  const int asked = request.ranks;
  for (int away = 1;; ++away)
    for (const int ranks : {asked - away, asked + away}) {
      request.ranks = ranks;
      if (ranks > 0 && !layouts.of(request).empty()) return ranks;
      if (ranks > 0 && away > 65536) return 1;
    }
}

}  // namespace

std::string to_string(const MeshLayout& layout) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : " x ") + part; };
  if (layout.dp > 1) add(str("dp ", layout.dp, " (ZeRO-", layout.zero, ")"));
  if (layout.pp > 1)
    add(str("pp ", layout.pp, " (", layout.schedule,
            layout.virtual_stages > 1 ? str(", ", layout.virtual_stages, " stages each") : "", ")"));
  if (layout.tp > 1) add(str("tp ", layout.tp));
  if (layout.cp > 1) add(str("cp ", layout.cp));
  return text.empty() ? "1 rank" : text;
}

std::vector<std::string> assignments(const MeshLayout& layout) {
  std::vector<std::string> all = {str("parallel.ranks=", layout.ranks()), str("parallel.pp=", layout.pp),
                                  str("parallel.tp=", layout.tp), str("parallel.cp=", layout.cp),
                                  str("parallel.zero=", layout.zero)};
  if (layout.pp > 1) {
    all.push_back("parallel.schedule=" + layout.schedule);
    all.push_back(str("parallel.virtual_stages=", layout.virtual_stages));
  }
  const std::string split = str(layout.tp > 1 ? "megatron+sp,vocab" : "",
                                layout.tp > 1 && layout.cp > 1 ? "," : "", layout.cp > 1 ? "ring" : "");
  if (!split.empty()) all.push_back("parallel.shard=" + split);
  return all;
}

Result<std::vector<LayoutEstimate>> mesh_layouts(const TrainConfig& config, const MachineProfile& machine,
                                                 const MeshRequest& request) {
  const Sizes sizes = sizes_of(config);
  const Layouts layouts(config, sizes, machine);
  const std::vector<MeshLayout> possible = layouts.of(request);
  if (possible.empty())
    return Status::error(
        Code::invalid,
        str("no layout divides this run among ", request.ranks, " ranks: copies of the model must divide ",
            "train.grad_accum = ", config.train.grad_accum, ", stages the ", sizes.layers,
            " layers, ranks along tp the ", sizes.heads, " heads, and twice those along cp the ", sizes.seq,
            " tokens of a sequence; the nearest number of ranks that has one is ",
            nearest(layouts, request)));
  const Estimator estimator(config, sizes, machine);
  std::vector<LayoutEstimate> all;
  for (const MeshLayout& layout : possible) all.push_back(estimator.of(layout));
  std::vector<LayoutEstimate> fitting;
  std::copy_if(all.begin(), all.end(), std::back_inserter(fitting),
               [&](const LayoutEstimate& e) { return estimator.fits(e); });
  if (fitting.empty())
    return Status::error(Code::does_not_fit,
                         str("none of the ", possible.size(), " layouts of ", plural(request.ranks, "rank"),
                             " fits: ", estimator.refusal(all)));
  std::stable_sort(fitting.begin(), fitting.end(),
                   [](const LayoutEstimate& a, const LayoutEstimate& b) { return a.step_s < b.step_s; });
  return fitting;
}

std::vector<LayoutEstimate> first_of_each_mesh(const std::vector<LayoutEstimate>& estimates) {
  std::vector<LayoutEstimate> first;
  std::set<std::array<int, 4>> known;
  for (const LayoutEstimate& e : estimates)
    if (known.insert({e.layout.dp, e.layout.pp, e.layout.tp, e.layout.cp}).second) first.push_back(e);
  return first;
}

}  // namespace strata
