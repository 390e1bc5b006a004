#include "adapter/matrices.h"

#include <algorithm>
#include <utility>

#include <strata/runtime/str.h>

namespace strata::detail {

namespace {

/// Whether a router is a linear layer of its own, beside the module of the experts (Gemma 4). The others are
/// parameters of such a module.
bool is_linear_router(const HfTensor& tensor) {
  return tensor.param.ends_with(".router.weight") && tensor.name.ends_with(".router.proj.weight");
}

/// The module of a mixture in a layer, which transformers calls mlp also where files have another name.
std::string_view module_of_mixture(const HfTensor& router) {
  if (is_linear_router(router)) return ".";
  for (const auto& [end, module] : {std::pair(".feed_forward.gate.weight", ".feed_forward."),
                                    std::pair(".block_sparse_moe.router.layer.weight", ".block_sparse_moe."),
                                    std::pair(".mixer.gate.weight", ".mixer.")})
    if (router.name.ends_with(end)) return module;
  return ".mlp.";
}

/// The weight of a router in that module.
std::string_view router_in_mixture(const HfTensor& router) {
  return router.name.ends_with(".router.layer.weight") ? "router.weight" : last_parts(router.name, 2);
}

/// The extents of the matrices of experts into and out of their inner rows.
struct ExpertExtents {
  std::int64_t width = 0, in = 0, inner = 0;
};
ExpertExtents extents_of(const std::vector<HfTensor>& tensors, const std::string& param, std::int64_t experts,
                         HfTensor::Layout& rows) {
  using Layout = HfTensor::Layout;
  ExpertExtents extents;
  std::int64_t in = 0, out = 0;  // elements of all experts
  for (const HfTensor& tensor : tensors) {
    if (tensor.param == param + ".experts_out.weight") out += tensor.n_elems();
    if (tensor.param != param + ".experts_in.weight") continue;
    in += tensor.n_elems();
    if (tensor.layout == Layout::stack_in_turn) rows = Layout::stack_in_turn;
    extents.width =
        static_cast<std::int64_t>(rows == Layout::stack_in_turn ? tensor.shape[1] : tensor.shape.back());
  }
  extents.in = in / experts / extents.width;
  extents.inner = out / experts / extents.width;
  return extents;
}

}  // namespace

// Nemotron-H's files have another beginning of names than its modules in transformers.
std::string module_of(const HfTensor& tensor) {
  constexpr std::string_view kInFiles = "backbone.";
  const std::string name = tensor.name.substr(0, tensor.name.rfind('.'));
  return name.starts_with(kInFiles) ? str("model.", std::string_view(name).substr(kInFiles.size())) : name;
}

std::string_view last_parts(std::string_view name, int n) {
  std::size_t dot = name.size();
  for (; n > 0 && dot != std::string_view::npos && dot > 0; --n) dot = name.rfind('.', dot - 1);
  return n > 0 || dot == std::string_view::npos ? name : name.substr(dot + 1);
}

std::vector<Matrix> matrices_of(const std::vector<HfTensor>& tensors) {
  std::vector<Matrix> matrices;
  const HfTensor* tokens = nullptr;
  bool has_head = false;
  for (const HfTensor& tensor : tensors) {
    const bool of_tokens = tensor.param == "tokens.weight", of_head = tensor.param == "head.weight";
    if (of_tokens) tokens = &tensor;
    has_head = has_head || of_head || tensor.param == "score.weight";
    const bool of_gate = tensor.param.ends_with(".shared_gate.weight") || is_linear_router(tensor);
    if (tensor.shape.size() != 2 || !(tensor.is_linear || of_gate) ||
        !(tensor.param.starts_with("layers.") || of_tokens || of_head))
      continue;
    const bool transposed = tensor.layout == HfTensor::Layout::transposed;
    matrices.push_back({module_of(tensor), tensor.param, tensor.layout, tensor.first_row,
                        static_cast<std::int64_t>(tensor.shape[transposed ? 1 : 0]),
                        static_cast<std::int64_t>(tensor.shape[transposed ? 0 : 1]),
                        of_tokens ? LoraPlace::embedding
                        : of_head ? LoraPlace::head
                        : of_gate ? LoraPlace::gate
                                  : LoraPlace::linear});
  }
  if (has_head || tokens == nullptr) return matrices;
  Matrix head = matrices.front();  // tied
  for (const Matrix& matrix : matrices)
    if (matrix.place == LoraPlace::embedding) head = matrix;
  head.module = module_of({std::string(hf_head_name()), {}, {}, 0, {}});
  head.place = LoraPlace::head;
  matrices.push_back(head);
  return matrices;
}

// The file may have each expert's matrices by themselves, and name the router's module in another way.
std::vector<Matrix> matrices_of_mixtures(const std::vector<HfTensor>& tensors) {
  using Layout = HfTensor::Layout;
  std::vector<Matrix> matrices;
  for (const HfTensor& router : tensors) {
    if (!router.param.ends_with(".router.weight")) continue;
    const std::string param = router.param.substr(0, router.param.rfind(".router")),
                      module = str("model.", param, module_of_mixture(router));
    const auto experts = static_cast<std::int64_t>(router.shape[0]),
               hidden = static_cast<std::int64_t>(router.shape[1]);
    Layout rows = Layout::rows;
    const ExpertExtents of = extents_of(tensors, param, experts, rows);
    if (!is_linear_router(router))
      matrices.push_back({str(module, router_in_mixture(router)), router.param, Layout::rows, 0, experts,
                          hidden, LoraPlace::gate});
    matrices.push_back({module + (of.in == of.inner ? "experts.up_proj" : "experts.gate_up_proj"),
                        param + ".experts_in.weight", rows, 0, of.in, of.width, LoraPlace::experts});
    matrices.push_back({module + "experts.down_proj", param + ".experts_out.weight", Layout::rows, 0,
                        of.width, of.inner, LoraPlace::experts});
  }
  return matrices;
}

}  // namespace strata::detail
