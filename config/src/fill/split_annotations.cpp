#include <strata/config/split_annotations.h>

#include <algorithm>
#include <array>

#include <strata/config/train_config.h>
#include <strata/runtime/error_list.h>
#include <strata/runtime/str.h>
#include <strata/session/ranks/model_parallel.h>

namespace strata {
namespace {

template <std::size_t A, std::size_t B>
constexpr std::array<std::string_view, A + B> with(const std::array<std::string_view, A>& first,
                                                   const std::array<std::string_view, B>& then) {
  std::array<std::string_view, A + B> all;
  std::copy(then.begin(), then.end(), std::copy(first.begin(), first.end(), all.begin()));
  return all;
}

// The other matrices of a block, their biases and the activations between them follow from these.
constexpr std::array<std::string_view, 2> kMegatron = {"layers.*.qkv.weight 0:tp",
                                                       "layers.*.mlp_in.weight 0:tp"};
constexpr std::array<std::string_view, 4> kMegatronSp = {
    "layers.*.qkv.weight 0:tp", "layers.*.mlp_in.weight 0:tp", "embed/embedding 0:tp", "layers.*/add 0:tp"};
constexpr std::array<std::string_view, 3> kUlysses = {"embed/embedding 0:cp", "layers.*/attention 1:cp",
                                                      "layers.*/linear 0:cp"};
constexpr std::array<std::string_view, 2> kAllGather = {"embed/embedding 0:cp", "layers.*/attention 0:cp"};
constexpr std::array<std::string_view, 1> kVocab = {"tokens.weight 0:tp"};
// Columns of activations along tp, which are gathered for each matrix, and rows along tp2, for which matrices
// are gathered.
constexpr std::array<std::string_view, 13> k2d = {"layers.*.qkv.weight 0:tp",
                                                  "layers.*.attn_out.weight 0:tp",
                                                  "layers.*.mlp_in.weight 0:tp",
                                                  "layers.*.mlp_out.weight 0:tp",
                                                  "embed/embedding 1:tp",
                                                  "layers.*/add 1:tp",
                                                  "layers.*.qkv.weight gather-0:tp2",
                                                  "layers.*.attn_out.weight gather-0:tp2",
                                                  "layers.*.mlp_in.weight gather-0:tp2",
                                                  "layers.*.mlp_out.weight gather-0:tp2",
                                                  "embed/embedding 0:tp2",
                                                  "layers.*/linear 0:tp2",
                                                  "head/*norm 0:tp"};
// Copies of such a layout have other rows.
constexpr std::array<std::string_view, 15> k25d =
    with(k2d, std::array<std::string_view, 2>{"embed/embedding 0:tp3", "layers.*/linear 0:tp3"});
// One linear layer is split by rows along tp and by columns along tp2, and the next one the other way round;
// rows of activations gather matrices along tp3.
constexpr std::array<std::string_view, 18> k3d = {"layers.*.qkv.weight 0:tp",
                                                  "layers.*.mlp_in.weight 0:tp",
                                                  "embed/embedding 0:tp",
                                                  "layers.*/add 0:tp",
                                                  "layers.*.qkv.weight 1:tp2",
                                                  "layers.*.attn_out.weight 0:tp2",
                                                  "layers.*.mlp_in.weight 1:tp2",
                                                  "layers.*.mlp_out.weight 0:tp2",
                                                  "embed/embedding 1:tp2",
                                                  "layers.*/add 1:tp2",
                                                  "layers.*.qkv/linear 0:tp2",
                                                  "layers.*.mlp_in/linear 0:tp2",
                                                  "layers.*.qkv.weight gather-0:tp3",
                                                  "layers.*.attn_out.weight gather-0:tp3",
                                                  "layers.*.mlp_in.weight gather-0:tp3",
                                                  "layers.*.mlp_out.weight gather-0:tp3",
                                                  "embed/embedding 0:tp3",
                                                  "layers.*/linear 0:tp3"};
constexpr std::string_view kUntiedHead = "head.weight 0:tp";
constexpr std::array<SplitPreset, 10> kSplitPresets = {{
    {.name = "megatron", .technique = "tensor parallelism (Shoeybi et al. 2019)", .annotations = kMegatron},
    {.name = "megatron+sp",
     .technique = "and sequence parallelism (Korthikanti et al. 2022)",
     .annotations = kMegatronSp},
    {.name = "vocab",
     .technique = "embedding and cross entropy by parts of the vocabulary (Shoeybi et al. 2019)",
     .annotations = kVocab},
    {.name = "ulysses",
     .technique = "sequences in parts, attention by heads (Jacobs et al. 2023)",
     .annotations = kUlysses},
    {.name = "allgather",
     .technique = "sequences in parts, attention on all keys (Dubey et al. 2024)",
     .annotations = kAllGather,
     .zigzag = true},
    {.name = "ring",
     .technique = "the same, with keys that go round the ranks (Liu et al. 2023)",
     .annotations = kAllGather,
     .rings_attention = true,
     .zigzag = true},
    {.name = "2d",
     .technique = "matrices and activations in blocks, tp x tp2 (Xu & You 2021, Optimus)",
     .annotations = k2d},
    {.name = "2.5d",
     .technique = "copies of such a layout share the sequences, tp x tp2 x tp3 (Wang et al. 2021, Tesseract)",
     .annotations = k25d},
    {.name = "3d",
     .technique = "matrices and activations cut along tp, tp2 and tp3 (Bian et al. 2021)",
     .annotations = k3d},
    {.name = "sliced",
     .technique = "rows are gathered in slices, while those that are there are multiplied (FastSeq)",
     .annotations = {},
     .slices_gathers = true},
}};

const SplitPreset* preset_named(std::string_view name) {
  const auto found = std::find_if(kSplitPresets.begin(), kSplitPresets.end(),
                                  [&](const SplitPreset& preset) { return preset.name == name; });
  return found == kSplitPresets.end() ? nullptr : &*found;
}

std::string preset_names() {
  std::string names;
  for (const SplitPreset& preset : kSplitPresets) names += str(names.empty() ? "" : ", ", preset.name);
  return names;
}

// The texts of annotations that an item of parallel.shard stands for.
std::vector<std::string_view> texts_of(std::string_view item, bool tied_head, SplitAnnotations& into,
                                       ErrorList& bad) {
  if (item.find(' ') != std::string_view::npos) return {item};
  if (const SplitPreset* const preset = preset_named(item)) {
    into.rings_attention = into.rings_attention || preset->rings_attention;
    into.zigzag = into.zigzag || preset->zigzag;
    into.slices_gathers = into.slices_gathers || preset->slices_gathers;
    std::vector<std::string_view> texts(preset->annotations.begin(), preset->annotations.end());
    if (preset->name == "vocab" && !tied_head) texts.push_back(kUntiedHead);
    return texts;
  }
  bad.add(Status::error(Code::invalid, str("'", item, "' is no preset (", preset_names(),
                                           ") and has not the form 'PATTERN DIM:AXIS'")));
  return {};
}

// Models differ in what they have, such as MLPs that are no mixtures, so a preset's annotations may match
// nothing.
void add(std::string_view text, bool is_written, const ModelParallel& model, SplitAnnotations& annotations,
         ErrorList& bad) {
  std::string axis;
  auto annotation = parse_annotation(text, axis);
  bad.add(annotation.status());
  if (!annotation.has_value()) return;
  const auto along = std::find_if(kSplitAxes.begin(), kSplitAxes.end(),
                                  [&](MeshAxis each) { return to_string(each) == axis; });
  if (along == kSplitAxes.end()) {
    bad.add(Status::error(Code::invalid,
                          str("'", text, "': there is no axis ", axis, "; use tp, tp2, tp3 or cp")));
    return;
  }
  if (model.size(*along) == 1)
    bad.add(Status::error(Code::invalid,
                          str("'", text, "' splits along ", axis, ", but parallel.", axis, " is 1")));
  annotation->optional = !is_written;
  annotations.of_axis[*along].push_back(*std::move(annotation));
}

}  // namespace

std::span<const SplitPreset> split_presets() noexcept { return kSplitPresets; }

std::span<const ShardAnnotation> SplitAnnotations::along(MeshAxis axis) const {
  const auto found = of_axis.find(axis);
  return found == of_axis.end() ? std::span<const ShardAnnotation>() : std::span(found->second);
}

Result<SplitAnnotations> split_annotations(const TrainConfig& config, bool tied_head) {
  const ModelParallel model = model_parallel(config);
  const std::vector<std::string>& asked = config.parallel.shard;
  SplitAnnotations annotations;
  ErrorList bad;
  std::vector<std::string> items = asked;
  if (asked.empty() && model.tp > 1) items.emplace_back("megatron");
  if (asked.empty() && model.cp > 1) items.emplace_back("ulysses");
  for (const std::string& item : items)
    for (const std::string_view text : texts_of(item, tied_head, annotations, bad))
      add(text, text == item, model, annotations, bad);
  for (const MeshAxis axis : kSplitAxes)
    if (model.size(axis) > 1 && annotations.along(axis).empty())
      bad.add(Status::error(Code::invalid, str("nothing is split along ", to_string(axis), ", but parallel.",
                                               to_string(axis), " is ", model.size(axis))));
  STRATA_TRY(bad.status().annotate("parallel.shard"));
  return annotations;
}

}  // namespace strata
