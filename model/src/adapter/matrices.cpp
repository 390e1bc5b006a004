#include "adapter/matrices.h"

#include <algorithm>

#include <strata/runtime/str.h>

namespace strata::detail {

namespace {

/// Whether a router is a linear layer of its own, beside the module of the experts (Gemma 4). The others are
/// parameters of such a module.
bool is_linear_router(const HfTensor& tensor) {
  return tensor.param.ends_with(".router.weight") && tensor.name.ends_with(".router.proj.weight");
}

}  // namespace

std::string module_of(const HfTensor& tensor) { return tensor.name.substr(0, tensor.name.rfind('.')); }

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
                      module = str("model.", param, is_linear_router(router) ? "." : ".mlp.");
    const auto experts = static_cast<std::int64_t>(router.shape[0]),
               hidden = static_cast<std::int64_t>(router.shape[1]);
    std::int64_t elems = 0;  // all matrices into the experts have them
    Layout rows = Layout::rows;
    for (const HfTensor& tensor : tensors)
      if (tensor.param == param + ".experts_in.weight") {
        elems += tensor.n_elems();
        if (tensor.layout == Layout::stack_in_turn) rows = Layout::stack_in_turn;
      }
    const std::int64_t both = elems / experts / hidden;  // gates and ups
    if (!is_linear_router(router))
      matrices.push_back({str(module, last_parts(router.name, 2)), router.param, Layout::rows, 0, experts,
                          hidden, LoraPlace::gate});
    matrices.push_back({module + "experts.gate_up_proj", param + ".experts_in.weight", rows, 0, both, hidden,
                        LoraPlace::experts});
    matrices.push_back({module + "experts.down_proj", param + ".experts_out.weight", Layout::rows, 0, hidden,
                        both / 2, LoraPlace::experts});
  }
  return matrices;
}

}  // namespace strata::detail
